"""The end that was asked for: everybody who waits is answered, and what was told too late is counted."""

import asyncio
import threading

import pykka
import pytest
from perdure.actors.runtime import Actor, ActorDead, ActorSystem
from perdure.actors.runtime.mailbox import Letter
from pykka.messages import _ActorStop


class Recorder(Actor):
    def __init__(self, seen):
        self.seen = seen

    def on_receive(self, message):
        if message == "stop":
            self.stop()
            self.stop()
        self.seen.append(message)

    def on_stop(self):
        self.seen.append("on_stop")


class SlowToStop(Recorder):
    def __init__(self, seen):
        super().__init__(seen)
        self.may_end = asyncio.Event()

    async def on_stop(self):
        await self.may_end.wait()
        super().on_stop()


class Busy(Recorder):
    def __init__(self, seen):
        super().__init__(seen)
        self.gate = asyncio.Event()

    async def on_receive(self, message):
        await self.gate.wait()
        self.seen.append(message)
        return message


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_messages_sent_before_the_stop_are_handled_and_those_after_it_answered():
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Recorder, seen)
        ref.tell(1)
        stopped = ref.stop(block=False)
        late = ref.ask(2, block=False)

        assert await stopped is True
        with pytest.raises(pykka.ActorDeadError):
            await late
        assert seen == [1, "on_stop"]
        assert (await ref.when_ended()).kind == "normal"


async def test_stopping_a_dead_actor_answers_false():
    async with ActorSystem() as system:
        ref = system.spawn(Recorder, [])
        assert await ref.stop(block=False) is True
        assert await ref.stop(block=False) is False


async def test_every_stop_that_was_on_its_way_answers_true():
    async with ActorSystem() as system:
        ref = system.spawn(Recorder, [])
        assert await asyncio.gather(*(ref.stop(block=False) for _ in range(3))) == [True, True, True]


async def test_a_stop_is_answered_when_on_stop_has_run():
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(SlowToStop, seen)
        stopped, queued = ref.stop(block=False), ref.ask("queued", block=False)
        with pytest.raises(ActorDead):
            await queued
        assert not stopped.done()
        assert not ref.is_alive()
        assert system.tree()[0]["state"] == "ending"

        ref._actor_weakref().may_end.set()
        assert await stopped
        assert seen == ["on_stop"]
        assert system.tree() == []


async def test_an_actor_may_stop_itself_more_than_once():
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Recorder, seen)
        ref.tell("stop")
        ref.tell("after")
        await ref.when_ended()
        assert seen == ["stop", "after", "on_stop"] or seen == ["stop", "on_stop"]


async def test_a_stop_waits_for_the_running_handler():
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Busy, seen)
        asked, stopped = ref.ask(1, block=False), ref.stop(block=False)
        await turns()
        assert not stopped.done()
        ref._actor_weakref().gate.set()
        assert await asked == 1
        assert await stopped
        assert seen == [1, "on_stop"]


async def test_on_start_runs_before_a_stop_that_was_sent_at_once():
    class Both(Recorder):
        def on_start(self):
            self.seen.append("on_start")

    async with ActorSystem() as system:
        seen = []
        await system.spawn(Both, seen).stop(block=False)
        assert seen == ["on_start", "on_stop"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)], ids=["ValueError", "SystemExit"])
async def test_an_error_in_on_stop_makes_the_end_a_crash(error, logs):
    class Clumsy(Actor):
        def on_stop(self):
            raise error

    async with ActorSystem() as system:
        ref = system.spawn(Clumsy)
        assert await ref.stop(block=False) is True
        ended = await ref.when_ended()
        assert (ended.kind, ended.cause) == ("crashed", error)
        assert [(log["event"], log["doing"]) for log in logs] == [("actor_crashed", "stop")]


async def test_a_told_message_that_nobody_handles_is_counted_and_logged(logs):
    async with ActorSystem() as system:
        ref = system.spawn(Recorder, [], id="gone")
        ref.stop(block=False)
        ref.tell({"too": "late"})
        ref.tell("later")
        await ref.when_ended()
        assert system.dead_letters == 2
        with pytest.raises(ActorDead, match="gone"):
            ref.tell(3)

        assert system.dead_letters == 3
        assert [(log["event"], log["actor"], log["message_type"], log["count"]) for log in logs] == [
            ("dead_letter", "gone", "dict", 2),
            ("dead_letter", "gone", "int", 1),
        ]


async def test_an_ask_of_a_dead_actor_is_answered_and_is_no_dead_letter():
    async with ActorSystem() as system:
        ref = system.spawn(Recorder, [])
        await ref.stop(block=False)
        future = ref.ask(1, block=False)
        assert future.done()
        with pytest.raises(ActorDead):
            await future
        assert system.dead_letters == 0
        with pytest.raises(ActorDead):
            ref.proxy()


@pytest.mark.parametrize("kind", [Recorder, SlowToStop])
async def test_a_message_that_slips_in_while_the_actor_ends_is_answered_too(kind):
    async with ActorSystem() as system:
        ref = system.spawn(kind, [])
        ref.stop(block=False)
        await turns()
        # what a thread does that looked at is_alive() just before
        futures = [Actor._create_future() for _ in range(2)]
        for future in futures:
            ref.actor_inbox.put(Letter("slipped in", future))
        stopped = Actor._create_future()
        ref.actor_inbox.put(Letter(_ActorStop(), stopped))
        if kind is SlowToStop:
            ref._actor_weakref().may_end.set()
        for future in futures:
            with pytest.raises(ActorDead):
                await future
        assert await stopped is True


async def test_the_end_can_be_watched_before_and_after_it():
    async with ActorSystem() as system:
        ref = system.spawn(Recorder, [])
        before = ref.when_ended()
        ref.stop(block=False)
        assert (await before).kind == "normal"
        assert (await ref.when_ended()).kind == "normal"
        assert str(await before) == "normal"


async def test_pykkas_stopped_event_is_a_real_one():
    async with ActorSystem() as system:
        ref = system.spawn(Recorder, [])
        event = ref.actor_stopped
        assert isinstance(event, threading.Event)
        assert not event.is_set()
        assert ref._actor_weakref().actor_stopped is event
        await ref.stop(block=False)
        assert event.is_set()
        assert system.spawn(Recorder, []).actor_stopped is not event


async def test_stopped_events_first_looked_at_after_the_end_are_set():
    async with ActorSystem() as system:
        ref = system.spawn(Recorder, [])
        await ref.stop(block=False)
        assert ref.actor_stopped.is_set()


async def test_many_actors_stop_in_either_order():
    async with ActorSystem() as system:
        for order in (1, -1):
            refs = [system.spawn(Recorder, []) for _ in range(2_000)]
            for future in [ref.stop(block=False) for ref in refs[::order]]:
                assert await future
        assert system.live_actors == 0
