"""Bringing the file of an older perdure up to date, at open, by its owner.

A migration leads from one schema to the next, in one transaction that also moves the version: whenever the process dies,
the next open finds either schema whole and goes on from there. It may create, fill, change and rename, but not delete: what
an older version stored is kept, in a renamed table if nothing reads it any more. Proved by tests/storage/test_migrations.py.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .errors import StorageError
from .sqlite_transaction import transaction

MIGRATIONS: dict[int, Sequence[str]] = {}
"""The statements that lead from a schema to the next one, by the older one's version. The first released schema is 1."""

_DELETES = frozenset(
    {
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
    }
)
_CATALOGUE = "sqlite_master"


def migrate(path: str, connection: sqlite3.Connection, found: int, wanted: int) -> None:
    """Bring the tables from schema ``found`` to ``wanted``, one version at a time.

    Raises StorageError for a schema that no migration leads on from, and SQLite's errors; the file then is as it was, or
    at some schema in between.
    """
    for version in range(found, wanted):
        if version not in MIGRATIONS:
            raise StorageError(f"{path} has schema {version}, which this perdure cannot bring to {wanted}")
        with transaction(connection), _deleting_nothing(connection):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute("UPDATE meta SET schema = ?", (version + 1,))


@contextmanager
def _deleting_nothing(connection: sqlite3.Connection) -> Iterator[None]:
    """Let SQLite refuse statements that delete rows or tables. An index may go: it holds nothing of its own."""
    connection.set_authorizer(_authorize)
    try:
        yield
    finally:
        connection.set_authorizer(None)


def _authorize(action: int, table: str | None, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action in _DELETES and table != _CATALOGUE else sqlite3.SQLITE_OK
