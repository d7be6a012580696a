"""Stored deadlines: they come while other work runs, behind other deadlines, and after a restart."""

import asyncio

import pytest
from perdure import MemoryStorage, TaskUnsuccessful, VirtualClock
from perdure.storage.faulty import FaultyStorage

from ..task.support import Script, Scripted, crash, home, opened, start, turns, until

HOUR = 3_600_000


def sleeper(clock, delay_ms, on=()):
    """A handler that parks until some time has passed."""

    async def run(run):
        await run.wait(on, then=Scripted.Resume(), until=clock.now() + delay_ms)

    return run


def test_a_sleeping_task_goes_on_at_its_time_and_holds_no_actor_meanwhile(place):
    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=sleeper(clock, HOUR))
        async with opened(place.store(), script, clock=clock) as system:
            session, root = await home(system)
            task = await start(root, "a")
            await until(lambda: script.log == ["run:a"])
            await until(lambda: not invocations(system))
            assert [record.state.until for record in await session.tasks()] == [clock.now() + HOUR]
            clock.advance(3_599)
            await turns()
            assert script.log == ["run:a"]
            clock.advance(1)
            assert await task.result() == "a"

    asyncio.run(main())


def invocations(system):
    return [
        record.state
        for record in system.inspect().sessions.get("s", [])
        if record.state.__struct_config__.tag == "running"
    ]


def test_a_deadline_comes_while_other_work_of_the_session_runs():
    async def main():
        clock, script = VirtualClock(), Script()
        script.on("sleeper", run=sleeper(clock, HOUR))
        script.gate("run:busy")
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            busy = await start(root, "busy")
            await script.began("run:busy")
            task = await start(root, "sleeper")
            await script.began("run:sleeper")
            await turns()
            clock.advance(3_600)
            assert await task.result() == "sleeper"
            script.open("run:busy")
            await busy.result()

    asyncio.run(main())


def test_a_deadline_comes_behind_an_earlier_one_that_ends_a_wait_for_another():
    async def main():
        clock, script = VirtualClock(), Script()
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            script.gate("run:busy")
            busy = await start(root, "busy")
            script.on("first", run=sleeper(clock, HOUR, on=[busy]))
            script.on("second", run=sleeper(clock, 2 * HOUR))
            first, second = await start(root, "first"), await start(root, "second")
            await script.began("run:first", "run:second")
            await turns()
            clock.advance(7_200)
            assert (await first.result(), await second.result()) == ("first", "second")
            script.open("run:busy")
            await busy.result()

    asyncio.run(main())


def test_stored_deadlines_come_after_a_restart_in_their_order(place):
    """B071."""

    async def main():
        clock, script = VirtualClock(), Script()
        names = ["c", "a", "b"]
        for name, delay in zip(names, (30_000, 10_000, 20_000), strict=True):
            script.on(name, run=sleeper(clock, delay))
        async with opened(place.store(), script, clock=clock) as system:
            for key in names:
                _, root = await home(system, key)
                await start(root, key)
            await script.began("run:a", "run:b", "run:c")
            await turns()
        assert await next_deadline(place) == clock.now() + 10_000
        script.log.clear()
        async with opened(place.store(), script, clock=clock) as system:
            await turns()
            assert system.inspect().sessions == {}  # nobody is awake before their time
            for name in sorted(names):
                clock.advance(10)
                await script.began(f"resume:{name}")
        assert script.log == ["resume:a", "resume:b", "resume:c"]

    asyncio.run(main())


async def next_deadline(place):
    store = place.store()
    await store.open()
    try:
        return await store.next_wake()
    finally:
        await store.close()


def test_deadlines_that_passed_while_nobody_ran_come_at_open(place):
    """B071: at once, and once."""

    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=sleeper(clock, HOUR))
        async with opened(place.store(), script, clock=clock) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            await turns()
        clock.advance(4_000)
        async with opened(place.store(), script, clock=clock) as system:
            await script.began("resume:a")
            session = await system.session("s")
            assert await (await session.task(task.id)).result() == "a"

    asyncio.run(main())


def test_a_deadline_beside_work_that_was_running_comes_after_a_crash():
    """The session is opened for the running work and commits nothing; its deadline comes all the same."""

    async def main():
        clock, script, store = VirtualClock(), Script(), MemoryStorage()
        script.on("sleeper", run=sleeper(clock, HOUR))
        script.gate("run:busy")
        async with opened(store, script, clock=clock) as system:
            _, root = await home(system)
            await start(root, "busy")
            await start(root, "sleeper")
            await script.began("run:busy", "run:sleeper")
            await turns()
            await crash(system)
        script.log.clear()
        async with opened(store, script, clock=clock) as system:
            await script.began("run:busy")
            await turns()
            clock.advance(3_600)
            await script.began("resume:sleeper")
            script.open("run:busy")

    asyncio.run(main())


def test_an_aborted_sleeper_is_not_woken_and_its_deadline_hides_no_other():
    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=sleeper(clock, HOUR))
        script.on("b", run=sleeper(clock, 2 * HOUR))
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            a, b = await start(root, "a"), await start(root, "b")
            await script.began("run:a", "run:b")
            await a.abort()
            with pytest.raises(TaskUnsuccessful):
                await a.result()
            assert await system.next_deadline() == clock.now() + 2 * HOUR
            clock.advance(7_200)
            assert await b.result() == "b"
        assert script.log == ["run:a", "run:b", "abort:a", "resume:b"]

    asyncio.run(main())


def test_a_session_that_cannot_be_opened_holds_up_nobody_elses_deadline():
    class Broken(FaultyStorage):
        async def session(self, session):
            if session == "broken":
                raise OSError("this one's pages are gone")
            return await self.inner.session(session)

    async def main():
        clock, script, store = VirtualClock(), Script(), MemoryStorage()
        async with opened(store, script, clock=clock) as system:
            for key, delay in (("broken", HOUR), ("fine", HOUR), ("later", 2 * HOUR)):
                _, root = await home(system, key)
                script.on(key, run=sleeper(clock, delay))
                await start(root, key)
            await script.began("run:broken", "run:fine", "run:later")
            await turns()
        script.log.clear()
        clock = VirtualClock(clock.now(), autojump=True)
        async with opened(Broken(store), script, clock=clock):
            await script.began("resume:fine", "resume:later")
        assert "resume:broken" not in script.log

    asyncio.run(main())


def test_a_session_that_commits_often_before_its_deadline_tells_it_once():
    """P10."""

    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=sleeper(clock, HOUR))
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            await start(root, "a")
            await script.began("run:a")
            for number in range(50):
                async with root.commit() as tx:
                    await tx.append("note", number)
            timer = system._actors.ref("timer")._incarnation.actor
            assert len(timer._told._queue) == 1

    asyncio.run(main())


def test_deadlines_of_a_session_that_are_replaced_do_not_pile_up():
    """P10: a task that sleeps again and again for a little, beside deadlines far away."""

    async def main():
        clock, script = VirtualClock(), Script()
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            for number in range(200):
                script.on(str(number), run=sleeper(clock, 10 * HOUR - number))
                task = await start(root, str(number))
                await script.began(f"run:{number}")
                await task.abort()
                await task.settled()
            timer = system._actors.ref("timer")._incarnation.actor
            assert len(timer._told) == 0
            assert len(timer._told._queue) < 100

    asyncio.run(main())


def test_a_wake_up_that_is_due_as_the_system_closes_is_kept_for_the_next_start():
    """B035."""

    async def main():
        clock, script, store = VirtualClock(), Script(), MemoryStorage()
        for round_ in range(20):
            name = str(round_)
            script.on(name, run=sleeper(clock, HOUR))
            async with opened(store, script, clock=clock) as system:
                _, root = await home(system)
                await start(root, name)
                await script.began(f"run:{name}")
                await turns()
                clock.advance(3_600)
            async with opened(store, script, clock=clock):
                await script.began(f"resume:{name}")
        assert [entry for entry in script.log if entry.startswith("resume")] == [f"resume:{n}" for n in range(20)]

    asyncio.run(main())
