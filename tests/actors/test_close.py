"""Closing with a grace: what runs may end its phase, nothing begins, and what does not end goes on in the next life."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from perdure import MemoryStorage, SessionClosed, SqliteStorage, VirtualClock

from .task.support import Script, Scripted, home, opened, spawn_and_wait, start, turns, until

GRACE_S = 5


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request, tmp_path):
    """Every call opens the same data, as a restarted process would."""
    memory = MemoryStorage()
    return lambda: memory if request.param == "memory" else SqliteStorage(tmp_path / "store.db", durability="process")


async def goes_on(run):
    await run.goto(Scripted.Resume())


def test_a_running_phase_may_end_and_whoever_waits_for_it_gets_its_result():
    """B046."""

    async def main():
        clock, script = VirtualClock(), Script()
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            script.gate("run:a")
            task = await start(root, "a")
            await script.began("run:a")
            waiting = asyncio.create_task(task.result())
            await turns()
            closing = asyncio.create_task(system.close(grace_s=GRACE_S))
            await turns()
            assert not closing.done()
            script.open("run:a")
            await closing
            assert await waiting == "a"
            assert clock.now() == VirtualClock().now()  # and it took no longer than that

    asyncio.run(main())


def test_nothing_begins_during_the_grace_and_everything_goes_on_in_the_next_life(open_store):
    """B046, CR-07: neither a next phase, nor a task, nor a deadline."""

    async def main():
        clock, script = VirtualClock(), Script()
        script.on("phases", run=goes_on)
        script.on("sleeper", run=lambda run: run.wait(then=Scripted.Resume(), until=clock.now() + 2_000))
        script.on("parent", run=spawn_and_wait("child"))
        script.gate("run:phases", "run:parent")
        async with opened(open_store(), script, clock=clock) as system:
            _, root = await home(system)
            tasks = [await start(root, name) for name in ("phases", "sleeper", "parent")]
            await script.began("run:phases", "run:sleeper", "run:parent")
            await until(lambda: all(core.seq == core.gate.durable for core in system._sessions.active()))
            closing = asyncio.create_task(system.close(grace_s=GRACE_S))
            await turns()
            clock.advance(3)
            script.open("run:phases", "run:parent")
            await closing
        assert script.log == ["run:phases", "run:sleeper", "run:parent"]
        script.log.clear()
        async with opened(open_store(), script, clock=clock) as system:
            session, _ = await home(system)
            assert [await (await session.task(one.id)).result() for one in tasks] == ["phases", "sleeper", "parent"]
        assert sorted(script.log) == ["resume:parent", "resume:phases", "resume:sleeper", "run:child"]

    asyncio.run(main())


def test_who_comes_from_outside_is_refused_and_code_at_work_is_not():
    """B046."""

    async def main():
        script = Script()
        async with opened(MemoryStorage(), script, clock=VirtualClock()) as system:
            session, root = await home(system)

            async def works(run):
                async with root.commit() as tx:  # by a handle, as tools do
                    await tx.append("note", 1)
                assert len((await root.entries()).items) == 1
                await run.complete("done")

            script.on("a", run=works)
            script.gate("run:a")
            task = await start(root, "a")
            await script.began("run:a")
            waiting = asyncio.create_task(task.result())
            await turns()
            closing = asyncio.create_task(system.close(grace_s=GRACE_S))
            await turns()
            for call in (session.tasks, lambda: start(root, "b"), root.abort, lambda: system.session("new")):
                with pytest.raises(SessionClosed):
                    await call()
            with pytest.raises(SessionClosed):
                await system.delete_session("s")
            script.open("run:a")
            await closing
            assert await waiting == "done"

    asyncio.run(main())


def test_what_does_not_end_is_cancelled_when_the_grace_is_over_and_runs_again():
    async def main():
        clock, script, store = VirtualClock(), Script(), MemoryStorage()
        script.gate("run:a")
        async with opened(store, script, clock=clock) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            closing = asyncio.create_task(system.close(grace_s=GRACE_S))
            await turns()
            clock.advance(GRACE_S - 0.001)
            await turns()
            assert not closing.done()
            clock.advance(0.001)
            await closing
        script.open("run:a")
        async with opened(store, script, clock=clock) as system:
            assert await (await (await home(system))[0].task(task.id)).result() == "a"
        assert script.log == ["run:a", "run:a"]

    asyncio.run(main())


def test_closing_again_ends_the_grace():
    async def main():
        script = Script()
        async with opened(MemoryStorage(), script, clock=VirtualClock()) as system:
            _, root = await home(system)
            script.gate("run:a")
            await start(root, "a")
            await script.began("run:a")
            closing = asyncio.create_task(system.close(grace_s=1_000_000))
            await turns()
            await system.close()
            await closing

    asyncio.run(main())


def test_whoever_stops_waiting_for_the_grace_may_close_again():
    async def main():
        script = Script()
        async with opened(MemoryStorage(), script, clock=VirtualClock()) as system:
            _, root = await home(system)
            script.gate("run:a")
            await start(root, "a")
            await script.began("run:a")
            closing = asyncio.create_task(system.close(grace_s=1_000_000))
            await turns()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            with pytest.raises(SessionClosed):
                await root.entries()

    asyncio.run(main())


@pytest.mark.parametrize("actor", ["session:s", "task:s/7", "storage", "sessions"])
def test_a_crash_during_the_grace_starts_nothing_and_ends_it_at_the_latest_in_time(actor):
    async def main():
        clock, script, store = VirtualClock(autojump=True), Script(), MemoryStorage()
        script.gate("run:a")
        async with opened(store, script, clock=clock) as system:
            _, root = await home(system)
            await start(root, "a")
            await script.began("run:a")
            closing = asyncio.create_task(system.close(grace_s=GRACE_S))
            await turns()
            assert system.kill(actor)
            await closing
        assert script.log == ["run:a"]
        script.open("run:a")
        async with opened(store, script, clock=clock):
            await script.began("run:a")

    asyncio.run(main())


def slowly(step):
    async def run(run):
        await turns(5)
        await step(run)

    return run


@pytest.mark.parametrize("grace_s", [0, GRACE_S])
def test_a_tree_that_is_closed_at_any_step_ends_as_if_it_had_not_been(grace_s):
    """CR-03."""

    async def main():
        met = set()
        for lead in range(0, 60, 2):
            clock, script, store = VirtualClock(autojump=True), Script(), MemoryStorage()
            script.on("a", run=slowly(spawn_and_wait("b", "c")), resume=slowly(lambda run: run.complete("all")))
            script.on("b", run=slowly(goes_on))
            script.on("c", run=lambda run: run.wait(then=Scripted.Resume(), until=clock.now() + 10))  # noqa: B023
            async with opened(store, script, clock=clock) as system:
                _, root = await home(system)
                task = await start(root, "a")
                await turns(lead)
                await system.close(grace_s=grace_s)
            met.add(tuple(script.log))
            async with opened(store, script, clock=clock) as system:
                assert await (await (await home(system))[0].task(task.id)).result() == "all"
            ran = [one for one in script.log if one.startswith("resume")]
            assert set(ran) == {"resume:a", "resume:b", "resume:c"}
            if grace_s:  # every phase came to its end, so none had to run twice
                assert sorted(script.log) == sorted(set(script.log))
        assert len(met) >= 3, "it was always closed at the same step"

    asyncio.run(main())


DAEMON = """
    import asyncio, signal, sys
    import perdure

    @perdure.tool
    async def long() -> str:
        '''Take very long, in a process.'''
        child = await asyncio.create_subprocess_exec("sleep", "60")
        print("child", child.pid, flush=True)
        try:
            await child.wait()
        finally:
            child.kill()
            await child.wait()
        return "slept"

    async def brain(request):
        text = perdure.models.plain_text(request.messages[-1].content)
        if text == "long":
            return perdure.models.call("long")
        print("thinking", flush=True)
        await stop.wait()  # what is short ends after the signal, within the grace
        return "short answer"

    stop = asyncio.Event()

    async def main():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        system = perdure.System.open(
            sys.argv[1],
            models=[perdure.ScriptedModel(brain)],
            extensions=[perdure.Extension(name="kit", tools=[long])],
        )
        async with system:
            for key in ("long", "short"):
                root = await (await system.session(key)).root(agent=perdure.Agent(model="scripted/model"))
                await root.submit(key, request_id="1")
            print("ready", flush=True)
            await stop.wait()
            await system.close(grace_s=2)

    asyncio.run(main())
"""


def test_a_terminated_daemon_ends_what_is_short_keeps_what_is_long_and_leaves_no_process(tmp_path):
    """B046."""
    path = tmp_path / "store.db"
    daemon = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DAEMON), str(path)], stdout=subprocess.PIPE, text=True
    )
    child = None
    lines = iter(daemon.stdout.readline, "")
    seen = set()
    while {"ready", "child", "thinking"} - seen:
        word, *rest = next(lines).split()
        seen.add(word)
        child = int(rest[0]) if word == "child" else child
    daemon.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert daemon.wait(timeout=30) == 0
    assert time.monotonic() - began < 20
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    daemon.stdout.close()

    async def look():
        store = SqliteStorage(path)
        await store.open()
        try:
            statuses = {}
            for key in ("long", "short"):
                record = await store.submission_by_request(key, 1, "1")
                statuses[key] = (record.status, len(await store.live_tasks(key)))
            return statuses
        finally:
            await store.close()

    statuses = asyncio.run(look())
    assert statuses["short"] == ("done", 0)
    assert statuses["long"] == ("placed", 2)  # the run and its tool go on when the store is opened again
