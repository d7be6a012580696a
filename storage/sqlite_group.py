"""Writing a group of batches with few fixed statements, inside one SQL transaction.

Batches are first turned into rows, coalesced over the group: of a task or submission that changes several times only
its last state is written. Whether a row may be written is decided without reading: an id above its session's stored
``last_id`` cannot be in the tables yet, and a statement for an older one must change the row that it means. Only when
the counts disagree is anything looked up.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import codec
from .checks import (
    check_counters,
    check_parent,
    check_submission,
    check_text,
    reject,
    sort_documents,
    sort_messages,
)
from .records import (
    MAX_ID,
    Batch,
    ConversationDelete,
    ConversationRecord,
    DocumentCopy,
    EntryRecord,
    MessageDelete,
    MessageRecord,
    SubmissionRecord,
    TaskRecord,
    Terminal,
    Write,
)
from .sqlite_bulk import run_many
from .sqlite_conversations import delete_conversation
from .sqlite_documents import DocumentRows
from .sqlite_messages import MessageRows
from .sqlite_session import Row, SessionGroup

FIND_SESSION = "SELECT sid, seq, last_id, wake FROM sessions WHERE key = ?"
ADD_SESSION = "INSERT INTO sessions (key, created_at, seq, last_id) VALUES (?, ?, 0, 0)"
SET_COUNTERS = """
INSERT INTO sessions (seq, last_id, sid) VALUES (?, ?, ?)
ON CONFLICT (sid) DO UPDATE SET seq = excluded.seq, last_id = excluded.last_id"""
SET_WAKE = "UPDATE sessions SET wake = ? WHERE sid = ?"
ADD_CONVERSATION = """
INSERT INTO conversations (rid, parent, parent_at, owner_conversation, owner_task, deleted) VALUES (?, ?, ?, ?, ?, ?)"""
ADD_ENTRY = "INSERT INTO entries (rid, conversation, seq, head, body) VALUES (?, ?, ?, ?, ?)"
ADD_TASK = "INSERT INTO live_tasks (rid, body) VALUES (?, ?)"
SET_TASK = """
INSERT INTO live_tasks (rid, body)
SELECT column1, column2 FROM (VALUES (?, ?)) WHERE column1 IN (SELECT rid FROM live_tasks)
ON CONFLICT (rid) DO UPDATE SET body = excluded.body"""
SET_LIVE_TASK = "INSERT INTO live_tasks (rid, body) VALUES (?, ?) ON CONFLICT (rid) DO UPDATE SET body = excluded.body"
"""The same for a task that is certainly there, in half the time."""
DROP_TASK = "DELETE FROM live_tasks WHERE rid IN (VALUES (?))"
ADD_ENDED_TASK = "INSERT INTO ended_tasks (rid, conversation, kind, body) VALUES (?, ?, ?, ?)"
ADD_SUBMISSION = """
INSERT INTO submissions (rid, conversation, request_id, status, settled, body) VALUES (?, ?, ?, ?, ?, ?)"""
SET_SUBMISSION = """
UPDATE submissions SET status = ?4, settled = ?5, body = ?6
WHERE rid = ?1 AND settled = 0 AND conversation = ?2 AND request_id IS ?3"""
HOLDER = """
SELECT 'a conversation' FROM conversations WHERE rid = ?1
UNION ALL SELECT 'an entry' FROM entries WHERE conversation = (?1 & ~4294967295 | 1) AND rid = ?1
UNION ALL SELECT 'an entry' FROM entries WHERE rid = ?1 AND conversation & 4294967295 <> 1
UNION ALL SELECT 'a live task' FROM live_tasks WHERE rid = ?1
UNION ALL SELECT 'an ended task' FROM ended_tasks WHERE rid = ?1
UNION ALL SELECT 'a submission' FROM submissions WHERE rid = ?1
UNION ALL SELECT 'a message' FROM messages WHERE rid = ?1
UNION ALL SELECT 'a document' FROM documents WHERE rid = ?1"""


class Group:
    """Batches on their way into the tables, inside a transaction that the caller has begun.

    ``add`` checks a batch and turns it into rows, ``flush`` writes the rows. Either raises StorageRejected or SQLite's
    errors, after which the caller must roll back and forget ``known``: sessions from earlier groups; others are looked up
    and join them.
    """

    def __init__(
        self, connection: sqlite3.Connection, known: dict[str, SessionGroup], clock: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._known = known
        self._clock = clock
        self._sessions: dict[str, SessionGroup] = {}
        self._documents = DocumentRows(connection)
        self._messages = MessageRows(connection, self._check_free)
        self._clear()

    def _clear(self) -> None:
        self._conversations: list[Row] = []
        self._entries: list[Row] = []
        self._new_tasks: dict[int, str] = {}
        self._tasks: dict[int, str] = {}
        self._live_tasks: dict[int, str] = {}
        self._dropped_tasks: list[tuple[int]] = []
        self._ended_tasks: list[Row] = []
        self._new_submissions: dict[int, Row] = {}
        self._submissions: dict[int, Row] = {}

    # --- collecting

    def add(self, batch: Batch) -> None:
        """Check a batch against what is stored and collected, and collect its rows."""
        session = self._sessions.get(batch.session) or self._load(batch.session)
        check_counters(batch, session.seq, session.last_id)
        session.advance(batch)
        documents: list[Write] = []
        messages: list[MessageRecord | MessageDelete] = []
        conversations: list[int] = []
        for write in batch.writes:
            collect = _COLLECT.get(type(write))
            if collect is not None:
                collect(self, session, write)
            elif isinstance(write, MessageRecord | MessageDelete):
                messages.append(write)
            elif isinstance(write, ConversationDelete):
                conversations.append(write.id)
            else:
                documents.append(write)
        deleted = self._add_messages(session, messages) if messages else []
        if documents:
            self._add_documents(session, documents)
        for number in deleted:
            session.types.pop(number, None)
        if conversations:
            self._delete_conversations(session, conversations)

    def _add_messages(self, session: SessionGroup, messages: list[MessageRecord | MessageDelete]) -> list[int]:
        """Collect message writes; give the ids that are free for other records from the next batch on."""
        records, deleted = sort_messages(messages)
        if deleted and self._messages.unsettled(session, deleted):
            self.flush()
        self._messages.collect(session, records, deleted)
        return deleted

    def _delete_conversations(self, session: SessionGroup, conversations: list[int]) -> None:
        self.flush()
        for conversation in conversations:
            delete_conversation(self._connection, session, conversation)

    def _add_documents(self, session: SessionGroup, documents: list[Write]) -> None:
        writes = sort_documents(documents)
        copies = [write for write in writes.created if isinstance(write, DocumentCopy)]
        # Copies read what was stored before their batch; an address must not be taken before it is free.
        if copies or (writes.retired and session.documents):
            self.flush()
        self._documents.collect(session, writes, self._documents.read_copies(session, copies))

    def _load(self, key: str) -> SessionGroup:
        session = self._known.get(key)
        if session is None:
            check_text(key)
            row = self._connection.execute(FIND_SESSION, (key,)).fetchone()
            session = self._known[key] = SessionGroup(*row) if row else self._add_session(key)
        self._sessions[key] = session
        return session

    def _add_session(self, key: str) -> SessionGroup:
        sid = self._connection.execute(ADD_SESSION, (key, self._clock())).lastrowid
        return SessionGroup(sid or 0, 0, 0, None)

    def _conversation(self, session: SessionGroup, record: ConversationRecord) -> None:
        check_parent(record)
        rid = session.create(record.id, ConversationRecord)
        parent, owner = record.parent, record.owner
        self._conversations.append(
            (
                rid,
                parent and session.rid(parent.conversation_id),
                parent and parent.at,
                owner and session.rid(owner.conversation_id),
                owner and session.rid(owner.task_id),
                int(record.deleted),
            )
        )

    def _entry(self, session: SessionGroup, record: EntryRecord) -> None:
        rid = session.create(record.id, EntryRecord)
        conversation = session.rid(record.conversation_id)
        self._entries.append((rid, conversation, session.seq, record.head, codec.encode(record)))

    def _task(self, session: SessionGroup, record: TaskRecord) -> None:
        rid = session.prefix | record.id
        new = session.own(record.id, TaskRecord)
        conversation = session.rid(record.conversation_id)
        if record.id in session.final:
            reject(f"task {record.id} is terminal and cannot change")
        live = self._new_tasks if new else self._live_tasks if record.id in session.live else self._tasks
        body = codec.encode(record)
        if type(record.state) is not Terminal:
            live[rid] = body
            session.live.add(record.id)
            return
        session.final.add(record.id)
        session.live.discard(record.id)
        for rows in (self._new_tasks, self._tasks, self._live_tasks):
            rows.pop(rid, None)
        if not new:
            self._dropped_tasks.append((rid,))
        self._ended_tasks.append((rid, conversation, record.kind, body))

    def _submission(self, session: SessionGroup, record: SubmissionRecord) -> None:
        check_submission(record)
        rid = session.prefix | record.id
        rows = self._new_submissions if session.own(record.id, SubmissionRecord) else self._submissions
        conversation = session.rid(record.conversation_id)
        row = (rid, conversation, record.request_id, record.status, int(record.settled), codec.encode(record))
        before = rows.get(rid)
        if before is not None and (before[4] or before[1:3] != row[1:3]):
            _refuse_submission(rid)
        rows[rid] = row

    # --- writing

    def flush(self) -> None:
        """Write what has been collected. Further batches may be added."""
        self._messages.flush_deleted()
        for session in self._sessions.values():
            for rid in session.claimed:
                self._check_free(rid)
        self._documents.flush(self._sessions.values())  # first: others take the pages of the revisions that it reclaims
        self._run(ADD_CONVERSATION, self._conversations)
        self._run(ADD_ENTRY, self._entries)
        self._write_tasks()
        self._write_submissions()
        self._messages.flush()
        self._write_sessions()
        self._clear()

    def _run(self, sql: str, rows: Sequence[Row]) -> bool:
        """Run a statement for every row; tell whether each of them changed one."""
        return not rows or run_many(self._connection, sql, rows) == len(rows)

    def _write_tasks(self) -> None:
        self._run(ADD_TASK, list(self._new_tasks.items()))
        if not self._run(SET_TASK, list(self._tasks.items())):
            self._set_or_add(SET_TASK, ADD_TASK, self._tasks.items())
        self._run(SET_LIVE_TASK, list(self._live_tasks.items()))
        if not self._run(DROP_TASK, self._dropped_tasks):
            for (rid,) in self._dropped_tasks:
                self._check_free(rid)
        self._run(ADD_ENDED_TASK, sorted(self._ended_tasks))  # a tree ends from below: its indexes grow at their ends

    def _write_submissions(self) -> None:
        self._run(ADD_SUBMISSION, list(self._new_submissions.values()))
        self._set_or_add(SET_SUBMISSION, ADD_SUBMISSION, self._submissions.values())

    def _set_or_add(self, change: str, add: str, rows: Iterable[Row]) -> None:
        """Insert a row that no update finds, if its id was handed out before but not used."""
        for row in rows:
            if self._connection.execute(change, row).rowcount == 0:
                self._check_free(row[0])
                self._connection.execute(add, row)

    def _check_free(self, rid: int) -> None:
        holder = self._connection.execute(HOLDER, (rid,)).fetchone()
        if holder:
            reject(f"id {rid & MAX_ID} is {holder[0]} already, or one that cannot change any more")

    def _write_sessions(self) -> None:
        sessions = self._sessions.values()
        counters = [(session.seq, session.last_id, session.sid) for session in sessions]
        wakes = [(session.wake, session.sid) for session in sessions if session.wake != session.stored_wake]
        self._run(SET_COUNTERS, counters)
        if wakes:
            self._connection.executemany(SET_WAKE, wakes)
        for session in sessions:
            session.written()


def _refuse_submission(rid: int) -> None:
    reject(f"submission {rid & MAX_ID} is settled, or was submitted elsewhere: it cannot change so")


_COLLECT: dict[type[Write], Callable[[Group, SessionGroup, Any], None]] = {
    ConversationRecord: Group._conversation,
    EntryRecord: Group._entry,
    TaskRecord: Group._task,
    SubmissionRecord: Group._submission,
}
