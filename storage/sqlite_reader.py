"""Reading a SQLite store that belongs to somebody else, dead or alive, without disturbing anybody.

No lock of the owner's is taken, no fence is moved, and neither the file nor its log is written. SQLite keeps its index of
the log in a file beside it (``-shm``), and makes that, and an empty log, where a dead owner has left none.
Proved by tests/storage/test_reader.py.
"""

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import msgspec

from .errors import StorageClosed, StorageCorrupt, StorageError
from .sqlite_errors import data_errors, storage_errors
from .sqlite_reading import SqliteReading
from .sqlite_schema import SCHEMA, open_reader, read_schema
from .sqlite_sizes import SessionSizes, all_sizes, busy_sessions, session_sizes
from .sqlite_thread import SqliteThread

P = ParamSpec("P")
R = TypeVar("R")


class StoreSizes(msgspec.Struct, frozen=True, rename="camel"):
    """How many bytes a store takes on disk: the file itself, and its log of what was not copied there yet."""

    file_bytes: int
    wal_bytes: int


class SqliteReader(SqliteReading):
    """A picture of a store, as its newest commit was when the reader was opened. Use ``async with SqliteReader(path)``.

    Works beside a live owner, who is not held up; close it soon all the same, since the owner's log keeps what the
    picture shows. ``busy_timeout_s`` is how long opening waits for an owner that is recovering the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_s: float = 5.0) -> None:
        self.path = os.fspath(path)
        self._busy_timeout_s = busy_timeout_s
        self._thread: SqliteThread | None = None

    async def open(self) -> None:
        """Take the picture; does nothing to an open reader.

        Raises SchemaTooNew, StorageCorrupt for a file that is no store, StorageError when there is no file, when it
        cannot be read, or when it has an older schema, which only an owner may migrate.
        """
        if self._thread is None:
            thread = SqliteThread(self._connect)
            await thread.open()
            self._thread = thread

    def _connect(self) -> sqlite3.Connection:
        path = os.path.realpath(self.path)
        if not Path(path).is_file():
            raise StorageError(f"{self.path} does not exist, or is not a file")
        with storage_errors(self.path):
            connection = open_reader(path, self._busy_timeout_s, immutable=_nobody_can_write(path))
            try:
                connection.execute("BEGIN")
                self._check_schema(read_schema(self.path, connection))
            except BaseException:
                connection.close()
                raise
        return connection

    def _check_schema(self, schema: int | None) -> None:
        if schema is None:
            raise StorageCorrupt(f"{self.path} is empty: there is no store in it")
        if schema < SCHEMA:
            raise StorageError(f"{self.path} has schema {schema}; open it with a System once, to bring it to {SCHEMA}")

    async def close(self) -> None:
        """Drop the picture. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(
        self, query: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a query on the one snapshot."""
        if self._thread is None:
            raise StorageClosed(f"{self.path} is not open")
        return await self._thread.run(_translated, self.path, partial(query, self._thread.sqlite, *args, **kwargs))

    # --- what only people ask

    async def busy_sessions(self) -> list[str]:
        """Name the sessions with live tasks or open submissions, in the order of their creation."""
        return await self._ask(busy_sessions)

    async def all_sizes(self) -> dict[str, SessionSizes]:
        """Count what every session consists of, by key. Reads all of the store."""
        return await self._ask(all_sizes)

    async def session_sizes(self, session: str) -> SessionSizes:
        """Count what a session consists of. Reads all of it."""
        return await self._ask_session(session, session_sizes)

    def sizes(self) -> StoreSizes:
        """Tell how large the file and its log are now."""
        path = os.path.realpath(self.path)
        return StoreSizes(file_bytes=_size(path), wal_bytes=_size(path + "-wal"))


def _translated(path: str, query: Callable[[], R]) -> R:
    with data_errors(), storage_errors(path):
        return query()


def _nobody_can_write(path: str) -> bool:
    """Tell whether SQLite has no log to read and could not make one: it then refuses any other way of reading."""
    return not Path(path + "-wal").exists() and not os.access(Path(path).parent, os.W_OK)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0
