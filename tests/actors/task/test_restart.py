"""Let it crash: a phase that raises runs again from its checkpoint, so often, so far apart; then the task faults."""

import asyncio
from functools import partial

import pytest
from perdure import Backoff, Faulted, MemoryStorage, Restart, VirtualClock
from structlog.testing import capture_logs

from .support import Script, Scripted, crash, home, opened, outcome, scripted, start, turns, until
from .test_engine import ref

EXACT = Backoff(first_s=10.0, factor=2.0, max_s=60.0, jitter=0.0)
Crashing = scripted(name="test.crashing", restart=Restart(max=3, within=600.0, backoff=EXACT))


class Crashes:
    """A handler that raises so many times and completes then; it notes when it was run."""

    def __init__(self, times, clock, error=RuntimeError):
        self.left = times
        self.at = []
        self._clock = clock
        self._error = error

    async def __call__(self, run):
        self.at.append(self._clock.now())
        self.left -= 1
        if self.left >= 0:
            raise self._error("again")
        await run.complete(run.input)

    @property
    def gaps(self):
        return [(after - before) / 1_000 for before, after in zip(self.at, self.at[1:], strict=False)]


def stage(place, clock, script):
    return opened(place.store(), script, Scripted, Crashing, clock=clock)


def test_a_phase_that_raises_runs_again_after_its_backoff(place):
    async def main():
        clock, script = VirtualClock(autojump=True), Script()
        script.on("a", run=Crashes(3, clock))
        async with stage(place, clock, script) as system:
            _, root = await home(system)
            with capture_logs() as logs:
                assert await (await start(root, "a", kind=Crashing)).result() == "a"
        assert script.steps["run:a"].gaps == [10, 20, 40]
        told = [entry for entry in logs if entry["event"] == "task_restarting"]
        assert [entry["attempt"] for entry in told] == [1, 2, 3]
        assert told[0] | {"until": 0} == {
            "event": "task_restarting",
            "log_level": "warning",
            "session": "s",
            "task": 7,
            "kind": "test.crashing",
            "attempt": 1,
            "until": 0,
        }

    asyncio.run(main())


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt, MemoryError, GeneratorExit])
def test_one_crash_more_faults_the_task_and_is_reported_once(error, place):
    """B037, B032: exactly the configured number, with growing delays; then it is over, and nothing runs any more."""

    async def main():
        clock, script = VirtualClock(autojump=True), Script()
        script.on("a", run=Crashes(100, clock, error))
        async with stage(place, clock, script) as system:
            _, root = await home(system)
            with capture_logs() as logs:
                task = await start(root, "a", kind=Crashing)
                fault = await outcome(task)
            assert isinstance(fault, Faulted)
            assert fault.error.message == "again"
            assert (await task.record()).restarts is not None
            assert script.steps["run:a"].gaps == [10, 20, 40]
            assert [entry["restarts"] for entry in logs if entry["event"] == "task_escalated"] == [3]
            clock.advance(10_000)
            await turns()
            assert script.log == ["run:a"] * 4
            assert await system.next_deadline() is None

    asyncio.run(main())


def test_progress_before_the_crash_is_where_it_goes_on():
    async def main():
        clock, script = VirtualClock(autojump=True), Script()

        async def run(run):
            await run.goto(Crashing.Resume())
            raise RuntimeError("after that")

        script.on("a", run=run)
        async with opened(MemoryStorage(), script, Crashing, clock=clock) as system:
            _, root = await home(system)
            assert await (await start(root, "a", kind=Crashing)).result() == "a"
        assert script.log == ["run:a", "resume:a"]

    asyncio.run(main())


def test_crashes_far_apart_never_use_the_budget_up():
    async def main():
        clock, script = VirtualClock(autojump=True), Script()

        async def run(run):
            if script.log.count("run:a") <= 20:
                await run.sleep_until(run.now() + 601_000)
                raise RuntimeError("again")
            await run.complete("a")

        script.on("a", run=run)
        async with opened(MemoryStorage(), script, Crashing, clock=clock) as system:
            _, root = await home(system)
            assert await (await start(root, "a", kind=Crashing)).result() == "a"
        assert script.log == ["run:a"] * 21

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Scripted, Crashing])
def test_a_phase_without_progress_faults_at_once(kind):
    """TS-16: that is no crash."""

    async def main():
        clock, script = VirtualClock(), Script()

        async def nothing(run):
            pass

        script.on("a", run=nothing)
        async with opened(MemoryStorage(), script, Scripted, Crashing, clock=clock) as system:
            _, root = await home(system)
            fault = await outcome(await start(root, "a", kind=kind))
            assert fault.error.message == "returned without durable progress"

    asyncio.run(main())


def test_a_crash_of_an_abort_handler_is_not_tried_again():
    async def main():
        clock, script = VirtualClock(), Script()

        async def abort(run):
            raise RuntimeError("no")

        script.gate("run:a")
        script.on("a", abort=abort)
        async with opened(MemoryStorage(), script, Crashing, clock=clock) as system:
            _, root = await home(system)
            task = await start(root, "a", kind=Crashing)
            await script.began("run:a")
            await task.abort()
            assert isinstance(await outcome(task), Faulted)

    asyncio.run(main())


def test_the_backoff_holds_no_actor_and_an_abort_ends_it(place):
    """B058: no further try after the abort."""

    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=Crashes(100, clock))
        async with stage(place, clock, script) as system:
            session, root = await home(system)
            task = await start(root, "a", kind=Crashing)
            await until(lambda: waiting(system, task))
            core = await session._core()
            await until(lambda: not core.scheduler.invocations)
            assert await system.next_deadline() == clock.now() + 10_000
            await task.abort()
            assert (await outcome(task)).__struct_config__.tag == "aborted"
            clock.advance(1_000)
            await turns()
        assert script.log == ["run:a", "abort:a"]

    asyncio.run(main())


def waiting(system, task):
    (record,) = [one for one in system.inspect().sessions["s"] if one.id == task.id]
    return record.state.__struct_config__.tag == "waiting"


def test_the_count_and_the_backoff_outlive_the_process(place):
    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=Crashes(100, clock))
        task = None
        for lifetime, gap in enumerate([10, 20, 40, None]):
            async with stage(place, clock, script) as system:
                _, root = await home(system)
                task = task or await start(root, "a", kind=Crashing)
                await until(lambda lifetime=lifetime: len(script.log) == lifetime + 1)
                if gap is None:
                    assert isinstance(await outcome(ref(system, task.id)), Faulted)
                    break
                await until(partial(waiting, system, task))
                await crash_when_stored(system)
            clock.advance(gap - 1)
            async with stage(place, clock, script) as system:
                await home(system)
                await turns()
                assert len(script.log) == lifetime + 1
                await crash_when_stored(system)
            clock.advance(1)
        assert script.steps["run:a"].gaps == [10, 20, 40]

    asyncio.run(main())


async def crash_when_stored(system):
    session = await system.session("s")
    await (await session._core()).drained()
    await crash(system)


def test_a_tree_whose_child_restarts_holds_its_parent_until_it_is_through(place):
    """SC-19."""

    async def main():
        clock, script = VirtualClock(autojump=True), Script()

        async def parent(run):
            await run.spawn(Crashing, "child")
            await run.complete("parent")

        script.on("parent", run=parent)
        script.on("child", run=Crashes(2, clock))
        async with stage(place, clock, script) as system:
            _, root = await home(system)
            assert await (await start(root, "parent")).result() == "parent"
        assert script.log == ["run:parent", *["run:child"] * 3]

    asyncio.run(main())
