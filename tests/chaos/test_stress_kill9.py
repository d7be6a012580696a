"""An office of many sessions in a process that is killed with SIGKILL at random instants, again and again."""

import asyncio
import json
import random
from statistics import quantiles

import msgspec
import pytest

from . import stress
from .test_kill9 import check_intact, lines, worker

SEED = 20_261_201
KILLS = 50
"""Of each test; there are six, two in every run of the suite and four in ``make chaos``."""
LONGEST_S = 0.6
KILLS_PER_STORE = 8


class Place(msgspec.Struct):
    """A store, and the diary of the lives that were spent on it."""

    backend: str
    store: str
    diary: str

    def said(self):
        return [json.loads(line) for line in lines(self.diary)]

    def read(self):
        """Read the store as its next owner."""

        async def read():
            storage = stress.make_storage(self.backend, self.store)
            await storage.open()
            try:
                return await stress.read_all(storage)
            finally:
                await storage.close()

        return asyncio.run(read())


class Tally(msgspec.Struct):
    """What the kills of one test did."""

    backend: str
    kills: int = 0
    stores: int = 0
    reopenings: list[float] = []
    reruns: int = 0
    interrupted: int = 0

    def row(self):
        percentiles = quantiles(self.reopenings, n=100)
        return (
            f"{self.backend:<8} {self.kills:>5} {self.stores:>6} {stress.SESSIONS:>8} {percentiles[49]:>11.0f} "
            f"{percentiles[98]:>11.0f} {self.reruns:>12} {self.interrupted:>18}"
        )


HEADER = (
    f"{'backend':<8} {'kills':>5} {'stores':>6} {'sessions':>8} {'reopen p50':>11} {'p99 (ms)':>11} {'safe re-runs':>12} "
    f"{'interrupted unsafe':>18}"
)


def spend_lives(lives, place, dice, tally):
    """Kill up to KILLS_PER_STORE lives on a store, and leave the next one in peace, unless one was faster."""
    for _ in range(min(KILLS_PER_STORE, KILLS - tally.kills)):
        lives.begin(place)
        if not lives.kill_after(dice.uniform(0.02, LONGEST_S)):
            break
        tally.kills += 1
        if place.backend == "sqlite":
            check_intact(place)
        stress.check(place.read(), place.said())
    else:
        lives.begin(place)
        lives.finish()
    stored, said = place.read(), place.said()
    stress.check(stored, said)
    tally.interrupted += stress.check_finished(stored, said)
    looked = [facts["key"] for facts in said if facts["what"] == "looked"]
    tally.reruns += len(looked) - len(set(looked))
    tally.reopenings += [facts["ms"] for facts in said if facts["what"] == "opened"][1:]
    tally.stores += 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
def test_an_office_that_is_killed_at_any_instant_ends_its_work_once(backend, part, tmp_path, record_property):
    """B002, B004, B016, B043, B089, B091."""
    tally, dice = Tally(backend), random.Random(f"{SEED}-{backend}-{part}")
    with worker(tmp_path, "stress_worker.py") as lives:
        while tally.kills < KILLS:
            name = str(tmp_path / f"store-{tally.stores}")
            spend_lives(lives, Place(backend, name, f"{name}.diary"), dice, tally)
    record_property("table", f"{HEADER}\n{tally.row()}")
    assert tally.interrupted > 0, "no kill hit an unsafe tool"
