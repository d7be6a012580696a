"""How much of a SQLite store its sessions take. Reads every row, for people who ask; no hot path does."""

import sqlite3

import msgspec

from .sqlite_reads import window

_BYTES = "sum(length(CAST(body AS BLOB)))"
_TABLES = {
    "conversations": ("rid", "0", "conversations"),
    "entries": ("conversation", _BYTES, "entries"),
    "live_tasks": ("rid", _BYTES, "live_tasks"),
    "ended_tasks": ("rid", _BYTES, "ended_tasks"),
    "submissions": ("rid", _BYTES, "submissions"),
    "messages": ("rid", _BYTES, "messages"),
    "documents": ("rid", "0", "documents"),
    "revisions": ("document", _BYTES, "revisions"),
}
OF_ONE = {
    name: f"SELECT count(*), {size} FROM {table} WHERE {key} BETWEEN ? AND ?"  # noqa: S608 - the names above
    for name, (key, size, table) in _TABLES.items()
}
OF_ALL = {
    name: f"SELECT {key} >> 32, count(*), {size} FROM {table} GROUP BY 1"  # noqa: S608 - the names above
    for name, (key, size, table) in _TABLES.items()
}
KEYS = "SELECT sid, key FROM sessions WHERE key IS NOT NULL"
BUSY = """
SELECT key FROM sessions
WHERE key IS NOT NULL AND sid IN (
    SELECT rid >> 32 FROM live_tasks UNION SELECT rid >> 32 FROM submissions WHERE settled = 0
    UNION SELECT rid >> 32 FROM messages WHERE live = 1
) ORDER BY sid"""


class SessionSizes(msgspec.Struct, rename="camel"):
    """How many rows of each kind a session has, and how many bytes of JSON they hold."""

    conversations: int = 0
    entries: int = 0
    live_tasks: int = 0
    ended_tasks: int = 0
    submissions: int = 0
    messages: int = 0
    documents: int = 0
    revisions: int = 0
    bytes: int = 0

    def add(self, name: str, count: int, size: int | None) -> None:
        """Count rows of a table."""
        setattr(self, name, count)
        self.bytes += size or 0


def session_sizes(connection: sqlite3.Connection, prefix: int) -> SessionSizes:
    """Count what a session consists of; all zeros for one that does not exist."""
    span, sizes = window(prefix, "ascending", None) if prefix else (-1, -1), SessionSizes()
    for name, sql in OF_ONE.items():
        sizes.add(name, *connection.execute(sql, span).fetchone())
    return sizes


def all_sizes(connection: sqlite3.Connection) -> dict[str, SessionSizes]:
    """Count what every session consists of, by key."""
    by_number: dict[int, SessionSizes] = {}
    for name, sql in OF_ALL.items():
        for number, count, size in connection.execute(sql):
            by_number.setdefault(number, SessionSizes()).add(name, count, size)
    return {key: by_number.get(number, SessionSizes()) for number, key in connection.execute(KEYS)}


def busy_sessions(connection: sqlite3.Connection) -> list[str]:
    """Name the sessions with live tasks or open submissions, in the order of their creation."""
    return [key for (key,) in connection.execute(BUSY)]
