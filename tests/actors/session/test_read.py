"""What can be seen from outside: committed state only, never what a block has staged and may still take back."""

import asyncio

import pytest
from perdure import MemoryStorage, SessionFailed, TaskRecord, UnknownRecord
from perdure.actors.session.read import between_commits
from perdure.storage.faulty import FaultyStorage

from ..task.support import Script, Scripted, home, opened, start, turns
from .support import rig


class Undone(Exception):
    pass


def test_a_staged_task_is_not_there_for_anybody_else():
    """P1."""

    async def main():
        script = Script()
        async with opened(MemoryStorage(), script) as system:
            session, root = await home(system)
            with pytest.raises(Undone):
                async with root.commit() as tx:
                    staged = await tx.create_task(Scripted, "a")
                    with pytest.raises(UnknownRecord):
                        await staged.record()
                    assert system.inspect().sessions == {"s": []}
                    raise Undone
            assert await session.tasks() == []
            assert script.log == []

    asyncio.run(main())


def test_a_staged_mark_is_seen_by_nobody_and_stops_nobody():
    """P1, P2: the task's own step between two phases included."""

    async def main():
        script = Script()
        script.on("a", run=lambda run: run.goto(Scripted.Resume()))
        script.gate("run:a", "resume:a")
        async with opened(MemoryStorage(), script) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            with pytest.raises(Undone):
                async with root.commit() as tx:
                    await tx.abort_task(task)
                    assert not (await task.record()).abort_requested
                    raise Undone
            script.open("run:a", "resume:a")
            assert await task.result() == "a"
            assert script.log == ["run:a", "resume:a"]

    asyncio.run(main())


def test_nobody_is_told_of_idleness_that_a_block_takes_back():
    """P1: a task's end is staged, and the block fails."""

    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(MemoryStorage(), script) as system:
            session, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            inside, release = asyncio.Event(), asyncio.Event()

            async def failing():
                async with root.commit() as tx:
                    tx.core.forest.put(ended(tx.core.forest.get(task.id)))
                    inside.set()
                    await release.wait()
                    raise Undone

            block = asyncio.create_task(failing())
            await inside.wait()
            idle = asyncio.create_task(session.wait_for_idle())
            await turns()
            assert not idle.done()
            release.set()
            await asyncio.gather(block, return_exceptions=True)
            await turns()
            assert not idle.done()
            script.open("run:a")
            await idle

    asyncio.run(main())


def ended(record):
    import msgspec
    from perdure import Completed
    from perdure.storage.records import Terminal

    return msgspec.structs.replace(record, state=Terminal(outcome=Completed()))


def test_idleness_is_told_once_it_is_durable():
    """P1."""

    async def main():
        script, storage = Script(), FaultyStorage(MemoryStorage())
        script.gate("run:a")
        async with opened(storage, script) as system:
            session, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            release = storage.hold(storage.writes + 1)
            script.open("run:a")
            await turns()
            waits = [asyncio.create_task(one) for one in (session.wait_for_idle(), task.record(), task.settled())]
            waits.append(asyncio.create_task(session.tasks()))
            await turns()
            assert not any(wait.done() for wait in waits)
            release.set()
            _, record, settled, tasks = await asyncio.gather(*waits)
            assert record == settled
            assert tasks == []

    asyncio.run(main())


def test_a_look_between_commits_waits_for_its_turn_and_for_durability():
    async def main():
        session = await rig(auto=False)
        inside, release = asyncio.Event(), asyncio.Event()

        async def block():
            async with session.commit() as tx:
                await tx.create_root()
                await tx.create_task(Scripted, "a", conversation_id=1)
                inside.set()
                await release.wait()

        committing = asyncio.create_task(block())
        await inside.wait()
        looking = asyncio.create_task(between_commits(session.core, lambda: len(session.core.forest)))
        await turns()
        release.set()
        await turns()
        assert not looking.done()
        await session.store()
        await committing
        assert await looking == 1

    asyncio.run(main())


def test_a_look_at_a_session_that_dies_meanwhile_is_refused():
    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.create_root()
        looking = asyncio.create_task(between_commits(session.core, lambda: 1))
        await turns()
        session.core.fail(RuntimeError())
        with pytest.raises(SessionFailed):
            await looking
        with pytest.raises(SessionFailed):
            await between_commits(session.core, lambda: 1)

    asyncio.run(main())


def test_a_record_is_looked_up_as_it_was_admitted():
    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            task = await tx.create_task(Scripted, "a")
        async with session.commit() as tx:
            await tx.abort_task(task)
            assert (await tx.task(task.id)).abort_requested
            assert not (await session.core.row(TaskRecord, task.id)).abort_requested
        assert (await session.core.row(TaskRecord, task.id)).abort_requested

    asyncio.run(main())
