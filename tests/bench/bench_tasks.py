"""The task tree at the sizes that the reference publishes figures for, on a SQLite file at ``durability="power"``.

    python tests/bench/bench_tasks.py [--rounds 3]

Each line is the time until the outcome in question is durable, with real task definitions:

* *chain*: a task creates the next one, which it owns, and finishes; its outcome is held until everything below has ended.
  "build" is from the creation of the first to the last one's start, "settle" from the last one's finish to the end of the first.
* *abort*: three levels of parked tasks, 10,000 in all, from the request to the end of the topmost: every abort handler runs.
* *nested calls*: one tool makes 8,000 calls of another at once; each is a tool task of its own.
* *one after another*: a task runs 10,000 others in turn; what the session keeps of them in memory afterwards.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import perdure
from perdure.actors.models import UserMessage, call, plain_text

sys.path.insert(0, str(Path(__file__).parent))
from slow_disk import flush_ms

REFERENCE = {"chain of 500": 50.0, "chain of 20,000": 1_500.0, "8,000 nested calls": 2_700.0}
"""Milliseconds that the reference names: for settling, and for all calls."""


class Link(perdure.Task[int, None], name="bench.link"):
    """One link of a chain: owns the next one; the last waits for its signal."""

    class Go(perdure.Phase): ...

    async def go(self, run: perdure.Run[int], state: Go) -> None:
        if run.input == 0:
            await run.service(Signals).last(run)
        async with run.commit() as tx:
            if run.input > 0:
                await tx.create_task(Link, run.input - 1, owner=run.id)
            tx.complete()


class Node(perdure.Task[list[int], None], name="bench.node"):
    """Creates as many children as its input says, each with the rest of it, and parks until they have ended."""

    class Go(perdure.Phase): ...

    class Done(perdure.Phase): ...

    async def go(self, run: perdure.Run[list[int]], state: Go) -> None:
        async with run.commit() as tx:
            below = range(run.input[0])
            children = [await tx.create_task(Node, run.input[1:], owner=run.id) for _ in below]
            await tx.wait(children, then=self.Done(), until=None if children else FAR)
        run.service(Signals).parked += 1

    async def done(self, run: perdure.Run[list[int]], state: Done) -> None:
        await run.complete()


class Each(perdure.Task[int, None], name="bench.each"):
    """Runs others one after another."""

    class Go(perdure.Phase):
        left: int = -1

    async def go(self, run: perdure.Run[int], state: Go) -> None:
        left = run.input if state.left < 0 else state.left
        if left == 0:
            await run.complete()
            return
        async with run.commit() as tx:
            child = await tx.create_task(Leaf, owner=run.id)
            await tx.wait([child], then=self.Go(left=left - 1))


class Leaf(perdure.Task[None, None], name="bench.leaf"):
    """Ends at once."""

    class Go(perdure.Phase): ...

    async def go(self, run: perdure.Run[None], state: Go) -> None:
        await run.complete()


FAR = 2**52
CALLS = 8_000


@perdure.tool(replay="safe")
async def square(number: int) -> perdure.ToolResult:
    """Square a number."""
    return perdure.ToolResult(content=str(number**2))


@perdure.tool(replay="safe")
async def squares(ctx: perdure.ToolContext, count: int) -> str:
    """Square many numbers."""
    done = await asyncio.gather(*(ctx.call("square", {"number": number}) for number in range(count)))
    return f"{len(done)} squares"


def brain(request: Any) -> Any:
    """Call the tool once, then say what it said."""
    last = request.messages[-1]
    return [call("squares", count=CALLS)] if isinstance(last, UserMessage) else plain_text(last.content)


class Signals:
    """What the tasks tell the benchmark, and wait for."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.release = asyncio.Event()
        self.parked = 0

    async def last(self, run: perdure.Run[int]) -> None:
        self.reached.set()
        await self.release.wait()


Measure = Callable[[perdure.System, perdure.Session], Awaitable[dict[str, float]]]


async def on_file(folder: Path, measure: Measure) -> dict[str, float]:
    """Measure on a fresh file."""
    extension = perdure.Extension(name="bench", tasks=[Link, Node, Each, Leaf], tools=[square, squares])
    with tempfile.TemporaryDirectory(dir=folder) as name:
        models = [perdure.ScriptedModel(brain)]
        async with perdure.System.open(Path(name, "bench.db"), models=models, extensions=[extension]) as system:
            system.services.provide(Signals, Signals())
            session = await system.session("bench")
            await session.root(agent=perdure.Agent(model="scripted/model"))
            gc.collect()
            return await measure(system, session)


async def create(session: perdure.Session, task: Any, input: Any) -> perdure.TaskRef[None]:
    async with session.commit() as tx:
        return await tx.create_task(task, input, conversation_id=1)


def chain(length: int) -> Measure:
    async def measure(system: perdure.System, session: perdure.Session) -> dict[str, float]:
        signals = system.services.get(Signals)
        began = time.perf_counter()
        first = await create(session, Link, length - 1)
        await signals.reached.wait()
        reached = time.perf_counter()
        signals.release.set()
        await first.result()
        ended = time.perf_counter()
        assert not await session.tasks()
        return {"build": (reached - began) * 1e3, "settle": (ended - reached) * 1e3}

    return measure


async def abort(system: perdure.System, session: perdure.Session) -> dict[str, float]:
    signals = system.services.get(Signals)
    top = await create(session, Node, [99, 100, 0])
    while signals.parked < 1 + 99 + 99 * 100:
        await asyncio.sleep(0.01)
    began = time.perf_counter()
    await top.abort()
    await top.settled()
    assert not await session.tasks()
    return {"abort": (time.perf_counter() - began) * 1e3}


async def nested_calls(system: perdure.System, session: perdure.Session) -> dict[str, float]:
    root = await session.conversation(1)
    began = time.perf_counter()
    settled = await (await root.submit("go")).wait()
    assert settled.text == f"{CALLS} squares"
    assert not await session.tasks()
    return {"all": (time.perf_counter() - began) * 1e3}


async def one_after_another(system: perdure.System, session: perdure.Session) -> dict[str, float]:
    began = time.perf_counter()
    task = await create(session, Each, 10_000)
    await task.result()
    ended = time.perf_counter()
    kept = await session.tasks()
    return {"run": (ended - began) * 1e3, "kept": float(len(kept))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases: dict[str, Measure] = {
        "chain of 500": chain(500),
        "chain of 1,000": chain(1_000),
        "chain of 20,000": chain(20_000),
        "abort of 10,000": abort,
        "8,000 nested calls": nested_calls,
        "one after another": one_after_another,
    }
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        print(f"one flush of this disk takes {flush_ms(Path(folder)):.2f} ms (median)\n")
        for name, measure in cases.items():
            if options.only in name:
                rounds = [asyncio.run(on_file(Path(folder), measure)) for _ in range(options.rounds)]
                figures = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
                cells = "  ".join(
                    f"{key} {value:,.0f}{'' if key == 'kept' else ' ms'}" for key, value in figures.items()
                )
                reference = f"  (reference: {REFERENCE[name]:,.0f} ms)" if name in REFERENCE else ""
                print(f"{name:<20}{cells}{reference}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
