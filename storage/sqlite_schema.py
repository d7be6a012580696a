"""The SQLite file: its tables, its settings, and how it is opened.

All sessions share one file. A session is a small number (``sid``) and every record's key is ``sid << 32 | id``, called
its ``rid``; ``conversation`` columns hold rids too. Bodies are the records' JSON. Nothing that changes often is indexed:
live tasks are found by their table. What is written once and for ever is appended, so that the commits of many sessions
fill the same few pages instead of splitting one page each: half the log, and no worse to read.
"""

import os
import sqlite3
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from .errors import SchemaTooNew, StorageCorrupt, StorageError
from .sqlite_log import WAL_IDLE_BYTES
from .sqlite_migrations import migrate
from .sqlite_transaction import transaction

SCHEMA = 1
"""The version of the tables below; ``meta.schema`` says which one a file has. ``sqlite_migrations`` leads here."""

TABLES = """
CREATE TABLE meta (                  -- one row
    id INTEGER PRIMARY KEY CHECK (id = 1),
    schema INTEGER NOT NULL,
    fence INTEGER NOT NULL,          -- grows with each open; a writer with an older one is refused
    created_at INTEGER NOT NULL
);
CREATE TABLE sessions (
    sid INTEGER PRIMARY KEY,
    key TEXT UNIQUE,                 -- null: the session was deleted, and its rows are being reclaimed
    created_at INTEGER,
    seq INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    wake INTEGER
);
CREATE INDEX sessions_wake ON sessions (wake) WHERE wake IS NOT NULL;

CREATE TABLE conversations (
    rid INTEGER PRIMARY KEY,
    parent INTEGER,                  -- rid
    parent_at INTEGER,               -- id of the entry after which the fork left its parent
    owner_conversation INTEGER,      -- rid
    owner_task INTEGER,              -- rid
    deleted INTEGER NOT NULL         -- 1: only what forks show of it is left
);
CREATE INDEX conversations_parent ON conversations (parent, parent_at) WHERE parent IS NOT NULL;
CREATE INDEX conversations_owner_conversation ON conversations (owner_conversation)
    WHERE owner_conversation IS NOT NULL;
CREATE INDEX conversations_owner_task ON conversations (owner_task) WHERE owner_task IS NOT NULL;

CREATE TABLE entries (               -- appended in commit order
    rid INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    head INTEGER,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX entries_conversation ON entries (conversation, rid);
CREATE UNIQUE INDEX entries_elsewhere ON entries (rid) WHERE conversation & 4294967295 <> 1;
CREATE INDEX entries_head ON entries (conversation, rid) WHERE head IS NOT NULL;

CREATE TABLE live_tasks (
    rid INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE TABLE ended_tasks (           -- appended in commit order
    rid INTEGER NOT NULL UNIQUE,
    conversation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX ended_tasks_conversation ON ended_tasks (conversation, rid);

CREATE TABLE submissions (
    rid INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    request_id TEXT,
    status TEXT NOT NULL,
    settled INTEGER NOT NULL,        -- status is done or unanswered: the row will never change again
    body TEXT NOT NULL
);
CREATE INDEX submissions_conversation ON submissions (conversation);
CREATE UNIQUE INDEX submissions_request ON submissions (conversation, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX submissions_open ON submissions (rid) WHERE settled = 0;

CREATE TABLE messages (
    rid INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,           -- rid of the receiving task; of an outgoing message in another session: as if in this one
    request_id TEXT,
    status TEXT NOT NULL,
    live INTEGER NOT NULL,           -- status is outgoing or queued: whoever opens the session needs it
    body TEXT NOT NULL
);
CREATE INDEX messages_live ON messages (rid) WHERE live = 1;
CREATE INDEX messages_dead ON messages (rid) WHERE status = 'dead';
CREATE INDEX messages_consumed ON messages (task, rid) WHERE status = 'consumed';
CREATE UNIQUE INDEX messages_request ON messages (task, request_id) WHERE request_id IS NOT NULL;

CREATE TABLE documents (
    rid INTEGER PRIMARY KEY,
    scope_type INTEGER NOT NULL,     -- 0 session, 1 conversation, 2 task
    scope INTEGER NOT NULL,          -- rid of the conversation or task; of the session: sid << 32
    kind TEXT NOT NULL,
    key BLOB NOT NULL,               -- a family member's key as text; the integer 0 for a document without key
    history TEXT,
    fork TEXT,
    created_at INTEGER NOT NULL,     -- sequences
    retired_at INTEGER
);
CREATE UNIQUE INDEX documents_alive ON documents (scope, scope_type, kind, key) WHERE retired_at IS NULL;
CREATE INDEX documents_retired ON documents (scope, scope_type, kind, key, retired_at)
    WHERE retired_at IS NOT NULL;

CREATE TABLE revisions (
    document INTEGER NOT NULL,       -- rid
    seq INTEGER NOT NULL,
    base INTEGER NOT NULL,           -- 1: body is the value, 0: body is the operations on the value before
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (document, seq)
) WITHOUT ROWID;
"""

PAGE_BYTES = 2048
"""Commits of many sessions touch a page each. With pages of 4,096 bytes the log is longer by half and a commit of one of 100
sessions costs 10 to 15 % more; smaller ones than these make large values slower (tests/bench/bench_backends.py)."""

Durability = Literal["power", "process"]
_SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}


def open_writer(path: str, durability: Durability, busy_timeout_s: float, now: int) -> sqlite3.Connection:
    """Open the file for writing, creating it for its owner's eyes only. The caller holds the owner lock.

    Raises SchemaTooNew, StorageCorrupt, StorageError, OSError and SQLite's own errors.
    """
    # Only a file that does not exist is opened by hand: closing any descriptor of a file drops SQLite's locks on it.
    if not Path(path).exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, cached_statements=256)
    try:
        schema = read_schema(path, connection)
        _configure(path, connection, durability)
        if schema is None:
            _create(connection, now)
        else:
            migrate(path, connection, schema, SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str, busy_timeout_s: float, *, immutable: bool = False) -> sqlite3.Connection:
    """Open another connection to a file, which cannot write it. ``immutable``: nobody else can either, so lock nothing."""
    uri = f"file:{quote(os.fsencode(path))}?mode=ro{'&immutable=1' if immutable else ''}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_timeout_s, isolation_level=None, cached_statements=256)
    connection.execute("PRAGMA cache_size = -16384")
    return connection


def take_fence(connection: sqlite3.Connection) -> int:
    """Become the file's newest owner: writers with an older fencing token are refused from now on."""
    with transaction(connection):
        connection.execute("UPDATE meta SET fence = fence + 1")
        return read_fence(connection)


def read_fence(connection: sqlite3.Connection) -> int:
    """Read the fencing token of the newest owner."""
    row = connection.execute("SELECT fence FROM meta").fetchone()
    if row is None:
        raise StorageCorrupt("the file's metadata is missing; restore a copy")
    fence: int = row[0]
    return fence


def read_schema(path: str, connection: sqlite3.Connection) -> int | None:
    """Tell which version of the tables a file has; None when it has none at all.

    Raises SchemaTooNew for what this perdure cannot read, StorageCorrupt for a file of somebody else.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    row = connection.execute("SELECT schema FROM meta").fetchone() if "meta" in tables else None
    if row is None or not isinstance(row[0], int):
        raise StorageCorrupt(f"{path} has no perdure metadata; restore a copy or open another file")
    if row[0] > SCHEMA:
        raise SchemaTooNew(path, found=row[0], supported=SCHEMA)
    return row[0]


def _configure(path: str, connection: sqlite3.Connection, durability: Durability) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StorageError(f"{path}: SQLite cannot use a write-ahead log here; move the file to a local disk")
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: an fsync that reaches the disk
    connection.execute("PRAGMA cache_size = -16384")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # checkpoints run when nobody waits
    connection.execute(f"PRAGMA journal_size_limit = {WAL_IDLE_BYTES}")


def _create(connection: sqlite3.Connection, now: int) -> None:
    connection.executescript(f"BEGIN IMMEDIATE; {TABLES}")
    connection.execute("INSERT INTO meta (id, schema, fence, created_at) VALUES (1, ?, 0, ?)", (SCHEMA, now))
    connection.execute("COMMIT")
