"""A storage that fails when it is told to: for tests of everything that stands on a store.

Wrap any storage and say which write fails, how, and on which side of the moment in which it becomes durable. Writes are
counted from 1, over the whole life of the object, refused ones included.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, ParamSpec, TypeVar

from .contract import (
    ConversationQuery,
    Cursor,
    DocumentQuery,
    EntryQuery,
    MessageQuery,
    Page,
    Storage,
    SubmissionQuery,
    TaskQuery,
)
from .errors import StorageClosed, StorageError, StorageRejected
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

P = ParamSpec("P")
R = TypeVar("R")

When = Literal["before", "after"]
"""Before anything of the write is stored, or after all of it is."""


class InjectedFailure(StorageError):
    """The failure that a test asked for."""


class FaultyStorage:
    """Any storage, with faults at chosen writes.

    ``inner`` is opened and closed with this object, and keeps what was stored: closing and opening again is a restart.
    ``groups`` lists every group that was stored, ``writes`` counts the calls of ``write``.
    """

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.writes = 0
        self.groups: list[list[Batch]] = []
        self._faults: dict[tuple[int, When], Callable[[], Awaitable[None]]] = {}
        self._read_fault: StorageError | None = None
        self._failed = False
        self._crashed = False

    # --- faults

    def fail(self, write: int, when: When = "before", error: StorageError | None = None) -> None:
        """Let a write raise ``error`` (default: InjectedFailure).

        Unless it is a StorageRejected (only sensible before), the store refuses every later write, as any store does
        whose outcome is unknown, until it has been closed and opened again.
        """
        failure = error or InjectedFailure(f"write {write} failed {when} it was stored, as a test asked")

        async def raise_failure() -> None:
            self._failed = not isinstance(failure, StorageRejected)
            raise failure

        self._faults[write, when] = raise_failure

    def crash(self, write: int, when: When = "before") -> None:
        """Let a write be the last thing this store does: it raises, and so does everything until the next open."""

        async def crash() -> None:
            self._crashed = True
            raise InjectedFailure(f"the store crashed at write {write}, {when} it was stored, as a test asked")

        self._faults[write, when] = crash

    def hold(self, write: int, when: When = "before") -> asyncio.Event:
        """Let a write wait, on one side of being stored, until the event that this returns is set."""
        released = asyncio.Event()

        async def wait() -> None:
            await released.wait()

        self._faults[write, when] = wait
        return released

    def call(self, write: int, when: When, action: Callable[[], Awaitable[None]]) -> None:
        """Run any action at a write, such as killing an actor or cancelling a caller."""
        self._faults[write, when] = action

    def fail_reads(self, error: StorageError | None) -> None:
        """Let every read raise ``error`` from now on; None heals."""
        self._read_fault = error

    # --- the storage

    async def open(self) -> None:
        """Open the inner storage; a failure of before is forgotten."""
        await self.inner.open()
        self._failed = self._crashed = False

    async def close(self) -> None:
        """Close the inner storage."""
        await self.inner.close()

    async def idle(self) -> None:
        """Let the inner storage do its upkeep."""
        await self._read(self.inner.idle)

    async def write(self, batches: Sequence[Batch]) -> None:
        """Store a group, with the fault that was asked for this one."""
        if self._failed or self._crashed:
            raise StorageClosed("the store failed and must be opened again")
        self.writes += 1
        number = self.writes
        await self._meet(number, "before")
        await self._store(batches)
        await self._meet(number, "after")

    async def _store(self, batches: Sequence[Batch]) -> None:
        await self.inner.write(batches)
        self.groups.append(list(batches))

    async def delete_session(self, key: str) -> bool:
        """Let the inner storage delete a session, unless this one has failed."""
        if self._failed:
            raise StorageClosed("the store failed and must be opened again")
        return await self._read(self.inner.delete_session, key)

    async def _meet(self, number: int, when: When) -> None:
        fault = self._faults.pop((number, when), None)
        if fault is not None:
            await fault()

    async def _read(self, query: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._crashed:
            raise StorageClosed("the store crashed and must be opened again")
        if self._read_fault is not None:
            raise self._read_fault
        return await query(*args, **kwargs)

    async def session(self, key: str) -> SessionRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.session, key)

    async def sessions(self, limit: int, cursor: Cursor | None = None) -> Page[SessionRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.sessions, limit, cursor)

    async def due(self, now: int, limit: int) -> list[str]:
        """Ask the inner storage."""
        return await self._read(self.inner.due, now, limit)

    async def next_wake(self, after: int = -1) -> int | None:
        """Ask the inner storage."""
        return await self._read(self.inner.next_wake, after)

    async def conversation(self, session: str, id: int) -> ConversationRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.conversation, session, id)

    async def scan_conversations(
        self, session: str, query: ConversationQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[ConversationRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.scan_conversations, session, query, limit, cursor)

    async def entry(self, session: str, id: int, conversation_id: int | None = None) -> tuple[EntryRecord, int] | None:
        """Ask the inner storage."""
        return await self._read(self.inner.entry, session, id, conversation_id)

    async def scan_entries(
        self, session: str, query: EntryQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[EntryRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.scan_entries, session, query, limit, cursor)

    async def latest_head_marker(
        self, session: str, conversation_id: int, at_or_before: int | None = None
    ) -> EntryRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.latest_head_marker, session, conversation_id, at_or_before)

    async def task(self, session: str, id: int) -> TaskRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.task, session, id)

    async def live_tasks(self, session: str) -> list[TaskRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.live_tasks, session)

    async def scan_tasks(
        self, session: str, query: TaskQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[TaskRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.scan_tasks, session, query, limit, cursor)

    async def submission(self, session: str, id: int) -> SubmissionRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.submission, session, id)

    async def submission_by_request(
        self, session: str, conversation_id: int, request_id: str
    ) -> SubmissionRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.submission_by_request, session, conversation_id, request_id)

    async def scan_submissions(
        self, session: str, query: SubmissionQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[SubmissionRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.scan_submissions, session, query, limit, cursor)

    async def message(self, session: str, id: int) -> MessageRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.message, session, id)

    async def message_by_request(self, session: str, task_id: int, request_id: str) -> MessageRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.message_by_request, session, task_id, request_id)

    async def live_messages(self, session: str) -> list[MessageRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.live_messages, session)

    async def scan_messages(
        self, session: str, query: MessageQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[MessageRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.scan_messages, session, query, limit, cursor)

    async def dead_letters(self) -> dict[str, int]:
        """Ask the inner storage."""
        return await self._read(self.inner.dead_letters)

    async def find_document(
        self, session: str, kind: str, scope: Scope, key: str | None = None, at: int | None = None
    ) -> DocumentRecord | None:
        """Ask the inner storage."""
        return await self._read(self.inner.find_document, session, kind, scope, key, at)

    async def document(self, session: str, id: int, at: int | None = None) -> StoredDocument | None:
        """Ask the inner storage."""
        return await self._read(self.inner.document, session, id, at)

    async def scan_documents(
        self, session: str, query: DocumentQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[DocumentRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.scan_documents, session, query, limit, cursor)

    async def incarnations(self, session: str, limit: int, cursor: Cursor | None = None) -> Page[DocumentRecord]:
        """Ask the inner storage."""
        return await self._read(self.inner.incarnations, session, limit, cursor)

    async def revisions(self, session: str, id: int) -> list[tuple[int, Base | Delta]]:
        """Ask the inner storage."""
        return await self._read(self.inner.revisions, session, id)
