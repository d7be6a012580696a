"""What the SQLite backend is asked about documents: plain functions over a connection, as in sqlite_reads."""

import sqlite3
from typing import Literal

from . import codec
from .checks import MAX_SEQ, SCOPE_TYPES, check_text, read_cursor, reject, rewindable, scope_id
from .contract import Cursor, DocumentQuery, Page
from .records import (
    Base,
    ConversationScope,
    Delta,
    DocumentRecord,
    ForkPolicy,
    History,
    Scope,
    SessionScope,
    StoredDocument,
    TaskScope,
)
from .replay import materialise
from .sqlite_reads import cut_page, rid_of, window

NO_KEY: Literal[0] = 0
"""What the key column holds for a document without a key: no text, so it collides with none."""

_COLUMNS = "SELECT rid, scope_type, scope, kind, key, history, fork, created_at, retired_at FROM documents "
_ADDRESS = "WHERE scope = ?1 AND scope_type = ?2 AND kind = ?3 AND key = ?4 "
_SCOPE = "WHERE scope = ?1 AND scope_type = ?2 AND kind = ifnull(?3, kind) AND rid BETWEEN ?4 AND ?5 "
DOCUMENT = _COLUMNS + "WHERE rid = ?"
LIVE = _COLUMNS + "INDEXED BY documents_alive " + _ADDRESS + "AND retired_at IS NULL AND created_at <= ?5"
RETIRED = (
    _COLUMNS
    + "INDEXED BY documents_retired "
    + _ADDRESS
    + "AND retired_at IS NOT NULL AND retired_at > ?5 AND created_at <= ?5 ORDER BY retired_at LIMIT 1"
)
LIVE_IN_SCOPE = _COLUMNS + "INDEXED BY documents_alive " + _SCOPE + "AND retired_at IS NULL AND created_at <= ?6"
EVER_IN_SCOPE = (
    LIVE_IN_SCOPE
    + " UNION ALL "
    + _COLUMNS
    + "INDEXED BY documents_retired "
    + _SCOPE
    + "AND retired_at IS NOT NULL AND retired_at > ?6 AND created_at <= ?6 ORDER BY rid"
)
EVER = _COLUMNS + "WHERE rid BETWEEN ? AND ? ORDER BY rid"
HISTORY = "SELECT seq, base, version, body FROM revisions WHERE document = ? ORDER BY seq"
REVISIONS = "SELECT base, version, body FROM revisions WHERE document = ? AND seq <= ? ORDER BY seq DESC"


def find_document(
    connection: sqlite3.Connection,
    prefix: int,
    kind: str,
    scope: Scope,
    *,
    key: str | None,
    at: int | None,
) -> DocumentRecord | None:
    """Resolve an address to the incarnation alive at a commit sequence (None: now)."""
    check_text(kind, key)
    address = (prefix + scope_id(scope), SCOPE_TYPES[type(scope)], kind, NO_KEY if key is None else key)
    row = connection.execute(LIVE, (*address, MAX_SEQ if at is None else at)).fetchone()
    if row is None and at is not None:
        row = connection.execute(RETIRED, (*address, at)).fetchone()
    return _document(prefix, row) if row else None


def scan_documents(
    connection: sqlite3.Connection, prefix: int, query: DocumentQuery, limit: int, cursor: Cursor | None
) -> Page[DocumentRecord]:
    """Page the incarnations of one scope."""
    check_text(query.kind)
    order, after = read_cursor(cursor, "ascending", "ascending")
    scope = (prefix + scope_id(query.scope), SCOPE_TYPES[type(query.scope)], query.kind)
    span = window(prefix, order, after)
    if query.at is None:
        rows = connection.execute(LIVE_IN_SCOPE + " ORDER BY rid", (*scope, *span, MAX_SEQ))
    else:
        rows = connection.execute(EVER_IN_SCOPE, (*scope, *span, query.at))
    return cut_page((_document(prefix, row) for row in rows), order, limit)


def incarnations(
    connection: sqlite3.Connection, prefix: int, limit: int, cursor: Cursor | None
) -> Page[DocumentRecord]:
    """Page every document that ever was, by id, retired ones included."""
    order, after = read_cursor(cursor, "ascending", "ascending")
    rows = connection.execute(EVER, window(prefix, order, after) if prefix else (-1, -1))
    return cut_page((_document(prefix, row) for row in rows), order, limit)


def revisions(connection: sqlite3.Connection, prefix: int, id: int) -> list[tuple[int, Base | Delta]]:
    """List what is kept of a document's values, oldest first: the commit sequence and what it stored."""
    rows = connection.execute(HISTORY, (rid_of(prefix, id),))
    return [(seq, codec.decode_content(base, version, body)) for seq, base, version, body in rows]


def load_document(connection: sqlite3.Connection, prefix: int, id: int) -> DocumentRecord | None:
    """Look up an incarnation, alive or retired."""
    row = connection.execute(DOCUMENT, (rid_of(prefix, id),)).fetchone()
    return _document(prefix, row) if row else None


def document(
    connection: sqlite3.Connection,
    prefix: int,
    id: int,
    at: int | None,
) -> StoredDocument | None:
    """Materialise one incarnation at a commit sequence (None: now)."""
    record = load_document(connection, prefix, id)
    if record is not None and at is not None and not rewindable(record):
        reject(f"document {id} keeps only its latest value: it cannot be read at {at}")
    return None if record is None else value_at(connection, prefix, record, at)


def value_at(
    connection: sqlite3.Connection, prefix: int, record: DocumentRecord, at: int | None
) -> StoredDocument | None:
    """Materialise an incarnation; None outside its lifetime."""
    point = MAX_SEQ - 1 if at is None else at
    if not record.created_at <= point < (record.retired_at or MAX_SEQ):
        return None
    return materialise(record, connection.execute(REVISIONS, (prefix | record.id, point)))


def _document(
    prefix: int, row: tuple[int, int, int, str, str | int, History | None, ForkPolicy | None, int, int | None]
) -> DocumentRecord:
    rid, scope_type, scope, kind, key, history, fork, created_at, retired_at = row
    return DocumentRecord(
        id=rid - prefix,
        scope=_scope(scope_type, scope - prefix),
        kind=kind,
        key=key if isinstance(key, str) else None,
        history=history,
        fork=fork,
        created_at=created_at,
        retired_at=retired_at,
    )


def _scope(scope_type: int, id: int) -> Scope:
    if scope_type == SCOPE_TYPES[TaskScope]:
        return TaskScope(task_id=id)
    return ConversationScope(conversation_id=id) if scope_type else SessionScope()
