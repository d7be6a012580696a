"""The write-ahead log: how long it is, and when it is copied into the database.

A log that has grown is copied beside the writer, by a connection and a thread of their own, so that nobody waits; what
was written meanwhile is little and copied by the writer itself, which then begins the log anew.
Proved by tests/storage/test_log.py.
"""

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

WAL_IDLE_BYTES = 4 * 2**20
"""A log that has grown by so much is copied at the next idle moment, and is kept no larger."""
WAL_BUSY_BYTES = 32 * 2**20
"""A log that has grown by so much is copied while others write."""
WAL_LIMIT_BYTES = 128 * 2**20
"""A log that has grown by so much is copied while writers wait."""

ROUNDS = 2
"""How often the log is copied beside the writer: the second time for what was written during the first."""


class WriteAheadLog:
    """The log of a file that is open for writing. Its methods run on the writing connection's thread."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._file = Path(database + "-wal")
        self._copied = True
        self._copier: threading.Thread | None = None
        self._busy_at = WAL_BUSY_BYTES

    def written(self) -> bool:
        """Take note of a commit; tell whether the log wants ``tend`` when nobody waits for an answer."""
        self._copied = False
        if self._copier is None:
            return self.size() > self._busy_at
        return not self._copier.is_alive() or self.size() > WAL_LIMIT_BYTES

    def tend(self, connection: sqlite3.Connection) -> None:
        """Keep the log short: begin to copy it, or copy the rest of what was copied meanwhile."""
        if self._copier is None and self._busy_at < self.size() <= WAL_LIMIT_BYTES:
            self._copier = threading.Thread(target=copy, args=(self._database,), name="perdure-wal", daemon=True)
            self._copier.start()
        else:
            self.checkpoint(connection)

    def tend_when_idle(self, connection: sqlite3.Connection) -> None:
        """Copy the log if it is worth it."""
        if not self._copied and self.size() > WAL_IDLE_BYTES:
            self.checkpoint(connection)

    def checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy what readers allow of the log into the database; the next write begins the log anew if that was all.

        Nothing is lost when it fails: the log stays as it is, and the next checkpoint begins where this one ended.
        """
        self._join()
        with suppress(sqlite3.Error):
            self._copied = _checkpoint(connection)
        self._busy_at = WAL_BUSY_BYTES if self._copied else self.size() + WAL_BUSY_BYTES // 4

    def finish(self, connection: sqlite3.Connection) -> None:
        """Leave the whole state in the database file, unless a reader prevents it; the next open finds the rest."""
        self._join()
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 100")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def size(self) -> int:
        """Read how long the log is: exact above WAL_IDLE_BYTES, to which it is cut when it begins anew."""
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def _join(self) -> None:
        if self._copier is not None:
            self._copier.join()
            self._copier = None


def copy(database: str) -> None:
    """Copy the log of a database while somebody writes on. What fails is left to the writer's own checkpoint."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        for _ in range(ROUNDS):
            _checkpoint(connection)


def _checkpoint(connection: sqlite3.Connection) -> bool:
    """Copy without waiting for anybody; tell whether that was all of the log."""
    busy, frames, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return not busy and frames == copied
