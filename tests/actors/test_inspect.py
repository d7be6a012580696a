"""What a system says of itself."""

import asyncio

from perdure import MemoryStorage, VirtualClock
from perdure.storage.faulty import FaultyStorage

from .task.support import Script, Scripted, home, opened, spawn_and_wait, start, turns, until


def test_every_active_session_is_there_with_its_figures():
    async def main():
        clock, script, storage = VirtualClock(autojump=True), Script(), FaultyStorage(MemoryStorage())
        async with opened(storage, script, clock=clock) as system:
            session, root = await home(system)
            await home(system, "other")
            script.gate("run:b", "run:c")
            script.on("a", run=spawn_and_wait("b", "c"))
            await start(root, "a")
            await script.began("run:b", "run:c")
            watch = await session.watch_tasks()
            await turns()
            seen = system.inspect()
            assert sorted(seen.figures) == sorted(seen.sessions) == ["other", "s"]
            assert seen.figures["other"].tasks == {}
            busy = seen.figures["s"]
            assert busy.tasks == {"waiting": 1, "running": 2}
            assert (busy.invocations, busy.blocked, busy.undurable, busy.restarts) == (2, {}, 0, 0)
            assert (busy.watchers, busy.idle_s) == (1, 0.0)
            watch.stop()
            release = storage.hold(storage.writes + 1)
            writing = asyncio.create_task(root.abort())
            await turns()
            assert system.inspect().figures["s"].undurable == 3
            release.set()
            script.open("run:b", "run:c")
            await writing

    asyncio.run(main())


def test_crashes_are_counted_and_a_task_without_code_says_why_it_stands_still():
    async def main():
        clock, script = VirtualClock(autojump=True), Script()
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            script.gate("run:a")
            task = await start(root, "a")
            await script.began("run:a")
            script.log.clear()
            assert system.kill(f"task:s/{task.id}")
            await script.began("run:a")
            assert system.inspect().figures["s"].restarts == 1
            system.registry.uninstall("test")
            system.kill("session:s")
            while not (system.inspect().figures.get("s") and system.inspect().figures["s"].blocked):
                await asyncio.sleep(0.001)
            seen = system.inspect().figures["s"]
            assert (seen.blocked, seen.tasks, seen.restarts) == ({task.id: "missing_task"}, {"running": 1}, 1)

    asyncio.run(main())


def test_the_next_deadline_is_known_without_asking_storage_also_of_sessions_that_are_away():
    async def main():
        clock, script = VirtualClock(), Script()
        async with opened(MemoryStorage(), script, clock=clock) as system:
            for key, delay in (("late", 7_200_000), ("early", 3_600_000)):
                _, root = await home(system, key)
                script.on(key, run=lambda run, delay=delay: run.wait(then=Scripted.Resume(), until=clock.now() + delay))
                await start(root, key)
            await script.began("run:late", "run:early")
            await turns()
            due = clock.now() + 3_600_000
            assert system.inspect().next_deadline == due == await system.next_deadline()
            clock.advance(60)
            await until(lambda: not system.inspect().sessions)
            assert system.inspect().next_deadline == due == await system.next_deadline()
            clock.advance(3_540)
            await script.began("resume:early")
            await turns()
            assert system.inspect().next_deadline == due + 3_600_000 == await system.next_deadline()

    asyncio.run(main())


def test_a_system_that_is_not_open_has_nothing_to_show():
    async def main():
        async with opened(MemoryStorage(), Script()) as system:
            pass
        seen = system.inspect()
        assert (seen.actors, seen.sessions, seen.figures, seen.next_deadline) == ([], {}, {}, None)

    asyncio.run(main())
