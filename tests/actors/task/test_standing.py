"""What inspection says of live tasks, in every state that they can be in; it runs nothing for that."""

import asyncio

from perdure import Completed, MemoryStorage, VirtualClock
from perdure.actors.task.standing import Standing
from perdure.storage.records import Completing, Pending, Waiting

from .support import Script, Scripted, home, opened, scripted, spawn_and_wait, start, turns, until
from .test_engine import RUN, definitions, record, ref, stored

NEVER = 2**50


def parked(on, until=None):
    return Waiting(checkpoint={"phase": "resume"}, on=on, policy="allSettled", until=until)


def standings(system, key="s"):
    return system.inspect().standing.get(key, {})


def stage(test, *kinds):
    """Run a test on a system with a clock of its own."""

    async def main():
        script = Script()
        async with opened(MemoryStorage(), script, *kinds, clock=VirtualClock()) as system:
            session, root = await home(system)
            await test(system, script, session, root)

    asyncio.run(main())


def test_a_task_whose_code_runs_is_running():
    """TS-29."""

    async def test(system, script, session, root):
        script.gate("run:a")
        task = await start(root, "a")
        await script.began("run:a")
        assert standings(system) == {task.id: Standing(kind="running")}
        script.open("run:a")
        await task.settled()
        assert standings(system) == {}

    stage(test)


def test_a_held_task_is_completing_and_names_the_work_that_holds_it():
    """TS-29, SC-19."""

    async def test(system, script, session, root):
        async def run(run):
            made.append(await run.spawn(Scripted, "child"))
            await run.complete()

        made = []
        script.gate("run:child")
        script.on("a", run=run)
        task = await start(root, "a")
        await script.began("run:child")
        await turns()
        assert standings(system)[task.id] == Standing(kind="completing", on=[made[0].id])
        script.open("run:child")
        await task.settled()

    stage(test)


def test_a_waiting_task_names_those_that_are_still_live_and_its_time():
    """TS-29."""

    async def test(system, script, session, root):
        script.gate("run:b", "run:c")
        b, c = await start(root, "b"), await start(root, "c")
        script.on("a", run=lambda run: run.wait([c, b, c], then=Scripted.Resume(), until=NEVER))
        task = await start(root, "a")
        await script.began("run:a")
        await turns()
        assert standings(system)[task.id] == Standing(kind="waiting", on=[c.id, b.id], until=NEVER)
        script.open("run:c")
        await c.settled()
        assert standings(system)[task.id] == Standing(kind="waiting", on=[b.id], until=NEVER)
        script.open("run:b")
        await task.settled()

    stage(test)


def test_an_aborted_task_waits_for_the_work_below_it():
    """SC-27."""

    async def test(system, script, session, root):
        script.gate("run:child", "abort:child")
        script.on("owner", run=spawn_and_wait("child"))
        task = await start(root, "owner")
        await script.began("run:child")
        await task.abort()
        await script.began("abort:child")
        (child,) = set(standings(system)) - {task.id}
        assert standings(system) == {
            task.id: Standing(kind="waiting", on=[child]),
            child: Standing(kind="running"),
        }
        script.open("abort:child")
        await task.settled()

    stage(test)


def test_a_blocked_task_says_why_and_its_record_stays_as_it_is():
    """TS-06, TS-09, TS-29."""

    async def test(system, script, session, root):
        script.gate("run:awaited")
        awaited = await start(root, "awaited", kind=other)
        script.on("a", run=lambda run: run.wait([awaited], then=Scripted.Resume(note="old")))
        task = await start(root, "a")
        await script.began("run:a", "run:awaited")
        await turns()
        definitions(session).uninstall("test.script")
        assert standings(system)[task.id].kind == "waiting"
        script.open("run:awaited")
        await awaited.settled()
        await turns()
        assert standings(system)[task.id] == Standing(kind="blocked", reason="missing_task")
        assert isinstance((await task.record()).state, Waiting)
        second = scripted(2, migrate=lambda _, checkpoint, __: (checkpoint["note"], second.Resume()))
        definitions(session).install(second)
        assert await task.result() == "old"
        newer = await start(root, "newer", kind=scripted(5))
        await turns()
        assert standings(system)[newer.id] == Standing(kind="blocked", reason="task_too_old")

    other = scripted(name="test.other")
    stage(test, Scripted, other)


def test_a_migration_is_announced_not_run_and_a_failed_one_blocks_with_its_error():
    """TS-29."""
    tries = []

    def migrate(*given):
        tries.append(given)
        raise RuntimeError("not yet written")

    async def test(system, script, session, root):
        task = await start(root, "a", kind=Scripted)
        await until(lambda: tries)
        await turns()
        assert standings(system)[task.id] == Standing(
            kind="blocked", reason="migration_failed", error="not yet written"
        )
        engine = (await session._core()).scheduler
        engine.consider = lambda tasks: None  # so that the next code is installed and nobody has looked at it yet
        definitions(session).install(scripted(3, migrate=migrate))
        assert standings(system)[task.id] == Standing(kind="ready", migrates=True)
        assert len(tries) == 1

    stage(test, scripted(2, migrate=migrate))


def test_an_aborted_owner_of_a_conversation_with_work_waits_for_it_after_a_restart(place):
    """SC-44: whether inspected at once or later; the inner task is aborted first."""

    async def main():
        script = Script()
        script.gate("abort:inner")
        await stored(
            place,
            record(2, Pending(checkpoint=RUN), name="owner", marked=True),
            record(3, Pending(checkpoint=RUN), owner=2, name="inner"),
            record(4, Completing(outcome=Completed()), name="held"),
            record(5, parked([6]), owner=4, name="below"),
            record(6, parked([], until=NEVER), name="sleeper"),
        )
        async with opened(place.store(), script) as system:
            await script.began("abort:inner")
            assert standings(system) == {
                2: Standing(kind="waiting", on=[3]),
                3: Standing(kind="running"),
                4: Standing(kind="completing", on=[5]),
                5: Standing(kind="waiting", on=[6]),
                6: Standing(kind="waiting", until=NEVER),
            }
            script.open("abort:inner")
            await ref(system, 2).settled()
        assert script.log == ["abort:inner", "abort:owner"]

    asyncio.run(main())
