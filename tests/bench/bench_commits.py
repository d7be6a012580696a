"""Commits per second through the storage actor, beside bare sqlite3 doing the same writes in the same run.

    python tests/bench/bench_commits.py [--seconds 2] [--added-flush-ms 0.5]

Each session commits one entry of about 330 bytes at a time and waits until it is durable: "actor" hands ready batches to the
storage actor, "session" runs whole commit blocks (line, transaction, gate, publication). Bare sqlite3 does one transaction per
commit on the caller's thread: the same row into the same table, and the session's counters. "power" is synchronous=FULL,
"process" NORMAL. With ``--added-flush-ms`` every flush of the disk takes that much longer for both sides.
"""

import argparse
import asyncio
import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import perdure
from perdure.actors.runtime import ActorRef, ActorSystem
from perdure.actors.session.storage_actor import Admitted, StorageActor, Store
from perdure.storage import codec
from perdure.storage.records import Batch, ConversationRecord, EntryRecord
from perdure.storage.sqlite_group import ADD_ENTRY, SET_COUNTERS
from perdure.storage.sqlite_schema import TABLES

sys.path.insert(0, str(Path(__file__).parent))
from slow_disk import flush_ms, rerun_with_slow_disk

TEXT = "x" * 200
SESSIONS = (1, 10, 100)


class Figures(NamedTuple):
    """Commits per second, and the median and 99th percentile of one commit in ms."""

    rate: float
    p50: float
    p99: float


async def measure(commits: list[Callable[[int], Awaitable[None]]], seconds: float) -> Figures:
    """Let each of ``commits`` commit again and again, all at the same time."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def work(commit: Callable[[int], Awaitable[None]]) -> None:
        while (began := time.perf_counter()) < until:
            await commit(len(times))
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work(commit) for commit in commits))
    elapsed = time.perf_counter() - began
    times.sort()
    return Figures(len(times) / elapsed, times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3)


def entry(number: int, id: int) -> EntryRecord:
    return EntryRecord(id=id, conversation_id=1, kind="bench.entry", data={"text": TEXT, "number": number})


class Driver:
    """Stands where a session stands for the storage actor: hands batches over and hears when they are durable."""

    def __init__(self, key: str, storage: ActorRef) -> None:
        self.key = key
        self._storage = storage
        self._seq = 0
        self._durable: asyncio.Future[None] | None = None

    async def commit(self, number: int) -> None:
        self._seq += 1
        writes = [ConversationRecord(id=1)] if self._seq == 1 else [entry(number, self._seq)]
        self._durable = asyncio.get_running_loop().create_future()
        self._storage.tell(Admitted(self, Batch(session=self.key, seq=self._seq, last_id=self._seq, writes=writes)))
        await self._durable

    def durable(self, seq: int) -> None:
        assert seq == self._seq
        self._durable.set_result(None)


async def through_the_actor(path: Path, durability: str, sessions: int, seconds: float) -> Figures:
    store = Store(perdure.SqliteStorage(path, durability=durability))
    async with ActorSystem() as system:
        storage = system.spawn(StorageActor, store)
        drivers = [Driver(f"session-{number}", storage) for number in range(sessions)]
        figures = await measure([driver.commit for driver in drivers], seconds)
    await store.storage.close()
    return figures


async def through_sessions(path: Path, durability: str, sessions: int, seconds: float) -> Figures:
    async with perdure.System.open(path, durability=durability) as system:
        roots = [await (await system.session(f"session-{number}")).root() for number in range(sessions)]

        async def commit(root: perdure.Conversation, number: int) -> None:
            async with root.commit() as tx:
                await tx.append("bench.entry", {"text": TEXT, "number": number})

        return await measure([partial(commit, root) for root in roots], seconds)


def bare(path: Path, durability: str, seconds: float) -> float:
    """Commits per second of one transaction per commit."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'power' else 'NORMAL'}")
        connection.executescript(TABLES)
        connection.execute("INSERT INTO sessions (sid, key, created_at, seq, last_id) VALUES (1, 'a', 0, 0, 0)")
        count, began = 1, time.perf_counter()
        while time.perf_counter() < began + seconds:
            count += 1
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(ADD_ENTRY, (2**32 + count, 2**32 + 1, count, None, codec.encode(entry(count, count))))
            connection.execute(SET_COUNTERS, (count, count, 1))
            connection.execute("COMMIT")
        return count / (time.perf_counter() - began)


def table(folder: Path, seconds: float) -> None:
    """Print the table."""
    print(f"one flush of this disk takes {flush_ms(folder):.2f} ms (median)\n")
    head = f"{'durability':<11}{'through':<9}{'sessions':>9}{'commits/s':>12}{'p50 ms':>9}{'p99 ms':>9}"
    print(f"{head}{'bare/s':>9}{'ratio':>8}")
    for durability in ("power", "process"):
        alone = bare(folder / f"bare-{durability}.db", durability, seconds)
        for name, through in (("actor", through_the_actor), ("session", through_sessions)):
            for sessions in SESSIONS:
                path = folder / f"{durability}-{name}-{sessions}.db"
                found = asyncio.run(through(path, durability, sessions, seconds))
                cells = f"{found.rate:>12,.0f}{found.p50:>9.2f}{found.p99:>9.2f}{alone:>9,.0f}"
                print(f"{durability:<11}{name:<9}{sessions:>9}{cells}{found.rate / alone:>7.1f}x")


def main() -> int:
    """Run here, or again on a slower disk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each cell")
    parser.add_argument("--added-flush-ms", type=float, default=0.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        if options.added_flush_ms and "LD_PRELOAD" not in os.environ:
            return rerun_with_slow_disk(options.added_flush_ms, Path(name))
        table(Path(name), options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
