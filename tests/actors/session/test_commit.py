"""The way of a commit: block, admission, durability, publication."""

import asyncio

import pytest
from perdure import (
    Completed,
    Doc,
    OwnershipRefused,
    Phase,
    ReadAfterWrite,
    SessionClosed,
    SessionFailed,
    Task,
    UnknownRecord,
)
from perdure.chord.errors import InvalidJson
from perdure.storage.contract import EntryQuery
from perdure.storage.records import EntryRecord, TaskRecord

from .support import Rig, rig, turns, until

NotesDoc = Doc("test.notes", scope="session", initial=lambda: {"n": 0})


class Quiet(Task[None, None], name="test.quiet"):
    class Run(Phase):
        pass

    async def run(self, run, state):
        raise AssertionError("nothing runs tasks here")


def test_leaving_the_block_returns_when_the_batch_is_durable():
    async def main():
        session = await rig(auto=False)

        async def commit():
            async with session.commit() as tx:
                await tx.create_root()

        committing = asyncio.create_task(commit())
        await turns()
        assert len(session.admitted) == 1
        assert not committing.done()
        assert session.published == []
        await session.store()
        await committing
        assert [publication.seq for publication in session.published] == [1]

    asyncio.run(main())


def test_the_line_is_handed_on_at_admission_and_the_next_block_sees_what_is_not_durable():
    """The second commit's block runs while the first write is still under way."""

    async def main():
        session = await rig(auto=False)
        seen = []

        async def first():
            async with session.commit() as tx:
                await tx.create_root()
                await tx.append("note", 1, conversation_id=1)

        async def second():
            async with session.commit(1) as tx:
                seen.append((await tx.entry(2)).data)
                await tx.append("note", 2)

        commits = [asyncio.create_task(first()), asyncio.create_task(second())]
        await turns()
        assert seen == [1]
        assert [batch.seq for batch in session.admitted] == [1, 2]
        assert session.published == []
        await session.store()
        await asyncio.gather(*commits)
        assert [publication.seq for publication in session.published] == [1, 2]

    asyncio.run(main())


def test_publications_come_after_durability_and_in_order():
    async def main():
        session = await rig(auto=False)

        async def commit(number):
            async with session.commit() as tx:
                (await tx.doc(NotesDoc))["n"] = number

        commits = [asyncio.create_task(commit(number)) for number in range(1, 6)]
        await turns()
        for stored in range(1, 6):
            await session.store(1)
            assert [one.documents[0].value["n"] for one in session.published] == list(range(1, stored + 1))
        await asyncio.gather(*commits)

    asyncio.run(main())


def test_cancelling_the_caller_after_admission_does_not_undo_the_commit():
    async def main():
        session = await rig(auto=False)

        async def commit():
            async with session.commit() as tx:
                await tx.create_root()

        committing = asyncio.create_task(commit())
        await turns()
        committing.cancel()
        await turns()
        assert committing.cancelled()
        await session.store()
        assert [publication.seq for publication in session.published] == [1]
        again = await session.reopened()
        assert await again.core.row(type(session.published[0].conversations[0]), 1) is not None

    asyncio.run(main())


def test_cancelling_the_caller_inside_the_block_stores_nothing():
    async def main():
        session = await rig()
        root = await session.root()
        inside = asyncio.Event()

        async def commit():
            async with session.commit(root) as tx:
                await tx.append("note", 1)
                inside.set()
                await asyncio.Event().wait()

        committing = asyncio.create_task(commit())
        await inside.wait()
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        assert session.core.seq == 1
        async with session.commit(root) as tx:
            assert (await tx.append("note", 2)).id == 2

    asyncio.run(main())


@pytest.mark.parametrize("how", ["raise", "bad ownership", "not JSON", "revoked", "checkpoint_when raises"])
def test_a_block_that_fails_stores_nothing_of_its_batch(how):
    """TS-05."""
    broken = Doc("test.broken", scope="session", checkpoint_when=lambda *_: 1 / 0)

    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit() as tx:
            await tx.doc(broken)
        stored, last_id = session.core.seq, session.core.last_id
        expected = {
            "raise": RuntimeError,
            "bad ownership": OwnershipRefused,
            "not JSON": InvalidJson,
            "revoked": UnknownRecord,
            "checkpoint_when raises": ZeroDivisionError,
        }[how]
        with pytest.raises(expected):
            async with session.commit(root) as tx:
                await tx.append("note", 1)
                (await tx.doc(NotesDoc))["n"] = 5
                task = await tx.create_task(Quiet)
                await fail(how, tx, task)
        assert (session.core.seq, session.core.last_id) == (stored, last_id)
        assert len(session.core.forest) == 0
        async with session.commit(root) as tx:
            assert (await tx.doc(NotesDoc))["n"] == 0
            assert await tx.task(task.id) is None
        assert (await session.storage.session("s")).seq == session.core.seq

    async def fail(how, tx, task):
        match how:
            case "raise":
                raise RuntimeError
            case "bad ownership":
                await tx.create_task(Quiet, owner=99)
            case "not JSON":
                await tx.append("note", {"x": float("nan")})
            case "revoked":
                await tx.append("note", 2, conversation_id=77)
            case _:
                (await tx.doc(broken))["x"] = 1

    asyncio.run(main())


def test_a_commit_that_changes_nothing_writes_nothing():
    async def main():
        session = await rig()
        async with session.commit() as tx:
            await tx.doc(NotesDoc)
        async with session.commit() as tx:
            await tx.doc(NotesDoc)
        assert session.core.seq == 1

    asyncio.run(main())


def test_a_commit_without_writes_still_waits_for_what_it_could_have_read():
    """P1: what its block has seen is durable when it returns."""

    async def main():
        session = await rig(auto=False)

        async def write():
            async with session.commit() as tx:
                await tx.create_root()

        async def look():
            async with session.commit() as tx:
                return await tx.conversation(1)

        writing, looking = asyncio.create_task(write()), asyncio.create_task(look())
        await turns()
        assert not looking.done()
        await session.store()
        await writing
        assert (await looking).id == 1

    asyncio.run(main())


def test_a_commit_that_does_not_wait_returns_at_admission():
    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.create_root()
        assert [batch.seq for batch in session.admitted] == [1]
        await session.store()

    asyncio.run(main())


def test_a_failed_session_fails_every_pending_and_every_later_call():
    async def main():
        session = await rig(auto=False)
        cause = RuntimeError("disk on fire")

        async def commit():
            async with session.commit() as tx:
                await tx.create_root()

        committing = asyncio.create_task(commit())
        await turns()
        waiting = asyncio.create_task(session.core.settled(TaskRecord, 7))
        await turns()
        session.core.fail(cause)
        for pending in (committing, waiting):
            with pytest.raises(SessionFailed) as failed:
                await pending
            assert failed.value.__cause__ is cause
        with pytest.raises(SessionFailed):
            await commit()
        assert session.failures == [cause]
        assert session.published == []
        session.core.fail(RuntimeError("again"))
        assert session.failures == [cause]

    asyncio.run(main())


def test_what_becomes_durable_after_the_failure_is_not_published():
    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.create_root()
        session.core.fail(RuntimeError())
        await session.store()
        assert session.published == []

    asyncio.run(main())


def test_a_session_that_fails_while_a_block_runs_refuses_its_batch():
    async def main():
        session = await rig(auto=False)
        with pytest.raises(SessionFailed):
            async with session.commit() as tx:
                await tx.create_root()
                session.core.fail(RuntimeError())
        assert session.admitted == []

    asyncio.run(main())


def test_a_sealed_session_lets_admitted_commits_settle_and_refuses_new_ones():
    """CR-07."""

    async def main():
        session = await rig(auto=False)

        async def commit():
            async with session.commit() as tx:
                await tx.create_root()

        committing = asyncio.create_task(commit())
        await turns()
        session.core.seal()
        finishing = asyncio.create_task(session.core.finish())
        with pytest.raises(SessionClosed):
            await commit()
        await turns()
        assert not finishing.done()
        await session.store()
        await committing
        await finishing
        assert [publication.seq for publication in session.published] == [1]

    asyncio.run(main())


def test_a_raising_listener_is_reported_and_disturbs_nobody():
    """VE-13."""

    async def main():
        session = await rig()
        seen = []

        def broken(_):
            raise RuntimeError("listener")

        session.core.subscribe(broken)
        session.core.subscribe(seen.append)
        await session.root()
        assert [publication.seq for publication in seen] == [1]

    asyncio.run(main())


def test_a_disposed_listener_hears_nothing_more():
    async def main():
        session, seen, ended = await rig(), [], []
        dispose = session.core.subscribe(seen.append, lambda: ended.append(1))
        dispose()
        await session.root()
        session.core.fail(None)
        assert (seen, ended) == ([], [])

    asyncio.run(main())


def test_waiting_for_a_record_never_misses_its_end():
    """TS-26: the end may come before, during and after the look at the record."""

    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.create_root()
            task = await tx.create_task(Quiet, conversation_id=1)
        await session.store()
        before = asyncio.create_task(session.core.settled(TaskRecord, task.id))
        await turns()
        async with session.commit(wait=False) as tx:
            await end(tx, task.id)
        during = asyncio.create_task(session.core.settled(TaskRecord, task.id))
        await turns()
        assert not before.done()
        assert not during.done()
        await session.store()
        after = await session.core.settled(TaskRecord, task.id)
        assert [await before, await during] == [after, after]
        assert session.core._waiting == {}
        with pytest.raises(UnknownRecord):
            await session.core.settled(TaskRecord, 99)

    asyncio.run(main())


async def end(tx, id):
    from perdure.actors.task.tx import finish

    finish(tx, await tx.task(id), Completed())


def test_a_cancelled_wait_for_a_record_leaves_nothing_behind():
    async def main():
        session = await rig()
        await session.root()
        async with session.commit(1) as tx:
            task = await tx.create_task(Quiet)
        waiting = asyncio.create_task(session.core.settled(TaskRecord, task.id))
        await turns()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert session.core._waiting == {}

    asyncio.run(main())


def test_nothing_of_a_commit_stays_pending_once_it_is_durable():
    """P10."""

    async def main():
        session = await rig()
        root = await session.root()
        for number in range(50):
            async with session.commit(root) as tx:
                await tx.append("note", number)
                (await tx.doc(NotesDoc))["n"] = number + 1
        pending = session.core.pending
        assert (pending.rows, pending.requests, pending.writes) == ({}, {}, 0)
        assert not session.core._unpublished
        assert session.core.gate._waiting == {}

    asyncio.run(main())


def test_too_many_undurable_writes_hold_the_next_commit_up(monkeypatch):
    """Back-pressure: the commit waits, and goes on when storage has caught up."""
    monkeypatch.setattr("perdure.actors.session.commit.MAX_UNDURABLE_WRITES", 5)

    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.create_root()
            for number in range(9):
                await tx.append("note", number, conversation_id=1)

        async def commit():
            async with session.commit(1) as tx:
                await tx.append("note", "late")

        committing = asyncio.create_task(commit())
        await turns()
        assert len(session.admitted) == 1
        await session.store()
        await until(lambda: session.admitted)
        await session.store()
        await committing

    asyncio.run(main())


def test_lookups_answer_for_undurable_commits_and_scans_wait_for_them():
    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.create_root()
            await tx.append("note", 1, conversation_id=1)

        async def look():
            async with session.commit(1) as tx:
                found = await tx.entry(2)
                page = await tx.scan_entries(EntryQuery(conversation_id=1), 10)
                return found, page.items

        looking = asyncio.create_task(look())
        await turns()
        assert not looking.done()
        await session.store()
        found, items = await looking
        assert [found] == items
        assert isinstance(found, EntryRecord)

    asyncio.run(main())


def test_a_scan_after_a_write_of_the_block_is_refused():
    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            assert (await tx.scan_entries(EntryQuery(conversation_id=root), 10)).items == []
            await tx.append("note", 1)
            with pytest.raises(ReadAfterWrite):
                await tx.scan_entries(EntryQuery(conversation_id=root), 10)

    asyncio.run(main())


def test_a_reopened_session_goes_on_counting_where_storage_stands():
    """ST-01, ST-02, as seen from a session."""

    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            await tx.append("note", 1)
        again = await session.reopened()
        async with again.commit(root) as tx:
            assert (await tx.append("note", 2)).id == 3
        assert [publication.seq for publication in again.published] == [3]

    asyncio.run(main())


def test_every_rig_is_its_own_session():
    async def main():
        one = await Rig(key="one").open()
        two = await Rig(one.storage, key="two").open()
        await one.root()
        assert (one.core.seq, two.core.seq) == (1, 0)

    asyncio.run(main())
