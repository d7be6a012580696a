"""The crash explorer: learns the points of a scenario, crashes it at each of them, and finds what does not hold then.

    found = explore(MyScenario, backend="sqlite", pairs=20)
    print(found)
    found.check()

Everything is done one run after another in this process, each on a loop of its own, on virtual time.
Proved by tests/actors/chaos/test_explorer.py.
"""

import asyncio
import logging
import random
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog

from .backends import BackendName, make_backend
from .life import Report, perform
from .names import reference
from .points import Crash, Kind, Reached
from .scenario import Scenario
from .violations import Violation

ATTEMPTS = 6
"""How often a run is tried that does not come to its point: threads may take their turns otherwise."""
ACTORS = ("storage", "session:", "task:")
"""Beginnings of the ids of actors that are killed."""


class Failure(msgspec.Struct, frozen=True):
    """A run in which something did not hold, and how to have it again."""

    scenario: str
    backend: str
    crashes: list[str]
    seed: int
    violations: list[Violation]

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        return shlex.join(["python", "-m", "perdure.testing", "replay", self.scenario, self.backend, *self.crashes])

    def __str__(self) -> str:
        where = ", then ".join(self.crashes) or "without any crash"
        lines = [f"{self.scenario} on {self.backend}, crashed {where} (seed {self.seed})"]
        return "\n".join([*lines, *(f"  {violation}" for violation in self.violations), f"  again: {self.replay}"])


class Exploration(msgspec.Struct):
    """What exploring one scenario on one backend has found."""

    scenario: str
    backend: str
    points: dict[Kind, int]
    """How many single points there are, by what happens there; each was crashed."""
    actors: int
    """How many single actors were killed."""
    pairs: int
    """How many pairs of points were crashed."""
    missed: int
    """How many crashes never came about, because threads took their turns otherwise in every attempt. None in memory."""
    failures: list[Failure]

    def check(self) -> None:
        """Raise AssertionError with every failure, if there is any."""
        if self.failures:
            raise AssertionError("\n".join(map(str, self.failures)))

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.points.items())
        total = sum(self.points.values())
        found = f"{len(self.failures)} failures" if self.failures else "0 violations"
        missed = f", {self.missed} missed" if self.missed else ""
        crashed = f"{total} points ({kinds}), {self.actors} actors, {self.pairs} pairs{missed}"
        return f"{self.scenario} on {self.backend}: {crashed}: {found}"


def explore(
    scenario: type[Scenario],
    *,
    backend: BackendName = "memory",
    pairs: int = 0,
    actors: int = 0,
    seed: int = 0,
) -> Exploration:
    """Crash a scenario at every single point, and beyond that at sampled pairs of points and in sampled single actors.

    ``pairs`` and ``actors`` are how many of each are tried at most; ``seed`` decides which. Raises ValueError for a scenario
    that fails without any crash, or takes another course each time.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-chaos-") as directory:
        return _Explorer(scenario, backend, seed, Path(directory)).explore(pairs, actors)


def replay(scenario: type[Scenario], backend: BackendName, crashes: Sequence[Crash]) -> Report:
    """Run a scenario with the crashes of a failure, up to a few times until all of them came about."""
    with tempfile.TemporaryDirectory(prefix="perdure-chaos-") as directory:
        return _Explorer(scenario, backend, 0, Path(directory)).run(crashes)


class _Explorer:
    def __init__(self, scenario: type[Scenario], backend: BackendName, seed: int, directory: Path) -> None:
        self._scenario = scenario
        self._backend = backend
        self._seed = seed
        self._dice = random.Random(seed)  # noqa: S311 - a sample, no secret
        self._directory = directory
        self._runs = 0
        self._failures: list[Failure] = []
        self._missed = 0

    def explore(self, pairs: int, actors: int) -> Exploration:
        learned = self.run([])
        if learned.violations:
            raise ValueError(str(self._failure([], learned)))
        points = _distinct(learned.reached)
        followed = [(first, self._crash([Crash(first.point)])) for first in points]
        victims = self._sample(_victims(points), actors)
        for victim in victims:
            self._crash([victim])
        doubles = self._sample(_pairs(followed), pairs)
        for double in doubles:
            self._crash(double)
        kinds = dict(Counter(one.kind for one in points))
        name = reference(self._scenario)
        return Exploration(name, self._backend, kinds, len(victims), len(doubles), self._missed, self._failures)

    def _sample(self, population: list, most: int) -> list:  # type: ignore[type-arg]
        return population if len(population) <= most else self._dice.sample(population, most)

    def _crash(self, crashes: list[Crash]) -> Report:
        report = self.run(crashes)
        if report.crashed < len(crashes) and self._backend != "memory":
            self._missed += 1
        elif report.crashed < len(crashes):
            report.violations.append(Violation("end", f"the run did not come to {crashes[report.crashed]}"))
        if report.violations:
            self._failures.append(self._failure(crashes, report))
        return report

    def run(self, crashes: Sequence[Crash]) -> Report:
        """Run once; again if it did not come to where it should have."""
        for _ in range(ATTEMPTS):
            self._runs += 1
            backend = make_backend(self._backend, self._directory / f"run-{self._runs}")
            with _quietly():
                report = asyncio.run(perform(self._scenario(), backend, crashes))
            if report.crashed == len(crashes):
                break
        return report

    def _failure(self, crashes: Iterable[Crash], report: Report) -> Failure:
        said = [str(crash) for crash in crashes]
        return Failure(reference(self._scenario), self._backend, said, self._seed, report.violations)


@contextmanager
def _quietly() -> Iterator[None]:
    """Log nothing meanwhile: crashes by the hundred are no news, and what is wrong is reported."""
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**configured)


def _distinct(reached: Iterable[Reached]) -> list[Reached]:
    return list({one.point: one for one in reached}.values())


def _victims(points: Iterable[Reached]) -> list[Crash]:
    return [Crash(one.point, actor) for one in points for actor in one.actors if actor.startswith(ACTORS)]


def _pairs(followed: Iterable[tuple[Reached, Report]]) -> list[list[Crash]]:
    """Pair each point with those that its run came to after the crash."""
    return [
        [Crash(first.point), Crash(second.point)]
        for first, report in followed
        for second in _distinct(one for one in report.reached if one.life > 1)
    ]
