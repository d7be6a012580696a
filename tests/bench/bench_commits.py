"""Commits per second through the storage actor, beside bare sqlite3 doing the same writes in the same run.

    python tests/bench/bench_commits.py [--seconds 2] [--added-flush-ms 0.5]

Each session commits one record of about 330 bytes at a time and waits until it is durable: a *checkpoint* replaces a task's
record, an *entry* is appended to a transcript. "actor" hands batches to the storage actor, each session's next one as soon
as its last one is durable; "actor x4" keeps four of each session on their way, as a session does whose tasks commit at the same
time: its line is handed on at admission, not at durability. "session" runs whole commit blocks (line, transaction, gate,
publication), one at a time. Bare sqlite3 does one transaction per commit on the caller's thread, for 100 sessions in turn:
the same row into the same table, and the session's counters. "power" is synchronous=FULL, "process" NORMAL. With
``--added-flush-ms`` every flush of the disk takes that much longer for both sides. Both sides are measured ``--rounds``
times in turns; the table shows medians.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import perdure
from perdure.actors.runtime import ActorSystem
from perdure.actors.session.storage_actor import StorageActor, Store
from perdure.storage import codec
from perdure.storage.records import Batch, ConversationRecord, EntryRecord, Running, TaskRecord, Write
from perdure.storage.sqlite_group import ADD_ENTRY, ADD_TASK
from perdure.storage.sqlite_schema import TABLES

sys.path.insert(0, str(Path(__file__).parent))
from slow_disk import flush_ms, rerun_with_slow_disk

TEXT = "x" * 200
SESSIONS = (1, 10, 100)
TASK = 2
DEPTH = 4
Kind = Literal["checkpoint", "entry"]
Through = Callable[[Kind, Path, str, int, float], Coroutine[Any, Any, "Figures"]]


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
    return figures(times, elapsed)


def figures(times: list[float], elapsed: float) -> Figures:
    """Sum up commits that took ``times`` (seconds)."""
    times.sort()
    return Figures(len(times) / elapsed, times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3)


def entry(number: int, id: int) -> EntryRecord:
    return EntryRecord(id=id, conversation_id=1, kind="bench.entry", data={"text": TEXT, "number": number})


def checkpoint(number: int) -> TaskRecord:
    return TaskRecord(
        id=TASK,
        conversation_id=1,
        kind="bench.task",
        version=1,
        state=Running(checkpoint={"phase": "work", "number": number, "text": TEXT}),
        background=False,
        abort_requested=False,
    )


class Driver:
    """Stands where a session stands for the storage actor: keeps ``depth`` batches on their way to storage."""

    def __init__(self, kind: Kind, key: str, storage: StorageActor, depth: int) -> None:
        self.key = key
        self._kind = kind
        self._storage = storage
        self._depth = depth
        self._seq = TASK
        self._until = 0.0
        self._began: deque[float] = deque()
        self.times: list[float] = []
        self.over = asyncio.Event()

    async def run(self, until: float) -> None:
        """Commit again and again until a time; the first commit creates what the others change."""
        self._until = until
        self._admit([ConversationRecord(id=1), checkpoint(0)])
        await self.over.wait()

    def durable(self, seq: int) -> None:
        now = time.perf_counter()
        self.times.append(now - self._began.popleft())
        if now < self._until:
            while len(self._began) < self._depth:
                number = self._seq
                self._admit([checkpoint(number) if self._kind == "checkpoint" else entry(number, number + 1)])
        elif not self._began:
            self.over.set()

    def _admit(self, writes: list[Write]) -> None:
        self._seq += 1
        self._began.append(time.perf_counter())
        self._storage.admit(self, Batch(session=self.key, seq=self._seq, last_id=self._seq, writes=writes))


async def through_the_actor(
    kind: Kind, path: Path, durability: str, sessions: int, seconds: float, depth: int = 1
) -> Figures:
    store = Store(perdure.SqliteStorage(path, durability=durability))
    async with ActorSystem() as system:
        storage = system.spawn(StorageActor, store)._incarnation.actor
        drivers = [Driver(kind, f"session-{number}", storage, depth) for number in range(sessions)]
        began = time.perf_counter()
        await asyncio.gather(*(driver.run(began + seconds) for driver in drivers))
        elapsed = time.perf_counter() - began
    await store.storage.close()
    return figures([spent for driver in drivers for spent in driver.times], elapsed)


async def through_sessions(kind: Kind, path: Path, durability: str, sessions: int, seconds: float) -> Figures:
    async with perdure.System.open(path, durability=durability) as system:
        roots = [await (await system.session(f"session-{number}")).root() for number in range(sessions)]

        async def commit(root: perdure.Conversation, number: int) -> None:
            async with root.commit() as tx:
                await tx.append("bench.entry", {"text": TEXT, "number": number})

        return await measure([partial(commit, root) for root in roots], seconds)


def bare(kind: Kind, path: Path, durability: str, seconds: float, sessions: int = max(SESSIONS)) -> float:
    """Commits per second of one transaction per commit."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'power' else 'NORMAL'}")
        connection.executescript(TABLES)
        for sid in range(1, sessions + 1):
            connection.execute("INSERT INTO sessions VALUES (?, ?, 0, 0, 0, NULL)", (sid, f"session-{sid}"))
            connection.execute(ADD_TASK, (sid << 32 | TASK, codec.encode(checkpoint(0))))
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            sid, number = count % sessions + 1, TASK + 1 + count // sessions
            connection.execute("BEGIN IMMEDIATE")
            if kind == "entry":
                row = (sid << 32 | number, sid << 32 | 1, number, None, codec.encode(entry(number, number)))
                connection.execute(ADD_ENTRY, row)
            else:
                row = (codec.encode(checkpoint(number)), sid << 32 | TASK)
                connection.execute("UPDATE live_tasks SET body = ? WHERE rid = ?", row)
            connection.execute("UPDATE sessions SET seq = ?, last_id = ? WHERE sid = ?", (number, number, sid))
            connection.execute("COMMIT")
            count += 1
        return count / (time.perf_counter() - began)


def cell(
    kind: Kind, through: Through, folder: Path, durability: str, sessions: int, options: Any
) -> tuple[Figures, float]:
    """Measure both sides by turns; give the medians."""
    found: list[Figures] = []
    alone: list[float] = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            alone.append(bare(kind, Path(name, "bare.db"), durability, options.seconds))
            found.append(asyncio.run(through(kind, Path(name, "store.db"), durability, sessions, options.seconds)))
    return Figures(*map(statistics.median, zip(*found, strict=True))), statistics.median(alone)


def table(folder: Path, options: Any) -> None:
    """Print the table."""
    print(f"one flush of this disk takes {flush_ms(folder):.2f} ms (median)\n")
    head = f"{'commit':<11}{'durability':<11}{'through':<9}{'sessions':>9}{'commits/s':>12}{'p50 ms':>9}{'p99 ms':>9}"
    print(f"{head}{'bare/s':>9}{'ratio':>8}")
    pipelined = partial(through_the_actor, depth=DEPTH)
    for kind, name, through in (
        ("checkpoint", "actor", through_the_actor),
        ("checkpoint", f"actor x{DEPTH}", pipelined),
        ("entry", "actor", through_the_actor),
        ("entry", f"actor x{DEPTH}", pipelined),
        ("entry", "session", through_sessions),
    ):
        for durability, sessions in itertools.product(("power", "process"), SESSIONS):
            found, alone = cell(kind, through, folder, durability, sessions, options)
            cells = f"{found.rate:>12,.0f}{found.p50:>9.2f}{found.p99:>9.2f}{alone:>9,.0f}"
            print(f"{kind:<11}{durability:<11}{name:<9}{sessions:>9}{cells}{found.rate / alone:>7.1f}x", flush=True)


def main() -> int:
    """Run here, or again on a slower disk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each side of each cell")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--added-flush-ms", type=float, default=0.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        if options.added_flush_ms and "LD_PRELOAD" not in os.environ:
            return rerun_with_slow_disk(options.added_flush_ms, Path(name))
        table(Path(name), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
