import asyncio
import time
from contextlib import suppress

import perdure
import pytest
from perdure.actors.chaos.backends import Memory
from perdure.actors.chaos.life import perform
from perdure.actors.chaos.trace import Answered, Began, Committed, Crashed, Ended, Failed, Opened, Shown

from .support import KEY, Once, run


def after_crash(trace):
    """What the trace has between the crash and the next life."""
    events = trace.events
    crash = next(n for n, event in enumerate(events) if isinstance(event, Crashed))
    return events[crash + 1 : next(n for n, event in enumerate(events) if isinstance(event, Opened) and n > crash)]


@pytest.mark.parametrize(
    "point", ["before commit a/3", "after commit a/3", "before call of act #1", "after call of act #1"]
)
def test_a_process_that_has_died_does_nothing_any_more(point):
    report = run(Once(), point)
    assert report.crashed == 1
    assert after_crash(report.trace) == []
    assert report.violations == []


def test_what_was_not_durable_at_the_crash_is_lost_and_what_was_is_not():
    def stored_before(point):
        trace = run(Once(), point).trace
        crash = next(n for n, event in enumerate(trace.events) if isinstance(event, Crashed))
        return [event.batch.seq for event in trace.events[:crash] if isinstance(event, Committed)]

    assert stored_before("before commit a/4") == [1, 2, 3]
    assert stored_before("after commit a/4") == [1, 2, 3, 4]


def test_a_crash_before_an_effect_leaves_it_undone_and_one_behind_it_leaves_it_done():
    """B092, P6: an unsafe call is not executed again; nobody knows what has become of it."""
    before, after = Once(), Once()
    run(before, "before call of act #1")
    run(after, "after call of act #1")
    assert (before.done, after.done) == (0, 1)


def test_an_actor_is_killed_and_the_process_lives_on():
    report = run(Once(), "after commit a/4: session:a")
    assert [event.life for event in report.trace.of(Opened)] == [1]
    assert report.trace.of(Crashed) == [Crashed(actor="session:a")]
    assert Failed(session="a") in report.trace.events
    assert report.violations == []


def test_a_run_dies_once_in_each_life():
    report = run(Once(), "before commit a/3", "after commit a/6", "before commit a/9")
    assert report.crashed == 3
    assert [event.life for event in report.trace.of(Opened)] == [1, 2, 3, 4]
    assert report.violations == []


def test_everything_is_observed():
    trace = run(Once()).trace
    assert [effect.name for effect in trace.of(Began)] == ["scripted/model", "act", "scripted/model"]
    assert len(trace.of(Ended)) == 3
    assert [answer.record.status for answer in trace.of(Answered)] == ["placed", "done"]
    assert {shown.conversation for shown in trace.of(Shown)} == {1}


def test_work_that_never_ends_is_found_in_no_time():
    class Endless(Once):
        async def run(self, system):
            await asyncio.Event().wait()

    report = run(Endless())
    assert [str(one) for one in report.violations] == ["P8: the work did not end within 3,600 s"]


def test_what_the_work_raises_is_reported():
    class Wrong(Once):
        async def run(self, system):
            await super().run(system)
            raise RuntimeError("out of order")

    assert [str(one) for one in run(Wrong()).violations] == ["end: RuntimeError came out of the work: out of order"]


def test_how_it_must_have_ended_is_the_scenarios_to_say():
    class Picky(Once):
        most = 0

    assert [str(one) for one in run(Picky()).violations] == ["end: acted 1 times"]


def test_a_session_that_is_given_up_is_reported():
    class Hopeless(Once):
        async def run(self, system):
            while not system.inspect().given_up:
                with suppress(perdure.SessionFailed):
                    await (await system.session(KEY)).root()
                    system.kill(f"session:{KEY}")

    (violation,) = run(Hopeless()).violations
    assert str(violation).startswith("P8: a is down")


def test_a_blocking_tool_is_waited_for_in_real_time():
    """A thread's work is nothing that a virtual clock could jump over."""

    class Blocking(Once):
        def extensions(self):
            @perdure.tool
            def act() -> str:
                """Act."""
                time.sleep(0.02)
                self.done += 1
                return "acted"

            yield perdure.Extension(name="kit", tools=[act])

    scenario = Blocking()
    report = asyncio.run(perform(scenario, Memory()))
    assert report.violations == []
    assert scenario.done == 1
