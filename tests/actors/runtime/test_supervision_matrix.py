"""Strategy x restart type x kind of end, over three children; and random histories, checked for what must always hold."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.actors.runtime import Actor, ActorSystem, Backoff, ChildSpec, Supervisor, VirtualClock

STRATEGIES = ["one_for_one", "one_for_all", "rest_for_one"]
RESTARTS = ["permanent", "transient", "temporary"]
ENDS = ["normal", "crashed", "killed", "start"]


class Child(Actor):
    """Tells the test of its starts and stops; fails its next starts if it is told to."""

    def __init__(self, story, failing):
        self.story = story
        self.failing = failing

    def on_start(self):
        if self.failing.get(self.id, 0) > 0:
            self.failing[self.id] -= 1
            self.story.append(("failed to start", self.id))
            raise RuntimeError("no luck")
        self.story.append(("start", self.id))

    def on_receive(self, message):
        raise message

    def on_stop(self):
        self.story.append(("stop", self.id))


async def settle(clock, *, seconds=100.0):
    """Let everything happen that can, and then everything that the clock brings."""
    for _ in range(30):
        await asyncio.sleep(0)
    while (due := clock.next_due()) is not None and due - clock.now() < seconds * 1000:
        clock.jump()
        for _ in range(30):
            await asyncio.sleep(0)


async def end(system, ref, how, failing):
    if how == "normal":
        await ref.stop(block=False)
    elif how == "killed":
        system.kill(ref)
    else:
        if how == "start":
            failing[ref.id] = 1
        ref.tell(ValueError("bad"))


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_what_the_end_of_the_middle_child_does(strategy, restart, how):
    clock, story, failing = VirtualClock(), [], {}
    async with ActorSystem(clock=clock) as system:
        specs = [
            ChildSpec(name, Child, (story, failing), restart=restart if name == "b" else "permanent") for name in "abc"
        ]
        supervisor = system.spawn(Supervisor, strategy=strategy, children=specs, id="supervisor")
        await settle(clock)
        before = await supervisor.proxy().children()
        assert story == [("start", "a"), ("start", "b"), ("start", "c")]
        story.clear()

        await end(system, before["b"], how, failing)
        await settle(clock)
        after = await supervisor.proxy().children()

        comes_back = restart == "permanent" or (restart == "transient" and how != "normal")
        concerned = {"one_for_one": "b", "rest_for_one": "bc", "one_for_all": "abc"}[strategy] if comes_back else ""
        assert list(after) == (["a", "b", "c"] if comes_back else ["a", "c"])
        assert all(ref is not None and ref.is_alive() for ref in after.values())
        for name in after:
            assert (after[name] is before[name]) == (name not in concerned)

        starts = "".join(name for what, name in story if what == "start")
        stops = "".join(name for what, name in story if what == "stop" and name != "b")
        if how == "start" and concerned == "abc":  # by the time that b failed again, a was up and had to go once more
            assert (starts, stops) == ("aabc", "caa")
        else:
            assert (starts, stops) == (concerned, concerned[::-1].replace("b", ""))
        assert supervisor.is_alive()


async def test_a_start_that_fails_while_a_group_restarts_begins_the_group_again():
    clock, story, failing = VirtualClock(), [], {}
    async with ActorSystem(clock=clock) as system:
        specs = [ChildSpec(name, Child, (story, failing)) for name in "abc"]
        system.spawn(Supervisor, strategy="one_for_all", children=specs)
        await settle(clock)
        story.clear()
        failing["b"] = 1
        system.ref("a").tell(ValueError("bad"))
        await settle(clock)
        assert story == [
            ("stop", "c"),
            ("stop", "b"),
            ("start", "a"),
            ("failed to start", "b"),
            ("stop", "a"),
            ("start", "a"),
            ("start", "b"),
            ("start", "c"),
        ]


async def test_each_child_waits_for_the_start_of_the_one_before_it():
    class Slow(Child):
        async def on_start(self):
            await gates[self.id].wait()
            self.story.append(("start", self.id))

    gates = {name: asyncio.Event() for name in "ab"}
    clock, story = VirtualClock(), []
    async with ActorSystem(clock=clock) as system:
        specs = [ChildSpec(name, Slow, (story, {})) for name in "ab"]
        supervisor = system.spawn(Supervisor, strategy="rest_for_one", children=specs)
        asked = supervisor.proxy().children()
        await settle(clock)
        assert system.ref("b") is None
        gates["a"].set()
        await settle(clock)
        assert system.ref("b") is not None
        assert not asked.done()
        gates["b"].set()
        assert list(await asked) == ["a", "b"]
        assert story == [("start", "a"), ("start", "b")]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_temporary_siblings_of_a_restarting_group_do_not_come_back(strategy):
    clock, story = VirtualClock(), []
    async with ActorSystem(clock=clock) as system:
        specs = [
            ChildSpec("a", Child, (story, {})),
            ChildSpec("b", Child, (story, {}), restart="temporary"),
            ChildSpec("c", Child, (story, {}), restart="transient"),
        ]
        supervisor = system.spawn(Supervisor, strategy=strategy, children=specs)
        await settle(clock)
        system.ref("a").tell(ValueError("bad"))
        await settle(clock)
        expected = ["a", "b", "c"] if strategy == "one_for_one" else ["a", "c"]
        assert list(await supervisor.proxy().children()) == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_two_failures_at_once_end_in_one_whole_family(strategy):
    clock, story = VirtualClock(), []
    async with ActorSystem(clock=clock) as system:
        specs = [ChildSpec(name, Child, (story, {})) for name in "abcd"]
        supervisor = system.spawn(Supervisor, strategy=strategy, children=specs)
        await settle(clock)
        for name in "dbca":
            system.ref(name).tell(ValueError("bad"))
        await settle(clock)
        children = await supervisor.proxy().children()
        assert list(children) == list("abcd")
        assert all(ref.is_alive() for ref in children.values())
        assert [child["state"] for child in system.tree()[0]["children"]] == ["running"] * 4


actions = st.lists(
    st.tuples(st.sampled_from(["crash", "kill", "stop", "fail", "remove", "add", "wait", "turn"]), st.integers(0, 5)),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STRATEGIES), actions)
def test_whatever_happens_a_family_comes_to_rest_whole_and_one_of_each(strategy, actions):
    async def main():
        clock, story, failing = VirtualClock(), [], {}
        alive = {}

        class Counted(Child):
            def on_start(self):
                assert not alive.get(self.id), "two incarnations at a time"
                super().on_start()
                alive[self.id] = True

            def on_stop(self):
                alive[self.id] = False

            def on_failure(self, *_):
                alive[self.id] = False

        class Watching(Supervisor):
            def on_child_ended(self, child_id, reason):
                alive[child_id] = False

        async with ActorSystem(clock=clock) as system:
            supervisor = system.spawn(
                Watching, strategy=strategy, intensity=1_000, period_s=1e6, backoff=Backoff(max_s=1.0), id="supervisor"
            )
            await settle(clock)
            actor = supervisor._actor_weakref()
            wanted, removals = {}, []
            for what, number in actions:
                name = f"child {number}"
                ref = system.ref(name)
                if what == "add" and name not in actor.children():
                    wanted[name] = True
                    actor.start_child(ChildSpec(name, Counted, (story, failing)))
                elif what == "remove" and name in wanted:
                    wanted.pop(name)
                    removals.append(asyncio.create_task(actor.stop_child(name)))
                    await asyncio.sleep(0)
                elif what == "wait":
                    clock.advance(number * 0.1)
                elif what == "turn":
                    await asyncio.sleep(0)
                elif ref is not None and ref.is_alive() and what in ("crash", "stop", "fail"):
                    failing[name] = number if what == "fail" else 0
                    ref.stop(block=False) if what == "stop" else ref.tell(ValueError(what))
                elif ref is not None and what == "kill":
                    system.kill(ref)
            await settle(clock)
            for removal in removals:
                await removal
            await settle(clock)

            assert supervisor.is_alive()
            children = actor.children()
            assert set(children) == set(wanted)
            assert all(ref is not None and ref.is_alive() for ref in children.values())
            assert all(child["state"] == "running" for child in system.tree()[0]["children"])
            assert system.live_actors == 1 + len(wanted)
            assert clock.next_due() is None

    asyncio.run(main())
