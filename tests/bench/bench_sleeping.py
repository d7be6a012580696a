"""What sleeping tasks cost: memory when nobody is awake, the time to open their store, and how punctually they go on.

    python tests/bench/bench_sleeping.py [--sessions 10000] [--tasks 10] [--firing 2000]

Each session has a number of tasks, each parked until a time of its own; the first of all deadlines are a second apart or
less, on the virtual clock, the others a day later. A process creates them by the public interface, lets every session leave
memory, and is measured; another one opens the store, is measured, and lets the first deadlines come. "memory" is what the
process has grown by since before it opened its store, which it did once before with an empty one. "late" is by how much a
task goes on after its time. Durability "process": what is measured is not the disk.
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import perdure
from perdure.storage.sqlite import SqliteStorage
from perdure.testing import VirtualClock

DAY_MS = 86_400_000
IDLE_S = 1.0
AT_ONCE = 200
"""Sessions that are made before the clock moves on and lets them leave."""


class Alarm(perdure.Task[int, None], name="bench.alarm", version=1):
    """Sleeps until the time that is its input."""

    class Sleep(perdure.Phase):
        """Before."""

    class Rise(perdure.Phase):
        """After."""

    rung: list[tuple[int, int]] = []

    async def sleep(self, run: perdure.Run[int], state: Sleep) -> None:
        """Park."""
        await run.wait(then=self.Rise(), until=run.input)

    async def rise(self, run: perdure.Run[int], state: Rise) -> None:
        """Tell when."""
        Alarm.rung.append((run.input, run.now()))
        await run.complete()


def resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def system(path: Path, clock: VirtualClock) -> perdure.System:
    return perdure.System.open(
        SqliteStorage(path, durability="process"),
        extensions=[perdure.Extension(name="bench", tasks=[Alarm])],
        settings=perdure.Settings(idle_after_s=IDLE_S),
        clock=clock,
    )


async def baseline(folder: Path) -> float:
    """Measure a process that has had a system open, with everything imported and used once."""
    clock = VirtualClock()
    async with system(folder / f"empty-{os.getpid()}.db", clock) as opened:
        await add(opened, "warm", [clock.now() + 1])
    return resident_mb()


async def add(opened: perdure.System, key: str, times: list[int]) -> None:
    root = await (await opened.session(key)).root()
    async with root.commit() as tx:
        for until in times:
            await tx.create_task(Alarm, until)


async def asleep(opened: perdure.System, clock: VirtualClock) -> None:
    """Return when every session has left memory."""
    while opened.inspect().figures:
        if all(one.idle_s > 0 or not one.invocations for one in opened.inspect().figures.values()):
            clock.advance(IDLE_S)
        await asyncio.sleep(0.005)


async def create(folder: Path, plan: list[list[int]]) -> dict[str, float]:
    before = await baseline(folder)
    clock, began = VirtualClock(), time.perf_counter()
    async with system(folder / "sleeping.db", clock) as opened:
        for start in range(0, len(plan), AT_ONCE):
            some = range(start, min(start + AT_ONCE, len(plan)))
            await asyncio.gather(*(add(opened, f"session-{number}", plan[number]) for number in some))
            await asleep(opened, clock)
        return {"seconds": time.perf_counter() - began, "memory": resident_mb() - before}


async def wake(folder: Path, plan: list[list[int]], firing: int) -> dict[str, float]:
    before = await baseline(folder)
    clock = VirtualClock(autojump=True, quiet_s=0.001)
    clock.advance(DAY_MS / 1000)
    began = time.perf_counter()
    async with system(folder / "sleeping.db", clock) as opened:
        seconds, grown = time.perf_counter() - began, resident_mb() - before
        first = await opened.next_deadline()
        assert first == min(min(times) for times in plan), "the next deadline is another one"
        began = time.perf_counter()
        while len(Alarm.rung) < firing:
            await asyncio.sleep(0.02)
        fired = time.perf_counter() - began
        after = resident_mb() - before
    late = [at - until for until, at in Alarm.rung[:firing]]
    return {
        "open": seconds * 1e3,
        "memory": grown,
        "after": after,
        "median": statistics.median(late),
        "worst": max(late),
        "early": sum(one < 0 for one in late),
        "disorder": sum(a > b for a, b in zip(Alarm.rung, Alarm.rung[1:], strict=False)),
        "each": fired / firing * 1e3,
    }


def plan_of(sessions: int, tasks: int, firing: int, start: int) -> list[list[int]]:
    """Give every task its time: the first ``firing`` of all in random sessions, at random distances."""
    rng = random.Random(5)
    times, now = [], start + DAY_MS
    for number in range(sessions * tasks):
        now += rng.randrange(1_000) if number else 60_000
        times.append(now if number < firing else now + DAY_MS)
    rng.shuffle(times)
    return [times[number * tasks : (number + 1) * tasks] for number in range(sessions)]


def run(job: object, *args: object) -> dict[str, float]:
    """Run a job in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(in_process, (job, *args))


def in_process(job, *args):  # type: ignore[no-untyped-def]
    return asyncio.run(job(*args))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=10, help="for each session")
    parser.add_argument("--firing", type=int, default=2_000, help="how many deadlines are waited for")
    options = parser.parse_args()
    plan = plan_of(options.sessions, options.tasks, options.firing, VirtualClock().now())
    print(f"{options.sessions * options.tasks:,} sleeping tasks in {options.sessions:,} sessions")
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        made = run(create, Path(folder), plan)
        print(
            f"created and passivated  {made['seconds']:>8.1f} s   memory {made['memory']:>6.1f} MiB  (at most 64)",
            flush=True,
        )
        woken = run(wake, Path(folder), plan, options.firing)
    print(
        f"opened                  {woken['open']:>8.1f} ms  memory {woken['memory']:>6.1f} MiB  (at most 1,000 ms and 64)"
    )
    print(
        f"fired {options.firing:,}: late by {woken['median']:.0f} ms (median), {woken['worst']:.0f} ms (most), at most 50"
    )
    print(
        f"       {woken['early']:.0f} early, {woken['disorder']:.0f} out of order, {woken['each']:.1f} ms of real time each,"
    )
    print(f"       memory then {woken['after']:.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
