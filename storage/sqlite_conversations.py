"""Deleting a conversation from the tables: what nobody shows any more goes in the transaction that deletes it.

Proved by tests/storage/test_conformance.py and tests/storage/test_deletion.py.
"""

import sqlite3

from .checks import reject
from .records import MAX_ID
from .sqlite_session import SessionGroup

FIND_CONVERSATION = "SELECT deleted FROM conversations WHERE rid = ?"
HAS_LIVE_TASK = """
SELECT 1 FROM live_tasks WHERE rid BETWEEN ?1 AND ?2 AND json_extract(body, '$.conversationId') = ?3 LIMIT 1"""
HAS_LIVE_DOCUMENT = """
SELECT 1 FROM documents WHERE scope = ?1 AND scope_type = 1 AND retired_at IS NULL
UNION ALL
SELECT 1 FROM ended_tasks AS t INDEXED BY ended_tasks_conversation
    CROSS JOIN documents AS d INDEXED BY documents_alive
WHERE t.conversation = ?1 AND d.scope = t.rid AND d.scope_type = 2 AND d.retired_at IS NULL
LIMIT 1"""
DELETE_TASK_REVISIONS = """
DELETE FROM revisions WHERE document IN (
    SELECT d.rid FROM ended_tasks AS t INDEXED BY ended_tasks_conversation
        CROSS JOIN documents AS d INDEXED BY documents_retired
    WHERE t.conversation = ?1 AND d.scope = t.rid AND d.scope_type = 2 AND d.retired_at IS NOT NULL)"""
DELETE_TASK_DOCUMENTS = """
DELETE FROM documents WHERE rid IN (
    SELECT d.rid FROM ended_tasks AS t INDEXED BY ended_tasks_conversation
        CROSS JOIN documents AS d INDEXED BY documents_retired
    WHERE t.conversation = ?1 AND d.scope = t.rid AND d.scope_type = 2 AND d.retired_at IS NOT NULL)"""
DELETE_RECEIPTS = """
DELETE FROM messages WHERE status = 'consumed' AND task IN (
    SELECT rid FROM ended_tasks INDEXED BY ended_tasks_conversation WHERE conversation = ?1)"""
DELETE_DEAD_LETTERS = """
DELETE FROM messages WHERE status = 'dead' AND rid BETWEEN ?2 AND ?3 AND json_extract(body, '$.session') IS NULL
    AND task IN (SELECT rid FROM ended_tasks INDEXED BY ended_tasks_conversation WHERE conversation = ?1)"""
DELETE_QUEUED = """
DELETE FROM messages WHERE live = 1 AND status = 'queued' AND rid BETWEEN ?2 AND ?3
    AND task IN (SELECT rid FROM ended_tasks INDEXED BY ended_tasks_conversation WHERE conversation = ?1)"""
DELETE_SUBMISSIONS_OF = "DELETE FROM submissions WHERE conversation = ?1"
DELETE_TASKS_OF = "DELETE FROM ended_tasks WHERE conversation = ?1"
MARK_DELETED = "UPDATE conversations SET deleted = 1 WHERE rid = ?1"
FORKS = "SELECT max(parent_at) FROM conversations INDEXED BY conversations_parent WHERE parent = ?1"
DELETE_ENTRIES_ABOVE = "DELETE FROM entries WHERE conversation = ?1 AND rid > ?2"
DELETE_REVISIONS_OF = """
DELETE FROM revisions WHERE document IN (
    SELECT rid FROM documents INDEXED BY documents_retired
    WHERE scope = ?1 AND scope_type = 1 AND retired_at IS NOT NULL AND (?2 OR history <> 'rewindable'))"""
DELETE_DOCUMENTS_OF = """
DELETE FROM documents WHERE rid IN (
    SELECT rid FROM documents INDEXED BY documents_retired
    WHERE scope = ?1 AND scope_type = 1 AND retired_at IS NOT NULL AND (?2 OR history <> 'rewindable'))"""
PARENT = """
SELECT p.rid, p.deleted FROM conversations AS c JOIN conversations AS p ON p.rid = c.parent WHERE c.rid = ?1"""
DROP_CONVERSATION = "DELETE FROM conversations WHERE rid = ?1"


def delete_conversation(connection: sqlite3.Connection, session: SessionGroup, id: int) -> None:
    """Delete a conversation, once everything collected before has been written."""
    rid = session.rid(id)
    span = session.prefix, session.prefix | MAX_ID
    found = connection.execute(FIND_CONVERSATION, (rid,)).fetchone()
    if found is None or found[0]:
        reject(f"conversation {id} does not exist, or is deleted already")
    if connection.execute(HAS_LIVE_TASK, (*span, id)).fetchone():
        reject(f"conversation {id} has live tasks")
    if connection.execute(HAS_LIVE_DOCUMENT, (rid,)).fetchone():
        reject(f"conversation {id} has live documents")
    for statement in (DELETE_TASK_REVISIONS, DELETE_TASK_DOCUMENTS, DELETE_RECEIPTS):
        connection.execute(statement, (rid,))
    for statement in (DELETE_DEAD_LETTERS, DELETE_QUEUED):
        connection.execute(statement, (rid, *span))
    for statement in (DELETE_SUBMISSIONS_OF, DELETE_TASKS_OF, MARK_DELETED):
        connection.execute(statement, (rid,))
    _prune(connection, session.prefix, rid)


def _prune(connection: sqlite3.Connection, prefix: int, rid: int) -> None:
    """Delete what no fork of a deleted conversation shows; without forks all of it, and then look at its parent."""
    (at,) = connection.execute(FORKS, (rid,)).fetchone()
    connection.execute(DELETE_ENTRIES_ABOVE, (rid, prefix | (at or 0)))
    for statement in (DELETE_REVISIONS_OF, DELETE_DOCUMENTS_OF):
        connection.execute(statement, (rid, at is None))
    if at is not None:
        return
    parent = connection.execute(PARENT, (rid,)).fetchone()
    connection.execute(DROP_CONVERSATION, (rid,))
    if parent is not None and parent[1]:
        _prune(connection, prefix, parent[0])
