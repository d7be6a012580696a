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

from .errors import StorageClosed
from .memory import now_ms
from .records import Batch
from .sqlite_errors import data_errors, storage_errors
from .sqlite_reading import SqliteReading
from .sqlite_schema import Durability, open_reader
from .sqlite_thread import SqliteThread
from .sqlite_transaction import transaction
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


class SqliteStorage(SqliteReading):
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
        self._had_file = False
        self._transition: asyncio.Task[None] | None = None

    # --- life

    async def open(self) -> None:
        """Take ownership and be ready; does nothing to an open store.

        A file that does not exist is made, unless this object has had it open before: then somebody took it away.
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
        writer = SqliteWriter(path, self._durability, self._busy_timeout_s, self._clock, create=not self._had_file)
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
        self._had_file = True
        self._reclaim(self._engine)
        self._forgotten = weakref.finalize(self, _close_forgotten, self._engine)

    async def _close(self) -> None:
        if self._engine is None:
            return
        (writer, writing, reading), self._engine = self._engine, None
        try:
            await reading.close()
            await writing.run(writer.log.finish, writing.sqlite)
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
        log_is_long = await writing.run(writer.write, writing.sqlite, batches)
        if log_is_long:
            writing.run_unwatched(partial(writer.log.tend, writing.sqlite))

    async def delete_session(self, key: str) -> bool:
        """Delete a session and everything in it; tell whether there was one.

        It is gone when this returns; its rows are deleted afterwards, so many at a time that no write waits for long, and
        go on being deleted after the next open. The space is used again; the file does not shrink.
        """
        engine = self._opened()
        found = await engine.writing.run(engine.writer.delete_session, engine.writing.sqlite, key)
        if found:
            self._reclaim(engine)
        return found

    def _reclaim(self, engine: _Engine) -> None:
        """Reclaim deleted sessions step by step, each behind the writes that came meanwhile."""
        connection = engine.writing.sqlite

        def step() -> None:
            if engine.writer.reclaim(connection):
                engine.writing.run_unwatched(step)

        engine.writing.run_unwatched(step)

    async def idle(self) -> None:
        """Use a moment in which nobody waits for a write: keep the log short."""
        writer, writing, _ = self._opened()
        await writing.run(writer.log.tend_when_idle, writing.sqlite)

    # --- reading

    async def _ask(
        self, query: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a query on the reading connection, in a snapshot of its own."""
        reading = self._opened().reading
        bound = partial(query, reading.sqlite, *args, **kwargs)
        return await reading.run(_in_snapshot, self.path, reading.sqlite, bound)


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
