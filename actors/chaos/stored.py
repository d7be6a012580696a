"""What a store holds, read through the storage contract, in one plain structure for all questions about it.

Proved by tests/actors/chaos/test_stored.py.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from ...storage.contract import (
    ConversationQuery,
    Cursor,
    EntryQuery,
    MessageQuery,
    Page,
    Reading,
    SubmissionQuery,
    TaskQuery,
)
from ...storage.records import (
    ConversationRecord,
    ConversationScope,
    EntryRecord,
    JsonObject,
    MessageRecord,
    Scope,
    SessionRecord,
    StoredDocument,
    SubmissionRecord,
    TaskRecord,
)

R = TypeVar("R")
PAGE = 1_000


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it is stored now: records by id, visible entries by conversation, oldest first, live documents."""

    record: SessionRecord
    conversations: dict[int, ConversationRecord]
    entries: dict[int, list[EntryRecord]]
    tasks: dict[int, TaskRecord]
    submissions: dict[int, SubmissionRecord]
    messages: dict[int, MessageRecord]
    documents: list[StoredDocument]

    def document(self, kind: str, scope: Scope) -> JsonObject | None:
        """Give the value of a document that has no key."""
        found = (one.value for one in self.documents if one.record.kind == kind and one.record.scope == scope)
        return next(found, None)

    def of_conversation(self, kind: str, conversation: int) -> JsonObject | None:
        """Give the value of a conversation's document."""
        return self.document(kind, ConversationScope(conversation_id=conversation))

    def own_entries(self) -> dict[int, EntryRecord]:
        """Give all entries by id: a fork shows its parent's, which are stored once."""
        return {entry.id: entry for entries in self.entries.values() for entry in entries}


Stored = dict[str, StoredSession]
"""All sessions of a store, by key."""


async def read_store(storage: Reading) -> Stored:
    """Read everything. For the stores of tests: all of it is in memory afterwards."""
    keys = [record.key async for record in _all(storage.sessions)]
    return {key: await read_session(storage, key) for key in keys}


async def read_session(storage: Reading, key: str) -> StoredSession:
    """Read one session that exists."""
    record = await storage.session(key)
    assert record is not None, f"there is no session {key!r}"
    conversations = [one async for one in _scan(storage.scan_conversations, key, ConversationQuery())]
    entries = {
        one.id: [entry async for entry in _scan(storage.scan_entries, key, _whole(one))] for one in conversations
    }
    return StoredSession(
        record=record,
        conversations=_by_id(conversations),
        entries=entries,
        tasks=_by_id([one async for one in _scan(storage.scan_tasks, key, TaskQuery())]),
        submissions=_by_id([one async for one in _scan(storage.scan_submissions, key, SubmissionQuery())]),
        messages=_by_id([one async for one in _scan(storage.scan_messages, key, MessageQuery())]),
        documents=[one async for one in _documents(storage, key)],
    )


def _whole(conversation: ConversationRecord) -> EntryQuery:
    return EntryQuery(conversation_id=conversation.id, order="ascending")


def _by_id(records: list[Any]) -> dict[int, Any]:
    return {record.id: record for record in records}


async def _documents(storage: Reading, key: str) -> AsyncIterator[StoredDocument]:
    async for record in _all(lambda limit, cursor: storage.incarnations(key, limit, cursor)):
        found = None if record.retired_at is not None else await storage.document(key, record.id)
        if found is not None:
            yield found


def _scan(scan: Callable[..., Awaitable[Page[R]]], key: str, query: Any) -> AsyncIterator[R]:
    return _all(lambda limit, cursor: scan(key, query, limit, cursor))


async def _all(page_of: Callable[[int, Cursor | None], Awaitable[Page[R]]]) -> AsyncIterator[R]:
    page = await page_of(PAGE, None)
    for one in page.items:
        yield one
    while page.next is not None:
        page = await page_of(PAGE, page.next)
        for one in page.items:
            yield one
