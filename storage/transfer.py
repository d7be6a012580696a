"""Moving one session between stores, by way of a directory that people can read.

A session is *retold*: as commits of the same sequence numbers that build what is stored of it now. Entries and what
documents keep of their past stand in the commits that they came from; tasks, submissions and messages, of which only the newest
state is kept, in the last. Proved by tests/storage/test_transfer.py.
"""

import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from .contract import (
    ConversationQuery,
    Cursor,
    EntryQuery,
    MessageQuery,
    Page,
    Reading,
    Storage,
    SubmissionQuery,
    TaskQuery,
)
from .errors import StorageRejected
from .jsonl import JsonlStorage
from .records import (
    Base,
    Batch,
    DocumentChange,
    DocumentCreate,
    DocumentRecord,
    DocumentRetire,
    SessionRecord,
    Write,
)

T = TypeVar("T")
PAGE = 1_000


async def export_session(storage: Reading, key: str, directory: str | os.PathLike[str]) -> None:
    """Write a session to a new directory, which is then a ``JsonlStorage`` that holds it and nothing else.

    It is there whole, and survives a loss of power, or not at all. Of a session that somebody is writing to, export a
    picture: from a ``SqliteReader``. Raises StorageRejected when there is no such session, or one in the directory.
    """
    record = await storage.session(key)
    if record is None:
        raise StorageRejected(f"there is no session {key!r} to export")
    batches = await retell(storage, record)
    target = JsonlStorage(directory, fsync=True, clock=lambda: record.created_at)
    await target.open()
    try:
        if (await target.sessions(1)).items:
            raise StorageRejected(f"{os.fspath(directory)} holds a session; export to a new directory")
        await target.write(batches)
    finally:
        await target.close()


async def import_session(storage: Storage, directory: str | os.PathLike[str], *, key: str | None = None) -> str:
    """Add the one session of an export to a store, as ``key`` or by its old key, which it returns.

    Exists whole or not at all, and is stamped as created now. The store must be open and nobody else, no running system
    either, may write to it. Raises StorageRejected when the store has a session of the key, or the directory not one.
    """
    if not Path(directory).is_dir():  # noqa: ASYNC240 - once; opening would make it
        raise StorageRejected(f"{os.fspath(directory)} is no directory to import from")
    source = JsonlStorage(directory)
    await source.open()
    try:
        record = await _only_session(source, directory)
        batches = await retell(source, record, key)
    finally:
        await source.close()
    wanted = record.key if key is None else key
    if await storage.session(wanted) is not None:
        raise StorageRejected(f"there is a session {wanted!r} already; delete it, or import under another key")
    await storage.write(batches)
    return wanted


async def _only_session(source: Reading, directory: str | os.PathLike[str]) -> SessionRecord:
    found = (await source.sessions(2)).items
    if len(found) != 1:
        raise StorageRejected(f"{os.fspath(directory)} holds {len(found) or 'no'} sessions; an export holds one")
    return found[0]


# --- retelling


async def retell(storage: Reading, record: SessionRecord, key: str | None = None) -> list[Batch]:
    """Give commits that build a session as it is stored now, for the same key or another one."""
    session, writes = record.key, defaultdict[int, list[Write]](list)
    conversations = [one async for one in _all(storage.scan_conversations, session, ConversationQuery())]
    for conversation in conversations:
        await _retell_entries(storage, session, conversation.id, writes)
    async for document in _all(storage.incarnations, session):
        await _retell_document(storage, session, document, writes)
    writes[record.seq] += [one async for one in _all(storage.scan_tasks, session, TaskQuery())]
    writes[record.seq] += [one async for one in _all(storage.scan_submissions, session, SubmissionQuery())]
    writes[record.seq] += [one async for one in _all(storage.scan_messages, session, MessageQuery())]
    writes[min(writes)] += conversations
    return [
        Batch(
            session=session if key is None else key,
            seq=seq,
            last_id=record.last_id,
            writes=writes[seq],
            wake=record.wake if seq == record.seq else None,
        )
        for seq in sorted(writes)
    ]


async def _retell_entries(storage: Reading, session: str, conversation: int, writes: dict[int, list[Write]]) -> None:
    query = EntryQuery(conversation_id=conversation, order="ascending")
    async for entry in _all(storage.scan_entries, session, query):
        found = await storage.entry(session, entry.id) if entry.conversation_id == conversation else None
        if found is not None:
            writes[found[1]].append(entry)


async def _retell_document(
    storage: Reading, session: str, record: DocumentRecord, writes: dict[int, list[Write]]
) -> None:
    """Create a document with what is kept of its first value, or, if that is superseded, with nothing in it."""
    revisions = await storage.revisions(session, record.id)
    first = Base(version=1, value={})
    if revisions and revisions[0][0] == record.created_at and isinstance(content := revisions[0][1], Base):
        first = content
        del revisions[0]
    writes[record.created_at].append(DocumentCreate(record=record, content=first))
    for seq, content in revisions:
        writes[seq].append(DocumentChange(id=record.id, content=content))
    if record.retired_at is not None:
        writes[record.retired_at].append(DocumentRetire(id=record.id))


async def _all(scan: Callable[..., Awaitable[Page[T]]], *arguments: object) -> AsyncIterator[T]:
    cursor: Cursor | None = None
    while True:
        page = await scan(*arguments, PAGE, cursor)
        for item in page.items:
            yield item
        if page.next is None:
            return
        cursor = page.next
