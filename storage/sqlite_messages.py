"""What the SQLite backend stores of messages, and what it is asked about them.

Rows are coalesced over a group like those of tasks: of a message that is delivered and received in one group, nothing is
written at all. Whether a row may be written is decided as ``sqlite_group`` says.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable

from . import codec
from .checks import check_message, check_text, read_cursor, reject
from .contract import Cursor, MessageQuery, Page
from .records import MAX_ID, MessageRecord
from .sqlite_bulk import run_many
from .sqlite_reads import both_orders, cut_page, rid_of, window
from .sqlite_session import Row, SessionGroup

ADD_MESSAGE = "INSERT INTO messages (rid, task, request_id, status, live, body) VALUES (?, ?, ?, ?, ?, ?)"
SET_MESSAGE = """
UPDATE messages SET status = ?4, live = ?5, body = ?6
WHERE rid = ?1 AND live = 1 AND ?4 <> 'outgoing' AND task = ?2 AND request_id IS ?3"""
DELETE_MESSAGE = "DELETE FROM messages WHERE rid IN (VALUES (?))"

MESSAGE = "SELECT body FROM messages WHERE rid = ?"
MESSAGE_BY_REQUEST = "SELECT body FROM messages WHERE task = ? AND request_id = ?"
LIVE_MESSAGES = "SELECT body FROM messages INDEXED BY messages_live WHERE live = 1 AND rid BETWEEN ? AND ? ORDER BY rid"
DEAD_LETTERS = "SELECT rid >> 32 FROM messages INDEXED BY messages_dead WHERE status = 'dead' AND rid > 0"
SESSION_KEY = "SELECT key FROM sessions WHERE sid = ?"
MESSAGES = both_orders(
    "SELECT body FROM messages"
    " WHERE rid BETWEEN ?1 AND ?2 AND status = ifnull(?3, status) AND task = ifnull(?4, task) ORDER BY rid"
)
OPEN_MESSAGES = both_orders(
    "SELECT body FROM messages INDEXED BY messages_live"
    " WHERE live = 1 AND rid BETWEEN ?1 AND ?2 AND status = ?3 AND task = ifnull(?4, task) ORDER BY rid"
)
DEAD_MESSAGES = both_orders(
    "SELECT body FROM messages INDEXED BY messages_dead"
    " WHERE status = 'dead' AND rid BETWEEN ?1 AND ?2 AND status = ?3 AND task = ifnull(?4, task) ORDER BY rid"
)
CONSUMED_MESSAGES = both_orders(
    "SELECT body FROM messages INDEXED BY messages_consumed"
    " WHERE status = 'consumed' AND task = ?4 AND rid BETWEEN ?1 AND ?2 AND status = ?3 ORDER BY rid"
)


class MessageRows:
    """The message rows of a group of batches on their way into the table."""

    def __init__(self, connection: sqlite3.Connection, check_free: Callable[[int], None]) -> None:
        self._connection = connection
        self._check_free = check_free
        self._clear()

    def _clear(self) -> None:
        self._new: dict[int, Row] = {}
        self._changed: dict[int, Row] = {}
        self._deleted: list[tuple[int]] = []

    def unsettled(self, session: SessionGroup, deleted: list[int]) -> bool:
        """Whether rows must be written before some are deleted, because only that tells whether they may be.

        Deletions come first in a flush: a change of a row that they delete, and a request id that they free, must not
        profit from that.
        """
        changed = any(session.prefix | number in self._changed for number in deleted)
        return changed or any(row[2] is not None for row in self._new.values())

    def collect(self, session: SessionGroup, records: list[MessageRecord], deleted: list[int]) -> None:
        """Collect a batch's rows."""
        for number in deleted:
            self._delete(session, number)
        for record in records:
            self._put(session, record)

    def _put(self, session: SessionGroup, record: MessageRecord) -> None:
        check_message(record)
        rid, task = session.prefix | record.id, session.rid(record.task_id)
        rows = self._new if session.own(record.id, MessageRecord) else self._changed
        row = (rid, task, record.request_id, record.status, int(record.live), codec.encode(record))
        before = rows.get(rid)
        if before is not None and (not before[4] or record.status == "outgoing" or before[1:3] != row[1:3]):
            _refuse_change(rid)
        rows[rid] = row

    def _delete(self, session: SessionGroup, id: int) -> None:
        rid = session.prefix | id
        new = session.own(id, MessageRecord)
        self._changed.pop(rid, None)
        if not new:
            self._deleted.append((rid,))
        elif self._new.pop(rid, None) is None:
            reject(f"message {id} does not exist")

    def flush_deleted(self) -> None:
        """Delete rows, which frees their ids. Comes before all other writes."""
        for rid in self._deleted:
            if self._connection.execute(DELETE_MESSAGE, rid).rowcount == 0:
                reject(f"message {rid[0] & MAX_ID} does not exist")

    def flush(self) -> None:
        """Write the other rows."""
        if self._new:
            run_many(self._connection, ADD_MESSAGE, list(self._new.values()))
        for row in self._changed.values():
            if self._connection.execute(SET_MESSAGE, row).rowcount == 0:
                self._check_free(row[0])
                self._connection.execute(ADD_MESSAGE, row)
        self._clear()


def _refuse_change(rid: int) -> None:
    reject(f"message {rid & MAX_ID} is over, or is another one: it cannot change so")


# --- reading


def message(connection: sqlite3.Connection, prefix: int, id: int) -> MessageRecord | None:
    """Look up a message."""
    row = connection.execute(MESSAGE, (rid_of(prefix, id),)).fetchone()
    return codec.decode_message(row[0]) if row else None


def message_by_request(
    connection: sqlite3.Connection, prefix: int, task_id: int, request_id: str
) -> MessageRecord | None:
    """Look up a message to a task by its idempotency key."""
    check_text(request_id)
    row = connection.execute(MESSAGE_BY_REQUEST, (rid_of(prefix, task_id), request_id)).fetchone()
    return codec.decode_message(row[0]) if row else None


def live_messages(connection: sqlite3.Connection, prefix: int) -> list[MessageRecord]:
    """List every message that is outgoing or queued, by id."""
    rows = connection.execute(LIVE_MESSAGES, window(prefix, "ascending", None))
    return [codec.decode_message(body) for (body,) in rows]


def scan_messages(
    connection: sqlite3.Connection, prefix: int, query: MessageQuery, limit: int, cursor: Cursor | None
) -> Page[MessageRecord]:
    """Page messages."""
    order, after = read_cursor(cursor, query.order, "ascending")
    task = None if query.task_id is None else rid_of(prefix, query.task_id)
    if query.status in ("outgoing", "queued"):
        statement = OPEN_MESSAGES
    elif query.status == "dead":
        statement = DEAD_MESSAGES
    elif query.status == "consumed" and task is not None:
        statement = CONSUMED_MESSAGES
    else:
        statement = MESSAGES
    rows = connection.execute(statement[order], (*window(prefix, order, after), query.status, task))
    return cut_page((codec.decode_message(body) for (body,) in rows), order, limit)


def dead_letters(connection: sqlite3.Connection) -> dict[str, int]:
    """Tell which sessions have dead letters, and how many."""
    counts = Counter(number for (number,) in connection.execute(DEAD_LETTERS))
    keys = {number: connection.execute(SESSION_KEY, (number,)).fetchone()[0] for number in counts}
    return {key: counts[number] for number, key in keys.items() if key is not None}
