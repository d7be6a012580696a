"""Simulating many seeds: what is counted, when it ends, and how a seed that breaks a promise is had again."""

import pytest
from perdure.actors.chaos.scenarios.ping_pong import PingPong
from perdure.actors.chaos.seeds import replay_command, report, simulate_seeds
from perdure.actors.chaos.simulation import simulate
from perdure.actors.chaos.workload import Office


class Wrong(PingPong):
    """One whose end is never right."""

    name = "wrong"

    def check(self, stored):
        raise AssertionError("not like that")


def test_so_many_seeds_are_run_and_different_runs_are_counted():
    found = simulate_seeds(PingPong, first=5, seeds=20)
    found.check()
    assert (found.first, found.seeds, found.schedules) == (5, 20, 20)
    assert found.lives >= 20
    assert found.steps > 1_000
    assert "ping-pong: 20 seeds from 5, 20 schedules" in str(found)


def test_it_ends_when_its_time_is_over():
    found = simulate_seeds(PingPong, seconds=0.5)
    assert found.seeds > 0
    assert found.seconds >= 0.5


def test_it_needs_an_end():
    with pytest.raises(ValueError, match="how many"):
        simulate_seeds(PingPong)


def test_a_seed_that_breaks_a_promise_does_not_end_it_and_is_told_with_the_command_that_repeats_it():
    found = simulate_seeds(Wrong, first=3, seeds=2)
    assert [one.seed for one in found.broken] == [3, 4]
    with pytest.raises(AssertionError, match=r"not like that(.|\n)*simulate \S+test_seeds.py:Wrong --seed 3"):
        found.check()


def test_the_command_names_the_scenario_unless_it_is_the_office():
    assert replay_command(Office, 7) == "python -m perdure.testing simulate --seed 7"
    assert replay_command(PingPong, 7) == "python -m perdure.testing simulate ping-pong --seed 7"


def test_a_report_has_the_trace_and_what_did_not_hold():
    run = simulate(3, Wrong)
    lines = list(report(run))
    assert lines[: len(run.trace.events)] == list(run.trace.lines())
    assert "1 violations" in lines[-2]
    assert "not like that" in lines[-1]
