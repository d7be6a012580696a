"""Forks of a short and of a long conversation: their time and their size.

    python tests/bench/bench_fork.py [--entries 20000] [--forks 100] [--backend sqlite]

A fork is timed from the call until it is durable. "written" is what its commit gives to storage, as JSON. "oldest" forks
begin at the first entry, "newest" at the last one. "first context" is what a request in a new fork reads and derives once:
it costs the active range, not the fork. The two conversations are forked by turns, so that a busy machine disturbs both
alike. Aims: under 10 ms, and a size that does not depend on the parent.
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


async def fork(conversation: perdure.Conversation, at: int | None, sizes: list[int]) -> tuple[float, int]:
    """Give the time of a fork in ms, and how much it wrote."""
    began = time.perf_counter()
    await conversation.fork(at)
    return (time.perf_counter() - began) * 1e3, sizes[-1]


async def first_context(conversation: perdure.Conversation) -> float:
    child = await conversation.fork()
    began = time.perf_counter()
    await child.context()
    return (time.perf_counter() - began) * 1e3


async def measure(storage: perdure.Storage, sizes: list[int], entries: int, count: int) -> None:
    agent = perdure.Agent(model="scripted/model")
    async with perdure.System.open(storage, models=[perdure.ScriptedModel(lambda request: "Well.")]) as system:
        session = await system.session("forks")
        pair = [await session.create_conversation(agent=agent) for _ in range(2)]
        for conversation, length in zip(pair, (SHORT, entries), strict=True):
            await fill(conversation, length, "")
        oldest = [(await one.entries(limit=1, order="ascending")).items[0].id for one in pair]
        print(
            f"{'median of ' + str(count) + ' forks':<26}{'entry ' + str(SHORT):>16}{f'entry {entries:,}':>16}{'growth':>10}"
        )
        for name, ats in (("oldest", oldest), ("newest", [None, None])):
            rows = [[await fork(one, at, sizes) for one, at in zip(pair, ats, strict=True)] for _ in range(count)]
            times = [statistics.median(row[side][0] for row in rows) for side in range(2)]
            written = [rows[-1][side][1] for side in range(2)]
            print(
                f"{'at the ' + name + ' entry, ms':<26}{times[0]:>16.2f}{times[1]:>16.2f}{times[1] / times[0]:>9.2f}x"
            )
            print(f"{'  written, bytes':<26}{written[0]:>16,}{written[1]:>16,}{written[1] / written[0]:>9.2f}x")
        contexts = [await first_context(one) for one in pair]
        print(f"{'first context, ms':<26}{contexts[0]:>16.1f}{contexts[1]:>16.1f}")


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
