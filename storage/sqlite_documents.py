"""The documents of a group of batches: collected, coalesced and written.

An incarnation that the group itself creates is worked out in memory and written once, as it stands at the end. Changes
of older ones are written by a statement that checks what it changes. Copies are read before their batch is collected.
"""

import sqlite3
from collections.abc import Iterable
from typing import NoReturn

import msgspec

from . import codec
from .checks import SCOPE_TYPES, DocumentWrites, check_copy, reject, rewindable, scope_id
from .errors import StorageCorrupt
from .records import (
    MAX_ID,
    Base,
    Delta,
    DocumentChange,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
)
from .sqlite_bulk import run_many
from .sqlite_document_reads import NO_KEY, load_document, value_at
from .sqlite_session import NewDocument, Row, SessionGroup

ADD_DOCUMENT = """
INSERT INTO documents (rid, scope_type, scope, kind, key, history, fork, created_at, retired_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
RETIRE_DOCUMENT = "UPDATE documents SET retired_at = ?2 WHERE rid = ?1 AND retired_at IS NULL"
ADD_REVISION = "INSERT INTO revisions (document, seq, base, version, body) VALUES (?, ?, ?, ?, ?)"
CHANGE_DOCUMENT = """
INSERT INTO revisions (document, seq, base, version, body)
SELECT ?1, ?2, ?3, ?4, ?5
WHERE (SELECT retired_at IS NULL FROM documents WHERE rid = ?1)
    AND (?3 OR ?4 = (SELECT version FROM revisions WHERE document = ?1 ORDER BY seq DESC LIMIT 1))"""
RECLAIM = """
DELETE FROM revisions
WHERE document = ?1 AND seq < ?2 AND (SELECT history IS NOT 'rewindable' FROM documents WHERE rid = ?1)"""
IS_RETIRED = "SELECT 1 FROM documents WHERE rid = ? AND retired_at = ?"
HOLDS_REVISION = "SELECT 1 FROM revisions WHERE document = ? AND seq = ?"


class DocumentRows:
    """The document rows of a group that are not written yet."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._clear()

    def _clear(self) -> None:
        self._changes: list[Row] = []
        self._retired: list[tuple[int, int]] = []
        self._reclaims: dict[int, int] = {}

    # --- collecting

    def read_copies(self, session: SessionGroup, copies: Iterable[DocumentCopy]) -> dict[int, Base]:
        """Read what copies take over; everything collected must have been written."""
        return {copy.record.id: self._read_copy(session, copy) for copy in copies}

    def _read_copy(self, session: SessionGroup, copy: DocumentCopy) -> Base:
        source = check_copy(copy, load_document(self._connection, session.prefix, copy.source))
        try:
            stored = value_at(self._connection, session.prefix, source, copy.at)
        except StorageCorrupt as error:
            reject(f"document {copy.record.id} copies document {copy.source}: {error}")
        if stored is None or not (copy.at is None or rewindable(source)):
            reject(f"document {copy.record.id} copies document {copy.source}, which has no value at {copy.at}")
        return Base(version=stored.version, value=stored.value)

    def collect(self, session: SessionGroup, writes: DocumentWrites, copies: dict[int, Base]) -> None:
        """Turn the sorted document writes of one batch into rows."""
        for change in writes.changes:
            self._change(session, change)
        for retired in writes.retired:
            self._retire(session, retired)
        for created in writes.created:
            self._create(session, created, copies)
            if created.record.id in writes.stillborn:
                self._retire(session, created.record.id)

    def _change(self, session: SessionGroup, change: DocumentChange) -> None:
        rid, content = session.rid(change.id), change.content
        new = session.documents.get(change.id)
        if change.id in session.final:
            refuse(change.id)
        row = _revision(rid, session.seq, content)
        if new is None:
            self._changes.append(row)
            if isinstance(content, Base):
                self._reclaims[rid] = session.seq
            return
        if isinstance(content, Delta) and content.version != new.version:
            refuse(change.id)
        if isinstance(content, Base) and not rewindable(new.record):
            new.revisions.clear()
        new.revisions.append(row)
        new.version = content.version

    def _retire(self, session: SessionGroup, id: int) -> None:
        if id in session.final:
            refuse(id)
        session.final.add(id)
        new = session.documents.get(id)
        if new is None:
            self._retired.append((session.rid(id), session.seq))
            return
        new.record = msgspec.structs.replace(new.record, retired_at=session.seq)
        if not rewindable(new.record):
            new.revisions.clear()

    def _create(self, session: SessionGroup, write: DocumentCreate | DocumentCopy, copies: dict[int, Base]) -> None:
        record = msgspec.structs.replace(write.record, created_at=session.seq, retired_at=None)
        rid = session.create(record.id, DocumentCreate)
        content = write.content if isinstance(write, DocumentCreate) else copies[record.id]
        session.documents[record.id] = NewDocument(record, [_revision(rid, session.seq, content)], content.version)

    # --- writing

    def flush(self, sessions: Iterable[SessionGroup]) -> None:
        """Write what has been collected: changes and retirements of older incarnations before new ones."""
        connection, run = self._connection, self._connection.executemany
        if self._changes and run(CHANGE_DOCUMENT, self._changes).rowcount != len(self._changes):
            self._refuse_change()
        if self._reclaims:
            run(RECLAIM, self._reclaims.items())
        if self._retired:
            if run(RETIRE_DOCUMENT, self._retired).rowcount != len(self._retired):
                self._refuse_retirement()
            run(RECLAIM, [(rid, seq + 1) for rid, seq in self._retired])
        new = [(session, document) for session in sessions for document in session.documents.values()]
        if new:
            run_many(connection, ADD_DOCUMENT, [_document_row(session, document.record) for session, document in new])
            run_many(connection, ADD_REVISION, [row for _, document in new for row in document.revisions])
        self._clear()

    def _refuse_change(self) -> None:
        for rid, seq, *_ in self._changes:
            if not self._connection.execute(HOLDS_REVISION, (rid, seq)).fetchone():
                refuse(rid & MAX_ID)

    def _refuse_retirement(self) -> None:
        for rid, seq in self._retired:
            if not self._connection.execute(IS_RETIRED, (rid, seq)).fetchone():
                refuse(rid & MAX_ID)


def refuse(id: int) -> NoReturn:
    """Reject a write to a document that cannot take it."""
    reject(f"document {id} is unknown, retired, or stored with another version than the delta's")


def _revision(rid: int, seq: int, content: Base | Delta) -> Row:
    return rid, seq, int(isinstance(content, Base)), content.version, codec.encode_content(content)


def _document_row(session: SessionGroup, record: DocumentRecord) -> Row:
    return (
        session.prefix | record.id,
        SCOPE_TYPES[type(record.scope)],
        session.prefix + scope_id(record.scope),
        record.kind,
        NO_KEY if record.key is None else record.key,
        record.history,
        record.fork,
        record.created_at,
        record.retired_at,
    )
