"""The decisions between phases and at reservation, as pure functions."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure import Backoff, Phase, Restart, Task
from perdure.actors.task.steps import MAX_ERROR_TEXT, Blocked, Fault, Go, Stop, error_text, fit, restarted, step
from perdure.storage.records import Completed, Completing, Pending, Running, TaskRecord, Waiting

RUN = {"phase": "run"}
NEXT = {"phase": "next"}


def record(state=None, *, marked=False, version=1):
    return TaskRecord(
        id=2,
        conversation_id=1,
        kind="test.kind",
        version=version,
        state=state or Running(checkpoint=RUN),
        input={"n": 1},
        background=False,
        abort_requested=marked,
    )


PARKED = [
    None,
    record(Pending(checkpoint=RUN)),
    record(Waiting(checkpoint=NEXT, on=[], policy="allSettled")),
    record(Completing(outcome=Completed())),
]


@pytest.mark.parametrize("parked", PARKED)
@pytest.mark.parametrize("error", [None, RuntimeError("x")])
@pytest.mark.parametrize("mode", ["run", "abort"])
def test_a_task_that_is_not_running_any_more_stops_whatever_else_happened(parked, error, mode):
    """TS-16."""
    assert step(mode, parked, RUN, error) == Stop()
    assert step(mode, parked, None, error) == Stop()


def test_a_mark_stops_a_run_before_anything_is_held_against_it():
    """TS-17: a handler that raises because it was told to stop is not at fault."""
    assert step("run", record(marked=True), RUN, RuntimeError("told to stop")) == Stop()
    assert step("run", record(marked=True), None, None) == Stop()
    assert step("abort", record(marked=True), None, None) == Go()


def test_the_first_phase_is_run_and_a_changed_checkpoint_goes_on():
    """TS-02."""
    assert step("run", record(), None, None) == Go()
    assert step("run", record(Running(checkpoint=NEXT)), RUN, None) == Go()


def test_an_error_faults_also_after_progress():
    """TS-03."""
    assert step("run", record(), RUN, RuntimeError("broken")) == Fault("broken", crashed=True)
    moved = record(Running(checkpoint=NEXT))
    assert step("run", moved, RUN, RuntimeError("broken")) == Fault("broken", crashed=True)


def test_an_unchanged_checkpoint_faults():
    """TS-16."""
    assert step("run", record(), dict(RUN), None) == Fault("returned without durable progress")


def test_an_abort_handler_must_decide():
    assert isinstance(step("abort", record(marked=True), RUN, None), Fault)
    assert step("abort", record(marked=True), RUN, RuntimeError("broken")) == Fault("broken")


class Old(Task[dict, None], name="test.kind", version=1):
    class Run(Phase):
        pass

    async def run(self, run, state):
        pass


class New(Task[dict, None], name="test.kind", version=3):
    class Go(Phase):
        was: int

    async def go(self, run, state):
        pass

    @staticmethod
    def migrate(input, checkpoint, from_version):
        return input | {"from": from_version}, New.Go(was=input["n"])


@pytest.mark.parametrize(
    "state", [Running(checkpoint=RUN), Waiting(checkpoint=RUN, on=[4], policy="failFast", until=9)]
)
def test_a_fitting_definition_takes_the_record_as_it_is_and_a_newer_one_migrates_it(state):
    stored = record(state)
    assert fit(stored, Old()) is stored
    moved = fit(stored, New())
    assert (moved.version, moved.input) == (3, {"n": 1, "from": 1})
    assert moved.state == msgspec.structs.replace(state, checkpoint={"phase": "go", "was": 1})


def test_what_no_code_can_take_is_blocked_with_a_reason():
    """TS-09."""
    assert fit(record(), None) == Blocked("missing_task")
    assert fit(record(version=4), New()) == Blocked("task_too_old")
    assert fit(record(version=2, state=None), Old()) == Blocked("task_too_old")


@pytest.mark.parametrize(
    "migrate",
    [
        lambda *_: 1 / 0,
        lambda *_: None,
        lambda *_: ({}, "no phase"),
        lambda *_: ({}, Old.Run()),
        lambda *_: (object(), New.Go(was=1)),
        lambda *_: ({"x": float("nan")}, New.Go(was=1)),
    ],
)
def test_a_migration_that_raises_or_gives_nonsense_blocks(migrate):
    class Broken(New, Task[dict, None], name="test.kind", version=3):
        class Go(Phase):
            was: int

        async def go(self, run, state):
            pass

    Broken.migrate = staticmethod(migrate)
    blocked = fit(record(), Broken())
    assert blocked.reason == "migration_failed"
    assert blocked.error


def test_a_definition_without_a_migration_says_that_there_is_none():
    class Newer(Task[dict, None], name="test.kind", version=2):
        class Run(Phase):
            pass

        async def run(self, run, state):
            pass

    assert fit(record(), Newer()).error == "there is no migration from version 1"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("broken"), "broken"),
        (RuntimeError(""), "RuntimeError"),
        (RuntimeError("  \n "), "RuntimeError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (RuntimeError("a\ud800b"), "a?b"),
        (RuntimeError("x" * 10_000), "x" * MAX_ERROR_TEXT),
    ],
)
def test_the_text_of_an_error_is_bounded_valid_and_never_blank(error, text):
    assert error_text(error) == text


def test_an_error_whose_text_cannot_be_had_has_its_types_name():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert error_text(Mute()) == "Mute"


# --- crashes that are made good


def ms(seconds):
    return 1_000_000 + round(seconds * 1_000)


EXACT = Restart(max=2, within=10.0, backoff=Backoff(first_s=1.0, factor=2.0, jitter=0.5))


def test_a_crashed_task_waits_for_its_next_try_with_the_checkpoint_that_it_has():
    again = restarted(record(marked=True), EXACT, ms(0), 0.0)
    assert again.state == Waiting(checkpoint=RUN, on=[], policy="allSettled", until=ms(1))
    assert (again.restarts, again.abort_requested) == ([ms(0)], True)
    assert restarted(record(), EXACT, ms(0), 0.9).state.until == ms(1.45)


def test_tries_come_further_apart_until_there_are_no_more():
    first = restarted(record(), EXACT, ms(0), 0.0)
    second = restarted(msgspec.structs.replace(first, state=record().state), EXACT, ms(1), 0.0)
    assert (second.state.until, second.restarts) == (ms(3), [ms(0), ms(1)])
    assert restarted(msgspec.structs.replace(second, state=record().state), EXACT, ms(3), 0.0) is None


def test_tries_of_long_ago_do_not_count():
    old = msgspec.structs.replace(record(), restarts=[ms(0), ms(1)])
    again = restarted(old, EXACT, ms(10), 0.0)
    assert (again.state.until, again.restarts) == (ms(12), [ms(1), ms(10)])


def test_without_a_policy_or_a_run_nothing_is_tried_again():
    assert restarted(record(), None, ms(0), 0.0) is None
    assert restarted(record(Completing(outcome=Completed())), EXACT, ms(0), 0.0) is None
    assert restarted(record(), Restart(max=0), ms(0), 0.0) is None


@given(
    st.builds(Restart, max=st.integers(0, 5), within=st.just(40.0), backoff=st.builds(Backoff, max_s=st.just(5.0))),
    st.lists(st.floats(0, 30), max_size=30),
    st.floats(0, 1, exclude_max=True),
)
def test_no_period_has_more_restarts_than_the_policy_allows(restart, gaps, random):
    now, crashed, times = 0.0, record(), []
    for gap in gaps:
        now += gap
        again = restarted(crashed, restart, ms(now), random)
        if again is None:
            break
        times.append(ms(now))
        assert again.state.until >= ms(now)
        crashed = msgspec.structs.replace(again, state=record().state)
    for at in times:
        assert len([one for one in times if at <= one < at + 40_000]) <= restart.max


def test_a_policy_that_could_never_run_out_is_refused():
    with pytest.raises(ValueError, match="never be exceeded"):
        Restart(max=5, within=10.0, backoff=Backoff(first_s=5.0))
    with pytest.raises(ValueError, match="0 or more"):
        Restart(max=-1)
