import shlex

import pytest
from perdure.actors.chaos import explorer
from perdure.actors.chaos.explorer import explore, replay
from perdure.actors.chaos.points import Crash

from .support import Careless, Once


def test_a_scenario_that_holds_has_no_failures():
    found = explore(Once, pairs=5, actors=5)
    found.check()
    assert (found.actors, found.pairs) == (5, 5)
    assert str(found).endswith("5 actors, 5 pairs: 0 violations")


def test_a_tool_that_says_it_may_run_again_and_may_not_is_found():
    """At every point between its effect and its outcome, and nowhere else."""
    found = explore(Careless)
    assert found.failures
    for failure in found.failures:
        assert [str(one) for one in failure.violations] == ["end: acted 2 times"]
    assert "after call of act #1" in [failure.crashes[0] for failure in found.failures]
    assert "before call of act #1" not in [failure.crashes[0] for failure in found.failures]
    with pytest.raises(AssertionError, match="acted 2 times"):
        found.check()


def test_a_failure_says_where_and_how_to_have_it_again():
    failure = next(one for one in explore(Careless, seed=3).failures if one.crashes == ["after call of act #1"])
    words = shlex.split(failure.replay)
    assert words[:4] == ["python", "-m", "perdure.testing", "replay"]
    assert words[4].endswith("support.py:Careless")
    assert words[5:] == ["memory", "after call of act #1"]
    assert "crashed after call of act #1 (seed 3)" in str(failure)


def test_a_replay_runs_exactly_these_crashes():
    report = replay(Careless, "memory", [Crash.parse("after call of act #1")])
    assert [str(one) for one in report.violations] == ["end: acted 2 times"]
    assert replay(Careless, "memory", []).violations == []


def test_a_scenario_that_fails_without_a_crash_is_refused():
    class Broken(Once):
        most = 0

    with pytest.raises(ValueError, match="crashed without any crash"):
        explore(Broken)


def test_a_point_that_a_run_never_comes_to_again_is_a_failure():
    class Fickle(Once):
        runs = 0

        def brain(self, request):
            Fickle.runs += 1
            return "nothing to do" if Fickle.runs > 2 else super().brain(request)

    found = explore(Fickle)
    assert any("did not come to" in str(one) for failure in found.failures for one in failure.violations)


def test_the_seed_decides_which_pairs_are_tried(monkeypatch):
    tried = []
    performed = explorer.perform

    def noting(scenario, backend, crashes):
        tried.append(tuple(map(str, crashes)))
        return performed(scenario, backend, crashes)

    monkeypatch.setattr(explorer, "perform", noting)

    def pairs(seed):
        tried.clear()
        explore(Once, pairs=4, seed=seed)
        return [one for one in tried if len(one) == 2]

    assert pairs(1) == pairs(1) != pairs(2)
