from itertools import pairwise

import pytest
from perdure.actors.chaos.points import Counter, Crash, Point
from perdure.actors.chaos.scenarios.parallel import Parallel
from perdure.actors.chaos.scenarios.payment import Payment
from perdure.actors.chaos.scenarios.ping_pong import PingPong
from perdure.actors.chaos.trace import Began, Committed

from .support import Once, run


@pytest.mark.parametrize("text", ["before commit a/7", "after call of pay #2", "before commit a/7: task:a/9"])
def test_a_crash_is_read_as_it_was_written(text):
    assert str(Crash.parse(text)) == text


@pytest.mark.parametrize("text", ["", "before", "during commit a/7", "after "])
def test_what_is_no_point_is_refused(text):
    with pytest.raises(ValueError, match="expected a point"):
        Point.parse(text)


@pytest.mark.parametrize("scenario", [Payment, Parallel, PingPong])
def test_a_run_comes_to_both_sides_of_every_effect_and_commit(scenario):
    """Commits that become durable together share their sides, which are named after the first of them."""
    report = run(scenario())
    points = {str(one.point) for one in report.reached}
    counter = Counter()
    commits = {f"commit {one.batch.session}/{one.batch.seq}" for one in report.trace.of(Committed)}
    effects = {counter.name(effect) for effect in report.trace.of(Began)}
    assert {f"{side} {what}" for side in ("before", "after") for what in effects} <= points
    assert points <= {f"{side} {what}" for side in ("before", "after") for what in effects | commits}
    assert len({one for one in points if "commit" in one}) == 2 * _groups(report.trace)


def _groups(trace):
    """How many times something became durable: commits with nothing between them came together."""
    kinds = [isinstance(event, Committed) for event in trace.events]
    return sum(now and not before for before, now in pairwise([False, *kinds]))


def test_a_point_is_told_by_what_happens_there():
    kinds = {one.kind for scenario in (Payment(), PingPong()) for one in run(scenario).reached}
    assert kinds == {"commit", "hand-over", "tool", "model", "task"}


def test_both_sides_of_an_effect_have_one_name_and_another_execution_has_another():
    counter = Counter()
    first, again = (Began(number=number, kind="tool", name="pay", session="a", task=9) for number in (1, 2))
    assert [counter.name(one) for one in (first, first, again)] == [
        "call of pay #1",
        "call of pay #1",
        "call of pay #2",
    ]


def test_actors_that_can_be_killed_are_learned_with_the_points():
    learned = run(Once()).reached
    assert {"storage", "timer", "session:a"} <= {actor for one in learned for actor in one.actors}
    assert any(actor.startswith("task:a/") for one in learned for actor in one.actors)
