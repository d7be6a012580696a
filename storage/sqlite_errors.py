"""What SQLite's errors mean for the caller of a store."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from .errors import StorageBusy, StorageCorrupt, StorageError, StorageFull, StorageRejected

_ABOUT_DATA = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
_MEANING: dict[int, tuple[type[StorageError], str]] = {
    sqlite3.SQLITE_FULL: (StorageFull, "the disk or the file's page limit is full; free space and open it again"),
    sqlite3.SQLITE_IOERR_SHMSIZE: (
        StorageFull,
        "there is no room for the index of its log; free space and open it again",
    ),
    sqlite3.SQLITE_BUSY: (StorageBusy, "another connection kept it locked; end that transaction and open it again"),
    sqlite3.SQLITE_LOCKED: (StorageBusy, "another connection kept it locked; end that transaction and open it again"),
    sqlite3.SQLITE_CORRUPT: (StorageCorrupt, "it is damaged; restore a copy"),
    sqlite3.SQLITE_NOTADB: (StorageCorrupt, "it is not a SQLite database; open another file"),
}


def translate(path: str, error: sqlite3.Error) -> StorageError:
    """Turn an error of SQLite's into the storage error that says what the caller may still believe."""
    if isinstance(error, _ABOUT_DATA):
        return StorageRejected(f"cannot be stored or asked: {error}")
    code = getattr(error, "sqlite_errorcode", 0)
    kind, meaning = _MEANING.get(code) or _MEANING.get(code & 0xFF, (StorageError, "see the cause"))
    return kind(f"{path}: {error}: {meaning}")


@contextmanager
def data_errors() -> Iterator[None]:
    """Let errors about what is written or asked, not about the file, leave the block as certain rejections.

    For use where a transaction rolls back then.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if isinstance(error, sqlite3.Error) and not isinstance(error, _ABOUT_DATA):
            raise
        raise StorageRejected(f"cannot be stored or asked: {error}") from error


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Let errors of SQLite, of the file system and of decoding leave the block as storage errors."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(path, error) from error
    except OSError as error:
        kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
        raise kind(f"{path} cannot be used: {error}") from error
    except msgspec.MsgspecError as error:
        raise StorageCorrupt(f"{path} holds a record that cannot be read: {error}") from error
