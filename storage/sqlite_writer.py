"""The writing side of a SQLite store: what its one writing connection does, on that connection's thread."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .errors import StorageClosed, StorageError, StorageFenced, StorageRejected
from .owner import OwnerLock
from .records import Batch
from .sqlite_deletion import forget_session, has_deleted, reclaim_some
from .sqlite_errors import data_errors, storage_errors
from .sqlite_group import Group
from .sqlite_log import WriteAheadLog
from .sqlite_schema import Durability, open_writer, read_fence, take_fence
from .sqlite_session import SessionGroup
from .sqlite_transaction import transaction

KNOWN_SESSIONS = 10_000
"""So many sessions' counters are remembered from group to group; more are all forgotten and read again."""


class SqliteWriter:
    """Opens the file and writes it. Every method runs on the connection's thread.

    After an error that leaves a commit's outcome unknown, ``failed`` holds it and nothing more is written.
    """

    def __init__(
        self, path: str, durability: Durability, busy_timeout_s: float, clock: Callable[[], int], *, create: bool
    ) -> None:
        self.path = path
        self.lock = OwnerLock(path)
        self.log = WriteAheadLog(path)
        self._database = Path(path)
        self.failed: BaseException | None = None
        self._durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._create = create
        self._known: dict[str, SessionGroup] = {}
        self._fence = 0
        self._file = (0, 0)

    def connect(self) -> sqlite3.Connection:
        """Take the owner lock, open the file and fence older owners off. Leaves nothing behind when it raises."""
        with storage_errors(self.path), ExitStack() as undo:
            now = self._clock()
            if not (self._create or self._database.exists()):
                raise StorageError(f"{self.path} is gone; put it back, or a copy of it")
            self.lock.acquire(now)
            undo.callback(self.lock.release)
            connection = open_writer(self.path, self._durability, self._busy_timeout_s, now)
            undo.callback(connection.close)
            self._fence = take_fence(connection)
            self._file = self._identity()
            undo.pop_all()
        return connection

    def _identity(self) -> tuple[int, int]:
        stat = self._database.stat()
        return stat.st_dev, stat.st_ino

    # --- writing

    def write(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> bool:
        """Store a group; tell whether the log wants to be tended."""
        with self._outcome_known_or_failed():
            self._write_or_blame(connection, batches)
        return self.log.written()

    @contextmanager
    def _outcome_known_or_failed(self) -> Iterator[None]:
        """Write nothing more after a block whose outcome is unknown."""
        if self.failed is not None:
            raise StorageClosed(f"{self.path} failed and must be opened again: {self.failed}")
        try:
            with storage_errors(self.path):
                yield
        except (StorageRejected, StorageFenced):
            raise
        except BaseException as error:
            self.failed = error
            raise

    def _write_or_blame(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> None:
        try:
            self._write(connection, batches)
        except StorageRejected as error:
            error.index = self._culprit(connection, batches)
            raise

    def _write(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> None:
        self._check_file()
        if len(self._known) > KNOWN_SESSIONS:
            self._known.clear()
        try:
            with transaction(connection):
                self._check_fence(connection)
                self._run_group(connection, batches, self._known)
        except BaseException:
            self._known.clear()
            raise

    def delete_session(self, connection: sqlite3.Connection, key: str) -> bool:
        """Let a session be gone; tell whether there was one. ``reclaim`` gets its space back."""
        with self._outcome_known_or_failed():
            self._check_file()
            with data_errors(), transaction(connection):
                self._check_fence(connection)
                found = forget_session(connection, key)
            self._known.pop(key, None)
            self.log.written()
            return found

    def reclaim(self, connection: sqlite3.Connection) -> bool:
        """Delete some rows of deleted sessions; tell whether there may be more. What fails is tried after the next open."""
        with suppress(sqlite3.Error, StorageFenced):
            if self.failed is None and has_deleted(connection):
                with transaction(connection):
                    self._check_fence(connection)
                    reclaim_some(connection)
                if self.log.written():
                    self.log.tend(connection)
                return True
        return False

    def _check_file(self) -> None:
        if self._identity() != self._file:
            raise StorageError(f"{self.path} was replaced by another file while it was open")

    def _check_fence(self, connection: sqlite3.Connection) -> None:
        if read_fence(connection) != self._fence:
            raise StorageFenced(f"{self.path} has a newer owner; this one can only close")

    def _run_group(
        self, connection: sqlite3.Connection, batches: Sequence[Batch], known: dict[str, SessionGroup]
    ) -> None:
        group = Group(connection, known, self._clock)
        with data_errors():
            for batch in batches:
                group.add(batch)
            group.flush()

    def _culprit(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> int | None:
        """Find which batch of a refused group is to blame: write them one at a time, and take all of it back."""
        if len(batches) == 1:
            return 0
        written = 0
        connection.execute("BEGIN IMMEDIATE")
        try:
            for batch in batches:
                self._run_group(connection, [batch], {})
                written += 1
        except StorageRejected:
            return written
        finally:
            connection.execute("ROLLBACK")
        return None
