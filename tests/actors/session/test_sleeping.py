"""Many tasks that sleep in sessions which are not in memory: all go on at their time, in order, and leave nothing behind.

tests/bench/bench_sleeping.py measures the same with a hundred thousand.
"""

import asyncio
import random

from perdure import Settings, VirtualClock

from ..task.support import Script, Scripted, home, opened, start, turns, until
from .test_passivation import IDLE_S, active, cores, idle

SESSIONS, TASKS = 40, 5
HOUR = 3_600_000


def test_every_task_of_many_sessions_goes_on_at_its_time_after_which_its_session_leaves_again(place):
    """B047, B071."""

    async def main():
        clock, script = VirtualClock(), Script()
        rung = []
        due = {}
        rng = random.Random(3)

        async def rises(run):
            rung.append((due[run.input], run.now()))
            await run.complete()

        for number in range(SESSIONS * TASKS):
            name = str(number)
            due[name] = clock.now() + HOUR + 100 * number + rng.randrange(100)
            script.on(name, run=lambda run: run.wait(then=Scripted.Resume(), until=due[run.input]), resume=rises)
        names = rng.sample(sorted(due), len(due))
        before = cores()
        async with opened(place.store(), script, clock=clock) as system:
            assert system.services.get(Settings).idle_after_s == IDLE_S
            for number in range(SESSIONS):
                _, root = await home(system, str(number))
                for name in names[number * TASKS : (number + 1) * TASKS]:
                    await start(root, name)
            await script.began(*(f"run:{name}" for name in names))
            await idle(system)
            clock.advance(IDLE_S)
            await until(lambda: not active(system))
            await turns()
            assert cores() == before
            assert await system.next_deadline() == min(due.values())
        clock = VirtualClock(clock.now(), autojump=True)
        async with opened(place.store(), script, clock=clock) as system:
            assert active(system) == []
            assert await system.next_deadline() == min(due.values())
            await script.began(*(f"resume:{name}" for name in names))
            assert [at for at, _ in rung] == sorted(due.values())
            assert all(0 <= now - at < 50 for at, now in rung)
            while active(system):
                await clock.sleep(IDLE_S)  # the clock jumps on when nothing else is to do
            assert await system.next_deadline() is None
            assert system.inspect().next_deadline is None

    asyncio.run(main())
