"""Waits that end early: at the first that completes, at a quorum, at a time; in this process and in the next."""

import asyncio

import pytest
from perdure import Failed, MemoryStorage, Quorum, VirtualClock
from perdure.storage.records import OutcomeError, Running, Terminal

from .support import Script, Scripted, crash, home, opened, scene, spawn_and_wait, start, turns
from .test_engine import BAD, DONE, RUN, record, ref, stored, waits

QUORUM = Quorum(2)
HOUR = 3_600_000


def race(*names, policy, until=None):
    """Handlers that start children and wait for them, and then tell how each stands."""
    children = []

    async def run(run):
        async with run.commit() as tx:
            children.extend([await tx.create_task(Scripted, name, owner=run.id) for name in names])
            await tx.wait(children, then=Scripted.Resume(), policy=policy, until=until)

    async def resume(run):
        outcomes = await run.outcomes_so_far(children)
        for child in children:
            async with run.commit() as tx:
                await tx.abort_task(child)
        await run.complete(" ".join("-" if one is None else one.__struct_config__.tag for one in outcomes))

    return {"run": run, "resume": resume}


@scene
async def test_the_first_that_completes_ends_the_wait_and_nobody_is_marked_for_it(script, session, root):
    """A failure before it does not end it."""
    script.gate("run:a", "run:b", "run:c", "resume:parent")
    script.on("a", run=lambda run: run.fail("no"))
    script.on("parent", **race("a", "b", "c", policy="firstCompleted"))
    task = await start(root, "parent")
    await script.began("run:a", "run:b", "run:c")
    script.open("run:a")
    await turns()
    assert "resume:parent" not in script.log
    script.open("run:b")
    await script.began("resume:parent")
    assert not any(record.abort_requested for record in await session.tasks())
    script.open("resume:parent")
    assert await task.result() == "failed completed -"
    assert script.log[-1] == "abort:c"


@scene
async def test_when_nobody_completes_the_wait_ends_with_the_last(script, session, root):
    for name in ("a", "b"):
        script.on(name, run=lambda run: run.fail("no"))
    script.on("parent", **race("a", "b", policy="firstCompleted"))
    assert await (await start(root, "parent")).result() == "failed failed"


@scene
async def test_a_quorum_ends_the_wait_when_it_is_reached(script, session, root):
    script.gate("run:a", "run:b", "run:c")
    script.on("parent", **race("a", "b", "c", policy=QUORUM))
    task = await start(root, "parent")
    await script.began("run:a", "run:b", "run:c")
    script.open("run:a")
    await turns()
    assert "resume:parent" not in script.log
    script.open("run:c")
    assert await task.result() == "completed - completed"


@scene
async def test_a_quorum_that_can_no_longer_be_reached_ends_the_wait(script, session, root):
    script.gate("run:a", "run:b", "run:c")
    for name in ("a", "b"):
        script.on(name, run=lambda run: run.fail("no"))
    script.on("parent", **race("a", "b", "c", policy=QUORUM))
    task = await start(root, "parent")
    await script.began("run:a", "run:b", "run:c")
    script.open("run:a")
    await turns()
    assert "resume:parent" not in script.log
    script.open("run:b")
    assert await task.result() == "failed failed -"


@scene
async def test_an_early_wait_may_name_tasks_of_others_and_ended_ones(script, session, root):
    """SC-11."""
    script.gate("run:slow")
    ended, slow = await start(root, "ended"), await start(root, "slow")
    await ended.result()
    script.on("a", run=lambda run: run.wait([slow, ended], then=Scripted.Resume(), policy="firstCompleted"))
    assert await (await start(root, "a")).result() == "a"
    script.on("b", run=lambda run: run.wait([slow, ended], then=Scripted.Resume(), policy=QUORUM))
    task = await start(root, "b")
    await script.began("run:b")
    await turns()
    assert "resume:b" not in script.log
    script.open("run:slow")
    assert await task.result() == "b"


@scene
async def test_a_racer_that_holds_its_outcome_has_not_completed_yet(script, session, root):
    """SC-17."""

    async def held(run):
        await run.spawn(Scripted, "below")
        await run.complete()

    script.gate("run:below", "run:other")
    script.on("held", run=held)
    script.on("parent", **race("held", "other", policy="firstCompleted"))
    task = await start(root, "parent")
    await script.began("run:below", "run:other")
    await turns()
    assert "resume:parent" not in script.log
    script.open("run:below")
    assert await task.result() == "completed -"


@scene
async def test_losers_hold_a_parent_that_finishes_without_ending_them(script, session, root):
    """SC-10: they are owned work like any other."""
    script.gate("run:slow")
    script.on("parent", run=spawn_and_wait("quick", "slow", policy="firstCompleted"))
    task = await start(root, "parent")
    await script.began("resume:parent", "run:slow")
    await turns()
    assert (await task.record()).state.__struct_config__.tag == "completing"
    script.open("run:slow")
    assert await task.result() == "parent"


# --- time limits


@pytest.mark.parametrize("policy", ["allSettled", "failFast", "firstCompleted", QUORUM], ids=str)
def test_a_wait_ends_at_its_time_whatever_its_tasks_do(policy, place):
    async def main():
        clock, script = VirtualClock(), Script()
        script.gate("run:a", "run:b")
        script.on("parent", **race("a", "b", policy=policy, until=clock.now() + HOUR))
        async with opened(place.store(), script, clock=clock) as system:
            _, root = await home(system)
            task = await start(root, "parent")
            await script.began("run:a", "run:b")
            await turns()
            clock.advance(3_599)
            await turns()
            assert "resume:parent" not in script.log
            clock.advance(1)
            assert await task.result() == "- -"

    asyncio.run(main())


def test_a_wait_whose_tasks_end_in_time_leaves_no_deadline_behind():
    async def main():
        clock, script = VirtualClock(), Script()
        script.on("parent", **race("a", "b", policy="allSettled", until=clock.now() + HOUR))
        async with opened(MemoryStorage(), script, clock=clock) as system:
            session, root = await home(system)
            assert await (await start(root, "parent")).result() == "completed completed"
            await turns()
            assert await system.next_deadline() is None
            assert (await session._core()).forest.deadline() is None

    asyncio.run(main())


@scene
async def test_two_tasks_may_wait_for_each_other_if_one_of_them_gives_up(script, session, root):
    """SC-14: a wait with a deadline closes no cycle, since it ends in any case."""
    script.gate("run:a", "run:b")
    a, b = await start(root, "a"), await start(root, "b")
    script.on("a", run=lambda run: run.wait([b], then=Scripted.Resume(), until=run.now() + 1))
    script.on("b", run=lambda run: run.wait([a], then=Scripted.Resume()))
    await script.began("run:a", "run:b")
    script.open("run:a")
    await turns()
    script.open("run:b")
    assert (await a.result(), await b.result()) == ("a", "b")


@scene
async def test_a_cycle_is_refused_also_where_another_racer_could_have_broken_it(script, session, root):
    """SC-14: the other may fail, and then both would wait for ever."""
    script.gate("run:a", "run:b", "run:other")
    a, b, other = [await start(root, name) for name in ("a", "b", "other")]
    script.on("a", run=lambda run: run.wait([b, other], then=Scripted.Resume(), policy="firstCompleted"))
    script.on("b", run=lambda run: run.wait([a], then=Scripted.Resume()))
    await script.began("run:a", "run:b", "run:other")
    script.open("run:a")
    await turns()
    script.open("run:b")
    assert "cycle" in (await b.settled()).state.outcome.error.message
    script.open("run:other")
    assert await a.result() == "a"


# --- after a restart


OVER = {
    "the first has completed": ("firstCompleted", [DONE, None, None]),
    "nobody has": ("firstCompleted", [BAD, BAD, BAD]),
    "the quorum is reached": (QUORUM, [DONE, BAD, DONE]),
    "the quorum is out of reach": (QUORUM, [BAD, BAD, None]),
}


@pytest.mark.parametrize("case", OVER)
def test_a_wait_that_had_ended_goes_on_at_the_next_open(case, place):
    """SC-39."""

    async def main():
        policy, ends = OVER[case]
        script = Script()
        script.gate("run:child")
        script.on("parent", resume=lambda run: run.fail("over"))
        await store_race(place, policy, ends)
        async with opened(place.store(), script) as system:
            await script.began("resume:parent")
            assert (await ref(system, 2).settled()).state.outcome == Failed(error=OutcomeError(message="over"))

    asyncio.run(main())


STILL = {
    "a failure is no first": ("firstCompleted", [BAD, BAD, None]),
    "one of two": (QUORUM, [DONE, BAD, None]),
    "none of two": (QUORUM, [BAD, None, None]),
}


@pytest.mark.parametrize("case", STILL)
def test_a_wait_that_had_not_ended_is_waited_on(case, place):
    """SC-43: also when another commit comes first, which must not take what is not known yet for what has not happened."""

    async def main():
        policy, ends = STILL[case]
        script = Script()
        script.gate("run:child")
        await store_race(place, policy, ends)
        async with opened(place.store(), script) as system:
            session = await system.session("s")
            async with session.commit() as tx:
                await tx.append("note", 1, conversation_id=1)
            await script.began("run:child")
            await turns()
            assert "resume:parent" not in script.log
            script.open("run:child")
            assert await ref(system, 2).result() == "parent"

    asyncio.run(main())


async def store_race(place, policy, ends):
    children = [
        record(3 + at, Running(checkpoint=RUN) if end is None else Terminal(outcome=end), owner=2, name="child")
        for at, end in enumerate(ends)
    ]
    await stored(place, record(2, waits(3, 4, 5, policy=policy), name="parent"), *children)


def test_a_crash_between_the_first_and_the_second_of_a_quorum_loses_neither(place):
    async def main():
        script = Script()
        script.gate("run:a", "run:b", "run:c")
        script.on("parent", run=spawn_and_wait("a", "b", "c", policy=QUORUM))
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "parent")
            await script.began("run:a", "run:b", "run:c")
            script.open("run:a")
            await turns()
            await crash(system)
        assert "resume:parent" not in script.log
        async with opened(place.store(), script) as system:
            await turns()
            script.open("run:c")
            await script.began("resume:parent")
            script.open("run:b")
            assert await ref(system, task.id).result() == "parent"

    asyncio.run(main())
