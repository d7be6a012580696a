"""One SQL transaction: all of a block, or nothing of it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from traceback import clear_frames


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Commit what the block did, or roll it back when it raises."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        # Cursors that the error keeps alive would keep their snapshot, and with it the log, for as long.
        clear_frames(error.__traceback__)
        # A full disk rolls back by itself. A rollback that fails leaves a connection that the caller will not use.
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
