import asyncio

import perdure
from perdure.actors.chaos import stored as module
from perdure.actors.chaos.stored import read_store
from perdure.storage.records import (
    Base,
    Batch,
    ConversationScope,
    DocumentCreate,
    DocumentRecord,
    DocumentRetire,
    Parent,
)


def document(number, kind):
    record = DocumentRecord(
        id=number, kind=kind, scope=ConversationScope(conversation_id=1), created_at=0, history="latest", fork="initial"
    )
    return DocumentCreate(record=record, content=Base(version=1, value={"n": number}))


def test_everything_is_read_however_many_pages_it_is(monkeypatch):
    monkeypatch.setattr(module, "PAGE", 2)
    entries = [perdure.EntryRecord(id=number, conversation_id=1, kind="x") for number in range(10, 15)]
    submissions = [
        perdure.SubmissionRecord(id=number, conversation_id=1, type="input", status="queued")
        for number in range(20, 25)
    ]
    writes = [perdure.ConversationRecord(id=1), *entries, *submissions, document(30, "kept"), document(31, "gone")]

    async def main():
        storage = perdure.MemoryStorage()
        await storage.open()
        for key in ("a", "b", "c"):
            await storage.write([Batch(session=key, seq=1, last_id=31, writes=writes)])
            await storage.write([Batch(session=key, seq=2, last_id=31, writes=[DocumentRetire(id=31)])])
        return await read_store(storage)

    found = asyncio.run(main())
    assert list(found) == ["a", "b", "c"]
    for session in found.values():
        assert session.entries == {1: entries}
        assert list(session.submissions.values()) == submissions
        assert session.of_conversation("kept", 1) == {"n": 30}
        assert session.of_conversation("gone", 1) is None


def test_the_entries_of_a_fork_are_stored_once_and_seen_twice():
    async def main():
        storage = perdure.MemoryStorage()
        await storage.open()
        entry = perdure.EntryRecord(id=2, conversation_id=1, kind="x")
        fork = perdure.ConversationRecord(id=3, parent=Parent(conversation_id=1, at=2))
        await storage.write(
            [Batch(session="a", seq=1, last_id=3, writes=[perdure.ConversationRecord(id=1), entry, fork])]
        )
        return (await read_store(storage))["a"], entry

    session, entry = asyncio.run(main())
    assert session.entries == {1: [entry], 3: [entry]}
    assert session.own_entries() == {2: entry}
