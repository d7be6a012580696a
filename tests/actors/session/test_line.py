"""The mutation line: a FIFO baton that is never lost."""

import asyncio
import random
from contextvars import Context

import pytest
from perdure import LineReentry, TransactionOver
from perdure.actors.session.line import Line

from .support import Rig, rig, turns


def test_the_line_is_handed_on_in_order_of_arrival():
    async def main():
        line, order = Line(), []

        async def worker(number):
            await line.acquire()
            order.append(number)
            await asyncio.sleep(0)
            line.release()

        await asyncio.gather(*(worker(number) for number in range(50)))
        assert order == list(range(50))
        await line.acquire()  # and it is free again

    asyncio.run(main())


def test_a_free_line_is_taken_without_a_turn_of_the_loop():
    line = Line()
    with pytest.raises(StopIteration):
        line.acquire().send(None)


def elsewhere(coroutine):
    """Run something in a task that knows nothing of a line that is held here."""
    return asyncio.get_running_loop().create_task(coroutine, context=Context())


def test_a_waiter_that_is_cancelled_while_the_baton_is_on_its_way_passes_it_on():
    async def main():
        line = Line()
        await line.acquire()
        first, second = (elsewhere(line.acquire()) for _ in range(2))
        await turns()
        line.release()  # the baton belongs to the first waiter, who does not know yet
        first.cancel()
        await second
        assert first.cancelled()

    asyncio.run(main())


def test_a_waiter_that_is_cancelled_is_passed_over():
    async def main():
        line = Line()
        await line.acquire()
        first, second = (elsewhere(line.acquire()) for _ in range(2))
        await turns()
        first.cancel()
        await turns()
        line.release()
        await second

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_300_random_cancels_lose_neither_the_baton_nor_the_order(seed):
    async def main():
        dice = random.Random(seed)
        line, inside, order = Line(), 0, []

        async def worker(number):
            nonlocal inside
            await line.acquire()
            try:
                inside += 1
                assert inside == 1
                order.append(number)
                await turns(dice.randrange(3))
            finally:
                inside -= 1
                line.release()

        workers = []
        for number in range(600):
            workers.append(asyncio.create_task(worker(number)))
            if number % 2:
                dice.choice(workers).cancel()
            if dice.random() < 0.3:
                await asyncio.sleep(0)
        await asyncio.gather(*workers, return_exceptions=True)
        assert order == sorted(order)
        assert len(order) >= 300
        await asyncio.wait_for(line.acquire(), 1)

    asyncio.run(main())


def test_300_random_cancels_of_commits_leave_the_line_free_and_the_numbers_gapless():
    async def main():
        dice = random.Random(7)
        session = await rig()
        root = await session.root()

        async def commit(number):
            async with session.commit(root) as tx:
                await turns(dice.randrange(3))
                await tx.append("note", number)

        commits = []
        for number in range(600):
            commits.append(asyncio.create_task(commit(number)))
            if number % 2:
                dice.choice(commits).cancel()
            if dice.random() < 0.3:
                await asyncio.sleep(0)
        await asyncio.gather(*commits, return_exceptions=True)
        await session.core.drained()
        seqs = [publication.seq for publication in session.published]
        assert seqs == list(range(1, len(seqs) + 1))
        ids = [entry.id for publication in session.published for entry in publication.entries]
        assert ids == list(range(2, 2 + len(ids)))
        assert len(ids) >= 300
        async with session.commit(root) as tx:
            await tx.append("note", "the line is free")

    asyncio.run(main())


def test_a_commit_inside_another_one_of_its_session_is_refused_and_does_nothing():
    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            await tx.append("note", 1)
            with pytest.raises(LineReentry):
                async with session.commit(root):
                    raise AssertionError("the inner block ran")
            await tx.append("note", 2)
        assert [entry.data for entry in session.published[-1].entries] == [1, 2]

    asyncio.run(main())


def test_a_commit_from_a_task_that_the_block_started_is_refused_while_the_block_is_open():
    async def main():
        session = await rig()
        root = await session.root()

        async def inner():
            async with session.commit(root) as tx:
                await tx.append("note", "late")

        async with session.commit(root) as tx:
            task = asyncio.create_task(inner())
            with pytest.raises(LineReentry):
                await task
            after = asyncio.create_task(inner())  # begins when the block has ended
            await tx.append("note", "first")
        await after
        assert [entry.data for one in session.published for entry in one.entries] == ["first", "late"]

    asyncio.run(main())


def test_a_block_of_another_session_may_be_entered_inside():
    async def main():
        one, two = await rig(), await rig()
        roots = await one.root(), await two.root()
        async with one.commit(roots[0]) as outer, two.commit(roots[1]) as inner:
            await outer.append("note", 1)
            await inner.append("note", 2)
            with pytest.raises(LineReentry):
                async with one.commit():
                    pass
        assert one.published[-1].entries[0].data == 1
        assert two.published[-1].entries[0].data == 2

    asyncio.run(main())


def test_a_raising_block_hands_the_line_on():
    async def main():
        session = await rig()
        root = await session.root()
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async with session.commit(root) as tx:
                    await tx.append("note", 1)
                    raise ZeroDivisionError
        async with session.commit(root) as tx:
            await tx.append("note", 2)
        assert [entry.data for one in session.published for entry in one.entries] == [2]
        with pytest.raises(TransactionOver):
            await tx.append("note", 3)

    asyncio.run(main())


def test_a_waiter_for_a_session_that_dies_is_refused_when_its_turn_comes():
    async def main():
        session = Rig(auto=False)
        await session.open()
        held, release = asyncio.Event(), asyncio.Event()

        async def holder():
            async with session.commit():
                held.set()
                await release.wait()

        async def waiter():
            async with session.commit():
                raise AssertionError("the block ran")

        tasks = [asyncio.create_task(holder())]
        await held.wait()
        tasks += [asyncio.create_task(waiter()) for _ in range(3)]
        await turns()
        session.core.fail(RuntimeError("storage"))
        release.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error).__name__ for error in ended] == ["SessionFailed"] * 4

    asyncio.run(main())
