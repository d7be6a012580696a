"""Running a statement for many rows with few calls.

Every call of SQLite gives up the interpreter lock and has to win it back, which against a busy event loop can take
milliseconds; and a statement costs less for sixteen rows at once than sixteen times. A statement that ends its
``VALUES`` with one tuple of question marks is therefore widened to several.
"""

import re
import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

SIZES = (16, 4)
"""Rows a call, largest first; wider statements are slower again, and few sizes keep the statement cache small."""

_TUPLE = re.compile(r"VALUES (\(\?(?:, \?)*\))")


@cache
def widen(sql: str, size: int) -> str:
    """Give the same statement for ``size`` rows."""
    return _TUPLE.sub(lambda match: "VALUES " + ", ".join([match[1]] * size), sql, count=1)


def run_many(connection: sqlite3.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run a widenable statement for all rows, in order; give the number of rows that it changed."""
    changed = start = 0
    for size in SIZES:
        while len(rows) - start >= size:
            parameters = list(chain.from_iterable(rows[start : start + size]))
            changed += connection.execute(widen(sql, size), parameters).rowcount
            start += size
    return changed + connection.executemany(sql, rows[start:]).rowcount if start < len(rows) else changed
