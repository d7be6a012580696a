"""Forks of a short and of a long conversation: their time and their size.

    python tests/bench/bench_fork.py [--entries 20000] [--forks 100] [--backend sqlite]

A fork is timed from the call until it is durable. "written" is what its commit gives to storage, as JSON. "oldest" forks
begin at the first entry, "newest" at the last one. "first context" is what a request in a new fork reads and derives once:
it costs the active range, not the fork. Aims: under 10 ms, and a size that does not depend on the parent.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import perdure
from bench_turn import fill
from perdure.storage.records import Batch
from perdure.storage.sqlite import SqliteStorage

SHORT = 100


def noting(kind: type, sizes: list[int]) -> type:
    """Make a storage class that notes how large each group is, in bytes of JSON."""

    class Noting(kind):  # type: ignore[misc]
        async def write(self, batches: Sequence[Batch]) -> None:
            sizes.append(sum(len(msgspec.json.encode(batch.writes)) for batch in batches))
            await super().write(batches)

    return Noting


async def forks(conversation: perdure.Conversation, at: int | None, count: int, sizes: list[int]) -> tuple[float, int]:
    """Give the median time of a fork in ms, and how much the last one wrote."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await conversation.fork(at)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3, sizes[-1]


async def first_context(conversation: perdure.Conversation) -> float:
    fork = await conversation.fork()
    began = time.perf_counter()
    await fork.context()
    return (time.perf_counter() - began) * 1e3


async def measure(storage: perdure.Storage, sizes: list[int], entries: int, count: int) -> None:
    agent = perdure.Agent(model="scripted/model")
    async with perdure.System.open(storage, models=[perdure.ScriptedModel(lambda request: "Well.")]) as system:
        session = await system.session("forks")
        rows: dict[str, list[tuple[float, int]]] = {"oldest": [], "newest": []}
        contexts = []
        for length in (SHORT, entries):
            conversation = await session.create_conversation(agent=agent)
            await fill(conversation, length, "")
            oldest = (await conversation.entries(limit=1, order="ascending")).items[0].id
            await conversation.fork()
            for name, at in (("oldest", oldest), ("newest", None)):
                rows[name].append(await forks(conversation, at, count, sizes))
            contexts.append(await first_context(conversation))
        print(
            f"{'median of ' + str(count) + ' forks':<24}{'entry ' + str(SHORT):>22}{f'entry {entries:,}':>22}{'growth':>10}"
        )
        for name, ((short, small), (long, large)) in rows.items():
            print(f"{'at the ' + name + ' entry, ms':<24}{short:>22.2f}{long:>22.2f}{long / short:>9.2f}x")
            print(f"{'  written, bytes':<24}{small:>22,}{large:>22,}{large / small:>9.2f}x")
        print(f"{'first context, ms':<24}{contexts[0]:>22.1f}{contexts[1]:>22.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--forks", type=int, default=100)
    parser.add_argument("--backend", choices=["memory", "sqlite"], default="sqlite")
    options = parser.parse_args()
    sizes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        kind = noting(SqliteStorage if options.backend == "sqlite" else perdure.MemoryStorage, sizes)
        storage = kind(Path(folder) / "forks.db") if options.backend == "sqlite" else kind()
        asyncio.run(measure(storage, sizes, options.entries, options.forks))


if __name__ == "__main__":
    sys.exit(main())
