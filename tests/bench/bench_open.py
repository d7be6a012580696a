"""How long a system takes to open a store, and to be through with the work that its last owner left, by idle sessions.

    python tests/bench/bench_open.py [--sessions 10 1000 100000] [--jsonl-up-to 1000]

Ten sessions have a pending task each, the others an ended conversation with one entry; "open" is ``System.open`` up to its
first statement, "done" until the ten tasks have completed, "memory" what the process has grown by. Must not grow with idle
sessions on SQLite. A JSONL store is in memory while it is open, so there it must grow; it is measured up to 1,000.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import perdure
from perdure.storage.contract import Storage
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.records import Batch, ConversationRecord, EntryRecord, Pending, TaskRecord, Write
from perdure.storage.sqlite import SqliteStorage

BUSY = 10
GROUP = 1_000
TEXT = "x" * 300


class Errand(perdure.Task[None, None], name="bench.errand", version=1):
    """Work that is left over."""

    class Go(perdure.Phase):
        """The only phase."""

    done = 0

    async def go(self, run: perdure.Run[None], state: Go) -> None:
        """Complete."""
        await run.complete()
        Errand.done += 1


def batches(sessions: int) -> Iterator[Batch]:
    for number in range(sessions):
        writes: list[Write] = [
            ConversationRecord(id=1),
            EntryRecord(id=2, conversation_id=1, kind="note", data={"text": TEXT}),
        ]
        busy = number % (sessions // BUSY) == 0
        if busy:
            state = Pending(checkpoint={"phase": "go"})
            writes.append(
                TaskRecord(
                    id=3,
                    conversation_id=1,
                    kind="bench.errand",
                    version=1,
                    state=state,
                    background=False,
                    abort_requested=False,
                )
            )
        yield Batch(session=f"session-{number}", seq=1, last_id=3, writes=writes, wake=0 if busy else None)


async def fill(storage: Storage, sessions: int) -> None:
    await storage.open()
    everything = list(batches(sessions))
    for start in range(0, sessions, GROUP):
        await storage.write(everything[start : start + GROUP])
    await storage.close()


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def measure(storage: Storage) -> tuple[float, float, float]:
    """Give the times of opening and of being through with the work, in ms, and the growth in MB."""
    Errand.done = 0
    before, began = resident_mb(), time.perf_counter()
    async with perdure.System.open(storage, extensions=[perdure.Extension(name="bench", tasks=[Errand])]) as system:
        opened = time.perf_counter()
        while Errand.done < BUSY:
            await asyncio.sleep(0)
        done = time.perf_counter()
        grown = resident_mb() - before
        active = len(system.inspect().sessions)
    assert active == BUSY, f"{active} sessions are active"
    return (opened - began) * 1e3, (done - began) * 1e3, grown


def report(name: str, storage: Storage, sessions: int) -> None:
    began = time.perf_counter()
    asyncio.run(fill(storage, sessions))
    filled = time.perf_counter() - began
    opened, done, grown = asyncio.run(measure(storage))
    print(f"{name:<8}{sessions:>9,}{opened:>10.1f}{done:>10.1f}{grown:>11.1f}{filled:>10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--jsonl-up-to", type=int, default=1_000)
    options = parser.parse_args()
    print(f"{'backend':<8}{'sessions':>9}{'open ms':>10}{'done ms':>10}{'memory MB':>11}{'fill s':>10}")
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        report("(warm)", SqliteStorage(Path(folder) / "warm.db"), BUSY)
        for sessions in options.sessions:
            report("sqlite", SqliteStorage(Path(folder) / f"{sessions}.db"), sessions)
        for sessions in options.sessions:
            if sessions <= options.jsonl_up_to:
                report("jsonl", JsonlStorage(Path(folder) / f"{sessions}"), sessions)


if __name__ == "__main__":
    sys.exit(main())
