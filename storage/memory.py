"""The memory backend: the reference semantics of the storage contract, without durability.

What it stores lives as long as the object, through any number of ``close`` and ``open``, so that a test can crash what
stands above it and go on from what was stored. Proved by tests/storage/test_conformance.py.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from . import codec
from .checks import check_limit, check_text, make_cursor, read_cursor, reject, rewindable, scope_id
from .contract import (
    ConversationQuery,
    Cursor,
    DocumentQuery,
    EntryQuery,
    MessageQuery,
    Order,
    Page,
    SubmissionQuery,
    TaskQuery,
)
from .errors import StorageClosed, StorageRejected
from .memory_session import MemorySession, Undo, address
from .records import (
    MAX_ID,
    Base,
    Batch,
    ConversationRecord,
    Delta,
    DocumentRecord,
    EntryRecord,
    MessageRecord,
    Scope,
    SessionRecord,
    StoredDocument,
    SubmissionRecord,
    TaskRecord,
)

R = TypeVar("R")


def now_ms() -> int:
    """Read the system clock in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class MemoryStorage:
    """A store in this process's memory.

    ``clock`` gives the time in milliseconds with which new sessions are stamped.
    """

    def __init__(self, *, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock or now_ms
        self._sessions: dict[str, MemorySession] = {}
        self._numbers: dict[str, int] = {}
        self._last_number = 0
        self._open = False

    async def open(self) -> None:
        """Be ready. Does nothing to an open store."""
        self._open = True

    async def close(self) -> None:
        """Refuse every call until the next ``open``; keeps what is stored."""
        self._open = False

    async def idle(self) -> None:
        """Do nothing: memory needs no upkeep."""
        self._check_open()

    async def write(self, batches: Sequence[Batch]) -> None:
        """Store all batches atomically. Raises StorageRejected, with the index, and StorageClosed."""
        self._check_open()
        undo = Undo()
        for index, batch in enumerate(batches):
            try:
                self._session_of(batch, undo).apply(batch, undo)
            except StorageRejected as error:
                undo.roll_back()
                raise StorageRejected(str(error), index=index) from None

    async def delete_session(self, key: str) -> bool:
        """Delete a session and everything in it; tell whether there was one."""
        self._check_open()
        check_text(key)
        self._numbers.pop(key, None)
        return self._sessions.pop(key, None) is not None

    def _session_of(self, batch: Batch, undo: Undo) -> MemorySession:
        check_text(batch.session)
        session = self._sessions.get(batch.session)
        if session is None:
            session = MemorySession(batch.session, self._clock())
            undo.put(self._sessions, batch.session, session)
        return session

    def _check_open(self) -> None:
        if not self._open:
            raise StorageClosed("the memory store is not open")

    def _read(self, key: str, *texts: str | None) -> MemorySession:
        """Find a session for a read; an unknown one reads as empty."""
        self._check_open()
        check_text(key, *texts)
        return self._sessions.get(key) or MemorySession(key, 0)

    # --- sessions

    async def session(self, key: str) -> SessionRecord | None:
        """Look up a session by key."""
        session = self._read(key)
        return session.record() if session.seq else None

    async def sessions(self, limit: int, cursor: Cursor | None = None) -> Page[SessionRecord]:
        """List sessions in the order of their creation."""
        self._check_open()
        order, after = read_cursor(cursor, "ascending", "ascending")
        sessions = self._numbered()
        return _page(sessions, order, after, limit, lambda number: sessions[number].record())

    def _numbered(self) -> dict[int, MemorySession]:
        """Number the sessions in the order of their creation; a number is never used again."""
        for key in self._sessions:
            if key not in self._numbers:
                self._last_number += 1
                self._numbers[key] = self._last_number
        return {self._numbers[key]: session for key, session in self._sessions.items()}

    async def due(self, now: int, limit: int) -> list[str]:
        """Name sessions whose ``wake`` is at or before ``now``, earliest first."""
        self._check_open()
        check_limit(limit)
        return [key for wake, _, key in sorted(self._wakes()) if wake <= now][:limit]

    async def next_wake(self, after: int = -1) -> int | None:
        """Tell the earliest ``wake`` of any session that is later than ``after`` (ms)."""
        self._check_open()
        return min((wake for wake, _, _ in self._wakes() if wake > after), default=None)

    def _wakes(self) -> Iterator[tuple[int, int, str]]:
        for number, session in enumerate(self._sessions.values()):
            if session.wake is not None:
                yield session.wake, number, session.key

    # --- conversations and entries

    async def conversation(self, session: str, id: int) -> ConversationRecord | None:
        """Look up a conversation."""
        body = self._read(session).conversations.get(id)
        return None if body is None else codec.decode_conversation(body)

    async def scan_conversations(
        self, session: str, query: ConversationQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[ConversationRecord]:
        """Page conversations."""
        rows = self._read(session).conversations
        order, after = read_cursor(cursor, query.order, "ascending")
        found = (row for row, body in rows.items() if _owned(codec.decode_conversation(body), query))
        return _page(found, order, after, limit, lambda row: codec.decode_conversation(rows[row]))

    async def entry(
        self,
        session: str,
        id: int,
        conversation_id: int | None = None,
    ) -> tuple[EntryRecord, int] | None:
        """Look up an entry and its commit sequence; with a conversation, only if it is visible there."""
        stored = self._read(session)
        row = stored.entries.get(id)
        if row is None or not (conversation_id is None or stored.visible(id, conversation_id)):
            return None
        return codec.decode_entry(row.body), row.seq

    async def scan_entries(
        self, session: str, query: EntryQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[EntryRecord]:
        """Page a conversation's visible entries. Raises StorageRejected for an unknown conversation."""
        stored = self._read(session)
        order, after = read_cursor(cursor, query.order, "descending")
        if query.conversation_id not in stored.conversations:
            reject(f"unknown conversation {query.conversation_id}")
        bounds = query.min_entry_id or 1, MAX_ID if query.max_entry_id is None else query.max_entry_id
        found = chain.from_iterable(map(stored.ids_in, stored.segments(query.conversation_id, *bounds)))
        return _page(found, order, after, limit, lambda row: codec.decode_entry(stored.entries[row].body))

    async def latest_head_marker(
        self, session: str, conversation_id: int, at_or_before: int | None = None
    ) -> EntryRecord | None:
        """Find the newest visible entry that carries ``head``, at or below an inclusive entry id."""
        stored = self._read(session)
        if conversation_id not in stored.conversations:
            reject(f"unknown conversation {conversation_id}")
        high = MAX_ID if at_or_before is None else at_or_before
        for segment in stored.segments(conversation_id, high=high):
            for row in map(stored.entries.__getitem__, reversed(stored.ids_in(segment))):
                if row.is_head:
                    return codec.decode_entry(row.body)
        return None

    # --- tasks and submissions

    async def task(self, session: str, id: int) -> TaskRecord | None:
        """Look up a task, live or ended."""
        body = self._read(session).tasks.get(id)
        return None if body is None else codec.decode_task(body)

    async def live_tasks(self, session: str) -> list[TaskRecord]:
        """List every task that is not terminal, by id."""
        tasks = map(codec.decode_task, self._read(session).tasks.values())
        return sorted((task for task in tasks if task.live), key=lambda task: task.id)

    async def scan_tasks(
        self, session: str, query: TaskQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[TaskRecord]:
        """Page tasks."""
        tasks = {task.id: task for task in map(codec.decode_task, self._read(session, query.kind).tasks.values())}
        order, after = read_cursor(cursor, query.order, "ascending")
        found = (task.id for task in tasks.values() if task_matches(task, query))
        return _page(found, order, after, limit, tasks.__getitem__)

    async def submission(self, session: str, id: int) -> SubmissionRecord | None:
        """Look up a submission."""
        body = self._read(session).submissions.get(id)
        return None if body is None else codec.decode_submission(body)

    async def submission_by_request(
        self, session: str, conversation_id: int, request_id: str
    ) -> SubmissionRecord | None:
        """Look up a submission by its idempotency key."""
        stored = self._read(session, request_id)
        found = stored.requests.get((conversation_id, request_id))
        return None if found is None else codec.decode_submission(stored.submissions[found])

    async def scan_submissions(
        self, session: str, query: SubmissionQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[SubmissionRecord]:
        """Page submissions."""
        rows = map(codec.decode_submission, self._read(session).submissions.values())
        submissions = {row.id: row for row in rows}
        order, after = read_cursor(cursor, query.order, "ascending")
        found = (
            row.id
            for row in submissions.values()
            if query.conversation_id in (None, row.conversation_id) and query.status in (None, row.status)
        )
        return _page(found, order, after, limit, submissions.__getitem__)

    # --- messages

    async def message(self, session: str, id: int) -> MessageRecord | None:
        """Look up a message."""
        body = self._read(session).messages.get(id)
        return None if body is None else codec.decode_message(body)

    async def message_by_request(self, session: str, task_id: int, request_id: str) -> MessageRecord | None:
        """Look up a message to a task by its idempotency key."""
        stored = self._read(session, request_id)
        found = stored.message_requests.get((task_id, request_id))
        return None if found is None else codec.decode_message(stored.messages[found])

    async def live_messages(self, session: str) -> list[MessageRecord]:
        """List every message that is outgoing or queued, by id."""
        messages = map(codec.decode_message, self._read(session).messages.values())
        return sorted((message for message in messages if message.live), key=lambda message: message.id)

    async def scan_messages(
        self, session: str, query: MessageQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[MessageRecord]:
        """Page messages."""
        messages = {row.id: row for row in map(codec.decode_message, self._read(session).messages.values())}
        order, after = read_cursor(cursor, query.order, "ascending")
        found = (
            row.id
            for row in messages.values()
            if query.task_id in (None, row.task_id) and query.status in (None, row.status)
        )
        return _page(found, order, after, limit, messages.__getitem__)

    async def dead_letters(self) -> dict[str, int]:
        """Tell which sessions have dead letters, and how many."""
        self._check_open()
        counts = {key: session.count_dead() for key, session in self._sessions.items()}
        return {key: count for key, count in counts.items() if count}

    # --- documents

    async def find_document(
        self, session: str, kind: str, scope: Scope, key: str | None = None, at: int | None = None
    ) -> DocumentRecord | None:
        """Resolve an address to the incarnation alive at a commit sequence (None: now)."""
        wanted = (type(scope), scope_id(scope), kind, key)
        rows = self._read(session, kind, key).documents.values()
        return next((row.record for row in rows if address(row.record) == wanted and row.alive(at)), None)

    async def document(self, session: str, id: int, at: int | None = None) -> StoredDocument | None:
        """Materialise one incarnation at a commit sequence (None: now).

        None when unknown, retired (now) or outside its lifetime. Raises StorageRejected for a past point of a
        document that keeps only its latest value, StorageCorrupt when the records do not add up.
        """
        row = self._read(session).documents.get(id)
        if row is not None and at is not None and not rewindable(row.record):
            reject(f"document {id} keeps only its latest value: it cannot be read at {at}")
        return row.value(at) if row is not None and row.alive(at) else None

    async def scan_documents(
        self, session: str, query: DocumentQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[DocumentRecord]:
        """Page the incarnations of one scope."""
        rows = self._read(session, query.kind).documents
        wanted = (type(query.scope), scope_id(query.scope))
        order, after = read_cursor(cursor, "ascending", "ascending")
        found = (
            number
            for number, row in rows.items()
            if address(row.record)[:2] == wanted and query.kind in (None, row.record.kind) and row.alive(query.at)
        )
        return _page(found, order, after, limit, lambda number: rows[number].record)

    async def incarnations(self, session: str, limit: int, cursor: Cursor | None = None) -> Page[DocumentRecord]:
        """Page every document that ever was, by id, retired ones included."""
        rows = self._read(session).documents
        order, after = read_cursor(cursor, "ascending", "ascending")
        return _page(rows, order, after, limit, lambda number: rows[number].record)

    async def revisions(self, session: str, id: int) -> list[tuple[int, Base | Delta]]:
        """List what is kept of a document's values, oldest first: the commit sequence and what it stored."""
        row = self._read(session).documents.get(id)
        return [
            (one.seq, codec.decode_content(one.base, one.version, one.body)) for one in (row.revisions if row else [])
        ]


def _owned(record: ConversationRecord, query: ConversationQuery) -> bool:
    conversation_id, task_id = (record.owner.conversation_id, record.owner.task_id) if record.owner else (None, None)
    return query.owner_conversation_id in (None, conversation_id) and query.owner_task_id in (None, task_id)


def task_matches(task: TaskRecord, query: TaskQuery) -> bool:
    """Tell whether a task has all the columns that a query asks for."""
    return (
        query.conversation_id in (None, task.conversation_id)
        and query.kind in (None, task.kind)
        and query.status in (None, task.state.__struct_config__.tag)
        and query.abort_requested in (None, task.abort_requested)
        and query.background in (None, task.background)
    )


def _page(found: Iterable[int], order: Order, after: int | None, limit: int, load: Callable[[int], R]) -> Page[R]:
    """Cut the page behind ``after`` out of the ids that a scan found."""
    check_limit(limit)
    ids = sorted(found, reverse=order == "descending")
    if after is not None:
        ids = [row for row in ids if (row < after if order == "descending" else row > after)]
    page = ids[:limit]
    return Page([load(row) for row in page], make_cursor(order, page[-1]) if len(ids) > limit else None)
