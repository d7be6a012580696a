"""How much of a SQLite store a session takes. Reads every row of it, for people who ask; no hot path does."""

import sqlite3

import msgspec

from .sqlite_reads import window

COUNTS = {
    "conversations": "SELECT count(*), 0 FROM conversations WHERE rid BETWEEN ?1 AND ?2",
    "entries": "SELECT count(*), sum(length(CAST(body AS BLOB))) FROM entries WHERE conversation BETWEEN ?1 AND ?2",
    "live_tasks": "SELECT count(*), sum(length(CAST(body AS BLOB))) FROM live_tasks WHERE rid BETWEEN ?1 AND ?2",
    "ended_tasks": "SELECT count(*), sum(length(CAST(body AS BLOB))) FROM ended_tasks WHERE rid BETWEEN ?1 AND ?2",
    "submissions": "SELECT count(*), sum(length(CAST(body AS BLOB))) FROM submissions WHERE rid BETWEEN ?1 AND ?2",
    "documents": "SELECT count(*), 0 FROM documents WHERE rid BETWEEN ?1 AND ?2",
    "revisions": "SELECT count(*), sum(length(CAST(body AS BLOB))) FROM revisions WHERE document BETWEEN ?1 AND ?2",
}

BUSY = """
SELECT key FROM sessions
WHERE key IS NOT NULL AND sid IN (
    SELECT rid >> 32 FROM live_tasks UNION SELECT rid >> 32 FROM submissions WHERE settled = 0
) ORDER BY sid"""


class SessionSizes(msgspec.Struct, frozen=True, rename="camel"):
    """How many rows of each kind a session has, and how many bytes of JSON they hold."""

    conversations: int
    entries: int
    live_tasks: int
    ended_tasks: int
    submissions: int
    documents: int
    revisions: int
    bytes: int


def session_sizes(connection: sqlite3.Connection, prefix: int) -> SessionSizes:
    """Count what a session consists of; all zeros for one that does not exist."""
    span = window(prefix, "ascending", None) if prefix else (-1, -1)
    found = {name: connection.execute(sql, span).fetchone() for name, sql in COUNTS.items()}
    counts = {name: count for name, (count, _) in found.items()}
    return SessionSizes(**counts, bytes=sum(size or 0 for _, size in found.values()))


def busy_sessions(connection: sqlite3.Connection) -> list[str]:
    """Name the sessions with live tasks or open submissions, in the order of their creation."""
    return [key for (key,) in connection.execute(BUSY)]
