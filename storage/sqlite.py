"""The SQLite backend: one file for all sessions, one connection that writes, one that reads.

Every call is one hop to the thread of its connection. Reads never wait behind a write; a read that begins after a write
was acknowledged sees it. Proved by tests/storage (conformance, durability, failures, exit).
"""

import asyncio
import os
import sqlite3
import warnings
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from . import sqlite_document_reads as documents
from . import sqlite_reads as reads
from .contract import (
    ConversationQuery,
    Cursor,
    DocumentQuery,
    EntryQuery,
    Page,
    SubmissionQuery,
    TaskQuery,
)
from .errors import StorageClosed
from .memory import now_ms
from .records import (
    Batch,
    ConversationRecord,
    DocumentRecord,
    EntryRecord,
    Scope,
    SessionRecord,
    StoredDocument,
    SubmissionRecord,
    TaskRecord,
)
from .sqlite_errors import data_errors, storage_errors
from .sqlite_schema import Durability, open_reader, transaction
from .sqlite_thread import SqliteThread
from .sqlite_writer import SqliteWriter

P = ParamSpec("P")
R = TypeVar("R")

_EXIT_TIMEOUT_S = 2.0
"""How long a store that was left open may take to close when its process ends."""


class _Engine(NamedTuple):
    """What an open store consists of."""

    writer: SqliteWriter
    writing: SqliteThread
    reading: SqliteThread


class SqliteStorage:
    """A store in a SQLite file, owned by one process at a time.

    ``durability="power"`` (default): an acknowledged commit survives loss of power. ``"process"``: it survives the
    death of the process; the newest commits may be missing after a loss of power, older ones never.
    ``busy_timeout_s`` is how long a write waits for a foreign connection's lock. ``clock`` gives the time in
    milliseconds with which new sessions are stamped.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        busy_timeout_s: float = 5.0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        if self.path in ("", ":memory:"):
            raise ValueError(f"expected the path of a file, not {self.path!r}; use MemoryStorage for a store in memory")
        if durability not in ("power", "process"):
            raise ValueError(f"durability must be 'power' or 'process', not {durability!r}")
        self._durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock or now_ms
        self._engine: _Engine | None = None
        self._transition: asyncio.Task[None] | None = None

    # --- life

    async def open(self) -> None:
        """Take ownership and be ready; does nothing to an open store.

        Raises StorageInUse, SchemaTooNew, StorageCorrupt, StorageBusy, and StorageError when the file cannot be used.
        A cancelled open closes again.
        """
        was_open = self._engine is not None
        try:
            await self._move(self._open)
        except asyncio.CancelledError:
            if not was_open:
                self._move(self._close)
            raise

    async def close(self) -> None:
        """Finish the writes that were begun, truncate the log and give up ownership. Idempotent."""
        await self._move(self._close)

    def _move(self, step: Callable[[], Awaitable[None]]) -> Awaitable[None]:
        """Open or close after the opening or closing under way, to the end even if the caller is cancelled."""
        before = self._transition

        async def move() -> None:
            # One of a loop that ended will never be done, and has left nothing behind.
            if before is not None and before.get_loop() is asyncio.get_running_loop():
                await asyncio.wait([before])
            await step()

        self._transition = asyncio.ensure_future(move())
        return asyncio.shield(self._transition)

    async def _open(self) -> None:
        if self._engine is not None:
            return
        path = os.path.realpath(self.path)  # noqa: ASYNC240 - once, and no slower than opening
        writer = SqliteWriter(path, self._durability, self._busy_timeout_s, self._clock)
        writing = SqliteThread(writer.connect)
        await writing.open()
        reading = SqliteThread(partial(open_reader, path, self._busy_timeout_s))
        try:
            with storage_errors(path):
                await reading.open()
        except BaseException:
            await writing.close()
            writer.lock.release()
            raise
        self._engine = _Engine(writer, writing, reading)
        self._forgotten = weakref.finalize(self, _close_forgotten, self._engine)

    async def _close(self) -> None:
        if self._engine is None:
            return
        (writer, writing, reading), self._engine = self._engine, None
        try:
            await reading.close()
            await writing.run(writer.finish, writing.sqlite)
        finally:
            try:
                await writing.close()
            finally:
                writer.lock.release()
                self._forgotten.detach()

    def _opened(self) -> _Engine:
        if self._engine is None:
            raise StorageClosed(f"{self.path} is not open")
        return self._engine

    # --- writing

    async def write(self, batches: Sequence[Batch]) -> None:
        """Store all batches in one transaction, in order.

        Cancelling the caller does not cancel the write. Raises StorageRejected (with the index of the bad batch) and
        StorageFenced when nothing was written; StorageFull, StorageBusy, StorageCorrupt or another StorageError when
        the outcome is unknown; StorageClosed from then on.
        """
        writer, writing, _ = self._opened()
        if not batches:
            return
        checkpoint_due = await writing.run(writer.write, writing.sqlite, batches)
        if checkpoint_due:
            writing.run_unwatched(partial(writer.checkpoint, writing.sqlite))

    async def idle(self) -> None:
        """Use a moment in which nobody waits for a write: keep the log short."""
        writer, writing, _ = self._opened()
        await writing.run(writer.checkpoint_when_idle, writing.sqlite)

    # --- reading

    async def _ask(
        self, query: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a query on the reading connection, in a snapshot of its own."""
        reading = self._opened().reading
        bound = partial(query, reading.sqlite, *args, **kwargs)
        return await reading.run(_in_snapshot, self.path, reading.sqlite, bound)

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


def _in_snapshot(path: str, connection: sqlite3.Connection, query: Callable[[], R]) -> R:
    with data_errors(), storage_errors(path), transaction(connection, "DEFERRED"):
        return query()


def _close_forgotten(engine: _Engine) -> None:
    """Close a store whose object was dropped, or whose process ends, while it was open."""
    engine.reading.abandon(_EXIT_TIMEOUT_S / 2)
    engine.writing.abandon(_EXIT_TIMEOUT_S / 2)
    engine.writer.lock.release()
    # Last, since a filter may turn it into an error.
    warnings.warn(f"{engine.writer.path} was left open; close it before its loop ends", RuntimeWarning, stacklevel=1)
