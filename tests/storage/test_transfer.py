"""A session goes to a JSONL directory and into another store, and is the same session there."""

import asyncio

import msgspec
import pytest
from perdure.storage.conformance_rig import (
    ENDED,
    ROOT,
    Rig,
    base,
    conversation,
    delta,
    document,
    entry,
    fails,
    message,
    pages,
    set_n,
    submission,
    task,
)
from perdure.storage.contract import ConversationQuery, EntryQuery, MessageQuery, SubmissionQuery, TaskQuery
from perdure.storage.errors import StorageRejected
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import ConversationScope, DocumentCopy, DocumentRecord, DocumentRetire, TaskScope
from perdure.storage.sqlite import SqliteStorage
from perdure.storage.sqlite_reader import SqliteReader
from perdure.storage.transfer import export_session, import_session

MAKERS = {
    "memory": lambda folder: MemoryStorage(),
    "sqlite": lambda folder: SqliteStorage(folder / "s.db", durability="process"),
    "jsonl": lambda folder: JsonlStorage(folder / "store"),
}
FORK = ConversationScope(conversation_id=9)


async def fill(rig):
    """Store what has a past: forks, ended tasks, rewound, copied, retired, superseded and recreated documents."""
    rewound = {"scope": ROOT, "history": "rewindable", "fork": "asOf"}
    await rig.commit(conversation(rig.id()), *(entry(rig.id()) for _ in range(3)), task(rig.id()))
    await rig.commit(document(rig.id(), {"n": 0}, kind="past", **rewound), document(rig.id(), {"n": 0}, kind="latest"))
    await rig.commit(set_n(6, 1), set_n(7, 1), entry(rig.id()))
    fork, copied = rig.id(), rig.id()
    copy = DocumentRecord(id=copied, kind="past", scope=FORK, history="rewindable", fork="asOf", created_at=0)
    await rig.commit(conversation(fork, parent=1, at=3), DocumentCopy(record=copy, source=6, at=2))
    await rig.commit(base(7, {"n": 9}), base(6, {"n": 2, "old": True}, version=2), task(5, ENDED))
    await rig.commit(delta(7, ["s", ["m"], 3]), set_n(10, 5), entry(rig.id(), 9), entry(rig.id(), 9, head=3))
    await rig.commit(document(rig.id(), {"x": 1}, kind="brief"), document(rig.id(), {}, scope=TaskScope(task_id=5)))
    await rig.commit(DocumentRetire(id=13), DocumentRetire(id=6), submission(rig.id(), request_id="r"))
    await rig.commit(document(rig.id(), {"n": 100}, kind="past", **rewound), task(rig.id()), wake=12345)
    statuses = ("outgoing", "queued", "dead", "consumed")
    mail = [
        message(rig.id(), status=status, body=None, request_id="r" * (status == "consumed") or None)
        for status in statuses
    ]
    await rig.commit(*mail)
    await rig.commit(wake=777)


async def picture(storage, key="session"):
    """Read everything that can be asked about a session, its past included."""
    row = await storage.session(key)
    found = [msgspec.structs.replace(row, key="", created_at=0)]
    conversations = await pages(storage.scan_conversations, key, ConversationQuery())
    for one in conversations:
        seen = await pages(storage.scan_entries, key, EntryQuery(conversation_id=one.id))
        found += [(one.id, await storage.entry(key, each.id)) for each in seen]
        found.append(await storage.latest_head_marker(key, one.id))
    found += await pages(storage.scan_tasks, key, TaskQuery())
    found += await pages(storage.scan_submissions, key, SubmissionQuery())
    found += await pages(storage.scan_messages, key, MessageQuery())
    found.append(await storage.submission_by_request(key, 1, "r"))
    for record in await pages(storage.incarnations, key):
        found += [record, await storage.revisions(key, record.id), await storage.document(key, record.id)]
        for at in range(1, row.seq + 1):
            if record.history == "rewindable":
                found.append(await storage.document(key, record.id, at))
            found.append(await storage.find_document(key, record.kind, record.scope, record.key, at))
    return found


async def opened(make, folder):
    folder.mkdir()
    storage = make(folder)
    await storage.open()
    return storage


@pytest.mark.parametrize("source", MAKERS)
@pytest.mark.parametrize("target", MAKERS)
def test_a_session_is_the_same_session_in_another_store(tmp_path, source, target):
    async def run():
        old = await opened(MAKERS[source], tmp_path / "old")
        rig = Rig(old, reopen=False)
        await fill(rig.other("neighbour"))
        await fill(rig)
        await export_session(old, "session", tmp_path / "export")
        new = await opened(MAKERS[target], tmp_path / "new")
        assert await import_session(new, tmp_path / "export") == "session"
        assert await import_session(new, tmp_path / "export", key="twin") == "twin"
        wanted = await picture(old)
        assert len(wanted) > 100
        for key in ("session", "twin"):
            assert await picture(new, key) == wanted
        rig.storage = new
        await rig.commit(set_n(7, 10), entry(rig.id()))
        await new.close()
        await new.open()
        assert (await new.document("session", 7)).value["n"] == 10
        assert await picture(new, "twin") == wanted
        await old.close()
        await new.close()

    asyncio.run(run())


def test_an_export_is_a_jsonl_store_that_holds_the_session_and_nothing_else(tmp_path):
    async def run():
        old = await opened(MAKERS["sqlite"], tmp_path / "old")
        rig = Rig(old, reopen=False)
        await fill(rig)
        async with SqliteReader(tmp_path / "old" / "s.db") as reader:
            await rig.commit(entry(rig.id()))
            await export_session(reader, "session", tmp_path / "export")
            wanted = await picture(reader)
            created_at = (await reader.session("session")).created_at
        await old.close()
        export = JsonlStorage(tmp_path / "export")
        await export.open()
        assert await picture(export) == wanted, "not what the reader showed"
        (row,) = (await export.sessions(9)).items
        assert row.created_at == created_at
        await export.close()

    asyncio.run(run())


def test_what_cannot_be_moved_is_refused_and_changes_nothing(tmp_path):
    async def run():
        store = await opened(MAKERS["sqlite"], tmp_path / "old")
        rig = Rig(store, reopen=False)
        await fill(rig)
        await fill(rig.other("other"))
        refused = [
            (export_session(store, "nobody", tmp_path / "export"), "no session 'nobody'"),
            (import_session(store, tmp_path / "export"), "no directory"),
        ]
        for refusal, why in refused:
            assert why in str(await fails(StorageRejected, refusal))
        assert not tmp_path.joinpath("export").exists()
        await export_session(store, "session", tmp_path / "export")
        assert "holds a session" in str(
            await fails(StorageRejected, export_session(store, "other", tmp_path / "export"))
        )
        before = await picture(store)
        assert "already" in str(await fails(StorageRejected, import_session(store, tmp_path / "export")))
        assert await picture(store) == before
        (tmp_path / "empty").mkdir()
        assert "no sessions" in str(await fails(StorageRejected, import_session(store, tmp_path / "empty")))
        await store.close()

    asyncio.run(run())
