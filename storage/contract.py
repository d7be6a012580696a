"""What a storage backend promises, and the queries that it answers.

A store holds many sessions; every call names its session by key. Writes come from one caller (the storage actor), reads
from any task of the loop. Values handed in are borrowed until ``write`` returns, values handed out are detached: nobody
can change stored state through a reference.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from .records import (
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

T = TypeVar("T")
Order = Literal["ascending", "descending"]
Cursor = Mapping[str, Any]
"""Opaque, JSON, made by a backend for the next page of one scan. It keeps its scan's order and rejects another."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """At most ``limit`` items, and the cursor of the next page if there may be one."""

    items: list[T]
    next: Cursor | None = None


class ConversationQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations by owner; both filters together must both match. Indexed."""

    owner_conversation_id: int | None = None
    owner_task_id: int | None = None
    order: Order | None = None
    """Default: ascending."""


class EntryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Entries visible in a conversation, through its fork ancestry, between two inclusive ids."""

    conversation_id: int
    min_entry_id: int | None = None
    max_entry_id: int | None = None
    order: Order | None = None
    """Default: descending."""


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by any conjunction of columns."""

    conversation_id: int | None = None
    kind: str | None = None
    status: Literal["pending", "running", "waiting", "completing", "terminal"] | None = None
    abort_requested: bool | None = None
    background: bool | None = None
    order: Order | None = None
    """Default: ascending."""


class SubmissionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Submissions by conversation and status."""

    conversation_id: int | None = None
    status: Literal["queued", "placed", "done", "unanswered"] | None = None
    order: Order | None = None
    """Default: ascending."""


class MessageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by the task that they are for and by status."""

    task_id: int | None = None
    status: Literal["outgoing", "queued", "consumed", "dead"] | None = None
    order: Order | None = None
    """Default: ascending."""


class DocumentQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Incarnations of exactly one scope that are alive at a commit sequence (None: now), by id, ascending."""

    scope: Scope
    kind: str | None = None
    at: int | None = None


class Reading(Protocol):
    """What can be asked about stored sessions, by their owner and by anybody else. An unknown session reads as empty."""

    # --- sessions
    async def session(self, key: str) -> SessionRecord | None:
        """Look up a session by key."""

    async def sessions(self, limit: int, cursor: Cursor | None = None) -> Page[SessionRecord]:
        """List sessions in the order of their creation."""

    async def due(self, now: int, limit: int) -> list[str]:
        """Name sessions whose ``wake`` is at or before ``now``, earliest first. Cost does not grow with idle ones."""

    async def next_wake(self, after: int = -1) -> int | None:
        """Tell the earliest ``wake`` of any session that is later than ``after`` (ms)."""

    # --- records
    async def conversation(self, session: str, id: int) -> ConversationRecord | None:
        """Look up a conversation; one that is ``deleted`` is there for its forks only."""

    async def scan_conversations(
        self, session: str, query: ConversationQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[ConversationRecord]:
        """Page conversations."""

    async def entry(
        self,
        session: str,
        id: int,
        conversation_id: int | None = None,
    ) -> tuple[EntryRecord, int] | None:
        """Look up an entry and its commit sequence; with a conversation, only if it is visible there."""

    async def scan_entries(
        self, session: str, query: EntryQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[EntryRecord]:
        """Page a conversation's visible entries. Raises StorageRejected for an unknown conversation."""

    async def latest_head_marker(
        self, session: str, conversation_id: int, at_or_before: int | None = None
    ) -> EntryRecord | None:
        """Find the newest visible entry that carries ``head``, at or below an inclusive entry id."""

    async def task(self, session: str, id: int) -> TaskRecord | None:
        """Look up a task, live or ended."""

    async def live_tasks(self, session: str) -> list[TaskRecord]:
        """List every task that is not terminal, by id. Cost does not grow with ended ones."""

    async def scan_tasks(
        self, session: str, query: TaskQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[TaskRecord]:
        """Page tasks."""

    async def submission(self, session: str, id: int) -> SubmissionRecord | None:
        """Look up a submission."""

    async def submission_by_request(
        self, session: str, conversation_id: int, request_id: str
    ) -> SubmissionRecord | None:
        """Look up a submission by its idempotency key."""

    async def scan_submissions(
        self, session: str, query: SubmissionQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[SubmissionRecord]:
        """Page submissions."""

    async def message(self, session: str, id: int) -> MessageRecord | None:
        """Look up a message."""

    async def message_by_request(self, session: str, task_id: int, request_id: str) -> MessageRecord | None:
        """Look up a message to a task by its idempotency key."""

    async def live_messages(self, session: str) -> list[MessageRecord]:
        """List every message that is outgoing or queued, by id. Cost does not grow with others."""

    async def scan_messages(
        self, session: str, query: MessageQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[MessageRecord]:
        """Page messages."""

    async def dead_letters(self) -> dict[str, int]:
        """Tell which sessions have dead letters, and how many. Cost does not grow with anything else."""

    # --- documents
    async def find_document(
        self, session: str, kind: str, scope: Scope, key: str | None = None, at: int | None = None
    ) -> DocumentRecord | None:
        """Resolve an address to the incarnation alive at a commit sequence (None: now)."""

    async def document(self, session: str, id: int, at: int | None = None) -> StoredDocument | None:
        """Materialise one incarnation at a commit sequence (None: now).

        None when unknown, retired (now) or outside its lifetime. Raises StorageRejected for a past point of a
        document that keeps only its latest value, StorageCorrupt when the records do not add up.
        """

    async def scan_documents(
        self, session: str, query: DocumentQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[DocumentRecord]:
        """Page the incarnations of one scope."""

    # --- for whoever copies a session
    async def incarnations(self, session: str, limit: int, cursor: Cursor | None = None) -> Page[DocumentRecord]:
        """Page every document that ever was, by id, retired ones included."""

    async def revisions(self, session: str, id: int) -> list[tuple[int, Base | Delta]]:
        """List what is kept of a document's values, oldest first: the commit sequence and what it stored."""


class Storage(Reading, Protocol):
    """A place that keeps sessions, to its one owner.

    ``write`` either stores the whole group or raises. ``StorageRejected`` and ``StorageFenced`` mean that nothing was
    written and the store is still good; any other error leaves the outcome unknown, and the store answers every later
    ``write`` with ``StorageClosed`` until it has been closed and opened again. An acknowledged batch is visible to
    every later read.
    """

    async def open(self) -> None:
        """Take ownership, migrate or recover, and be ready. Raises StorageInUse, SchemaTooNew, StorageCorrupt."""

    async def close(self) -> None:
        """Give up ownership. Idempotent; never raises for a store that failed."""

    async def write(self, batches: Sequence[Batch]) -> None:
        """Store all batches atomically, in order. A session's ``seq`` must grow from batch to batch.

        A session comes into being with its first batch. Cancelling the caller does not cancel the write. What a
        ``ConversationDelete`` deletes is gone for every question once this returns; it takes as long as there is to delete.
        """

    async def delete_session(self, key: str) -> bool:
        """Delete a session and everything in it; tell whether there was one.

        It is gone at once and durably for every question and every later ``write``, which begins a new session of that
        key; the space is reclaimed in small steps afterwards. Fails as ``write`` does; a backend that cannot delete raises
        StorageRejected. Not to be called while somebody writes to the session.
        """

    async def idle(self) -> None:
        """Use a moment in which nobody waits for a write, for housekeeping."""
