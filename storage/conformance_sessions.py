"""The conformance chapter on whole sessions: deleting and copying them.

A backend that cannot delete refuses for certain, and keeps everything.
"""

from .conformance_rig import (
    ROOT,
    Rig,
    Suite,
    base,
    conversation,
    delta,
    document,
    entry,
    fails,
    ids,
    message,
    pages,
    scenario,
    set_n,
    submission,
    task,
)
from .contract import ConversationQuery, DocumentQuery, EntryQuery, MessageQuery, SubmissionQuery, TaskQuery
from .errors import StorageRejected
from .records import Base, Delta, DocumentRetire


async def fill(rig: Rig) -> None:
    """Store something of everything, some of it with a past."""
    await rig.commit(
        conversation(rig.id()), entry(rig.id()), task(rig.id()), submission(rig.id(), request_id="r"), wake=5
    )
    await rig.commit(document(rig.id(), {"n": 1}), document(rig.id(), {"n": 2}, scope=ROOT), wake=0)
    await rig.commit(message(rig.id(), task_id=3, request_id="r"), message(rig.id(), status="dead"), wake=0)


async def delete(rig: Rig) -> bool:
    """Delete a rig's session; False from a backend that cannot, which must then have kept it."""
    before = await rig.storage.session(rig.key)
    try:
        assert await rig.storage.delete_session(rig.key), "there was a session, and the store says there was none"
    except StorageRejected:
        assert await rig.storage.session(rig.key) == before, "a refused deletion changed the session"
        return False
    await rig.write()
    return True


async def assert_empty(rig: Rig) -> None:
    """Check that no question finds anything in a session."""
    storage, key = rig.storage, rig.key
    assert await storage.session(key) is None
    assert [await storage.conversation(key, 1), await storage.entry(key, 2), await storage.task(key, 3)] == [None] * 3
    assert await storage.submission(key, 4) is None
    assert await storage.submission_by_request(key, 1, "r") is None
    assert await storage.live_tasks(key) == []
    assert [await storage.message(key, 7), await storage.message_by_request(key, 3, "r")] == [None, None]
    assert await storage.live_messages(key) == []
    assert (await storage.scan_messages(key, MessageQuery(), 9)).items == []
    assert await storage.find_document(key, "doc", ROOT) is None
    assert [await storage.document(key, 5), await storage.document(key, 6)] == [None, None]
    assert (await storage.scan_conversations(key, ConversationQuery(), 9)).items == []
    assert (await storage.scan_tasks(key, TaskQuery(), 9)).items == []
    assert (await storage.scan_submissions(key, SubmissionQuery(), 9)).items == []
    assert (await storage.scan_documents(key, DocumentQuery(scope=ROOT), 9)).items == []
    await fails(StorageRejected, storage.scan_entries(key, EntryQuery(conversation_id=1), 9))


class SessionConformance(Suite):
    """Sessions that are deleted, and what is asked by whoever copies one."""

    @scenario
    async def test_every_document_that_ever_was_is_listed(self, rig: Rig) -> None:
        """In the order of ids, whatever its scope, alive or retired."""
        await fill(rig.other("other"))
        first = document(rig.id(), {})
        await rig.commit(conversation(rig.id()), first, document(rig.id(), {}, scope=ROOT, key="k"))
        await rig.commit(DocumentRetire(id=first.record.id), document(rig.id(), {}))
        found = await pages(rig.storage.incarnations, rig.key)
        assert [(one.id, one.created_at, one.retired_at) for one in found] == [(1, 1, 2), (3, 1, None), (4, 2, None)]
        assert found[1].key == "k"
        assert await pages(rig.storage.incarnations, "nobody") == []

    @scenario
    async def test_what_is_kept_of_a_documents_values_is_listed(self, rig: Rig) -> None:
        """All of a rewindable one; from the newest base on of any other; nothing of a retired one of these."""
        past = document(rig.id(), {"n": 0}, scope=ROOT, history="rewindable")
        await rig.commit(past, document(rig.id(), {"n": 0}), document(rig.id(), {}, key="gone"))
        await rig.commit(set_n(1, 1), set_n(2, 1), DocumentRetire(id=3))
        await rig.commit(base(1, {"n": 2}, version=2), base(2, {"n": 2}, version=2))
        await rig.commit(delta(1, ["s", ["n"], 3], version=2), delta(2, ["s", ["n"], 3], version=2))
        end = [(3, Base(version=2, value={"n": 2})), (4, Delta(version=2, ops=[["s", ["n"], 3]]))]
        begin = [(1, Base(version=1, value={"n": 0})), (2, Delta(version=1, ops=[["s", ["n"], 1]]))]
        found = [await rig.storage.revisions(rig.key, number) for number in (1, 2, 3, 4)]
        assert found == [begin + end, end, [], []]

    @scenario
    async def test_a_deleted_session_is_gone_for_every_question(self, rig: Rig) -> None:
        """Gone at once, and still gone after a restart."""
        await fill(rig)
        if await delete(rig):
            await assert_empty(rig)
            await rig.restart()
            await assert_empty(rig)
            assert not await rig.storage.delete_session(rig.key), "it was deleted before"

    @scenario
    async def test_other_sessions_never_notice(self, rig: Rig) -> None:
        """What shares a store, or a commit group, with a deleted session stays as it is."""
        one, two = rig.other("one"), rig.other("two")
        for other in (one, rig, two):
            await fill(other)
        await rig.write(*(other.batch(entry(other.id())) for other in (one, rig, two)))
        before = [await rig.storage.session(other.key) for other in (one, two)]
        if await delete(rig):
            await rig.restart()
            assert (await rig.storage.sessions(9)).items == before
            assert ids((await rig.storage.scan_entries("two", EntryQuery(conversation_id=1), 9)).items) == [9, 2]
            await one.commit(entry(one.id()))

    @scenario
    async def test_a_session_of_the_same_key_begins_from_nothing(self, rig: Rig) -> None:
        """Numbers begin anew, and so do request ids and addresses."""
        await fill(rig)
        if await delete(rig):
            again = rig.other(rig.key)
            await fill(again)
            await again.restart()
            row = await rig.storage.session(rig.key)
            assert row is not None
            assert (row.seq, row.last_id, row.wake) == (3, 8, 0)
            assert await again.value(6) == ({"n": 2}, 0)
            assert ids((await rig.storage.scan_entries(rig.key, EntryQuery(conversation_id=1), 9)).items) == [2]

    @scenario
    async def test_a_deleted_session_is_never_due(self, rig: Rig) -> None:
        """It wakes nobody."""
        await fill(rig)
        if await delete(rig):
            assert await rig.storage.due(9, 9) == []
            assert await rig.storage.next_wake() is None

    @scenario
    async def test_a_list_that_is_being_read_goes_on_when_a_session_of_it_is_deleted(self, rig: Rig) -> None:
        """Neither twice nor never."""
        others = [rig.other(name) for name in "abcdef"]
        for other in others:
            await other.commit(conversation(other.id()))
        page = await rig.storage.sessions(2)
        if await delete(others[0]) and await delete(others[2]):
            rest = await pages(lambda limit, cursor: rig.storage.sessions(limit, cursor or page.next))
            assert [session.key for session in rest] == ["d", "e", "f"]

    @scenario
    async def test_there_is_nothing_to_delete_where_there_is_no_session(self, rig: Rig) -> None:
        """A key that was never used, or only asked for."""
        await fill(rig)
        try:
            assert not await rig.storage.delete_session("nobody")
        except StorageRejected:
            return
        assert await rig.storage.session("nobody") is None
