"""Deleting a session: its key goes at once, its rows in steps of so many that no write waits for long behind one.

A session without a key is a tombstone: no question finds it, a new session may take its key, and whoever owns the file
goes on deleting its rows until none is left. Proved by tests/storage/test_deletion.py.
"""

import sqlite3

from .checks import check_text

STEP_ROWS = 256

FORGET = "UPDATE sessions SET key = NULL, wake = NULL WHERE key = ?"
DELETED = "SELECT sid FROM sessions WHERE key IS NULL LIMIT 1"
DROP = "DELETE FROM sessions WHERE sid = ?"
DELETE_REVISIONS = """
DELETE FROM revisions WHERE (document, seq) IN (
    SELECT document, seq FROM revisions WHERE document BETWEEN ?1 AND ?2 LIMIT ?3)"""
DELETE_DOCUMENTS = """
DELETE FROM documents WHERE rid IN (SELECT rid FROM documents WHERE rid BETWEEN ?1 AND ?2 LIMIT ?3)"""
DELETE_SUBMISSIONS = """
DELETE FROM submissions WHERE rid IN (SELECT rid FROM submissions WHERE rid BETWEEN ?1 AND ?2 LIMIT ?3)"""
DELETE_MESSAGES = """
DELETE FROM messages WHERE rid IN (SELECT rid FROM messages WHERE rid BETWEEN ?1 AND ?2 LIMIT ?3)"""
DELETE_LIVE_TASKS = """
DELETE FROM live_tasks WHERE rid IN (SELECT rid FROM live_tasks WHERE rid BETWEEN ?1 AND ?2 LIMIT ?3)"""
DELETE_ENDED_TASKS = """
DELETE FROM ended_tasks WHERE rid IN (SELECT rid FROM ended_tasks WHERE rid BETWEEN ?1 AND ?2 LIMIT ?3)"""
DELETE_ENTRIES = """
DELETE FROM entries WHERE rowid IN (
    SELECT rowid FROM entries INDEXED BY entries_conversation WHERE conversation BETWEEN ?1 AND ?2 LIMIT ?3)"""
DELETE_CONVERSATIONS = """
DELETE FROM conversations WHERE rid IN (SELECT rid FROM conversations WHERE rid BETWEEN ?1 AND ?2 LIMIT ?3)"""
_TABLES = (
    DELETE_REVISIONS,
    DELETE_DOCUMENTS,
    DELETE_SUBMISSIONS,
    DELETE_MESSAGES,
    DELETE_LIVE_TASKS,
    DELETE_ENDED_TASKS,
    DELETE_ENTRIES,
    DELETE_CONVERSATIONS,
)


def forget_session(connection: sqlite3.Connection, key: str) -> bool:
    """Make a tombstone of a session; tell whether there was one. The caller has begun a transaction."""
    check_text(key)
    return connection.execute(FORGET, (key,)).rowcount > 0


def has_deleted(connection: sqlite3.Connection) -> bool:
    """Tell whether there is a tombstone."""
    return connection.execute(DELETED).fetchone() is not None


def reclaim_some(connection: sqlite3.Connection) -> None:
    """Delete up to STEP_ROWS rows of a tombstone, and itself with the last. The caller has begun a transaction."""
    found = connection.execute(DELETED).fetchone()
    if found is None:
        return
    span = (found[0] << 32, (found[0] + 1 << 32) - 1)
    room = STEP_ROWS
    for statement in _TABLES:
        room -= connection.execute(statement, (*span, room)).rowcount
        if room <= 0:
            return
    connection.execute(DROP, found)
