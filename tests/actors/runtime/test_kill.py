"""The end that comes from outside: no hook runs, whoever waits is answered, and nothing is left running."""

import asyncio

import pytest
from perdure.actors.runtime import (
    Actor,
    ActorCrashed,
    ActorDead,
    ActorSystem,
    ChildSpec,
    Killed,
    Supervisor,
    VirtualClock,
    WrongThread,
)


class Worker(Actor):
    def __init__(self, seen=None):
        self.seen = seen if seen is not None else []
        self.gate = asyncio.Event()

    async def on_receive(self, message):
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise
        return message

    def on_stop(self):
        self.seen.append("on_stop")

    def on_failure(self, *_):
        self.seen.append("on_failure")


class Stubborn(Worker):
    """Swallows its cancellation."""

    async def on_receive(self, message):
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.seen.append("ignored")
        self.seen.append("through")


class SuicidalSync(Actor):
    def __init__(self, seen):
        self.seen = seen

    def on_receive(self, message):
        self.system.kill(self.actor_ref)
        self.seen.append("went on")
        if message == "raise":
            raise ValueError("after")
        if message == "async":
            return self.never()
        return "not this"

    async def never(self):
        self.seen.append("never")


class SuicidalAsync(SuicidalSync):
    async def on_receive(self, message):
        self.system.kill(self.actor_ref)
        self.seen.append("went on")
        if message == "raise":
            raise ValueError("after")
        if message == "wait":
            await asyncio.sleep(0)
            self.seen.append("never")
        return "not this"


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def killed_ask(future):
    with pytest.raises(ActorCrashed) as crash:
        await future
    assert isinstance(crash.value.cause, Killed)


async def test_killing_cancels_the_running_handler_and_answers_its_asker_and_the_queue(logs):
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Worker, seen, id="w")
        running, queued = ref.ask(1, block=False), ref.ask(2, block=False)
        await turns()
        system.kill(ref)

        assert not ref.is_alive()
        await killed_ask(running)
        with pytest.raises(ActorDead):
            await queued
        assert (await ref.when_ended()).kind == "killed"
        assert seen == ["cancelled"]
        assert [(log["event"], log["actor"]) for log in logs] == [("actor_killed", "w")]
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_killing_an_idle_actor_ends_it_at_once_without_hooks():
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Worker, seen)
        await turns()
        system.kill(ref)
        system.kill(ref)
        assert ref.when_ended().done()
        assert seen == []
        assert system.live_actors == 0


async def test_killing_an_actor_that_has_not_started_keeps_it_from_starting():
    class Starter(Worker):
        def on_start(self):
            self.seen.append("on_start")

    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(Starter, seen)
        system.kill(ref)
        await turns()
        assert seen == []
        assert ref.when_ended().done()


async def test_a_handler_killed_before_its_first_step_never_runs():
    class OneStep(Actor):
        async def on_receive(self, message):
            seen.append("ran")

    seen = []
    async with ActorSystem() as system:
        ref = system.spawn(OneStep)
        await turns()
        asked = ref.ask(1, block=False)
        # the scheduler makes the task in this turn; the kill comes before the loop runs its first step
        asyncio.get_running_loop().call_soon(system.kill, ref)
        await killed_ask(asked)
        assert (await ref.when_ended()).kind == "killed"
        assert seen == []


@pytest.mark.parametrize("message", ["return", "raise", "async"])
async def test_a_handler_may_kill_its_own_actor(message):
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(SuicidalSync, seen)
        await killed_ask(ref.ask(message, block=False))
        assert (await ref.when_ended()).kind == "killed"
        await turns()
        assert seen == ["went on"]


@pytest.mark.parametrize("message", ["return", "raise", "wait"])
async def test_an_asynchronous_handler_may_kill_its_own_actor(message):
    async with ActorSystem() as system:
        seen = []
        ref = system.spawn(SuicidalAsync, seen)
        await killed_ask(ref.ask(message, block=False))
        assert (await ref.when_ended()).kind == "killed"
        assert seen == ["went on"]


@pytest.mark.parametrize("hook", ["on_start", "on_stop"])
async def test_a_hook_may_kill_its_own_actor(hook):
    async def never():
        raise AssertionError

    def suicide(self):
        self.system.kill(self.actor_ref)
        return never()

    kind = type("Suicidal", (Actor,), {hook: suicide})
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        ref.stop(block=False)
        assert (await ref.when_ended()).kind == "killed"


async def test_an_end_is_told_only_when_the_cancelled_handler_is_through():
    class Tidy(Worker):
        async def on_receive(self, message):
            try:
                await asyncio.Event().wait()
            finally:
                await self.gate.wait()

    async with ActorSystem() as system:
        ref = system.spawn(Tidy)
        actor = ref._actor_weakref()
        asked = ref.ask(1, block=False)
        await turns()
        system.kill(ref)
        await killed_ask(asked)
        ended = ref.when_ended()
        await turns()
        assert not ended.done()
        actor.gate.set()
        assert (await ended).kind == "killed"


async def test_a_handler_that_swallows_its_cancellation_is_abandoned(logs):
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        seen = []
        ref = system.spawn(Stubborn, seen, id="s")
        actor = ref._actor_weakref()
        asked = ref.ask(1, block=False)
        await turns()
        system.kill(ref)
        await killed_ask(asked)
        await turns()
        assert not ref.when_ended().done()

        clock.advance(1.0)
        assert (await ref.when_ended()).kind == "killed"
        assert [log["event"] for log in logs] == ["actor_killed", "actor_abandoned"]
        system.spawn(Worker, id="s")
        actor.gate.set()  # the zombie ends at last, and nobody minds
        await turns()
        assert seen == ["ignored", "through"]


async def test_an_asynchronous_on_stop_can_be_killed():
    class Hanging(Worker):
        async def on_stop(self):
            await asyncio.Event().wait()

    async with ActorSystem() as system:
        ref = system.spawn(Hanging)
        stopped = ref.stop(block=False)
        await turns()
        assert not stopped.done()
        system.kill(ref)
        assert await stopped is True
        assert (await ref.when_ended()).kind == "killed"


async def test_an_asynchronous_on_start_can_be_killed():
    class Hanging(Worker):
        async def on_start(self):
            await asyncio.Event().wait()

    async with ActorSystem() as system:
        ref = system.spawn(Hanging)
        asked = ref.ask(1, block=False)
        await turns()
        system.kill(ref)
        with pytest.raises(ActorDead):
            await asked
        assert (await ref.when_ended()).kind == "killed"


async def test_killing_a_supervisor_kills_its_children_and_theirs():
    async with ActorSystem() as system:
        seen = []
        leaf = ChildSpec("leaf", Worker, (seen,))
        inner = ChildSpec("inner", Supervisor, kwargs={"children": [leaf]})
        outer = system.spawn(Supervisor, id="outer", children=[inner, ChildSpec("beside", Worker, (seen,))])
        await outer.proxy().children()
        ends = [system.ref(name).when_ended() for name in ("leaf", "inner", "beside")]
        asked = system.ref("leaf").ask(1, block=False)
        await turns()
        system.kill(outer)

        assert (await outer.when_ended()).kind == "killed"
        assert all(end.done() and (end.get()).kind == "killed" for end in ends)
        await killed_ask(asked)
        assert seen == ["cancelled"]
        assert system.live_actors == 0


async def test_a_supervisor_may_kill_itself_from_a_handler():
    class Suicidal(Supervisor):
        def on_receive(self, message):
            self.system.kill(self.actor_ref)
            return self.never()

        async def never(self):
            raise AssertionError

    async with ActorSystem() as system:
        ref = system.spawn(Suicidal, children=[ChildSpec("c", Worker)])
        await ref.proxy().children()
        await killed_ask(ref.ask("die", block=False))
        assert (await ref.when_ended()).kind == "killed"
        assert system.live_actors == 0


async def test_killing_belongs_to_the_loops_thread():
    async with ActorSystem() as system:
        ref = system.spawn(Worker)
        with pytest.raises(WrongThread):
            await asyncio.to_thread(system.kill, ref)
        assert ref.is_alive()
