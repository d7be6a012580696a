"""What an actor is: messages in order, one at a time, through hooks that may be async; and a true Pykka actor."""

import asyncio
import contextvars
import gc
import logging
import weakref
from typing import NamedTuple

import pykka
import pytest
from perdure.actors.runtime import Actor, ActorCrashed, ActorDead, ActorRef, ActorSystem
from perdure.chord.errors import PerdureError


class Echo(Actor):
    def on_receive(self, message):
        return message


class AsyncEcho(Actor):
    async def on_receive(self, message):
        await asyncio.sleep(0)
        return message


class Recorder(Actor):
    def __init__(self, seen):
        self.seen = seen

    def on_receive(self, message):
        self.seen.append(message)


class Gated(Actor):
    """Handles one message per opened gate."""

    def __init__(self):
        self.running = 0
        self.gates = asyncio.Queue()
        self.seen = []

    async def on_receive(self, message):
        self.running += 1
        assert self.running == 1
        await self.gates.get()
        self.seen.append(message)
        self.running -= 1
        return message


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [Echo, AsyncEcho])
async def test_an_ask_is_answered_with_the_result_of_the_handler(kind):
    async with ActorSystem() as system:
        assert await system.spawn(kind).ask("hello", block=False) == "hello"


async def test_tells_arrive_in_the_order_in_which_they_were_sent():
    async with ActorSystem() as system:
        seen = []
        recorder = system.spawn(Recorder, seen)
        for number in range(1_000):
            recorder.tell(number)
        await recorder.ask("last", block=False)

        assert seen == [*range(1_000), "last"]


async def test_an_actor_and_its_ref_are_those_of_pykka_but_not_in_its_registry():
    async with ActorSystem() as system:
        ref = system.spawn(Echo, id="echo-1")

        assert isinstance(ref._actor_weakref(), pykka.Actor)
        assert isinstance(ref, pykka.ActorRef)
        assert isinstance(ref.ask(1, block=False), pykka.Future)
        assert ref.actor_urn == ref.id == "echo-1"
        assert ref.actor_class is Echo
        assert pykka.ActorRegistry.get_all() == []
        assert "Echo" in repr(ref)


async def test_a_message_waits_for_the_end_of_an_asynchronous_handler():
    async with ActorSystem() as system:
        ref = system.spawn(Gated)
        actor = ref._actor_weakref()
        answers = [ref.ask(number, block=False) for number in range(3)]
        await turns()
        assert actor.seen == []

        for number in range(3):
            actor.gates.put_nowait(None)
            assert await answers[number] == number
            assert actor.seen == list(range(number + 1))


async def test_an_idle_actor_has_no_task_and_no_thread():
    async with ActorSystem() as system:
        for number in range(50):
            await system.spawn(AsyncEcho).ask(number, block=False)
        await turns()

        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_asynchronous_handler_is_a_task_in_which_timeouts_and_groups_work():
    class Worker(Actor):
        async def on_receive(self, message):
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                task = group.create_task(asyncio.sleep(0, message))
            return task.result(), asyncio.current_task().get_name()

    async with ActorSystem() as system:
        assert await system.spawn(Worker, id="w").ask(1, block=False) == (1, "Worker w")


async def test_mail_waits_for_an_asynchronous_on_start():
    class Slow(Recorder):
        async def on_start(self):
            await started.wait()
            self.seen.append("started")

    started = asyncio.Event()
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Slow, seen)
        answer = ref.ask("mail", block=False)
        await turns()
        assert seen == []
        assert system.tree()[0]["state"] == "starting"
        assert system.tree()[0]["mailbox"] == 1

        started.set()
        await answer
        assert seen == ["started", "mail"]


async def test_on_start_runs_on_the_loop_and_not_inside_spawn():
    class Noisy(Recorder):
        def on_start(self):
            self.seen.append("started")

    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Noisy, seen)
        assert seen == []
        await ref.ask("x", block=False)
        assert seen == ["started", "x"]


async def test_a_subclass_need_not_call_init():
    class Forgetful(Actor):
        def __init__(self, value):
            self.value = value
            self.saw_ref = self.actor_ref

    async with ActorSystem() as system:
        ref = system.spawn(Forgetful, 3)
        assert ref._actor_weakref().saw_ref is ref
        assert await ref.proxy().value == 3


def test_an_actor_is_not_made_outside_of_a_system():
    with pytest.raises(TypeError, match=r"system\.spawn"):
        Echo()
    with pytest.raises(TypeError, match=r"system\.spawn"):
        Echo.start()


async def test_a_constructor_may_not_make_a_second_actor_for_itself():
    class Greedy(Actor):
        def __init__(self):
            Echo()

    async with ActorSystem() as system:
        with pytest.raises(TypeError, match=r"system\.spawn"):
            system.spawn(Greedy, id="greedy")
        assert system.ref("greedy") is None


async def test_a_proxy_reads_calls_and_defers_and_awaits_async_methods():
    class Counter(Actor):
        def __init__(self):
            self.count = 1
            self.tags = pykka.traversable(Tags())

        def add(self, number, *, times=1):
            self.count += number * times
            return self.count

        async def add_later(self, number):
            await asyncio.sleep(0)
            return self.add(number)

    class Tags:
        name = "a tag"

    async with ActorSystem() as system:
        ref = system.spawn(Counter)
        proxy = ref.proxy()

        assert await proxy.count == 1
        assert await proxy.add(2, times=3) == 7
        proxy.add.defer(1)
        assert await proxy.add_later(1) == 9
        assert await proxy.tags.name == "a tag"
        assert ref.proxy() is proxy


async def test_tuples_are_ordinary_messages():
    class Point(NamedTuple):
        x: int

    async with ActorSystem() as system:
        assert await system.spawn(Echo).ask((1, 2), block=False) == (1, 2)
        assert await system.spawn(Echo).ask(Point(3), block=False) == Point(3)


async def test_a_message_without_a_handler_is_logged_as_pykka_does(caplog):
    async with ActorSystem() as system:
        with caplog.at_level(logging.WARNING, logger="pykka"):
            assert await system.spawn(Actor).ask("what", block=False) is None
    assert "Unexpected message" in caplog.text


# -- contextvars ---------------------------------------------------------------------------------------------------------

colour = contextvars.ContextVar("colour", default="none")


class Painter(Actor):
    def on_receive(self, message):
        if message is not None:
            colour.set(message)
        return colour.get()


class AsyncPainter(Actor):
    async def on_receive(self, message):
        await asyncio.sleep(0)
        if message is not None:
            colour.set(message)
        return colour.get()


@pytest.mark.parametrize("kind", [Painter, AsyncPainter])
async def test_a_handler_sees_neither_the_context_of_the_teller_nor_that_of_another_actor(kind):
    async with ActorSystem() as system:
        one, two = system.spawn(kind), system.spawn(kind)
        colour.set("red")

        assert await one.ask(None, block=False) == "none"
        assert await one.ask("blue", block=False) == "blue"
        assert await two.ask(None, block=False) == "none"
        assert colour.get() == "red"


@pytest.mark.parametrize("kind", [Painter, AsyncPainter])
async def test_an_actor_keeps_its_own_context_from_message_to_message(kind):
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        await ref.ask("blue", block=False)
        assert await ref.ask(None, block=False) == "blue"


async def test_an_actor_starts_from_the_context_in_which_the_system_was_made():
    colour.set("green")
    async with ActorSystem() as system:
        colour.set("red")
        assert await system.spawn(Painter).ask(None, block=False) == "green"


# -- reply_later ---------------------------------------------------------------------------------------------------------


class Clerk(Actor):
    """Answers nothing by itself."""

    def __init__(self):
        self.open = []

    def on_receive(self, message):
        if isinstance(message, BaseException):
            self.reply_later()
            raise message
        self.open.append(self.reply_later())
        return "not this"


async def test_an_answer_taken_over_comes_when_it_is_settled_and_messages_do_not_wait_for_it():
    async with ActorSystem() as system:
        ref = system.spawn(Clerk)
        first, second = ref.ask(1, block=False), ref.ask(2, block=False)
        await turns()
        clerk = ref._actor_weakref()
        assert len(clerk.open) == 2
        assert not first.done()

        clerk.open[1].settle("two")
        clerk.open[0].settle("one")
        assert await second == "two"
        assert await first == "one"
        assert not clerk._incarnation.owed


async def test_an_async_handler_may_take_over_its_answer():
    class Later(Actor):
        async def on_receive(self, message):
            self.answer = self.reply_later()
            await asyncio.sleep(0)
            return "not this"

    async with ActorSystem() as system:
        ref = system.spawn(Later)
        asked = ref.ask(1, block=False)
        await turns()
        assert not asked.done()
        ref._actor_weakref().answer.settle("this")
        assert await asked == "this"


async def test_answers_taken_over_are_given_when_the_actor_stops_or_crashes():
    async with ActorSystem() as system:
        stopped, crashed = system.spawn(Clerk), system.spawn(Clerk)
        of_stopped, of_crashed = stopped.ask(1, block=False), crashed.ask(1, block=False)
        await stopped.stop(block=False)
        crashed.tell(ValueError("bad"))

        with pytest.raises(ActorDead):
            await of_stopped
        with pytest.raises(ActorCrashed) as failure:
            await of_crashed
        assert isinstance(failure.value.cause, ValueError)


async def test_an_expected_error_after_taking_the_answer_over_is_the_answer():
    async with ActorSystem() as system:
        with pytest.raises(PerdureError, match="sorry"):
            await system.spawn(Clerk).ask(PerdureError("sorry"), block=False)


async def test_taking_over_the_answer_to_a_told_message_gives_a_future_that_nobody_waits_for():
    async with ActorSystem() as system:
        ref = system.spawn(Clerk)
        ref.tell(1)
        await turns()
        ref._actor_weakref().open[0].settle("heard by nobody")
        assert ref.is_alive()


async def test_taking_over_an_answer_outside_of_a_handler_is_refused():
    async with ActorSystem() as system:
        ref = system.spawn(Clerk)
        with pytest.raises(RuntimeError, match="handler"):
            ref._actor_weakref().reply_later()


# -- memory --------------------------------------------------------------------------------------------------------------


async def test_a_stopped_actor_is_freed_without_the_cycle_collector():
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        ref.proxy()
        actor = weakref.ref(ref._actor_weakref())
        await ref.ask(1, block=False)
        gc.disable()
        try:
            await ref.stop(block=False)
            await turns()
            assert actor() is None
            assert ref._actor_weakref() is None
        finally:
            gc.enable()


async def test_a_ref_dropped_by_everybody_does_not_end_its_actor():
    async with ActorSystem() as system:
        seen = []
        system.spawn(Recorder, seen, id="kept")
        gc.collect()
        await system.ref("kept").ask(1, block=False)
        assert seen == [1]


def test_a_ref_can_be_typed_with_its_actor():
    assert ActorRef[Echo] is not None
