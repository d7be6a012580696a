"""The loop without an outside: virtual time, seeded turns, an end wherever it is planned."""

import asyncio
from random import Random

import pytest
from perdure import VirtualClock
from perdure.actors.chaos.loop import ProcessDied, SimLoop, Stalled


def run(main, *, seed=1, unrest=1.0, dies_at=None):
    """Run ``main(loop)`` on a loop of its own; give its result, and the loop."""
    loop = SimLoop(Random(seed), VirtualClock(), unrest=unrest, dies_at=dies_at)
    try:
        return loop.run_until_complete(main(loop)), loop
    finally:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False
        loop.close()


async def order(loop):
    """Tell in which order ten tasks that are ready at once have their turns."""
    turns = []

    async def one(number):
        turns.append(number)
        await asyncio.sleep(0)
        turns.append(number)

    await asyncio.gather(*map(one, range(10)))
    return turns


def test_who_is_ready_runs_in_the_order_of_the_seed_and_in_the_same_one_again():
    orders = {seed: run(order, seed=seed)[0] for seed in range(20)}
    assert len({tuple(one) for one in orders.values()}) == 20
    assert all(run(order, seed=seed)[0] == orders[seed] for seed in orders)


def test_without_unrest_who_came_first_runs_first():
    assert run(order, unrest=0.0)[0] == [*range(10), *range(10)]


def test_everybody_has_a_turn():
    assert all(sorted(run(order, seed=seed)[0]) == sorted([*range(10), *range(10)]) for seed in range(20))


def test_waiting_takes_no_time_and_moves_the_clock_by_as_much():
    async def main(loop):
        await asyncio.gather(asyncio.sleep(3_600), loop.clock.sleep(7_200))
        async with asyncio.timeout(100):
            await asyncio.sleep(50)
        return loop.clock.monotonic(), loop.time()

    assert run(main)[0] == (7_250.0, 7_250.0)


def test_timers_run_at_their_own_times_and_not_when_they_were_cancelled():
    async def main(loop):
        rung = []
        timers = [loop.call_later(delay, lambda delay=delay: rung.append((delay, loop.time()))) for delay in (3, 1, 2)]
        timers[2].cancel()
        await asyncio.sleep(10)
        return rung

    assert run(main)[0] == [(1, 1.0), (3, 3.0)]


def test_a_time_limit_ends_what_takes_too_long():
    async def main(loop):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return loop.time()

    assert run(main)[0] == 5.0


def test_waiting_for_what_never_comes_is_told():
    async def main(loop):
        await asyncio.Event().wait()

    with pytest.raises(Stalled):
        run(main)


def test_the_process_dies_in_the_planned_step_and_nothing_in_it_learns_of_that():
    seen = []

    async def main(loop):
        try:
            for number in range(100):
                seen.append(number)
                await asyncio.sleep(0)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                seen.append(error)
            raise

    with pytest.raises(ProcessDied):
        run(main, dies_at=11)
    assert seen == list(range(10))


def test_plans_are_carried_out_between_steps():
    async def main(loop):
        steps = []
        loop.at(loop.steps + 3, lambda: steps.append(loop.steps))
        begun = loop.steps
        for _ in range(10):
            await asyncio.sleep(0)
        return [step - begun for step in steps]

    assert run(main)[0] == [3]


def test_the_processor_s_time_goes_on_as_the_seed_says():
    async def main(loop):
        return [loop.processor_time() for _ in range(100)]

    times = run(main)[0]
    assert times == sorted(times) == run(main)[0] != run(main, seed=2)[0]
    assert 0.005 < times[-1] < 0.02
