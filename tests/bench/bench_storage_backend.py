"""Commits per second through ``SqliteStorage.write``, beside bare ``sqlite3`` with one transaction per commit.

Run with python. A commit is what a step of an agent writes: a task's new checkpoint and one entry, about 300 bytes each,
and the session's counters. The bare side runs the very same statements on the same tables with the same settings and
encodes the same records, but checks nothing. Both sides take turns; the table shows medians.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from perdure.storage import codec
from perdure.storage.records import Batch, ConversationRecord, EntryRecord, Running, TaskRecord
from perdure.storage.sqlite import SqliteStorage
from perdure.storage.sqlite_group import ADD_ENTRY, SET_COUNTERS, SET_TASK
from perdure.storage.sqlite_schema import Durability, open_writer

SECONDS = 0.7
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


def step_of(number: int, step: int) -> Batch:
    """Make commit number ``step`` of a session; the first creates what the others change."""
    writes = [ConversationRecord(id=1), task(0)] if step == 0 else [task(step), entry(step)]
    return Batch(session=f"session-{number}", seq=1 + step, last_id=FIRST_ENTRY + step, writes=writes)


async def measure_grouped(path: Path, durability: Durability, size: int) -> float:
    """Measure commits per second in groups of one commit for each of ``size`` sessions."""
    store = SqliteStorage(path, durability=durability)
    await store.open()
    await store.write([step_of(number, 0) for number in range(size)])
    spent = 0.0
    for step in itertools.count(1):
        group = [step_of(number, step) for number in range(size)]
        start = time.perf_counter()
        await store.write(group)
        spent += time.perf_counter() - start
        if spent > SECONDS:
            break
    await store.close()
    return step * size / spent


async def measure_bare(path: Path, durability: Durability, size: int) -> float:
    """Measure commits per second with bare sqlite3, a transaction for each commit."""
    store = SqliteStorage(path, durability=durability)
    await store.open()
    await store.write([step_of(number, 0) for number in range(size)])
    await store.close()
    connection = open_writer(str(path), durability, 5.0, 0)
    spent = 0.0
    for count in itertools.count(1):
        step, number = 1 + count // size, count % size
        sid, prefix = number + 1, (number + 1) << 32
        batch = step_of(number, step)
        task, entry = batch.writes
        start = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SET_TASK, (prefix | task.id, codec.encode(task)))
        row = (prefix | entry.id, prefix | 1, batch.seq, entry.head, codec.encode(entry))
        connection.execute(ADD_ENTRY, row)
        connection.execute(SET_COUNTERS, (batch.seq, batch.last_id, sid))
        connection.execute("COMMIT")
        spent += time.perf_counter() - start
        if spent > SECONDS:
            break
    connection.close()
    return count / spent


def main() -> None:
    print(
        f"{'durability':10} {'batches a group':>15} {'groups/s':>9} {'commits/s':>10} {'bare sqlite3':>12} {'ratio':>6}"
    )
    for durability in ("power", "process"):
        for size in SIZES:
            ours, bare = [], []
            for _ in range(ROUNDS):
                for results, measure in ((ours, measure_grouped), (bare, measure_bare)):
                    with tempfile.TemporaryDirectory() as folder:
                        results.append(asyncio.run(measure(Path(folder, "bench.db"), durability, size)))
            fast, slow = statistics.median(ours), statistics.median(bare)
            print(f"{durability:10} {size:15} {fast / size:9,.0f} {fast:10,.0f} {slow:12,.0f} {fast / slow:6.1f}")


if __name__ == "__main__":
    main()
