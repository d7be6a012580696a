"""The future of an ask: answered once, awaited on any loop, got by any thread, and never blocking a loop."""

import asyncio
import gc
import threading

import pykka
import pytest
from perdure.actors.runtime import ActorFuture, AskTimeout, WouldBlock, adopt
from perdure.chord.errors import PerdureError


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def in_thread(function, *args):
    """Run in a thread that has no loop; the result or the exception comes back."""
    future = ActorFuture()

    def run():
        try:
            future.settle(function(*args))
        except BaseException as exc:
            future.fail(exc)

    threading.Thread(target=run).start()
    return future


async def test_many_tasks_may_await_one_future_more_than_once():
    future = ActorFuture()

    async def wait():
        return await future, await future

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await turns()
    future.set("x")
    assert [await task for task in tasks] == [("x", "x")] * 3


async def test_an_exception_is_raised_from_every_await_with_the_same_traceback_length():
    future = ActorFuture()
    future.set_exception(ValueError("bad"))

    def depth(error):
        count, frame = 0, error.__traceback__
        while frame is not None:
            count, frame = count + 1, frame.tb_next
        return count

    depths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="bad") as failure:
            await future
        depths.append(depth(failure.value))
    assert len(set(depths)) == 1


def test_a_second_answer_is_refused_and_the_first_stays():
    future = ActorFuture()
    future.set(1)
    with pytest.raises(asyncio.InvalidStateError):
        future.set(2)
    with pytest.raises(asyncio.InvalidStateError):
        future.set_exception(ValueError())
    assert future.settle(3) is False
    assert future.fail(ValueError()) is False
    assert future.get() == 1
    assert repr(future) == "<ActorFuture done>"


@pytest.mark.parametrize("form", ["instance", "tuple", "type", "current"])
def test_an_exception_may_be_given_in_each_of_pykkas_forms(form):
    future = ActorFuture()
    error = ValueError("bad")
    try:
        raise error
    except ValueError:
        if form == "instance":
            future.set_exception(error)
        elif form == "tuple":
            future.set_exception((ValueError, error, error.__traceback__))
        elif form == "type":
            future.set_exception((ValueError, None, None))
        else:
            future.set_exception()
    with pytest.raises(ValueError):
        future.get()
    assert repr(future) == "<ActorFuture failed>"


def test_no_exception_to_give_is_a_mistake():
    with pytest.raises(TypeError, match="exception"):
        ActorFuture().set_exception()


async def test_get_of_a_pending_future_on_a_loop_is_refused_and_of_a_done_one_is_not():
    future = ActorFuture()
    with pytest.raises(WouldBlock, match="await future") as refusal:
        future.get(timeout=10)
    assert isinstance(refusal.value, PerdureError)
    assert isinstance(refusal.value, RuntimeError)
    future.set(1)
    assert future.get() == 1


async def test_a_thread_gets_the_answer_when_it_comes():
    future = ActorFuture()
    got = in_thread(future.get)
    future.settle("x")
    assert await got == "x"


def test_a_get_that_takes_too_long_times_out_and_leaves_nothing_behind():
    future = ActorFuture()
    with pytest.raises(pykka.Timeout) as timeout:
        future.get(timeout=0.001)
    assert isinstance(timeout.value, AskTimeout)
    assert timeout.value.timeout_s == 0.001
    assert future._callbacks == []
    future.settle(1)
    assert future.get(timeout=0) == 1


async def test_the_loop_runs_on_while_a_task_awaits():
    future = ActorFuture()
    ticks = 0

    async def tick():
        nonlocal ticks
        while not future.done():
            ticks += 1
            if ticks == 100:
                future.set("x")
            await asyncio.sleep(0)

    ticker = asyncio.create_task(tick())
    assert await future == "x"
    assert ticks == 100
    await ticker


async def test_cancelling_a_wait_does_not_cancel_the_work_or_the_other_waits():
    future = ActorFuture()

    async def wait():
        return await future

    one, two = asyncio.create_task(wait()), asyncio.create_task(wait())
    await turns()
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    assert len(future._callbacks) == 1
    future.set("x")
    assert await two == "x"


async def test_a_wait_cancelled_in_the_turn_of_the_answer_is_cancelled():
    future = ActorFuture()

    async def wait():
        return await future

    task = asyncio.create_task(wait())
    await turns()
    task.cancel()
    future.set("x")
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_future_can_be_awaited_on_another_loop_in_another_thread():
    future = ActorFuture()

    async def wait():
        return await future

    got = in_thread(asyncio.run, wait())
    await turns()
    future.settle("x")
    assert await got == "x"


def test_an_answer_after_the_waiting_loop_was_closed_hurts_nobody():
    future = ActorFuture()
    loop = asyncio.new_event_loop()

    async def wait():
        await future

    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False
    loop.close()
    assert in_thread(future.settle, 1).get(timeout=5) is True
    again = ActorFuture()
    loop_task = asyncio.new_event_loop()
    waiting = loop_task.create_task(_await(again))
    loop_task.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False
    loop_task.close()
    assert again.settle(1) is True
    del task, waiting
    gc.collect()


async def _await(future):
    return await future


async def test_callbacks_run_at_the_answer_or_at_once_and_their_errors_stay_with_them(logs):
    future, seen = ActorFuture(), []
    future.on_done(lambda done: 1 / 0)
    future.on_done(lambda done: seen.append(done.get()))
    assert future.settle("x")
    future.on_done(lambda done: seen.append("late"))

    assert seen == ["x", "late"]
    assert [log["event"] for log in logs] == ["callback_failed"]


async def test_answers_may_come_from_threads_while_tasks_wait():
    futures = [ActorFuture() for _ in range(200)]
    waits = [asyncio.create_task(_await(future)) for future in futures]

    def answer(part):
        for number, future in enumerate(futures):
            if number % 4 == part:
                future.settle(number)

    threads = [in_thread(answer, part) for part in range(4)]
    assert [await wait for wait in waits] == list(range(200))
    for thread in threads:
        await thread


async def test_racing_answers_settle_a_future_once():
    futures = [ActorFuture() for _ in range(300)]
    racers = [in_thread(lambda: sum(future.settle(1) for future in futures)) for _ in range(4)]
    assert sum([await racer for racer in racers]) == 300


# -- Pykka's combinators -------------------------------------------------------------------------------------------------


async def test_map_filter_and_reduce_answer_without_a_thread():
    future = ActorFuture()
    mapped = future.map(lambda items: [item + 1 for item in items])
    kept = mapped.filter(lambda item: item > 2)
    total, from_ten = kept.reduce(lambda x, y: x + y), kept.reduce(lambda x, y: x + y, 10)
    future.settle([1, 2, 3])
    assert await mapped == [2, 3, 4]
    assert await kept == [3, 4]
    assert await total == 7
    assert await from_ten == 17


async def test_a_mapped_future_fails_as_its_source_or_its_function_does():
    source = ActorFuture()
    mapped = source.map(str)
    source.fail(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        await mapped
    with pytest.raises(ZeroDivisionError):
        await source_of(0).map(lambda value: 1 / value)


def source_of(value):
    future = ActorFuture()
    future.settle(value)
    return future


async def test_join_gives_all_values_in_order_whatever_the_order_of_the_answers():
    first, second, third = ActorFuture(), ActorFuture(), ActorFuture()
    joined = first.join(second, third, first)
    third.settle(3)
    first.settle(1)
    assert not joined.done()
    second.settle(2)
    assert await joined == [1, 2, 3, 1]


async def test_join_fails_as_the_first_in_order_that_failed():
    first, second = ActorFuture(), ActorFuture()
    joined = first.join(second)
    second.fail(ValueError("second"))
    assert not joined.done()
    first.fail(ValueError("first"))
    with pytest.raises(ValueError, match="first"):
        await joined


async def test_join_takes_the_futures_of_threads_too():
    foreign = pykka.ThreadingFuture()
    own = ActorFuture()
    joined = own.join(foreign)
    own.settle(1)
    foreign.set(2)
    assert await joined == [1, 2]


async def test_a_foreign_future_is_awaited_in_a_thread_and_the_loop_runs_on():
    foreign = pykka.ThreadingFuture()
    adopted = adopt(foreign)
    await turns(50)
    assert not adopted.done()
    foreign.set("x")
    assert await adopted == "x"
    own = ActorFuture()
    assert adopt(own) is own


async def test_the_error_of_a_foreign_future_comes_through():
    foreign = pykka.ThreadingFuture()
    foreign.set_exception((ValueError, ValueError("bad"), None))
    with pytest.raises(ValueError, match="bad"):
        await adopt(foreign)


async def test_a_get_hook_makes_the_value_in_a_thread_when_it_is_awaited():
    future = ActorFuture()
    future.set_get_hook(lambda timeout: (threading.current_thread() is not threading.main_thread(), timeout))
    with pytest.raises(asyncio.InvalidStateError):
        future.set(1)
    with pytest.raises(WouldBlock):
        future.get()
    mapped = future.map(lambda value: value[0])
    assert await future == (True, None)
    assert await mapped is True


def test_a_get_hook_gets_the_timeout_and_runs_once():
    future, calls = ActorFuture(), []
    future.set_get_hook(calls.append)
    future.get(timeout=3)
    future.get(timeout=4)
    assert calls == [3]
    with pytest.raises(asyncio.InvalidStateError):
        future.set_get_hook(calls.append)


def test_pykkas_get_all_works():
    assert pykka.get_all([source_of(1), source_of(2)]) == [1, 2]
