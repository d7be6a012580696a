"""What the SQLite backend is asked about sessions, conversations, entries, tasks and submissions.

Plain functions over a connection; the caller opens a snapshot. ``prefix`` is the session's part of every key, 0 for a
session that does not exist. Every statement is fixed and uses an index: tests/storage/test_query_plans.py holds that.
"""

import sqlite3
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Protocol, TypeVar

from . import codec
from .ancestry import segments
from .checks import check_limit, check_text, make_cursor, read_cursor, reject
from .contract import ConversationQuery, Cursor, EntryQuery, Order, Page, SubmissionQuery, TaskQuery
from .memory import task_matches
from .records import (
    MAX_ID,
    ConversationOwner,
    ConversationRecord,
    EntryRecord,
    Parent,
    SessionRecord,
    SubmissionRecord,
    TaskRecord,
)


class Numbered(Protocol):
    """A record with an id."""

    @property
    def id(self) -> int:
        """Its id."""


R = TypeVar("R", bound=Numbered)
Statement = dict[Order, str]


def both_orders(sql: str) -> Statement:
    """Make the two fixed statements of a scan; ``sql`` ends where the direction goes."""
    return {"ascending": sql + " ASC", "descending": sql + " DESC"}


FIND_SESSION = "SELECT sid FROM sessions WHERE key = ?"
SESSION = "SELECT key, created_at, seq, last_id, wake FROM sessions WHERE key = ?"
SESSIONS = "SELECT sid, key, created_at, seq, last_id, wake FROM sessions WHERE sid > ? AND key IS NOT NULL ORDER BY sid LIMIT ?"
DUE = "SELECT key FROM sessions WHERE wake IS NOT NULL AND wake <= ? ORDER BY wake, sid LIMIT ?"
NEXT_WAKE = "SELECT wake FROM sessions WHERE wake IS NOT NULL AND wake > ? ORDER BY wake LIMIT 1"

_CONVERSATION = "SELECT rid, parent, parent_at, owner_conversation, owner_task, deleted FROM conversations "
CONVERSATION = _CONVERSATION + "WHERE rid = ?"
CONVERSATIONS = both_orders(_CONVERSATION + "WHERE rid BETWEEN ?1 AND ?2 ORDER BY rid")
CONVERSATIONS_OF_TASK = both_orders(
    _CONVERSATION + "WHERE rid BETWEEN ?1 AND ?2 AND owner_task = ?3 AND ifnull(?4, owner_conversation)"
    " = owner_conversation ORDER BY rid"
)
CONVERSATIONS_OF_CONVERSATION = both_orders(
    _CONVERSATION + "WHERE rid BETWEEN ?1 AND ?2 AND owner_conversation = ?3 ORDER BY rid"
)
ANCESTRY = """
WITH RECURSIVE line (rid, parent, at) AS (
    SELECT rid, parent, parent_at FROM conversations WHERE rid = ?
    UNION ALL
    SELECT c.rid, c.parent, c.parent_at FROM line JOIN conversations AS c ON c.rid = line.parent
)
SELECT rid, at FROM line"""

# Most entries are in the root conversation and cost one index; those elsewhere have one more to be found by id alone.
ENTRY = """
SELECT conversation, seq, body FROM entries WHERE conversation = (?1 & ~4294967295 | 1) AND rid = ?1
UNION ALL
SELECT conversation, seq, body FROM entries INDEXED BY entries_elsewhere
WHERE rid = ?1 AND conversation & 4294967295 <> 1"""
ENTRIES = both_orders("SELECT body FROM entries WHERE conversation = ? AND rid BETWEEN ? AND ? ORDER BY rid")
HEAD = """
SELECT body FROM entries INDEXED BY entries_head
WHERE conversation = ? AND head IS NOT NULL AND rid BETWEEN ? AND ? ORDER BY rid DESC LIMIT 1"""

TASK = "SELECT body FROM live_tasks WHERE rid = ?1 UNION ALL SELECT body FROM ended_tasks WHERE rid = ?1"
LIVE_TASKS = both_orders("SELECT body FROM live_tasks WHERE rid BETWEEN ? AND ? ORDER BY rid")
ENDED_TASKS = both_orders(
    "SELECT body FROM ended_tasks WHERE rid BETWEEN ?1 AND ?2 AND kind = ifnull(?3, kind) ORDER BY rid"
)
ENDED_TASKS_OF = both_orders(
    "SELECT body FROM ended_tasks INDEXED BY ended_tasks_conversation"
    " WHERE conversation = ?4 AND rid BETWEEN ?1 AND ?2 AND kind = ifnull(?3, kind) ORDER BY rid"
)

SUBMISSION = "SELECT body FROM submissions WHERE rid = ?"
SUBMISSION_BY_REQUEST = "SELECT body FROM submissions WHERE conversation = ? AND request_id = ?"
SUBMISSIONS = both_orders(
    "SELECT body FROM submissions WHERE rid BETWEEN ?1 AND ?2 AND status = ifnull(?3, status) ORDER BY rid"
)
SUBMISSIONS_OF = both_orders(
    "SELECT body FROM submissions INDEXED BY submissions_conversation"
    " WHERE conversation = ?4 AND rid BETWEEN ?1 AND ?2 AND status = ifnull(?3, status) ORDER BY rid"
)
OPEN_SUBMISSIONS = both_orders(
    "SELECT body FROM submissions INDEXED BY submissions_open"
    " WHERE settled = 0 AND rid BETWEEN ?1 AND ?2 AND status = ?3 AND conversation = ifnull(?4, conversation)"
    " ORDER BY rid"
)


def rid_of(prefix: int, id: int) -> int:
    """Give a record's key; for a number that is no id, one that no record has."""
    return prefix | id if 0 < id <= MAX_ID else -1


def window(prefix: int, order: Order, after: int | None, low: int = 0, high: int = MAX_ID) -> tuple[int, int]:
    """Give the first and last key that a scan may still visit."""
    if after is not None and order == "ascending":
        low = max(low, after + 1)
    elif after is not None:
        high = min(high, after - 1)
    return prefix + max(low, 0), prefix + min(high, MAX_ID)


def cut_page(records: Iterator[R], order: Order, limit: int) -> Page[R]:
    """Take a page, and look one record further to see whether there is another."""
    check_limit(limit)
    items = list(islice(records, limit + 1))
    if len(items) <= limit:
        return Page(items)
    items.pop()
    return Page(items, make_cursor(order, items[-1].id))


# --- sessions


def find_prefix(connection: sqlite3.Connection, key: str) -> int:
    """Give a session's part of every key; 0 when there is no such session."""
    check_text(key)
    row = connection.execute(FIND_SESSION, (key,)).fetchone()
    return row[0] << 32 if row else 0


def session(connection: sqlite3.Connection, key: str) -> SessionRecord | None:
    """Look up a session by key."""
    check_text(key)
    row = connection.execute(SESSION, (key,)).fetchone()
    return _session(*row) if row else None


def sessions(connection: sqlite3.Connection, limit: int, cursor: Cursor | None) -> Page[SessionRecord]:
    """List sessions in the order of their creation."""
    check_limit(limit)
    order, after = read_cursor(cursor, "ascending", "ascending")
    rows = connection.execute(SESSIONS, (after or 0, limit + 1)).fetchall()
    more = len(rows) > limit
    items = [_session(*row[1:]) for row in rows[:limit]]
    return Page(items, make_cursor(order, rows[limit - 1][0]) if more else None)


def _session(key: str, created_at: int, seq: int, last_id: int, wake: int | None) -> SessionRecord:
    return SessionRecord(key=key, created_at=created_at, seq=seq, last_id=last_id, wake=wake)


def due(connection: sqlite3.Connection, now: int, limit: int) -> list[str]:
    """Name sessions whose ``wake`` is at or before ``now``, earliest first."""
    check_limit(limit)
    return [key for (key,) in connection.execute(DUE, (now, limit))]


def next_wake(connection: sqlite3.Connection, after: int) -> int | None:
    """Tell the earliest ``wake`` of any session that is later than ``after``."""
    row = connection.execute(NEXT_WAKE, (after,)).fetchone()
    return row[0] if row else None


# --- conversations


def conversation(connection: sqlite3.Connection, prefix: int, id: int) -> ConversationRecord | None:
    """Look up a conversation."""
    row = connection.execute(CONVERSATION, (rid_of(prefix, id),)).fetchone()
    return _conversation(prefix, row) if row else None


def scan_conversations(
    connection: sqlite3.Connection, prefix: int, query: ConversationQuery, limit: int, cursor: Cursor | None
) -> Page[ConversationRecord]:
    """Page conversations."""
    order, after = read_cursor(cursor, query.order, "ascending")
    span = window(prefix, order, after)
    owner = query.owner_conversation_id and rid_of(prefix, query.owner_conversation_id)
    if query.owner_task_id is not None:
        rows = connection.execute(CONVERSATIONS_OF_TASK[order], (*span, rid_of(prefix, query.owner_task_id), owner))
    elif owner is not None:
        rows = connection.execute(CONVERSATIONS_OF_CONVERSATION[order], (*span, owner))
    else:
        rows = connection.execute(CONVERSATIONS[order], span)
    return cut_page((_conversation(prefix, row) for row in rows), order, limit)


def _conversation(
    prefix: int, row: tuple[int, int | None, int | None, int | None, int | None, int]
) -> ConversationRecord:
    rid, parent, at, owner, task, deleted = row
    return ConversationRecord(
        id=rid - prefix,
        parent=None if parent is None or at is None else Parent(conversation_id=parent - prefix, at=at),
        owner=None
        if owner is None or task is None
        else ConversationOwner(conversation_id=owner - prefix, task_id=task - prefix),
        deleted=bool(deleted),
    )


def _ancestry(connection: sqlite3.Connection, prefix: int, conversation_id: int) -> Iterator[tuple[int, int | None]]:
    known = False
    for rid, at in connection.execute(ANCESTRY, (rid_of(prefix, conversation_id),)):
        known = True
        yield rid - prefix, at
    if not known:
        reject(f"unknown conversation {conversation_id}")


# --- entries


def entry(
    connection: sqlite3.Connection,
    prefix: int,
    id: int,
    conversation_id: int | None,
) -> tuple[EntryRecord, int] | None:
    """Look up an entry and its commit sequence; with a conversation, only if it is visible there."""
    row = connection.execute(ENTRY, (rid_of(prefix, id),)).fetchone()
    if row is None:
        return None
    owner, seq, body = row
    if conversation_id is not None and prefix + conversation_id != owner:
        line = connection.execute(ANCESTRY, (rid_of(prefix, conversation_id),))
        visible = segments(((rid - prefix, at) for rid, at in line), id, id)
        if not any(prefix + part.conversation_id == owner for part in visible):
            return None
    return codec.decode_entry(body), seq


def scan_entries(
    connection: sqlite3.Connection, prefix: int, query: EntryQuery, limit: int, cursor: Cursor | None
) -> Page[EntryRecord]:
    """Page a conversation's visible entries."""
    order, after = read_cursor(cursor, query.order, "descending")
    low = 1 if query.min_entry_id is None else query.min_entry_id
    high = MAX_ID if query.max_entry_id is None else query.max_entry_id
    first, last = window(0, order, after, low, high)
    parts = segments(_ancestry(connection, prefix, query.conversation_id), first, last)
    if order == "ascending":
        parts.reverse()
    bodies = (
        body
        for part in parts
        for (body,) in connection.execute(
            ENTRIES[order], (prefix + part.conversation_id, prefix + part.low, prefix + part.high)
        )
    )
    return cut_page(map(codec.decode_entry, bodies), order, limit)


def latest_head_marker(
    connection: sqlite3.Connection, prefix: int, conversation_id: int, at_or_before: int | None
) -> EntryRecord | None:
    """Find the newest visible entry that carries ``head``, at or below an inclusive entry id."""
    _, high = window(0, "ascending", None, high=MAX_ID if at_or_before is None else at_or_before)
    for part in segments(_ancestry(connection, prefix, conversation_id), high=high):
        place = (prefix + part.conversation_id, prefix + part.low, prefix + part.high)
        row = connection.execute(HEAD, place).fetchone()
        if row:
            return codec.decode_entry(row[0])
    return None


# --- tasks


def task(connection: sqlite3.Connection, prefix: int, id: int) -> TaskRecord | None:
    """Look up a task, live or ended."""
    row = connection.execute(TASK, (rid_of(prefix, id),)).fetchone()
    return codec.decode_task(row[0]) if row else None


def live_tasks(connection: sqlite3.Connection, prefix: int) -> list[TaskRecord]:
    """List every task that is not terminal, by id."""
    rows = connection.execute(LIVE_TASKS["ascending"], window(prefix, "ascending", None))
    return [codec.decode_task(body) for (body,) in rows]


def scan_tasks(
    connection: sqlite3.Connection, prefix: int, query: TaskQuery, limit: int, cursor: Cursor | None
) -> Page[TaskRecord]:
    """Page tasks: live and ended ones merged by id, as far as the status asks for both."""
    check_text(query.kind)
    order, after = read_cursor(cursor, query.order, "ascending")
    span = window(prefix, order, after)
    sources = []
    if query.status != "terminal":
        sources.append(connection.execute(LIVE_TASKS[order], span))
    if query.status in (None, "terminal"):
        sources.append(_ended_tasks(connection, prefix, query, order, span))
    tasks = merge(
        *((codec.decode_task(body) for (body,) in rows) for rows in sources),
        key=lambda task: task.id,
        reverse=order == "descending",
    )
    return cut_page((task for task in tasks if task_matches(task, query)), order, limit)


def _ended_tasks(
    connection: sqlite3.Connection, prefix: int, query: TaskQuery, order: Order, span: tuple[int, int]
) -> sqlite3.Cursor:
    if query.conversation_id is None:
        return connection.execute(ENDED_TASKS[order], (*span, query.kind))
    return connection.execute(ENDED_TASKS_OF[order], (*span, query.kind, rid_of(prefix, query.conversation_id)))


# --- submissions


def submission(connection: sqlite3.Connection, prefix: int, id: int) -> SubmissionRecord | None:
    """Look up a submission."""
    row = connection.execute(SUBMISSION, (rid_of(prefix, id),)).fetchone()
    return codec.decode_submission(row[0]) if row else None


def submission_by_request(
    connection: sqlite3.Connection, prefix: int, conversation_id: int, request_id: str
) -> SubmissionRecord | None:
    """Look up a submission by its idempotency key."""
    check_text(request_id)
    row = connection.execute(SUBMISSION_BY_REQUEST, (rid_of(prefix, conversation_id), request_id)).fetchone()
    return codec.decode_submission(row[0]) if row else None


def scan_submissions(
    connection: sqlite3.Connection, prefix: int, query: SubmissionQuery, limit: int, cursor: Cursor | None
) -> Page[SubmissionRecord]:
    """Page submissions."""
    order, after = read_cursor(cursor, query.order, "ascending")
    span = window(prefix, order, after)
    owner = None if query.conversation_id is None else rid_of(prefix, query.conversation_id)
    if query.status in ("queued", "placed"):
        rows = connection.execute(OPEN_SUBMISSIONS[order], (*span, query.status, owner))
    elif owner is not None:
        rows = connection.execute(SUBMISSIONS_OF[order], (*span, query.status, owner))
    else:
        rows = connection.execute(SUBMISSIONS[order], (*span, query.status))
    return cut_page((codec.decode_submission(body) for (body,) in rows), order, limit)
