"""Turns at a key, on one loop and between loops."""

import asyncio
import gc
import threading

import pytest
from perdure.actors.tools import queues
from perdure.actors.tools.queues import turn

from ..conversation.support import go, quiet


def test_turns_come_one_at_a_time_in_the_order_of_asking_and_other_keys_do_not_wait():
    """EN-54"""

    async def main():
        inside, order, leave = [], [], asyncio.Event()

        async def work(number, key):
            async with turn(key):
                assert key not in inside
                inside.append(key)
                order.append(number)
                await leave.wait()
                inside.remove(key)

        works = [asyncio.ensure_future(work(number, number == 2)) for number in range(4)]
        await quiet()
        assert order == [0, 2]
        leave.set()
        await asyncio.gather(*works)
        assert order == [0, 2, 1, 3]
        assert not queues._waiting

    go(main)


def test_who_is_cancelled_while_waiting_or_just_as_the_turn_comes_passes_it_on():
    async def main():
        done = []

        async def work(number):
            async with turn("k"):
                done.append(number)

        async with turn("k"):
            waiting = [asyncio.ensure_future(work(number)) for number in range(3)]
            await quiet()
            waiting[0].cancel()
            await quiet()
        waiting[1].cancel()  # its turn has come, and it does not know yet
        await asyncio.wait(waiting)
        assert done == [2]
        assert not queues._waiting

    go(main)


def test_a_block_that_raises_passes_the_turn_on():
    async def main():
        with pytest.raises(ValueError):
            async with turn("k"):
                raise ValueError
        async with turn("k"):
            pass

    go(main)


def test_turns_are_shared_by_the_loops_of_a_process():
    """EN-54: two systems in one process."""
    counter = [0, 0]

    async def work():
        for _ in range(300):
            async with turn("k"):
                seen = counter[0]
                await asyncio.sleep(0)
                counter[0] = seen + 1
                counter[1] += 1

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert counter == [1_200, 1_200]
    assert not queues._waiting


def test_a_waiter_whose_loop_has_ended_is_passed_over():
    async def main():
        async with turn("k"):
            lost = await asyncio.to_thread(wait_on_a_loop_that_ends)
            last = asyncio.ensure_future(_pass("k"))
            await quiet()
        await last
        assert not queues._waiting
        del lost  # what is left of it takes nobody's turn away
        async with turn("k"):
            gc.collect()
            assert "k" in queues._waiting

    go(main)


def wait_on_a_loop_that_ends():
    loop = asyncio.new_event_loop()
    lost = loop.create_task(_pass("k"))
    lost._log_destroy_pending = False
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    return lost


async def _pass(key):
    async with turn(key):
        pass
