"""The conformance chapter on deleting conversations: what goes, what forks keep, and when that goes, too."""

from typing import Any

from .conformance_rig import (
    ENDED,
    ROOT,
    Rig,
    Suite,
    conversation,
    document,
    entry,
    fails,
    ids,
    message,
    pages,
    scenario,
    submission,
    task,
)
from .contract import ConversationQuery, EntryQuery, MessageQuery, SubmissionQuery, TaskQuery
from .errors import StorageRejected
from .records import ConversationDelete, ConversationScope, DocumentRetire, MessageSender, TaskScope

HOME = ConversationScope(conversation_id=2)


async def fill(rig: Rig) -> None:
    """Store a conversation 2 with something of everything, and a conversation 1 beside it."""
    rig.last_id = 40
    await rig.commit(
        conversation(1),
        entry(3),
        task(4),
        submission(5, request_id="r"),
        document(6, {"n": 1}, scope=ROOT),
        message(7, task_id=4, request_id="r"),
    )
    home: dict[str, Any] = {"conversation_id": 2}
    await rig.commit(
        conversation(2), entry(10, 2), entry(11, 2, head=11), entry(12, 2), submission(13, request_id="r", **home)
    )
    await rig.commit(task(14, **home), task(15, ENDED, **home), message(16, task_id=14, request_id="r", body={}))
    await rig.commit(
        document(17, {}, scope=HOME),
        document(18, {"n": 1}, kind="past", scope=HOME, history="rewindable"),
        document(19, {}, scope=TaskScope(task_id=14)),
        message(20, task_id=14, status="dead"),
        message(21, task_id=14, status="dead", session="elsewhere"),
        message(22, task_id=14, status="outgoing", session="elsewhere", sender=MessageSender(task_id=4)),
    )


async def end(rig: Rig) -> None:
    """End everything in conversation 2."""
    receipt = message(16, task_id=14, status="consumed", request_id="r", body=None)
    retired = (DocumentRetire(id=number) for number in (17, 18, 19))
    await rig.commit(task(14, ENDED, conversation_id=2), receipt, *retired)


async def assert_gone(rig: Rig) -> None:
    """Check that nothing is left of conversation 2, and everything beside it."""
    storage, key = rig.storage, rig.key
    assert await storage.conversation(key, 2) is None
    assert await entries_left(rig) == []
    await fails(StorageRejected, storage.scan_entries(key, EntryQuery(conversation_id=2), 9))
    await fails(StorageRejected, storage.latest_head_marker(key, 2))
    await assert_rest(rig)
    assert ids(await pages(storage.incarnations, key)) == [6]
    assert await storage.revisions(key, 18) == []


async def assert_rest(rig: Rig) -> None:
    """Check that of submissions, tasks and messages only those of others are left."""
    storage, key = rig.storage, rig.key
    assert ids(await pages(storage.scan_submissions, key, SubmissionQuery())) == [5]
    assert await storage.submission_by_request(key, 2, "r") is None
    assert ids(await pages(storage.scan_tasks, key, TaskQuery())) == [4]
    assert [await storage.task(key, 14), await storage.submission(key, 13), await storage.message(key, 16)] == [
        None
    ] * 3
    assert ids(await pages(storage.scan_messages, key, MessageQuery())) == [7, 21, 22]
    assert await storage.message_by_request(key, 14, "r") is None
    assert await storage.document(key, 6) is not None


async def entries_left(rig: Rig) -> list[int]:
    """List which of the entries of conversation 2 are stored."""
    return [number for number in (10, 11, 12) if await rig.storage.entry(rig.key, number) is not None]


class DeletionConformance(Suite):
    """Conversations that are deleted."""

    @scenario
    async def test_a_deleted_conversation_takes_everything_with_it(self, rig: Rig) -> None:
        """Entries, submissions, tasks and their messages, documents of both; what it sent, and others', stays."""
        await fill(rig)
        await end(rig)
        await rig.commit(ConversationDelete(id=2))
        await assert_gone(rig)
        assert ids(await pages(rig.storage.scan_conversations, rig.key, ConversationQuery())) == [1]
        await rig.restart()
        await assert_gone(rig)

    @scenario
    async def test_a_conversation_may_end_and_go_in_one_batch_or_group(self, rig: Rig) -> None:
        """The deletion comes after all other writes of its batch, and of earlier batches."""
        await fill(rig)
        ended = task(14, ENDED, conversation_id=2)
        retired = [DocumentRetire(id=number) for number in (17, 18, 19)]
        last = entry(23, 2)
        await rig.write(
            rig.batch(last, document(24, {}, scope=HOME, key="k", history="rewindable")),
            rig.batch(ConversationDelete(id=2), ended, *retired, DocumentRetire(id=24)),
            rig.batch(entry(25)),
        )
        await assert_gone(rig)
        assert await rig.storage.entry(rig.key, 23) is None
        assert await rig.storage.entry(rig.key, 25) is not None

    @scenario
    async def test_what_is_live_or_unknown_is_not_deleted(self, rig: Rig) -> None:
        """A conversation with a live task or document is refused, one that does not exist, and one that is deleted."""
        await fill(rig)
        await rig.refuse(ConversationDelete(id=2), *(DocumentRetire(id=number) for number in (17, 18, 19)))
        await rig.refuse(ConversationDelete(id=2), task(14, ENDED, conversation_id=2), DocumentRetire(id=19))
        retired = (DocumentRetire(id=number) for number in (17, 18))
        await rig.refuse(ConversationDelete(id=2), task(14, ENDED, conversation_id=2), *retired)
        await rig.refuse(ConversationDelete(id=30))
        await rig.refuse(ConversationDelete(id=3))
        await end(rig)
        await rig.commit(conversation(26, 2, 10), ConversationDelete(id=2))
        await rig.refuse(ConversationDelete(id=2))
        assert await entries_left(rig) == [10]

    @scenario
    async def test_forks_keep_what_they_show(self, rig: Rig) -> None:
        """Entries up to the last fork point and rewindable documents stay, with the record, until the last fork goes."""
        await fill(rig)
        await rig.commit(conversation(30, 2, 10), conversation(31, 2, 11), entry(32, 30), entry(33, 31))
        await end(rig)
        await rig.commit(ConversationDelete(id=2))
        left = await rig.storage.conversation(rig.key, 2)
        assert left is not None
        assert left.deleted
        assert await entries_left(rig) == [10, 11]
        assert ids(await pages(rig.storage.scan_entries, rig.key, EntryQuery(conversation_id=31))) == [33, 11, 10]
        marker = await rig.storage.latest_head_marker(rig.key, 31)
        assert marker is not None
        assert marker.id == 11
        await assert_rest(rig)
        assert ids(await pages(rig.storage.incarnations, rig.key)) == [6, 18]
        found = await rig.storage.find_document(rig.key, "past", HOME, at=4)
        assert found is not None
        assert await rig.value(18, 4) == ({"n": 1}, 0)
        await rig.commit(ConversationDelete(id=31))
        assert await entries_left(rig) == [10]
        assert ids(await pages(rig.storage.scan_entries, rig.key, EntryQuery(conversation_id=30))) == [32, 10]
        await rig.restart()
        assert await entries_left(rig) == [10]
        await rig.commit(ConversationDelete(id=30))
        await assert_gone(rig)
        await rig.restart()
        await assert_gone(rig)

    @scenario
    async def test_a_fork_of_a_deleted_fork_keeps_both(self, rig: Rig) -> None:
        """What is shown through a deleted fork stays, and with the last fork the whole line goes."""
        await fill(rig)
        await end(rig)
        await rig.commit(conversation(30, 2, 11), entry(31, 30), entry(32, 30), conversation(33, 30, 31), entry(34, 33))
        await rig.commit(ConversationDelete(id=30), ConversationDelete(id=2))
        assert await entries_left(rig) == [10, 11]
        assert await rig.storage.entry(rig.key, 32) is None
        assert ids(await pages(rig.storage.scan_entries, rig.key, EntryQuery(conversation_id=33))) == [34, 31, 11, 10]
        await rig.commit(ConversationDelete(id=33))
        await assert_gone(rig)
        assert [await rig.storage.entry(rig.key, number) for number in (31, 34)] == [None, None]
        assert ids(await pages(rig.storage.scan_conversations, rig.key, ConversationQuery())) == [1]

    @scenario
    async def test_the_conversation_of_a_refused_deletion_is_untouched(self, rig: Rig) -> None:
        """A group that is refused takes back a deletion in an earlier batch."""
        await fill(rig)
        await end(rig)
        seq = rig.seq
        error = await fails(
            StorageRejected,
            rig.storage.write([rig.batch(ConversationDelete(id=2)), rig.batch(ConversationDelete(id=2))]),
        )
        assert error.index == 1
        rig.seq = seq
        assert await entries_left(rig) == [10, 11, 12]
        assert ids(await pages(rig.storage.scan_tasks, rig.key, TaskQuery())) == [4, 14, 15]
        await rig.commit(ConversationDelete(id=2))
        await assert_gone(rig)
