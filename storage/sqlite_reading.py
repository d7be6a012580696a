"""The reading half of the SQLite backend, shared by the owner's store and by readers beside it."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from . import sqlite_document_reads as documents
from . import sqlite_messages as messages
from . import sqlite_reads as reads
from .contract import (
    ConversationQuery,
    Cursor,
    DocumentQuery,
    EntryQuery,
    MessageQuery,
    Page,
    SubmissionQuery,
    TaskQuery,
)
from .records import (
    Base,
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

P = ParamSpec("P")
R = TypeVar("R")


class SqliteReading(ABC):
    """Answers the contract's questions by queries on some connection."""

    @abstractmethod
    async def _ask(
        self, query: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a query on the reading connection, in a snapshot."""

    async def _ask_session(
        self,
        session: str,
        query: Callable[Concatenate[sqlite3.Connection, int, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run a query about one session."""

        def ask(connection: sqlite3.Connection) -> R:
            return query(connection, reads.find_prefix(connection, session), *args, **kwargs)

        return await self._ask(ask)

    async def session(self, key: str) -> SessionRecord | None:
        """Look up a session by key."""
        return await self._ask(reads.session, key)

    async def sessions(self, limit: int, cursor: Cursor | None = None) -> Page[SessionRecord]:
        """List sessions in the order of their creation."""
        return await self._ask(reads.sessions, limit, cursor)

    async def due(self, now: int, limit: int) -> list[str]:
        """Name sessions whose ``wake`` is at or before ``now``, earliest first."""
        return await self._ask(reads.due, now, limit)

    async def next_wake(self, after: int = -1) -> int | None:
        """Tell the earliest ``wake`` of any session that is later than ``after`` (ms)."""
        return await self._ask(reads.next_wake, after)

    async def conversation(self, session: str, id: int) -> ConversationRecord | None:
        """Look up a conversation."""
        return await self._ask_session(session, reads.conversation, id)

    async def scan_conversations(
        self, session: str, query: ConversationQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[ConversationRecord]:
        """Page conversations."""
        return await self._ask_session(session, reads.scan_conversations, query, limit, cursor)

    async def entry(
        self,
        session: str,
        id: int,
        conversation_id: int | None = None,
    ) -> tuple[EntryRecord, int] | None:
        """Look up an entry and its commit sequence; with a conversation, only if it is visible there."""
        return await self._ask_session(session, reads.entry, id, conversation_id)

    async def scan_entries(
        self, session: str, query: EntryQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[EntryRecord]:
        """Page a conversation's visible entries. Raises StorageRejected for an unknown conversation."""
        return await self._ask_session(session, reads.scan_entries, query, limit, cursor)

    async def latest_head_marker(
        self, session: str, conversation_id: int, at_or_before: int | None = None
    ) -> EntryRecord | None:
        """Find the newest visible entry that carries ``head``, at or below an inclusive entry id."""
        return await self._ask_session(session, reads.latest_head_marker, conversation_id, at_or_before)

    async def task(self, session: str, id: int) -> TaskRecord | None:
        """Look up a task, live or ended."""
        return await self._ask_session(session, reads.task, id)

    async def live_tasks(self, session: str) -> list[TaskRecord]:
        """List every task that is not terminal, by id."""
        return await self._ask_session(session, reads.live_tasks)

    async def scan_tasks(
        self, session: str, query: TaskQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[TaskRecord]:
        """Page tasks."""
        return await self._ask_session(session, reads.scan_tasks, query, limit, cursor)

    async def submission(self, session: str, id: int) -> SubmissionRecord | None:
        """Look up a submission."""
        return await self._ask_session(session, reads.submission, id)

    async def submission_by_request(
        self, session: str, conversation_id: int, request_id: str
    ) -> SubmissionRecord | None:
        """Look up a submission by its idempotency key."""
        return await self._ask_session(session, reads.submission_by_request, conversation_id, request_id)

    async def scan_submissions(
        self, session: str, query: SubmissionQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[SubmissionRecord]:
        """Page submissions."""
        return await self._ask_session(session, reads.scan_submissions, query, limit, cursor)

    async def message(self, session: str, id: int) -> MessageRecord | None:
        """Look up a message."""
        return await self._ask_session(session, messages.message, id)

    async def message_by_request(self, session: str, task_id: int, request_id: str) -> MessageRecord | None:
        """Look up a message to a task by its idempotency key."""
        return await self._ask_session(session, messages.message_by_request, task_id, request_id)

    async def live_messages(self, session: str) -> list[MessageRecord]:
        """List every message that is outgoing or queued, by id."""
        return await self._ask_session(session, messages.live_messages)

    async def scan_messages(
        self, session: str, query: MessageQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[MessageRecord]:
        """Page messages."""
        return await self._ask_session(session, messages.scan_messages, query, limit, cursor)

    async def dead_letters(self) -> dict[str, int]:
        """Tell which sessions have dead letters, and how many."""
        return await self._ask(messages.dead_letters)

    async def find_document(
        self, session: str, kind: str, scope: Scope, key: str | None = None, at: int | None = None
    ) -> DocumentRecord | None:
        """Resolve an address to the incarnation alive at a commit sequence (None: now)."""
        return await self._ask_session(session, documents.find_document, kind, scope, key=key, at=at)

    async def document(self, session: str, id: int, at: int | None = None) -> StoredDocument | None:
        """Materialise one incarnation at a commit sequence (None: now).

        None when unknown, retired (now) or outside its lifetime. Raises StorageRejected for a past point of a
        document that keeps only its latest value, StorageCorrupt when the records do not add up.
        """
        return await self._ask_session(session, documents.document, id, at)

    async def scan_documents(
        self, session: str, query: DocumentQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[DocumentRecord]:
        """Page the incarnations of one scope."""
        return await self._ask_session(session, documents.scan_documents, query, limit, cursor)

    async def incarnations(self, session: str, limit: int, cursor: Cursor | None = None) -> Page[DocumentRecord]:
        """Page every document that ever was, by id, retired ones included."""
        return await self._ask_session(session, documents.incarnations, limit, cursor)

    async def revisions(self, session: str, id: int) -> list[tuple[int, Base | Delta]]:
        """List what is kept of a document's values, oldest first: the commit sequence and what it stored."""
        return await self._ask_session(session, documents.revisions, id)
