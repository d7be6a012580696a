"""The four questions of a restart, each against a slow and obvious model."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.supervisors.restart import (
    Backoff,
    Exit,
    Intensity,
    RestartPlan,
    charge,
    check_budget,
    check_restart_type,
    check_strategy,
    needs_restart,
    plan_restart,
)

STRATEGIES = ["one_for_one", "one_for_all", "rest_for_one"]
RESTARTS = ["permanent", "transient", "temporary"]

ids = st.lists(st.text("abcdefgh", min_size=1, max_size=2), min_size=1, max_size=8, unique=True)


@st.composite
def families(draw):
    names = draw(ids)
    children = [(name, draw(st.sampled_from(RESTARTS))) for name in names]
    failed = draw(st.sampled_from([name for name, _ in children]))
    return draw(st.sampled_from(STRATEGIES)), children, failed


# -- whether -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restart", "after_normal", "after_crash", "after_kill"),
    [("permanent", True, True, True), ("transient", False, True, True), ("temporary", False, False, False)],
)
def test_whether_a_child_comes_back_depends_on_its_type_and_its_end(restart, after_normal, after_crash, after_kill):
    assert needs_restart(restart, Exit("normal")) is after_normal
    assert needs_restart(restart, Exit("crashed", ValueError())) is after_crash
    assert needs_restart(restart, Exit("killed")) is after_kill


def test_an_exit_says_what_happened():
    assert str(Exit("normal")) == "normal"
    assert str(Exit("crashed", ValueError("x"))) == "crashed: ValueError('x')"


# -- whom ----------------------------------------------------------------------------------------------------------------


def test_whom_a_failure_concerns():
    children = [("a", "permanent"), ("b", "permanent"), ("c", "temporary"), ("d", "transient")]
    assert plan_restart("one_for_one", children, "b") == RestartPlan(stop=(), start=("b",), forget=())
    assert plan_restart("rest_for_one", children, "b") == RestartPlan(("d", "c"), ("b", "d"), ("c",))
    assert plan_restart("one_for_all", children, "b") == RestartPlan(("d", "c", "a"), ("a", "b", "d"), ("c",))


@given(families())
def test_a_plan_keeps_start_order_and_stops_in_reverse(family):
    strategy, children, failed = family
    order = [name for name, _ in children]
    plan = plan_restart(strategy, children, failed)
    assert list(plan.start) == [name for name in order if name in plan.start]
    assert list(plan.stop) == [name for name in reversed(order) if name in plan.stop]
    assert failed in plan.start
    assert failed not in plan.stop


@given(families())
def test_everybody_stopped_comes_back_unless_temporary(family):
    strategy, children, failed = family
    kinds = dict(children)
    plan = plan_restart(strategy, children, failed)
    assert set(plan.start) | set(plan.forget) == {*plan.stop, failed}
    assert not set(plan.start) & set(plan.forget)
    assert all(kinds[name] == "temporary" for name in plan.forget)
    assert all(kinds[name] != "temporary" for name in plan.start if name != failed)


@given(families())
def test_who_is_concerned_is_what_the_strategy_says(family):
    strategy, children, failed = family
    order = [name for name, _ in children]
    concerned = {
        "one_for_one": {failed},
        "one_for_all": set(order),
        "rest_for_one": set(order[order.index(failed) :]),
    }[strategy]
    plan = plan_restart(strategy, children, failed)
    assert {*plan.stop, failed} == concerned


# -- how often -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 20, allow_nan=False), max_size=40),
    st.integers(0, 6),
    st.floats(0.1, 30, allow_nan=False),
)
def test_the_budget_is_exceeded_exactly_when_too_many_fall_into_one_period(gaps, restarts, period_s):
    intensity, history, now, times = Intensity(restarts, period_s), (), 0.0, []
    for gap in gaps:
        now += gap
        times.append(now)
        in_period = [time for time in times if now - time < period_s]
        charged = charge(intensity, history, now)
        assert (charged is None) == (len(in_period) > restarts)
        if charged is None:
            return
        assert len(charged) <= restarts
        history = charged


def test_a_budget_of_none_allows_none():
    assert charge(Intensity(0, 1.0), (), 0.0) is None


# -- how long apart ------------------------------------------------------------------------------------------------------

backoffs = st.builds(
    lambda first_s, more_s, factor, jitter: Backoff(first_s, factor, first_s + more_s, jitter),
    st.floats(0, 10),
    st.floats(0, 100),
    st.floats(1, 10),
    st.floats(0, 1),
)
shares = st.floats(0, 1, exclude_max=True)


def test_the_default_delays_double_up_to_five_seconds():
    delays = [Backoff().delay_s(attempt, 0.0) for attempt in range(1, 9)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    assert Backoff().delay_s(1, 0.5) == pytest.approx(0.11)


@given(backoffs, st.integers(1, 10**9), shares)
def test_a_delay_lies_between_its_bounds_and_never_overflows(backoff, attempt, random):
    delay = backoff.delay_s(attempt, random)
    assert backoff.first_s <= delay or math.isclose(backoff.first_s, delay)
    assert delay <= backoff.max_s * (1 + backoff.jitter) or math.isclose(delay, backoff.max_s * (1 + backoff.jitter))


@given(backoffs, st.integers(1, 200), shares)
def test_delays_never_shrink_from_attempt_to_attempt(backoff, attempt, random):
    earlier, later = backoff.delay_s(attempt, random), backoff.delay_s(attempt + 1, random)
    assert later >= earlier or math.isclose(later, earlier)


@given(backoffs, st.integers(0, 300))
def test_the_longest_wait_is_the_sum_of_the_longest_delays(backoff, restarts):
    slowly = sum(backoff.delay_s(attempt, 1.0) for attempt in range(1, restarts + 1))
    assert backoff.longest_s(restarts) == pytest.approx(slowly, rel=1e-6, abs=1e-9)


@given(backoffs, st.integers(0, 20), st.floats(0.1, 1000), st.lists(shares, min_size=21, max_size=21))
def test_a_child_that_dies_at_once_always_exceeds_a_budget_that_was_accepted(backoff, restarts, period_s, randoms):
    intensity = Intensity(restarts, period_s)
    try:
        check_budget(intensity, backoff)
    except ValueError:
        return
    history, now_s = (), 0.0
    for attempt in range(1, restarts + 2):
        charged = charge(intensity, history, now_s)
        if attempt <= restarts:
            assert charged is not None
            history = charged
            now_s += backoff.delay_s(attempt, randoms[attempt - 1])
    assert charged is None


# -- bad options ---------------------------------------------------------------------------------------------------------


def test_a_budget_that_can_never_run_out_is_refused():
    with pytest.raises(ValueError, match=r"expected period_s above 36 s.* got: 30 s"):
        check_budget(Intensity(3, 30.0), Backoff(first_s=10, max_s=10, jitter=0.2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Intensity(restarts=-1), "restarts"),
        (lambda: Intensity(period_s=0), "period_s"),
        (lambda: Intensity(period_s=math.nan), "period_s"),
        (lambda: Backoff(first_s=-1), "first_s"),
        (lambda: Backoff(first_s=2, max_s=1), "max_s"),
        (lambda: Backoff(max_s=math.inf), "max_s"),
        (lambda: Backoff(factor=0.5), "factor"),
        (lambda: Backoff(jitter=-0.1), "jitter"),
        (lambda: check_strategy("one_for_two"), "one_for_one, one_for_all, rest_for_one; got: 'one_for_two'"),
        (lambda: check_restart_type("sometimes"), "permanent, transient, temporary; got: 'sometimes'"),
    ],
)
def test_bad_options_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
