"""One seed is one run: the same again in any process, another one for another seed; and what is broken is found."""

import asyncio
import os
import random
import subprocess
import sys

import structlog
from perdure.actors.chaos.faults import Faults
from perdure.actors.chaos.scenarios.payment import Payment
from perdure.actors.chaos.scenarios.ping_pong import PingPong
from perdure.actors.chaos.simulation import simulate, undisturbed
from perdure.actors.chaos.trace import Began, Committed, Crashed
from perdure.actors.chaos.workload import Office
from perdure.actors.session import names
from perdure.actors.session.core import SessionCore
from perdure.actors.session.gate import Gate
from perdure.actors.session.timer import TimerActor

SEEDS = range(100, 120)
DIGESTS = """
from perdure.actors.chaos.simulation import simulate, undisturbed
from perdure.actors.chaos.workload import Office
with undisturbed():
    for seed in range(100, 120):
        print(simulate(seed, Office).digest)
"""


def digests(seeds, scenario=Office):
    with undisturbed():
        return [simulate(seed, scenario).digest for seed in seeds]


# --- the same again


def test_a_seed_gives_the_same_run_again_in_this_process_and_in_others_with_other_hash_seeds():
    here = digests(SEEDS)
    assert digests(reversed(SEEDS)) == here[::-1]
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(
            [sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True, timeout=50
        )
        assert told.stdout.split() == here


def test_the_trace_is_the_same_byte_for_byte():
    one, other = simulate(7, Office), simulate(7, Office)
    assert list(one.trace.lines()) == list(other.trace.lines())
    assert one == other or (one.digest, one.steps, one.lives) == (other.digest, other.steps, other.lives)


def test_other_seeds_give_other_runs():
    assert len(set(digests(range(200, 240)))) == 40


def test_the_same_inputs_take_their_turns_otherwise_with_another_seed():
    assert len(set(digests(range(20), PingPong))) == 20


# --- what a run has


def test_processes_and_actors_die_writes_fail_and_models_do_and_all_promises_are_kept():
    with undisturbed():
        runs = [simulate(seed, Office) for seed in range(300, 360)]
    assert [str(one) for run in runs for one in run.violations] == []
    crashes = [event for run in runs for event in run.trace.of(Crashed)]
    assert sum(one.actor is None for one in crashes) >= 20
    assert sum(one.actor is not None for one in crashes) >= 20
    assert max(run.lives for run in runs) == 3
    assert sum(len(run.trace.of(Committed)) for run in runs) >= 500
    assert {event.kind for run in runs for event in run.trace.of(Began)} == {"tool", "model"}


def test_without_faults_a_run_has_one_life_and_all_is_done():
    calm = Faults(storage_error=0, slow_write=0, slow_read=0, model_error=0, process_deaths=0, actor_deaths=0)
    with undisturbed():
        for seed in range(20):
            run = simulate(seed, Payment, faults=calm)
            assert (run.lives, run.violations, run.trace.of(Crashed)) == (1, [], [])


def test_a_scenario_of_the_explorer_is_simulated_as_it_is():
    with undisturbed():
        runs = [simulate(seed, PingPong) for seed in range(30)]
    assert [str(one) for run in runs for one in run.violations] == []
    assert sum(run.lives for run in runs) > 40


def test_nothing_of_a_simulation_is_left_behind():
    log, state, make = structlog.get_config(), random.getstate(), names.make
    simulate(5, Office)
    assert (structlog.get_config(), random.getstate(), names.make) == (log, state, make)


# --- what is broken is found


def found(seeds, scenario=Office, promises=None):
    """Give the promises that are broken, by the first seed that finds it."""
    with undisturbed():
        for seed in seeds:
            run = simulate(seed, scenario)
            if run.violations:
                return {one.promise for one in run.violations}
    return set()


def test_publishing_before_a_commit_is_durable_is_found(monkeypatch):
    admit = SessionCore.admit

    def hasty(self, batch, publication):
        admit(self, batch, publication)
        self._publish(self._unpublished.pop())

    monkeypatch.setattr(SessionCore, "admit", hasty)
    assert "P1" in found(range(5))


def test_telling_callers_before_a_commit_is_durable_is_found(monkeypatch):
    async def open_gate(self, seq):
        return

    monkeypatch.setattr(Gate, "wait", open_gate)
    assert found(range(50)) & {"P1", "P4", "P6"}


def test_a_timer_that_forgets_deadlines_is_found(monkeypatch):
    monkeypatch.setattr(TimerActor, "_hear", lambda self, wake: None)
    assert found(range(100)) & {"P8", "end"}


def test_work_that_never_ends_is_told_and_so_is_an_error_that_comes_out_of_it():
    class Endless(PingPong):
        async def run(self, system):
            while True:
                await asyncio.sleep(0)

    class Broken(PingPong):
        async def run(self, system):
            raise ZeroDivisionError

        def check(self, stored):
            raise AssertionError("it should not come to that")

    (never,) = simulate(1, Endless, faults=Faults(process_deaths=0)).violations
    assert never.promise == "P8"
    (error,) = simulate(1, Broken).violations
    assert "ZeroDivisionError" in error.text


def test_chance_of_the_scenario_s_own_is_the_seed_s():
    class Gambler(PingPong):
        def __init__(self, dice):
            super().__init__()
            self.drawn = [dice.random(), random.random()]

    def drawn(seed):
        made = []
        simulate(seed, lambda dice: made.append(Gambler(dice)) or made[0])
        return made[0].drawn

    assert drawn(1) == drawn(1) != drawn(2)
