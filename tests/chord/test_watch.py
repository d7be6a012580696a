"""A watch delivers in order to one consumer, never holds up its producer, and says how it ended."""

import asyncio
from contextvars import ContextVar

import pytest
from perdure.chord import Watch, WatchEnd, WatchTaken
from perdure.chord.watch import MAX_PENDING, MAX_PENDING_BYTES


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 10))


def op(number):
    return [["s", ["n"], number]]


def push(watch, *numbers):
    for number in numbers:
        watch.push({"n": number}, op(number))


async def settle():
    """Let everything run that can run now."""
    for _ in range(10):
        await asyncio.sleep(0)


class Consumer:
    """A listener that notes its frames, and holds each one until released when asked to."""

    def __init__(self, *, slow=False):
        self.frames = []
        self.gate = asyncio.Event()
        self.slow = slow

    async def __call__(self, value, ops):
        self.frames.append((value["n"] if value else value, ops))
        if self.slow:
            await self.gate.wait()

    def numbers(self):
        return [number for number, _ in self.frames]


class Registration:
    """Counts how often a watch let go of its producer."""

    def __init__(self):
        self.released = 0

    def __call__(self):
        self.released += 1


# Delivery


def test_iteration_yields_every_frame_in_order_and_value_follows():
    async def scenario():
        watch, seen = Watch({"n": 0}), []
        assert watch.value == {"n": 0}
        push(watch, 1, 2)
        assert watch.value == {"n": 0}
        async for value, ops in watch:
            assert watch.value is value
            seen.append((value["n"], ops))
            if len(seen) == 2:
                asyncio.get_running_loop().call_soon(push, watch, 3)
            if len(seen) == 3:
                watch.stop()
        assert seen == [(1, op(1)), (2, op(2)), (3, op(3))]

    run(scenario)


def test_a_listener_is_awaited_for_one_frame_after_the_other():
    async def scenario():
        watch, consumer = Watch({"n": 0}), Consumer(slow=True)
        watch.start(consumer)
        push(watch, 1, 2, 3)
        assert consumer.frames == []
        await settle()
        assert consumer.numbers() == [1]
        assert watch.value == {"n": 1}
        consumer.gate.set()
        await settle()
        assert consumer.frames == [(1, op(1)), (2, op(2)), (3, op(3))]

    run(scenario)


def test_frames_pushed_before_the_start_are_delivered_after_it():
    async def scenario():
        watch, consumer = Watch({"n": 0}), Consumer()
        push(watch, 1, 2)
        watch.start(consumer)
        assert consumer.frames == []
        await settle()
        assert consumer.numbers() == [1, 2]

    run(scenario)


def test_the_listener_runs_in_the_context_of_start_not_of_push():
    where = ContextVar("where", default="nowhere")

    async def scenario():
        seen = []

        async def listener(_value, _ops):
            seen.append(where.get())

        watch = Watch({"n": 0})
        where.set("start")
        watch.start(listener)
        where.set("push")
        push(watch, 1)
        await settle()
        assert seen == ["start"]

    run(scenario)


def test_an_idle_watch_holds_no_task():
    async def scenario():
        watch, consumer = Watch({"n": 0}), Consumer()
        watch.start(consumer)
        push(watch, 1)
        await settle()
        assert len(asyncio.all_tasks()) == 2  # this one, and the one that waits for it
        push(watch, 2)
        await settle()
        assert consumer.numbers() == [1, 2]

    run(scenario)


# Bounds


def test_the_hundred_and_first_frame_replaces_all_undelivered_ones():
    async def scenario():
        watch, consumer = Watch({"n": 0}), Consumer(slow=True)
        watch.start(consumer)
        push(watch, 1)
        await settle()
        push(watch, *range(2, 2 + MAX_PENDING))
        assert len(watch._frames) == MAX_PENDING == 100
        push(watch, 102, 103)
        consumer.gate.set()
        await settle()
        assert consumer.frames == [(1, op(1)), (102, [["r", {"n": 102}]]), (103, op(103))]

    run(scenario)


def test_another_overflow_replaces_the_replacement():
    async def scenario():
        watch, consumer = Watch({"n": 0}), Consumer()
        push(watch, *range(1, 252))
        watch.start(consumer)
        await settle()
        assert consumer.frames[0] == (201, [["r", {"n": 201}]])
        assert consumer.numbers() == list(range(201, 252))

    run(scenario)


def test_a_stream_of_another_kind_says_itself_what_stands_for_the_lost_frames():
    async def scenario():
        watch = Watch({"n": 0}, collapse=lambda value, ops: [{"type": "snapshot", "value": value}, *ops])
        push(watch, *range(1, 102))
        value, events = await anext(watch)
        assert (value, events) == ({"n": 101}, [{"type": "snapshot", "value": {"n": 101}}, *op(101)])

    run(scenario)


# Ends


def test_stop_ends_everything_at_once_and_for_good():
    async def scenario():
        registration, consumer = Registration(), Consumer(slow=True)
        watch = Watch({"n": 0}, registration)
        watch.start(consumer)
        push(watch, 1, 2)
        await settle()
        assert watch.ended is None

        assert watch.stop() == watch.stop() == WatchEnd("stopped")
        watch.end("closed")
        push(watch, 3)
        consumer.gate.set()
        await settle()
        assert await watch.closed == watch.ended == WatchEnd("stopped")
        assert (consumer.numbers(), registration.released) == ([1], 1)

    run(scenario)


@pytest.mark.parametrize("reason", ["closed", "cancelled"])
def test_an_end_by_the_producer_drops_what_was_not_delivered(reason):
    async def scenario():
        registration = Registration()
        watch = Watch({"n": 0}, registration)
        push(watch, 1)
        watch.end(reason)
        assert [frame async for frame in watch] == []
        assert await watch.closed == WatchEnd(reason)
        assert registration.released == 1

    run(scenario)


def test_an_end_with_an_error_carries_it():
    async def scenario():
        watch, error = Watch({"n": 0}), OSError("gone")
        watch.end("closed", error)
        assert await watch.closed == WatchEnd("closed", error)

    run(scenario)


def test_retirement_delivers_what_was_before_it_and_then_ends_the_iteration():
    async def scenario():
        registration = Registration()
        watch = Watch({"n": 0}, registration)
        push(watch, 1)
        watch.push(None, [["r", None]])
        watch.end("retired")
        push(watch, 2)
        assert (watch.ended, registration.released) == (None, 1)
        assert [frame async for frame in watch] == [({"n": 1}, op(1)), (None, [["r", None]])]
        assert await watch.closed == WatchEnd("retired")
        assert (watch.value, registration.released) == (None, 1)

    run(scenario)


def test_retirement_waits_for_the_listener_to_have_had_the_final_frame():
    async def scenario():
        watch, consumer = Watch({"n": 0}), Consumer(slow=True)
        watch.start(consumer)
        watch.push(None, [["r", None]])
        watch.end("retired")
        await settle()
        assert (consumer.numbers(), watch.ended) == ([None], None)
        consumer.gate.set()
        await settle()
        assert watch.ended == WatchEnd("retired")

    run(scenario)


def test_retirement_of_an_idle_watch_ends_it_at_once():
    async def scenario():
        watch = Watch({"n": 0})
        watch.start(Consumer())
        watch.end("retired")
        assert watch.ended == WatchEnd("retired")

    run(scenario)


def test_closing_comes_before_a_retirement_that_still_waits():
    async def scenario():
        watch = Watch({"n": 0})
        push(watch, 1)
        watch.end("retired")
        watch.end("closed")
        assert [frame async for frame in watch] == []
        assert watch.ended == WatchEnd("closed")

    run(scenario)


def test_a_consumer_that_waits_is_woken_by_the_end():
    async def scenario():
        watch = Watch({"n": 0})
        consumer = asyncio.create_task(anext(watch, "over"))
        await settle()
        watch.end("closed")
        assert await consumer == "over"

    run(scenario)


def test_an_error_of_the_listener_ends_that_watch_and_is_reported():
    async def scenario():
        reported, registration = [], Registration()
        watch = Watch({"n": 0}, registration, report=reported.append)

        async def listener(_value, _ops):
            raise OSError("disk")

        watch.start(listener)
        push(watch, 1, 2)
        end = await watch.closed
        assert (end.reason, str(end.error)) == ("listener_error", "disk")
        await settle()
        assert (reported, registration.released) == ([end.error], 1)

    run(scenario)


def test_an_error_after_the_stop_is_reported_and_changes_nothing():
    async def scenario():
        reported, gate = [], asyncio.Event()
        watch = Watch({"n": 0}, report=reported.append)

        async def listener(_value, _ops):
            await gate.wait()
            raise OSError("late")

        watch.start(listener)
        push(watch, 1)
        await settle()
        watch.stop()
        gate.set()
        await settle()
        assert watch.ended == WatchEnd("stopped")
        assert [str(error) for error in reported] == ["late"]

    run(scenario)


def test_cancelling_the_delivery_ends_the_watch_as_cancelled():
    async def scenario():
        watch = Watch({"n": 0})
        watch.start(Consumer(slow=True))
        push(watch, 1)
        await settle()
        watch._delivery.cancel()
        assert await watch.closed == WatchEnd("cancelled")

    run(scenario)


def test_cancelling_one_who_waits_for_the_end_leaves_it_to_the_others():
    async def scenario():
        watch = Watch({"n": 0})
        impatient = asyncio.ensure_future(watch.closed)
        patient = asyncio.ensure_future(watch.closed)
        await settle()
        impatient.cancel()
        await settle()
        watch.stop()
        assert await patient == WatchEnd("stopped")

    run(scenario)


def test_a_consumer_that_is_cancelled_while_it_waits_may_come_back():
    async def scenario():
        watch = Watch({"n": 0})
        waiting = asyncio.create_task(anext(watch))
        await settle()
        waiting.cancel()
        await settle()
        push(watch, 1)
        assert await anext(watch) == ({"n": 1}, op(1))

    run(scenario)


def test_the_block_of_a_watch_stops_it():
    async def scenario():
        registration = Registration()
        async with Watch({"n": 0}, registration) as watch:
            push(watch, 1)
            assert await anext(watch) == ({"n": 1}, op(1))
        assert (watch.ended, registration.released) == (WatchEnd("stopped"), 1)

    run(scenario)


def test_there_is_one_consumer():
    async def scenario():
        listened, iterated = Watch({"n": 0}), Watch({"n": 0})
        listened.start(Consumer())
        waiting = asyncio.create_task(anext(iterated))
        await settle()
        for second in (lambda: listened.start(Consumer()), lambda: iterated.start(Consumer())):
            with pytest.raises(WatchTaken):
                second()
        for watch in (listened, iterated):
            with pytest.raises(WatchTaken):
                await anext(watch)
        waiting.cancel()

    run(scenario)


def test_a_listener_started_after_the_end_is_never_called():
    async def scenario():
        watch, consumer = Watch({"n": 0}), Consumer()
        push(watch, 1)
        watch.stop()
        watch.start(consumer)
        await settle()
        assert consumer.frames == []

    run(scenario)


# --- size


def test_more_bytes_than_may_wait_are_replaced_by_the_newest_value():
    """B161: a few large frames count as much as many small ones."""

    async def scenario():
        watch = Watch({"n": 0})
        half = MAX_PENDING_BYTES // 2
        for number in (1, 2):
            watch.push({"n": number}, op(number), half)
        assert len(watch._frames) == 2
        watch.push({"n": 3}, op(3), 1)
        watch.push({"n": 4}, op(4), half)
        assert await anext(watch) == ({"n": 3}, [["r", {"n": 3}]])
        assert await anext(watch) == ({"n": 4}, op(4))
        for number in range(5, 10):  # what was delivered no longer counts
            watch.push({"n": number}, op(number), half)
            assert await anext(watch) == ({"n": number}, op(number))

    run(scenario)


def test_a_frame_that_is_too_large_by_itself_is_a_replacement():
    async def scenario():
        watch = Watch({"n": 0})
        watch.push({"n": 1}, op(1), MAX_PENDING_BYTES + 1)
        assert await anext(watch) == ({"n": 1}, [["r", {"n": 1}]])

    run(scenario)
