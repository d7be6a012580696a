"""Messages between two sessions of a process that is killed with SIGKILL, while it kills actors of its own, at random."""

import asyncio
import random

import msgspec
import pytest

from . import mail
from .test_kill9 import check_intact, worker

SEED = 20_261_130
COUNT = 1_000
FIRST_S, GROWTH_S = 0.4, 0.02
"""Lives last up to so long; and each may last a little longer than the one before, so that a slow machine gets there, too."""


class Place(msgspec.Struct):
    """A store, and the seed of the next life's deaths."""

    backend: str
    store: str
    seed: int = 0

    async def begin(self):
        async with mail.open_system(mail.make_storage(self.backend, self.store)) as system:
            await mail.begin(system, COUNT)

    async def check(self, check, *arguments):
        storage = mail.make_storage(self.backend, self.store)
        await storage.open()
        try:
            await check(storage, *arguments)
            return sum(map(len, (await mail.transcripts(storage)).values()))
        finally:
            await storage.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
def test_killed_at_any_instant_two_sessions_handle_a_thousand_messages_of_each_other_once_in_order(
    tmp_path, backend, capsys
):
    """B002, B016, B041, B044, B062, B064."""
    place = Place(backend, str(tmp_path / "store"))
    dice = random.Random(f"{SEED}-{backend}")
    asyncio.run(place.begin())
    kills, heard = 0, []
    with worker(tmp_path, "mail_worker.py") as forks:
        while True:
            place.seed = dice.randrange(2**32)
            forks.begin(place)
            if not forks.kill_after(dice.uniform(0.05, FIRST_S + GROWTH_S * kills)):
                break
            kills += 1
            if backend == "sqlite":
                check_intact(place)
            heard.append(asyncio.run(place.check(mail.check_intact)))
    asyncio.run(place.check(mail.check_finished, COUNT))
    with capsys.disabled():
        print(f"\n{backend}: {kills} processes killed; handled by then: {', '.join(map(str, heard))}")
    assert any(0 < some < 2 * COUNT for some in heard), "the kills came before or after the work"
