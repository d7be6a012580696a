"""Commits per second through the storage actor, beside bare sqlite3 doing the same writes in the same run.

    python tests/bench/bench_commits.py [--seconds 2] [--added-flush-ms 0.5]

Each session commits one entry of about 330 bytes at a time and waits until it is durable. Bare sqlite3 does one transaction
per commit on the caller's thread: the same row into the same table, and the session's counters. "power" is
synchronous=FULL, "process" NORMAL. With ``--added-flush-ms`` every flush of the disk takes that much longer for both sides.
"""

import argparse
import asyncio
import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import perdure
from perdure.storage import codec
from perdure.storage.records import EntryRecord
from perdure.storage.sqlite_group import ADD_ENTRY, SET_COUNTERS
from perdure.storage.sqlite_schema import TABLES

sys.path.insert(0, str(Path(__file__).parent))
from slow_disk import flush_ms, rerun_with_slow_disk

TEXT = "x" * 200
SESSIONS = (1, 10, 100)


async def through_perdure(path: Path, durability: str, sessions: int, seconds: float) -> tuple[float, float, float]:
    """Commits per second, and the median and 99th percentile of one commit in ms."""
    times: list[float] = []
    async with perdure.System.open(path, durability=durability) as system:
        roots = [await (await system.session(f"session-{number}")).root() for number in range(sessions)]
        until = time.perf_counter() + seconds

        async def work(root: perdure.Conversation) -> None:
            while (began := time.perf_counter()) < until:
                async with root.commit() as tx:
                    await tx.append("bench.entry", {"text": TEXT, "number": len(times)})
                times.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(work(root) for root in roots))
        elapsed = time.perf_counter() - began
    times.sort()
    return len(times) / elapsed, times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3


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
            entry = EntryRecord(id=count, conversation_id=1, kind="bench.entry", data={"text": TEXT, "number": count})
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(ADD_ENTRY, (2**32 + count, 2**32 + 1, count, None, codec.encode(entry)))
            connection.execute(SET_COUNTERS, (count, count, 1))
            connection.execute("COMMIT")
        return count / (time.perf_counter() - began)


def table(folder: Path, seconds: float) -> None:
    """Print the table."""
    print(f"one flush of this disk takes {flush_ms(folder):.2f} ms (median)\n")
    print(f"{'durability':<11}{'sessions':>9}{'commits/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'bare/s':>9}{'ratio':>8}")
    for durability in ("power", "process"):
        alone = bare(folder / f"bare-{durability}.db", durability, seconds)
        for sessions in SESSIONS:
            path = folder / f"{durability}-{sessions}.db"
            rate, p50, p99 = asyncio.run(through_perdure(path, durability, sessions, seconds))
            cells = f"{rate:>12,.0f}{p50:>9.2f}{p99:>9.2f}{alone:>9,.0f}{rate / alone:>7.1f}x"
            print(f"{durability:<11}{sessions:>9}{cells}")


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
