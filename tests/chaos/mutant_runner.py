"""Runs the shipped scenarios over a perdure with one deliberate fault, until something catches it.

    python mutant_runner.py MUTANT

Prints what caught it, and where; ends with 1 when the fault survived everything.
"""

import asyncio
import sys

import mutants
import structlog

mutant = next((one for one in mutants.MUTANTS if one.name == sys.argv[1]), None)
if mutant is not None:
    mutants.apply(mutant)

from perdure.actors.chaos import life  # noqa: E402 - after the patch
from perdure.actors.chaos.backends import Memory  # noqa: E402
from perdure.actors.chaos.points import Crash  # noqa: E402
from perdure.actors.chaos.scenarios import ALL, Payment  # noqa: E402
from perdure.actors.chaos.trace import Committed  # noqa: E402
from perdure.storage.faulty import FaultyStorage  # noqa: E402

life.REAL_LIMIT_S = 4.0


class Failing(Memory):
    """A store in which one write fails and is not stored."""

    def __init__(self, write):
        super().__init__()
        self._write = write

    def store(self, clock):
        storage = FaultyStorage(super().store(clock))
        if self._write is not None:
            storage.fail(self._write)
            self._write = None
        return storage


async def catch(scenario):
    """Crash a scenario at one point after the other, then fail writes of one; give the first violation and where that was."""
    learned = await life.perform(scenario(), Memory())
    if learned.violations:
        return "without any crash", learned.violations[0]
    for point in dict.fromkeys(one.point for one in learned.reached):
        report = await life.perform(scenario(), Memory(), [Crash(point)])
        if report.violations:
            return f"crashed {point}", report.violations[0]
    for write in range(1, len(learned.trace.of(Committed)) + 1 if scenario is Payment else 0):
        report = await life.perform(scenario(), Failing(write))
        if report.violations:
            return f"write {write} failed", report.violations[0]
    return None


def in_order():
    """The scenarios, those first that a fault names."""
    return sorted(ALL, key=lambda one: mutant is not None and one.name not in mutant.scenarios)


def main():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for scenario in in_order():
        caught = asyncio.run(catch(scenario))
        if caught is not None:
            where, violation = caught
            print(f"{scenario.name}, {where}: {str(violation)[:160]}")
            return 0
    print("survived")
    return 1


if __name__ == "__main__":
    sys.exit(main())
