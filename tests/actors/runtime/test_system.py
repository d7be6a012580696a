"""The system: ids, the tree, and an end that leaves nobody waiting."""

import asyncio
import threading

import pytest
from perdure.actors.runtime import (
    Actor,
    ActorDead,
    ActorExists,
    ActorSystem,
    ChildSpec,
    Supervisor,
    SystemStopped,
    VirtualClock,
    WrongThread,
)


class Child(Actor):
    def __init__(self, story=None):
        self.story = story if story is not None else []

    def on_receive(self, message):
        return message

    def on_stop(self):
        self.story.append(self.id)


class Hanging(Child):
    async def on_receive(self, message):
        await asyncio.Event().wait()

    async def on_stop(self):
        await asyncio.Event().wait()


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_live_actor_is_found_by_its_id_and_a_dead_one_is_not():
    async with ActorSystem() as system:
        ref = system.spawn(Child, id="one")
        assert system.ref("one") is ref
        assert system.ref("two") is None
        with pytest.raises(ActorExists, match="'one'"):
            system.spawn(Child, id="one")
        await ref.stop(block=False)
        assert system.ref("one") is None
        assert system.spawn(Child, id="one") is not ref


async def test_actors_without_an_id_get_one_of_their_own():
    async with ActorSystem() as system:
        ids = {system.spawn(Child).id for _ in range(10)}
        assert len(ids) == 10
        assert system.live_actors == 10


async def test_actors_are_started_on_the_loops_thread_only():
    async with ActorSystem() as system:
        with pytest.raises(WrongThread):
            await asyncio.to_thread(system.spawn, Child)


async def test_two_systems_in_one_loop_do_not_meet():
    async with ActorSystem() as one, ActorSystem() as two:
        one.spawn(Child, id="x")
        two.spawn(Child, id="x")
        assert one.ref("x") is not two.ref("x")
        await one.stop()
        assert await two.ref("x").ask(1, block=False) == 1


async def test_the_tree_is_plain_data_in_start_order():
    async with ActorSystem() as system:
        system.spawn(Child, id="alone").tell("waiting")
        inner = ChildSpec("inner", Supervisor, kwargs={"children": [ChildSpec("leaf", Child)]})
        system.spawn(Supervisor, id="top", children=[inner])
        assert system.tree()[0] == {
            "id": "alone",
            "class": "Child",
            "state": "starting",
            "restarts": 0,
            "mailbox": 1,
            "children": [],
        }
        await turns()
        names = []

        def walk(nodes, depth):
            for node in nodes:
                names.append((depth, node["id"], node["class"], node["state"]))
                walk(node["children"], depth + 1)

        walk(system.tree(), 0)
        assert names == [
            (0, "alone", "Child", "running"),
            (0, "top", "Supervisor", "running"),
            (1, "inner", "Supervisor", "running"),
            (2, "leaf", "Child", "running"),
        ]


async def test_stopping_the_system_stops_the_last_started_first():
    story = []
    system = ActorSystem()
    for name in "abc":
        system.spawn(Child, story, id=name)
    await system.stop()
    assert story == ["c", "b", "a"]
    assert system.live_actors == 0
    assert system.stopped


async def test_stopping_twice_at_the_same_time_is_one_stop():
    story = []
    system = ActorSystem()
    system.spawn(Child, story, id="a")
    await asyncio.gather(system.stop(), system.stop())
    await system.stop()
    assert story == ["a"]


async def test_a_stopped_system_starts_nothing():
    async with ActorSystem() as system:
        pass
    with pytest.raises(SystemStopped, match="late"):
        system.spawn(Child, id="late")


async def test_every_pending_ask_is_answered_when_the_system_has_stopped():
    clock = VirtualClock()
    system = ActorSystem(clock=clock)
    refs = [system.spawn(Hanging if number % 2 else Child) for number in range(20)]
    asks = [ref.ask(number, block=False) for ref in refs for number in range(5)]
    await turns()
    stopping = asyncio.create_task(system.stop(grace_s=3))
    await turns()
    clock.advance(3.1)
    await stopping
    assert all(ask.done() for ask in asks)
    assert all(ref.ask(1, block=False).done() for ref in refs)


async def test_a_stop_whose_grace_is_over_kills_the_rest(logs):
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        ref = system.spawn(Hanging)
        stopping = asyncio.create_task(system.stop(grace_s=3))
        await turns()
        assert not stopping.done()
        clock.advance(3.1)
        await stopping
        assert (await ref.when_ended()).kind == "killed"
        assert "grace" in logs[0]["why"]


async def test_a_cancelled_wait_for_the_stop_does_not_cancel_the_stop():
    class Slow(Child):
        async def on_stop(self):
            await gate.wait()

    gate = asyncio.Event()
    system = ActorSystem()
    ref = system.spawn(Slow)
    waiting = asyncio.create_task(system.stop())
    await turns()
    waiting.cancel()
    await turns()
    assert waiting.cancelled()
    gate.set()
    assert (await ref.when_ended()).kind == "normal"


async def test_threads_that_ask_while_the_system_stops_all_get_an_answer():
    system = ActorSystem()
    refs = [system.spawn(Child) for _ in range(2)]
    busy = threading.Barrier(4 + 1)

    def ask_until_dead(ref):
        answers = 0
        busy.wait()
        while True:
            try:
                assert ref.ask(answers, timeout=10) == answers
            except ActorDead:
                return answers
            answers += 1

    asking = asyncio.gather(*(asyncio.to_thread(ask_until_dead, ref) for ref in refs for _ in range(2)))
    await asyncio.to_thread(busy.wait)
    await asyncio.to_thread(refs[0].ask, "they are under way")
    await system.stop()
    assert len(await asking) == 4


async def test_a_wake_up_due_in_the_turn_of_the_stop_hurts_nobody(logs):
    """B035: a timer fires while its actor is being stopped."""

    class Timed(Child):
        def on_start(self):
            self.timer = self.clock.call_later(1, self.wake)

        def wake(self):
            if self.actor_ref.is_alive():
                self.actor_ref.tell("tick")

        def on_stop(self):
            self.timer.cancel()

    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        for round_ in range(1_000):
            ref = system.spawn(Timed)
            for _ in range(round_ % 3):
                await asyncio.sleep(0)
            stopped = ref.stop(block=False)
            if round_ % 2:
                clock.advance(1)
            assert await stopped
            clock.advance(1)
            assert clock.next_due() is None
    assert [log for log in logs if log["event"] != "dead_letter"] == []


def test_the_end_of_the_loop_stops_a_system_that_nobody_stopped():
    story = []

    async def main():
        system = ActorSystem()
        system.spawn(Child, story, id="a")
        system.spawn(Supervisor, children=[ChildSpec("b", Child, (story,))])
        return await system.ref("a").ask(system, block=False)

    system = asyncio.run(main())
    assert story == ["b", "a"]
    assert system.stopped
    assert system.dead_letters == 0


def test_the_end_of_the_loop_ends_a_stop_that_it_cancelled():
    story = []

    class Slow(Child):
        async def on_stop(self):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.story.append(self.id)

    async def main():
        system = ActorSystem()
        system.spawn(Slow, story, id="a")
        system.spawn(Child, story, id="b")
        stopping = asyncio.create_task(system.stop())
        await asyncio.sleep(0)
        assert not stopping.done()

    asyncio.run(main())
    assert sorted(story) in (["a", "b"], ["b"])


SCRIPTS = {
    "forgets to stop": """
async def main():
    system = ActorSystem()
    await system.spawn(Child).ask(1, block=False)
    print("ready")
""",
    "raises": """
async def main():
    system = ActorSystem()
    system.spawn(Child).tell(1)
    print("ready")
    raise SystemExit(3)
""",
    "is interrupted": """
async def main():
    async with ActorSystem() as system:
        hanging, child = system.spawn(Hanging), system.spawn(Child)
        hanging.tell(KeyboardInterrupt())
        await hanging.when_ended()
        print("ready")
        await asyncio.Event().wait()
""",
    "hangs in a handler": """
async def main():
    system = ActorSystem()
    system.spawn(Supervisor, children=[ChildSpec("h", Hanging)])
    await Hanging.started.wait()
    system.ref("h").tell(1)
    await Hanging.busy.wait()
    print("ready")
""",
    "hangs in on_stop on a clock that stands still": """
async def main():
    system = ActorSystem(clock=VirtualClock())
    system.spawn(Hanging)
    await Hanging.started.wait()
    print("ready")
""",
}
HEAD = """
import asyncio, logging, structlog
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
from perdure.actors.runtime import Actor, ActorSystem, ChildSpec, Supervisor, VirtualClock
class Child(Actor):
    def on_receive(self, message):
        return message
    def on_stop(self):
        print("stopped")
class Hanging(Actor):
    started, busy = asyncio.Event(), asyncio.Event()
    def on_start(self):
        self.started.set()
    async def on_receive(self, message):
        if isinstance(message, BaseException):
            raise message
        self.busy.set()
        await asyncio.Event().wait()
    async def on_stop(self):
        await asyncio.Event().wait()
"""


@pytest.fixture(scope="module")
def processes(run_scripts):
    return run_scripts({name: HEAD + script + "asyncio.run(main())" for name, script in SCRIPTS.items()})


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_process_ends_within_five_seconds_though_it(name, processes):
    ended = processes[name]
    assert ended.seconds < 5
    if "Child)" in SCRIPTS[name]:
        assert "stopped" in ended.output
    assert "never awaited" not in ended.output


def test_a_real_interrupt_still_ends_the_program_though_a_raised_one_ends_an_actor(processes):
    ended = processes["is interrupted"]
    assert ended.output.splitlines()[-1] == "KeyboardInterrupt"
    assert ended.status != 0
