"""Commits per second through ``SqliteStorage.write``, beside bare ``sqlite3`` with one transaction per commit.

Run with python. Two kinds of commit: a *checkpoint* replaces a task's record (300 bytes), a *turn* also appends an entry
(400 bytes); both move the session's counters. A group holds one commit of each of so many sessions. The bare side writes
the same rows to the same tables with the same settings and encodes the same records, but checks nothing. Both sides take
turns; the table shows medians.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import get_args

from perdure.storage import codec
from perdure.storage.records import Batch, ConversationRecord, EntryRecord, Running, TaskRecord
from perdure.storage.sqlite import SqliteStorage
from perdure.storage.sqlite_group import ADD_ENTRY
from perdure.storage.sqlite_schema import Durability, open_writer

SECONDS = 0.5
ROUNDS = 3
SIZES = (1, 10, 100)
TASK_ID, FIRST_ENTRY = 2, 3
TEXT = "Read the module, list what it exports and name the functions that have no test. " * 2


def task(step: int) -> TaskRecord:
    return TaskRecord(
        id=TASK_ID,
        conversation_id=1,
        kind="pi.generation",
        version=1,
        state=Running(checkpoint={"phase": "request", "step": step, "text": TEXT}),
        background=False,
        abort_requested=False,
    )


def entry(step: int) -> EntryRecord:
    message = {"role": "user", "content": [{"type": "text", "text": TEXT}], "timestamp": 1_700_000_000_000 + step}
    return EntryRecord(id=FIRST_ENTRY + step, conversation_id=1, kind="pi.user", model=[message])


def commit(number: int, step: int, *, turn: bool) -> Batch:
    """Make commit number ``step`` of a session; the first creates what the others change."""
    others = [entry(step)] if turn and step else [] if step else [ConversationRecord(id=1)]
    return Batch(session=f"session-{number}", seq=1 + step, last_id=FIRST_ENTRY + step, writes=[task(step), *others])


async def prepare(path: Path, durability: Durability, size: int) -> SqliteStorage:
    store = SqliteStorage(path, durability=durability)
    await store.open()
    await store.write([commit(number, 0, turn=True) for number in range(size)])
    return store


async def measure_grouped(path: Path, durability: Durability, size: int, *, turn: bool) -> float:
    """Measure commits per second in groups of one commit for each of ``size`` sessions."""
    store = await prepare(path, durability, size)
    spent, step = 0.0, 0
    while spent < SECONDS:
        step += 1
        group = [commit(number, step, turn=turn) for number in range(size)]
        start = time.perf_counter()
        await store.write(group)
        spent += time.perf_counter() - start
    await store.close()
    return step * size / spent


async def measure_bare(path: Path, durability: Durability, size: int, *, turn: bool) -> float:
    """Measure commits per second with bare sqlite3, a transaction for each commit."""
    await (await prepare(path, durability, size)).close()
    connection = open_writer(str(path), durability, 5.0, 0)
    spent = 0.0
    for count in itertools.count(1):
        number = count % size
        batch = commit(number, 1 + (count - 1) // size, turn=turn)
        prefix = (number + 1) << 32
        start = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        for write in batch.writes:
            if isinstance(write, TaskRecord):
                connection.execute(
                    "UPDATE live_tasks SET body = ? WHERE rid = ?", (codec.encode(write), prefix | write.id)
                )
            else:
                row = (prefix | write.id, prefix | 1, batch.seq, write.head, codec.encode(write))
                connection.execute(ADD_ENTRY, row)
        counters = (batch.seq, batch.last_id, number + 1)
        connection.execute("UPDATE sessions SET seq = ?, last_id = ? WHERE sid = ?", counters)
        connection.execute("COMMIT")
        spent += time.perf_counter() - start
        if spent > SECONDS:
            break
    connection.close()
    return count / spent


def compare(durability: Durability, size: int, *, turn: bool) -> tuple[float, float]:
    """Measure both sides by turns; give the medians."""
    results: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for measure, found in zip((measure_grouped, measure_bare), results, strict=True):
            with tempfile.TemporaryDirectory() as folder:
                found.append(asyncio.run(measure(Path(folder, "bench.db"), durability, size, turn=turn)))
    return statistics.median(results[0]), statistics.median(results[1])


def main() -> None:
    print(f"{'commit':10} {'durability':10} {'a group':>7} {'groups/s':>9} {'commits/s':>10} {'bare':>8} {'ratio':>6}")
    for turn, durability, size in itertools.product((False, True), get_args(Durability), SIZES):
        grouped, bare = compare(durability, size, turn=turn)
        kind = "turn" if turn else "checkpoint"
        row = f"{kind:10} {durability:10} {size:7} {grouped / size:9,.0f} {grouped:10,.0f} {bare:8,.0f} {grouped / bare:6.1f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
