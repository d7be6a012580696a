"""Commits per second through the storage actor, beside bare sqlite3 doing the same writes in the same run.

    python tests/bench/bench_commits.py [seconds per cell]

Each session commits one entry of about 330 bytes at a time and waits until it is durable. Bare sqlite3 does one
transaction per commit with the same row, on the caller's thread. "power" is synchronous=FULL, "process" NORMAL.
"""

import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import perdure

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
        connection.execute("CREATE TABLE entries (rid INTEGER PRIMARY KEY, conv INTEGER, seq INTEGER, body BLOB)")
        body = ('{"id":1,"conversationId":1,"kind":"bench.entry","data":{"text":"' + TEXT + '","number":1}}').encode()
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            count += 1
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (count, 1, count, body))
            connection.execute("COMMIT")
        return count / (time.perf_counter() - began)


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print(f"{'durability':<11}{'sessions':>9}{'commits/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'bare/s':>9}{'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        for durability in ("power", "process"):
            alone = bare(Path(folder, f"bare-{durability}.db"), durability, seconds)
            for sessions in SESSIONS:
                path = Path(folder, f"{durability}-{sessions}.db")
                rate, p50, p99 = asyncio.run(through_perdure(path, durability, sessions, seconds))
                cells = f"{rate:>12,.0f}{p50:>9.2f}{p99:>9.2f}{alone:>9,.0f}{rate / alone:>7.1f}x"
                print(f"{durability:<11}{sessions:>9}{cells}")


if __name__ == "__main__":
    main()
