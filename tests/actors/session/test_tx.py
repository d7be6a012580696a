"""What a commit block reads and stages."""

import asyncio

import msgspec
import pytest
from perdure import (
    ConversationQuery,
    Doc,
    Entry,
    InvalidValue,
    OwnershipRefused,
    Phase,
    ReadAfterWrite,
    SubmissionQuery,
    SubmissionRecord,
    Task,
    TaskQuery,
    TransactionOver,
    UnknownRecord,
)
from perdure.actors.task.tx import finish
from perdure.chord.errors import DraftRevoked, InvalidJson
from perdure.storage.contract import EntryQuery
from perdure.storage.records import MAX_ID, Completed, ContextEdit

from .support import rig

NotesDoc = Doc("test.notes", scope="session")


class Quiet(Task[None, None], name="test.quiet"):
    class Run(Phase):
        pass

    async def run(self, run, state):
        raise AssertionError("nothing runs tasks here")


class Receipt(msgspec.Struct):
    amount: int
    note: str = ""


ReceiptEntry = Entry("test.receipt", Receipt)


def queued(tx, request_id=None):
    return SubmissionRecord(id=tx.mint(), conversation_id=1, type="input", status="queued", request_id=request_id)


# --- lookups and scans


def test_lookups_see_the_writes_of_their_own_block():
    """Unlike the reference's (DF-12), where every table read after a write is refused."""

    async def main():
        session = await rig()
        async with session.commit() as tx:
            root = await tx.create_root()
            entry = await tx.append("note", 1, conversation_id=1)
            task = await tx.create_task(Quiet, conversation_id=1)
            submission = tx.put_submission(queued(tx, "job-1"))
            assert await tx.conversation(1) == root
            assert await tx.entry(entry.id) == entry
            assert (await tx.task(task.id)).kind == "test.quiet"
            assert await tx.submission(submission.id) == submission
            assert await tx.submission_by_request(1, "job-1") == submission
            assert await tx.entry(task.id) is None  # an id names one kind of record

    asyncio.run(main())


def test_lookups_see_everything_admitted_before_and_everything_stored():
    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.create_root()
            submission = tx.put_submission(queued(tx, "job-1"))
        async with session.commit(wait=False) as tx:
            assert await tx.submission_by_request(1, "job-1") == submission
            assert await tx.conversation(1) is not None
        await session.store()
        async with session.commit(wait=False) as tx:
            assert await tx.submission_by_request(1, "job-1") == submission
            assert await tx.submission_by_request(1, "job-2") is None
            assert await tx.entry(99) is None

    asyncio.run(main())


def test_scans_come_before_the_first_record_write_and_document_drafts_at_any_time():
    """DF-12."""

    async def main():
        session = await rig()
        root = await session.root()

        def scans(tx):
            yield tx.scan_entries(EntryQuery(conversation_id=root), 10)
            yield tx.scan_conversations(ConversationQuery(), 10)
            yield tx.scan_tasks(TaskQuery(), 10)
            yield tx.scan_submissions(SubmissionQuery(), 10)
            yield tx.latest_head_marker(root)

        async with session.commit(root) as tx:
            (await tx.doc(NotesDoc))["n"] = 1
            for scan in scans(tx):
                await scan
            await tx.append("note", 1)
            for scan in scans(tx):
                with pytest.raises(ReadAfterWrite):
                    await scan
            (await tx.doc(NotesDoc))["n"] = 2
        assert session.published[-1].documents[0].value == {"n": 2}

    asyncio.run(main())


def test_creating_a_conversation_counts_as_a_write():
    """DF-12."""

    async def main():
        session = await rig()
        refused = []

        async def hook(tx, record):
            with pytest.raises(ReadAfterWrite):
                await tx.latest_head_marker(record.id)
            refused.append(record.id)

        session.hooks.conversation_created.append(hook)
        async with session.commit() as tx:
            await tx.create_root()
        assert refused == [1]

    asyncio.run(main())


# --- ids


def test_ids_of_a_failed_block_are_free_again():
    async def main():
        session = await rig()
        root = await session.root()
        with pytest.raises(RuntimeError):
            async with session.commit(root) as tx:
                await tx.append("note", 1)
                await tx.create_conversation()
                await tx.doc(NotesDoc)
                raise RuntimeError
        async with session.commit(root) as tx:
            assert [tx.mint(), tx.mint()] == [2, 3]

    asyncio.run(main())


def test_all_kinds_of_records_share_one_sequence_of_ids():
    async def main():
        session = await rig()
        async with session.commit() as tx:
            root = await tx.create_root()
            entry = await tx.append("note", 1, conversation_id=1)
            task = await tx.create_task(Quiet, conversation_id=1)
            conversation = await tx.create_conversation(owner=task.id)
            await tx.doc(NotesDoc)
            assert [root.id, entry.id, task.id, conversation.id, tx.mint()] == [1, 2, 3, 4, 6]

    asyncio.run(main())


def test_ids_never_take_the_roots_even_when_it_does_not_exist():
    async def main():
        session = await rig()
        async with session.commit() as tx:
            assert tx.mint() == 2

    asyncio.run(main())


def test_an_exhausted_id_space_is_an_error():
    """ST-28."""

    async def main():
        session = await rig()
        root = await session.root()
        session.core.last_id = MAX_ID
        with pytest.raises(InvalidValue, match="exhausted"):
            async with session.commit(root) as tx:
                await tx.append("note", 1)

    asyncio.run(main())


# --- after the end


def test_a_transaction_is_over_when_its_block_has_ended():
    async def main():
        session = await rig()
        async with session.commit() as tx:
            await tx.create_root()
            draft = await tx.doc(NotesDoc)
        calls = [
            lambda: tx.conversation(1),
            lambda: tx.entry(1),
            lambda: tx.task(1),
            lambda: tx.submission(1),
            lambda: tx.submission_by_request(1, "x"),
            lambda: tx.scan_tasks(TaskQuery(), 1),
            tx.create_conversation,
            lambda: tx.append("note", 1, conversation_id=1),
            lambda: tx.create_task(Quiet, conversation_id=1),
            lambda: tx.mark_task(1),
            lambda: tx.doc(NotesDoc),
            lambda: tx.retire_doc(NotesDoc),
        ]
        for call in calls:
            with pytest.raises(TransactionOver):
                await call()
        with pytest.raises(TransactionOver):
            tx.mint()
        with pytest.raises(DraftRevoked):
            draft["n"] = 1
        with pytest.raises(DraftRevoked):
            draft["n"]
        assert session.core.seq == 1

    asyncio.run(main())


def test_drafts_of_a_failed_block_are_revoked_too():
    """DF-13."""

    async def main():
        session = await rig()
        with pytest.raises(RuntimeError):
            async with session.commit() as tx:
                draft = await tx.doc(NotesDoc)
                draft["inner"] = {}
                inner = draft["inner"]
                raise RuntimeError
        for one in (draft, inner):
            with pytest.raises(DraftRevoked):
                one["n"] = 1

    asyncio.run(main())


# --- entries


def test_an_entry_keeps_its_data_its_head_and_its_edits():
    async def main():
        session = await rig()
        root = await session.root()
        edit = ContextEdit(target=2, action="omit")
        async with session.commit(root) as tx:
            first = await tx.append(ReceiptEntry, Receipt(5), model=[{"role": "user", "content": "hi"}])
            second = await tx.append("note", head="self", edits=[edit])
        stored = await session.storage.entry("s", first.id)
        assert ReceiptEntry.data(stored[0]) == Receipt(5)
        assert stored[0].model == [{"role": "user", "content": "hi"}]
        found = (await session.storage.entry("s", second.id))[0]
        assert (found.head, found.edits, found.data) == (second.id, [edit], None)
        with pytest.raises(InvalidValue):
            ReceiptEntry.data(found)

    asyncio.run(main())


def test_an_entry_is_copied_when_it_is_appended():
    async def main():
        session = await rig()
        root = await session.root()
        data, message = {"list": [1]}, {"role": "user", "content": []}
        async with session.commit(root) as tx:
            entry = await tx.append("note", data, model=[message])
            data["list"].append(2)
            message["content"].append("late")
        assert session.published[-1].entries == [entry]
        assert (entry.data, entry.model) == ({"list": [1]}, [{"role": "user", "content": []}])

    asyncio.run(main())


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), {"x": float("inf")}, {1: "a"}, "a\ud800b", b"raw", object()])
def test_what_is_not_strict_json_is_refused_and_the_block_may_go_on(value):
    """P11."""

    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            with pytest.raises((InvalidJson, TypeError)):
                await tx.append("note", model=[{"value": value}])
            await tx.append("note", "fine")
        assert [entry.data for entry in session.published[-1].entries] == ["fine"]

    asyncio.run(main())


def test_appending_needs_a_conversation_that_exists():
    async def main():
        session = await rig()
        await session.root()
        async with session.commit() as tx:
            with pytest.raises(InvalidValue):
                await tx.append("note", 1)
            with pytest.raises(UnknownRecord) as unknown:
                await tx.append("note", 1, conversation_id=9)
            assert (unknown.value.kind, unknown.value.id) == ("conversation", 9)
            task = await tx.create_task(Quiet, conversation_id=1)
            with pytest.raises(UnknownRecord):
                await tx.append("note", 1, conversation_id=task.id)

    asyncio.run(main())


# --- ownership


def test_a_child_gets_its_owners_conversation_even_in_a_commit_bound_elsewhere():
    """SC-01, SC-03."""

    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            elsewhere = await tx.create_conversation()
            owner = await tx.create_task(Quiet)
            record = await tx.task(owner.id)
            assert (record.conversation_id, record.owner, record.background) == (root, None, False)
        async with session.commit(elsewhere.id) as tx:
            child = await tx.task((await tx.create_task(Quiet, owner=owner)).id)
            assert (child.conversation_id, child.owner, child.background) == (root, owner.id, False)
            owned = await tx.create_conversation(owner=owner.id)
            assert (owned.owner.conversation_id, owned.owner.task_id) == (root, owner.id)

    asyncio.run(main())


def test_a_task_needs_an_owner_that_can_own_it():
    """SC-02."""

    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit() as tx:
            with pytest.raises(InvalidValue):
                await tx.create_task(Quiet)
            with pytest.raises(UnknownRecord):
                await tx.create_task(Quiet, conversation_id=9)
            with pytest.raises(OwnershipRefused, match="does not exist"):
                await tx.create_task(Quiet, owner=9)
            elsewhere = await tx.create_conversation()
            owner = await tx.create_task(Quiet, conversation_id=root)
            with pytest.raises(OwnershipRefused, match="owner's conversation"):
                await tx.create_task(Quiet, owner=owner, conversation_id=elsewhere.id)
            with pytest.raises(OwnershipRefused, match="cannot be background"):
                await tx.create_task(Quiet, owner=owner, background=True)
            background = await tx.task((await tx.create_task(Quiet, conversation_id=root, background=True)).id)
            assert background.background

    asyncio.run(main())


@pytest.mark.parametrize("state", ["completing", "terminal", "abort-marked"])
def test_an_owner_that_is_ending_takes_no_new_work(state):
    """SC-04."""

    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            owner = await tx.create_task(Quiet)
            if state == "completing":
                await tx.create_task(Quiet, owner=owner)
        async with session.commit() as tx:
            if state == "abort-marked":
                await tx.mark_task(owner.id)
            else:
                finish(tx, await tx.task(owner.id), Completed())
        async with session.commit() as tx:
            with pytest.raises(OwnershipRefused, match=f"is {state}"):
                await tx.create_task(Quiet, owner=owner)
            with pytest.raises(OwnershipRefused, match=f"is {state}"):
                await tx.create_conversation(owner=owner.id)

    asyncio.run(main())


def test_a_handle_of_another_session_is_no_owner_here():
    async def main():
        one, two = await rig(), await rig(key="two")
        roots = await one.root(), await two.root()
        async with one.commit(roots[0]) as tx:
            owner = await tx.create_task(Quiet)
        async with two.commit(roots[1]) as tx:
            await tx.create_task(Quiet)  # has the same id there
            with pytest.raises(InvalidValue):
                await tx.create_task(Quiet, owner=owner)
            with pytest.raises(InvalidValue):
                await tx.abort_task(owner)

    asyncio.run(main())


def test_marking_says_whether_the_task_was_live():
    """TS-10."""

    async def main():
        session = await rig()
        root = await session.root()
        async with session.commit(root) as tx:
            task = await tx.create_task(Quiet)
            assert await tx.abort_task(task)
            assert await tx.abort_task(task)
        async with session.commit() as tx:
            finish(tx, await tx.task(task.id), Completed())
        async with session.commit() as tx:
            assert not await tx.abort_task(task)
            with pytest.raises(UnknownRecord):
                await tx.abort_task(99)

    asyncio.run(main())


def test_a_root_is_created_once():
    async def main():
        session = await rig()
        await session.root()
        with pytest.raises(InvalidValue):
            await session.root()

    asyncio.run(main())
