"""Commits per second of every backend under the storage actor, beside bare sqlite3 and bare aiosqlite in the same run.

    python tests/bench/bench_backends.py [--seconds 1] [--sessions 1 10 100 1000] [--added-flush-ms 0.5]

Each session commits one entry of about 330 bytes at a time and waits until it is durable. "power" is synchronous=FULL for
SQLite and fsync=True for JSONL, "process" NORMAL and fsync=False; memory is neither. The bare sides write the same row and
the session's counters, one transaction per commit: sqlite3 on the caller's thread, aiosqlite with a lock around each
transaction, since its sessions share one connection. "written" is what the process handed to the kernel per commit.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiosqlite
from perdure.actors.runtime import ActorSystem
from perdure.actors.session.storage_actor import StorageActor, Store
from perdure.storage import codec
from perdure.storage.contract import Storage
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.sqlite import SqliteStorage
from perdure.storage.sqlite_group import ADD_ENTRY, SET_COUNTERS
from perdure.storage.sqlite_schema import TABLES

sys.path.insert(0, str(Path(__file__).parent))
from bench_commits import Driver, entry
from slow_disk import flush_ms, rerun_with_slow_disk

Commit = Callable[[int], Awaitable[None]]
Opened = Callable[[Path, str, int], contextlib.AbstractAsyncContextManager[list[Commit]]]


class Figures(NamedTuple):
    """Commits per second, percentiles of one commit in ms, and bytes written per commit."""

    rate: float
    p50: float
    p99: float
    p999: float
    written: float


async def measure(commits: list[Commit], seconds: float) -> Figures:
    """Let each of ``commits`` commit again and again, all at the same time, after one commit each to begin with."""
    await asyncio.gather(*(commit(0) for commit in commits))
    times: list[float] = []
    wrote, began = bytes_written(), time.perf_counter()

    async def work(commit: Commit) -> None:
        number = 0
        while (start := time.perf_counter()) < began + seconds:
            number += 1
            await commit(number)
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(work(commit) for commit in commits))
    elapsed, written = time.perf_counter() - began, bytes_written() - wrote
    times.sort()
    at = [times[min(int(len(times) * share), len(times) - 1)] * 1e3 for share in (0.5, 0.99, 0.999)]
    return Figures(len(times) / elapsed, at[0], at[1], at[2], written / len(times))


def bytes_written() -> int:
    """Bytes that this process has handed to the kernel."""
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])


# --- the sides


def make_storage(backend: str, path: Path, durability: str) -> Storage:
    if backend == "memory":
        return MemoryStorage()
    if backend == "jsonl":
        return JsonlStorage(path, fsync=durability == "power")
    return SqliteStorage(path, durability="power" if durability == "power" else "process")


def under_the_actor(backend: str) -> Opened:
    @asynccontextmanager
    async def opened(path: Path, durability: str, sessions: int) -> AsyncIterator[list[Commit]]:
        store = Store(make_storage(backend, path, durability))
        async with ActorSystem() as system:
            storage = system.spawn(StorageActor, store)
            yield [Driver(f"session-{number}", storage).commit for number in range(sessions)]
        await store.storage.close()

    return opened


def rows_of(session: int, seq: int) -> tuple[tuple[object, ...], tuple[int, int, int]]:
    """Give the parameters of one commit's two statements."""
    prefix = session + 1 << 32
    return (prefix + seq, prefix + 1, seq, None, codec.encode(entry(seq, seq))), (seq, seq, session + 1)


def prepare(path: Path, durability: str, sessions: int) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(TABLES)
        rows = [(number + 1, f"session-{number}") for number in range(sessions)]
        connection.executemany("INSERT INTO sessions (sid, key, created_at, seq, last_id) VALUES (?, ?, 0, 0, 0)", rows)


def synchronous(durability: str) -> str:
    return f"PRAGMA synchronous={'FULL' if durability == 'power' else 'NORMAL'}"


@asynccontextmanager
async def bare_sqlite3(path: Path, durability: str, sessions: int) -> AsyncIterator[list[Commit]]:
    prepare(path, durability, sessions)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(synchronous(durability))

        def committer(session: int) -> Commit:
            async def commit(number: int) -> None:
                row, counters = rows_of(session, number + 1)
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(ADD_ENTRY, row)
                connection.execute(SET_COUNTERS, counters)
                connection.execute("COMMIT")
                await asyncio.sleep(0)

            return commit

        yield [committer(number) for number in range(sessions)]


@asynccontextmanager
async def bare_aiosqlite(path: Path, durability: str, sessions: int) -> AsyncIterator[list[Commit]]:
    prepare(path, durability, sessions)
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        await connection.execute(synchronous(durability))
        lock = asyncio.Lock()

        def committer(session: int) -> Commit:
            async def commit(number: int) -> None:
                row, counters = rows_of(session, number + 1)
                async with lock:
                    await connection.execute("BEGIN IMMEDIATE")
                    await connection.execute(ADD_ENTRY, row)
                    await connection.execute(SET_COUNTERS, counters)
                    await connection.execute("COMMIT")

            return commit

        yield [committer(number) for number in range(sessions)]


SIDES: dict[str, Opened] = {
    "memory": under_the_actor("memory"),
    "sqlite": under_the_actor("sqlite"),
    "jsonl": under_the_actor("jsonl"),
    "bare sqlite3": bare_sqlite3,
    "bare aiosqlite": bare_aiosqlite,
}


async def run(side: str, path: Path, durability: str, sessions: int, seconds: float) -> Figures:
    async with SIDES[side](path, durability, sessions) as commits:
        return await measure(commits, seconds)


def table(folder: Path, counts: list[int], seconds: float) -> None:
    """Print the table."""
    print(f"one flush of this disk takes {flush_ms(folder):.2f} ms (median)\n")
    print(f"{'durability':<11}{'sessions':>9}  {'side':<15}{'commits/s':>10}", end="")
    print(f"{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}{'written B':>11}")
    for durability in ("power", "process"):
        for sessions in counts:
            for side in SIDES if durability == "process" else [side for side in SIDES if side != "memory"]:
                path = folder / f"{durability}-{side.replace(' ', '-')}-{sessions}"
                found = asyncio.run(run(side, path, durability, sessions, seconds))
                print(f"{durability:<11}{sessions:>9}  {side:<15}{found.rate:>10,.0f}", end="")
                print(f"{found.p50:>9.2f}{found.p99:>9.2f}{found.p999:>10.2f}{found.written:>11,.0f}", flush=True)


def main() -> int:
    """Run here, or again on a slower disk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 10, 100, 1_000])
    parser.add_argument("--added-flush-ms", type=float, default=0.0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        if options.added_flush_ms and "LD_PRELOAD" not in os.environ:
            return rerun_with_slow_disk(options.added_flush_ms, Path(name))
        table(Path(name), options.sessions, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
