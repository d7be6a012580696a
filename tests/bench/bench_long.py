"""A long conversation of an agent that reads and reads: how large the file gets, and whether commits stay as fast.

    python tests/bench/bench_long.py [--turns 2000] [--kilobytes 20] [--backend sqlite]

A scripted model calls a tool in every turn, which returns so many kilobytes. "payload" is what the tool returned. A write
is one group that storage was given; "turn" is everything from one request to the next, the derivation of context included.
Wall times of writes are mostly the disk's, and on a machine with neighbours they say little; "cpu" is of all threads, and
"written" what the process has handed to the file system (the log's pages and their copies in the database; Linux only),
both as means, so that rare checkpoints count.
Aims: a file of at most 1.5 times the payload; writes, cpu and bytes of a turn no more at the end than at the beginning.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import perdure
from perdure.models import ModelRequest, ToolCall, call
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.records import Batch
from perdure.storage.sqlite import SqliteStorage

SLICE = 100


class Journal:
    """Where turns begin, and how long each write took, per turn."""

    def __init__(self) -> None:
        self.turns: list[float] = []
        self.cpu: list[float] = []
        self.written: list[int] = []
        self.writes: list[list[float]] = [[]]

    def begin_turn(self) -> int:
        self.turns.append(time.perf_counter())
        self.cpu.append(time.process_time())
        self.written.append(handed_over())
        self.writes.append([])
        return len(self.turns)


def handed_over() -> int:
    """Count the bytes that this process has written so far; 0 where the system does not tell."""
    counters = Path("/proc/self/io")
    return int(counters.read_text().split("wchar: ")[1].split()[0]) if counters.exists() else 0


def timed(kind: type, journal: Journal) -> type:
    """Make a storage class that notes how long its writes take."""

    class Timed(kind):  # type: ignore[misc]
        async def write(self, batches: Sequence[Batch]) -> None:
            began = time.perf_counter()
            await super().write(batches)
            journal.writes[-1].append(time.perf_counter() - began)

    return Timed


async def talk(storage: perdure.Storage, journal: Journal, turns: int, text: str) -> None:
    """Run the conversation to its end."""

    @perdure.tool(replay="safe")
    async def read(turn: int) -> str:
        """Read a part."""
        return f"{turn:08d} {text}"

    def brain(request: ModelRequest) -> str | ToolCall:
        turn = journal.begin_turn()
        return call("read", turn=turn) if turn <= turns else "That was all."

    extension = perdure.Extension(name="bench", tools=[read])
    models = [perdure.ScriptedModel(brain)]
    whole = perdure.Settings(compaction=perdure.CompactionPolicy(enabled=False))
    async with perdure.System.open(storage, models=models, extensions=[extension], settings=whole) as system:
        root = await (await system.session("long")).root(agent=perdure.Agent(model="scripted/model"))
        await (await root.submit("Read everything.")).wait()


def size(path: Path) -> int:
    """Bytes of a file, or of all the files in a directory."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_size for file in files if file.is_file())


def line(name: str, values: Sequence[float]) -> str:
    """Describe the first and the last values, in ms."""
    first, last = statistics.median(values[:SLICE]) * 1e3, statistics.median(values[-SLICE:]) * 1e3
    return f"{name:<22}{first:>12.2f}{last:>12.2f}{last / first:>8.2f}x"


def means(name: str, counter: Sequence[float], unit: float) -> str:
    """Describe the growth of a counter over the first and the last turns, per turn; they are a tenth of all."""
    part = max(1, len(counter) // 10)
    first = (counter[part] - counter[0]) / part / unit
    last = (counter[-1] - counter[-1 - part]) / part / unit
    return f"{name:<22}{first:>12.2f}{last:>12.2f}" + (f"{last / first:>8.2f}x" if first else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--kilobytes", type=int, default=20)
    parser.add_argument("--backend", choices=["sqlite", "jsonl"], default="sqlite")
    options = parser.parse_args()
    journal, text = (
        Journal(),
        ("lorem ipsum dolor sit amet, " * 40 * options.kilobytes)[: options.kilobytes * 1_000 - 9],
    )
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        path = Path(folder) / "store"
        kind = SqliteStorage if options.backend == "sqlite" else JsonlStorage
        began = time.perf_counter()
        asyncio.run(talk(timed(kind, journal)(path), journal, options.turns, text))
        payload, stored = options.turns * options.kilobytes * 1_000, size(path)
        print(f"{options.turns:,} turns in {time.perf_counter() - began:.1f} s on {options.backend}")
        print(f"payload {payload / 1e6:.1f} MB, on disk after closing {stored / 1e6:.1f} MB: {stored / payload:.2f}x\n")
        print(f"{'median of ' + str(SLICE) + ', ms':<22}{'first':>12}{'last':>12}{'growth':>9}")
        writes = journal.writes[1 : options.turns]
        print(line("one write", [statistics.mean(turn) for turn in writes if turn]))
        print(line("all writes of a turn", [sum(turn) for turn in writes]))
        print(line("a turn", [after - before for before, after in zip(journal.turns, journal.turns[1:], strict=False)]))

        print(f"\n{'mean of a tenth':<22}{'first':>12}{'last':>12}{'growth':>9}")
        print(means("cpu of a turn, ms", journal.cpu, 1e-3))
        print(means("written a turn, KB", journal.written, 1e3))


if __name__ == "__main__":
    sys.exit(main())
