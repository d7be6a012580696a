"""Many seeds, one after another: how many different runs they are, and which of them break a promise.

    found = simulate_seeds(MyScenario, seconds=60)
    print(found)
    found.check()

Proved by tests/actors/chaos/test_seeds.py.
"""

import shlex
import time
from collections.abc import Iterator
from itertools import count

import msgspec

from .faults import Faults
from .names import reference
from .scenario import Scenario
from .simulation import Simulation, simulate, undisturbed
from .violations import Violation
from .workload import Office


class BrokenSeed(msgspec.Struct, frozen=True):
    """A seed whose run has broken promises, and how to have it again."""

    seed: int
    violations: list[Violation]
    replay: str

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}", *(f"  {one}" for one in self.violations), f"  again: {self.replay}"])


class Simulations(msgspec.Struct):
    """What simulating many seeds has found. ``schedules`` counts runs that differ in anything that was seen or decided."""

    scenario: str
    first: int
    seeds: int = 0
    schedules: int = 0
    steps: int = 0
    lives: int = 0
    seconds: float = 0.0
    broken: list[BrokenSeed] = []

    def check(self) -> None:
        """Raise AssertionError with every seed that broke a promise, if there is any."""
        if self.broken:
            raise AssertionError("\n".join(map(str, self.broken)))

    def __str__(self) -> str:
        found = f"{len(self.broken)} seeds with violations" if self.broken else "0 violations"
        return (
            f"{self.scenario}: {self.seeds:,} seeds from {self.first}, {self.schedules:,} schedules, {self.lives:,} lives, "
            f"{self.steps:,} steps in {self.seconds:.1f} s: {found}"
        )


def simulate_seeds(
    scenario: type[Scenario] = Office,
    *,
    first: int = 0,
    seeds: int | None = None,
    seconds: float | None = None,
    faults: Faults | None = None,
) -> Simulations:
    """Simulate a scenario with the seeds from ``first`` on, so many of them, or for so long. Seeds that fail do not end it.

    See ``simulate``. Raises ValueError when neither limit is given.
    """
    if seeds is None and seconds is None:
        raise ValueError("say how many seeds, or how many seconds")
    found, seen, begun = Simulations(scenario.name or scenario.__name__, first), set[str](), time.monotonic()
    with undisturbed():
        for seed in count(first) if seeds is None else range(first, first + seeds):
            if seconds is not None and time.monotonic() - begun >= seconds:
                break
            run = simulate(seed, scenario, faults=faults)
            seen.add(run.digest)
            _add(found, run, scenario)
    found.schedules, found.seconds = len(seen), time.monotonic() - begun
    return found


def _add(found: Simulations, run: Simulation, scenario: type[Scenario]) -> None:
    found.seeds += 1
    found.steps += run.steps
    found.lives += run.lives
    if run.violations:
        found.broken.append(BrokenSeed(run.seed, run.violations, replay_command(scenario, run.seed)))


def replay_command(scenario: type[Scenario], seed: int) -> str:
    """Give the command that runs a seed again."""
    named = [] if scenario is Office else [reference(scenario)]
    return shlex.join(["python", "-m", "perdure.testing", "simulate", *named, "--seed", str(seed)])


def report(run: Simulation) -> Iterator[str]:
    """Tell of one run: its trace, and what did not hold."""
    yield from run.trace.lines()
    yield f"{run.lives} lives, {run.steps:,} steps, {len(run.violations)} violations, digest {run.digest}"
    for violation in run.violations:
        yield f"  {violation}"
