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
from .sqlite_schema import WAL_IDLE_BYTES, WAL_LIMIT_BYTES, Durability, open_writer, read_fence, take_fence
from .sqlite_session import SessionState
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
        self._database = Path(path)
        self._wal = Path(path + "-wal")
        self.failed: BaseException | None = None
        self._durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._create = create
        self._known: dict[str, SessionState] = {}
        self._fence = 0
        self._file = (0, 0)
        self._checkpointed = True
        self._forced_at = WAL_LIMIT_BYTES

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
        """Store a group; tell whether the log is so long that a checkpoint is due."""
        with self._outcome_known_or_failed():
            self._write_or_blame(connection, batches)
        return self._wal_size() > self._forced_at

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
        with transaction(connection):
            self._check_fence(connection)
            states = self._run_group(connection, batches, self._known)
        self._checkpointed = False
        if len(self._known) > KNOWN_SESSIONS:
            self._known.clear()
        self._known.update(states)

    def delete_session(self, connection: sqlite3.Connection, key: str) -> bool:
        """Let a session be gone; tell whether there was one. ``reclaim`` gets its space back."""
        with self._outcome_known_or_failed():
            self._check_file()
            with data_errors(), transaction(connection):
                self._check_fence(connection)
                found = forget_session(connection, key)
            self._known.pop(key, None)
            self._checkpointed = False
            return found

    def reclaim(self, connection: sqlite3.Connection) -> bool:
        """Delete some rows of deleted sessions; tell whether there may be more. What fails is tried after the next open."""
        with suppress(sqlite3.Error, StorageFenced):
            if self.failed is None and has_deleted(connection):
                with transaction(connection):
                    self._check_fence(connection)
                    reclaim_some(connection)
                if self._wal_size() > self._forced_at:
                    self.checkpoint(connection)
                return True
        return False

    def _check_file(self) -> None:
        if self._identity() != self._file:
            raise StorageError(f"{self.path} was replaced by another file while it was open")

    def _check_fence(self, connection: sqlite3.Connection) -> None:
        if read_fence(connection) != self._fence:
            raise StorageFenced(f"{self.path} has a newer owner; this one can only close")

    def _run_group(
        self, connection: sqlite3.Connection, batches: Sequence[Batch], known: dict[str, SessionState]
    ) -> dict[str, SessionState]:
        group = Group(connection, known, self._clock)
        with data_errors():
            for batch in batches:
                group.add(batch)
            group.flush()
        return group.states()

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

    # --- the log

    def checkpoint_when_idle(self, connection: sqlite3.Connection) -> None:
        """Copy the log into the database if it is worth it."""
        if not self._checkpointed and self._wal_size() > WAL_IDLE_BYTES:
            self.checkpoint(connection)

    def checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy what readers allow of the log into the database; the next write begins the log anew if that was all.

        Nothing is lost when it fails: the log stays as it is, and the next checkpoint begins where this one ended.
        """
        with suppress(sqlite3.Error):
            busy, frames, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._checkpointed = not busy and frames == copied
        self._forced_at = WAL_LIMIT_BYTES if self._checkpointed else self._wal_size() + WAL_LIMIT_BYTES // 4

    def _wal_size(self) -> int:
        """Read how long the log is: exact above WAL_IDLE_BYTES, to which it is cut when it begins anew."""
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def finish(self, connection: sqlite3.Connection) -> None:
        """Leave the whole state in the database file, unless a reader prevents it; the next open finds the rest."""
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 100")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
