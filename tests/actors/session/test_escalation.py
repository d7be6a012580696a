"""One session whose actors crash in a loop: how often, who is told, and who never notices."""

import asyncio
from itertools import pairwise

import pytest
from perdure import (
    Agent,
    Extension,
    MemoryStorage,
    ScriptedModel,
    SessionFailed,
    Settings,
    SqliteStorage,
    System,
    VirtualClock,
)
from perdure.actors.session.actors import (
    BACKOFF,
    PERIOD_S,
    RESTARTS,
    TASK_BACKOFF,
    TASK_PERIOD_S,
    TASK_RESTARTS,
)
from structlog.testing import capture_logs

from ..task.support import Script, Scripted, home, start
from .test_supervision import Flaky

HEALTHY = [f"healthy-{number}" for number in range(50)]
NAPS = 40
NAP_MS = 10_000
CRASHES = (TASK_RESTARTS + 1) * (RESTARTS + 1)


def test_the_budget_of_a_sessions_lives_covers_lives_that_end_by_the_budget_of_their_tasks():
    """B037: else old restarts would drop out of the window as fast as new ones come in."""
    assert TASK_BACKOFF.longest_s(TASK_RESTARTS) < TASK_PERIOD_S
    assert RESTARTS * TASK_BACKOFF.longest_s(TASK_RESTARTS) + BACKOFF.longest_s(RESTARTS) < PERIOD_S


class Deaths:
    """A handler that has its own actor killed whenever it begins, as a bug in the runtime would; it notes when."""

    def __init__(self, system, actor):
        self.at = []
        self._system = system
        self._actor = actor

    async def __call__(self, run):
        self.at.append(run.now())
        self._system.kill(self._actor(run))
        await asyncio.Event().wait()


async def nap(run):
    """Sleep and wake, again and again, while something else crashes."""
    naps = len(await run.memos())
    await run.memo(str(naps), naps)
    if naps < NAPS:
        await run.wait(then=Scripted.Run() if naps % 2 else Scripted.Resume(), until=run.now() + NAP_MS)
    else:
        await run.complete(run.input)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_crash_loop_is_bounded_reported_once_and_noticed_by_nobody_else(store, tmp_path):
    """B037, B031, P8: the task's actor, then its session, then the session's guard give up, each after its own budget."""

    async def main():
        clock, script = VirtualClock(autojump=True), Script()
        model = ScriptedModel(lambda request: "well")
        storage = MemoryStorage() if store == "memory" else SqliteStorage(tmp_path / "s.db", durability="process")
        system = System.open(
            storage,
            models=[model],
            extensions=[Extension(name="test", tasks=(Scripted,))],
            settings=Settings(idle_after_s=None),  # so that another incarnation means a crash
            clock=clock,
        )
        system.services.provide(Script, script)
        deaths = Deaths(system, lambda run: f"task:{run.session}/{run.id}")
        script.on("loops", run=deaths)
        for key in HEALTHY:
            script.on(key, run=nap, resume=nap)
        async with system:
            with capture_logs() as logs:
                homes = [await home(system, key) for key in HEALTHY]
                cores = {session.key: await session._core() for session, _ in homes}
                tasks = [await start(root, session.key) for session, root in homes]
                _, bad = await home(system, "bad")
                loops = await start(bad, "loops")
                with pytest.raises(SessionFailed):
                    await loops.result()
                for _, root in homes:
                    await root.configure(Agent(model=model.name))
                answers = [await root.submit("how are you?") for _, root in homes]
                assert [(await answer.wait()).text for answer in answers] == ["well"] * 50
                assert [await task.result() for task in tasks] == HEALTHY
            assert {key: await system.core(key) for key in HEALTHY} == cores
            check_deaths(deaths.at)
            check_reports(logs)
            assert "RestartIntensityExceeded" in system.inspect().given_up["bad"]
            script.on("loops", run=lambda run: run.complete("at last"))
            assert await loops.result() == "at last"  # somebody has asked
            assert system.inspect().given_up == {}

    asyncio.run(main())


def check_deaths(at):
    """Never more than its budget in any period, never twice at a time, and at an end long before the others."""
    assert len(at) == CRASHES
    assert all(after > before for before, after in pairwise(at))
    in_one_life = [at[begin : begin + TASK_RESTARTS + 1] for begin in range(0, CRASHES, TASK_RESTARTS + 1)]
    for life in in_one_life:
        assert life[-1] - life[0] < TASK_PERIOD_S * 1_000
        assert life[-1] - life[0] > (TASK_RESTARTS - 6) * 1_000  # after six restarts they come a second apart


def check_reports(logs):
    told = [log for log in logs if log["event"] == "session_given_up"]
    assert [(log["session"], log["log_level"]) for log in told] == [("bad", "error")]
    escalated = [log["supervisor"] for log in logs if log["event"] == "supervisor_escalated"]
    assert escalated == ["session:bad"] * (RESTARTS + 1) + ["guard:bad"]
    assert not [log for log in logs if log["log_level"] != "debug" and "healthy" in str(log)]


@pytest.mark.parametrize("actor", ["session", "task"])
def test_a_few_crashes_cost_a_few_restarts_and_nobody_is_told_of_an_end(actor):
    async def main():
        clock, script = VirtualClock(autojump=True), Script()
        system = System.open(MemoryStorage(), extensions=[Extension(name="test", tasks=(Scripted,))], clock=clock)
        system.services.provide(Script, script)
        deaths = Deaths(system, lambda run: "session:s" if actor == "session" else f"task:s/{run.id}")

        async def run(run):
            await (deaths(run) if len(deaths.at) < RESTARTS else run.complete("done"))

        script.on("a", run=run)
        async with system:
            with capture_logs() as logs:
                _, root = await home(system)
                task = await start(root, "a")
                while script.log.count("run:a") <= RESTARTS:
                    script._news.clear()
                    await script._news.wait()
                assert await task.result() == "done"
            assert not [log for log in logs if log["event"] in ("supervisor_escalated", "session_given_up")]
            restarts = [log for log in logs if log["event"] == "child_restarting"]
            assert [log["attempt"] for log in restarts] == list(range(1, RESTARTS + 1))
            assert system.inspect().given_up == {}

    asyncio.run(main())


def test_a_session_that_was_given_up_is_forgotten_when_it_is_deleted():
    async def main():
        storage = Flaky()
        async with System.open(storage, clock=VirtualClock(autojump=True)) as system:
            await home(system, "bad")
        async with System.open(storage, clock=VirtualClock(autojump=True)) as system:
            storage.failing["bad"] = 1_000
            with pytest.raises(SessionFailed):
                await system.session("bad")
            assert list(system.inspect().given_up) == ["bad"]
            assert await system.delete_session("bad")
            assert system.inspect().given_up == {}

    asyncio.run(main())
