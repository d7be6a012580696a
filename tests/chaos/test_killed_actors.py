"""Actors that are killed at any moment of a run: each is built again from storage, and the work ends as it would have."""

import asyncio

import perdure
import pytest

from . import scenario
from .scenario import KEY
from .world import World, until

PACE = {"tokens_per_second": 100}
ACTORS = ("storage", "timer", "sessions", f"guard:{KEY}", f"session:{KEY}")
RUN_MS = 800
"""Longer than a run takes on the virtual clock when nothing disturbs it."""


def kill_at(world, instants_ms, victims):
    """Kill, at each instant, the actors that ``victims(system)`` names."""

    def plan(system):
        for instant in instants_ms:
            world.clock.call_later(instant / 1_000, lambda: [system.kill(victim) for victim in victims(system)])

    return plan


def running_tasks(system):
    """The ids of all actors that run a task now, oldest first."""

    def walk(actors):
        for actor in actors:
            if actor["class"] == "TaskActor":
                yield actor["id"]
            yield from walk(actor["children"])

    return sorted(walk(system.inspect().actors), key=lambda actor: int(actor.rpartition("/")[2]))


VICTIMS = {
    **{actor: lambda system, actor=actor: [actor] for actor in ACTORS},
    "the oldest task": lambda system: running_tasks(system)[:1],
    "the newest task": lambda system: running_tasks(system)[-1:],
    "all tasks": running_tasks,
}


def test_the_instants_cover_the_whole_run():
    world = World()
    start = world.clock.now()
    asyncio.run(world.complete(**PACE))
    assert RUN_MS / 2 < world.clock.now() - start < RUN_MS


@pytest.mark.parametrize("victim", VICTIMS)
def test_whenever_an_actor_is_killed_the_work_ends_with_the_same_answer(victim):
    for instant in range(5, RUN_MS, 35):
        world = World()
        asyncio.run(world.complete(during=kill_at(world, [instant], VICTIMS[victim]), **PACE))
        assert len(world.failures) <= 1, f"killed after {instant} ms: {world.failures}"
        if "task" in victim:
            assert not world.failures, "a task's crash is no business of its session's callers"


@pytest.mark.parametrize("victim", VICTIMS)
def test_work_that_nobody_waits_for_goes_on_after_any_kill(victim):
    """The supervisors bring a session with live work back by themselves."""

    async def run(instant):
        world = World()
        async with world.open(**PACE) as system:
            submission = await scenario.submit(system)
            kill_at(world, [instant], VICTIMS[victim])(system)
            await world.clock.sleep(60)
            stored = await scenario.read_stored(world.storage)
        assert stored.submissions[submission.id].status == "done", f"killed after {instant} ms"
        scenario.check_finished(stored, world.ledger)

    for instant in range(20, 500, 80):
        asyncio.run(run(instant))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("victim", ["storage", "timer", "sessions", f"session:{KEY}"])
def test_an_actor_that_is_killed_while_a_commit_is_written_leaves_nothing_in_doubt(victim, when):
    """B044: what follows finds the commit written, or certainly not."""
    for write in range(1, 13):
        world = World()

        def kill(system, world=world, write=write):
            async def action():
                system.kill(victim)

            world.storage.call(write, when, action)

        asyncio.run(world.complete(during=kill))


def test_a_session_is_not_opened_again_before_the_commits_of_its_last_life_are_written():
    """B044, B158: else it would go on from a past that storage is about to leave behind."""

    async def run():
        world = World()
        async with world.open() as system:
            held = world.storage.hold(2)
            first = asyncio.ensure_future(scenario.submit(system))
            await until(lambda: world.storage.writes == 2)
            system.kill(f"session:{KEY}")
            with pytest.raises(perdure.SessionFailed):
                await first
            again = asyncio.ensure_future(scenario.submit(system))
            for _ in range(100):  # by hand: the clock does not jump while storage is at work
                world.clock.advance(0.05)
                await asyncio.sleep(0)
            assert KEY not in system.inspect().sessions
            held.set()
            assert (await (await again).wait()).status == "done"
            scenario.check_finished(await scenario.read_stored(world.storage), world.ledger)

    asyncio.run(run())


def test_killing_every_actor_again_and_again_delays_the_work_and_no_more():
    world = World()
    instants = range(40, 1_000, 90)

    def plan(system):
        for number, instant in enumerate(instants):
            victim = [*VICTIMS][number % len(VICTIMS)]
            kill_at(world, [instant], VICTIMS[victim])(system)

    asyncio.run(world.complete(during=plan, **PACE))


def test_killing_the_root_ends_the_system_and_nobody_waits_for_ever():
    async def run():
        world = World()
        async with world.open(**PACE) as system:
            submission = await scenario.submit(system)
            waiting = asyncio.ensure_future(submission.wait())
            await world.clock.sleep(0.1)
            assert system.kill("root")
            with pytest.raises((perdure.SessionFailed, perdure.SessionClosed)):
                await waiting
            with pytest.raises(perdure.SessionClosed):
                await scenario.submit(system)
        world.failures.clear()
        await world.complete()

    asyncio.run(run())
