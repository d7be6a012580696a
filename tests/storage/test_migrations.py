"""Files of older schemas are brought up to date at open, whatever happens meanwhile.

Only one schema was ever released, so these tests make two older ones up: schema 0 knows no wake and no settled, schema -1
no heads either, and calls its entries lines.
"""

import asyncio
import os
import signal
import sqlite3
from collections import Counter

import pytest
from perdure.storage import sqlite_migrations
from perdure.storage.conformance_rig import conversation, entry, fails, submission
from perdure.storage.contract import SubmissionQuery
from perdure.storage.errors import SchemaTooNew, StorageError, StorageFull
from perdure.storage.sqlite import SqliteStorage
from perdure.storage.sqlite_reader import SqliteReader
from perdure.storage.sqlite_schema import TABLES

from .support import with_store
from .test_failures import _edit

TO_ZERO = (
    "DROP INDEX old_lines",
    "ALTER TABLE lines RENAME TO kept_lines",
    "CREATE TABLE entries (rid INTEGER NOT NULL, conversation INTEGER, seq INTEGER, head INTEGER, body TEXT NOT NULL)",
    "INSERT INTO entries SELECT rid, conversation, seq, json_extract(body, '$.head'), body FROM kept_lines",
    "CREATE UNIQUE INDEX entries_conversation ON entries (conversation, rid)",
    "CREATE UNIQUE INDEX entries_elsewhere ON entries (rid) WHERE conversation & 4294967295 <> 1",
    "CREATE INDEX entries_head ON entries (conversation, rid) WHERE head IS NOT NULL",
)
TO_ONE = (
    "ALTER TABLE sessions ADD COLUMN wake INTEGER",
    "CREATE INDEX sessions_wake ON sessions (wake) WHERE wake IS NOT NULL",
    "UPDATE sessions SET wake = 0 WHERE sid IN (SELECT rid >> 32 FROM live_tasks)",
    "ALTER TABLE submissions ADD COLUMN settled INTEGER NOT NULL DEFAULT 0",
    "UPDATE submissions SET settled = status IN ('done', 'unanswered')",
    "CREATE INDEX submissions_open ON submissions (rid) WHERE settled = 0",
)
"""``settled`` stands before ``body`` in a new file, and behind it here: statements must go by name."""


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A store as it was written by schema -1."""
    monkeypatch.setattr(sqlite_migrations, "MIGRATIONS", {-1: TO_ZERO, 0: TO_ONE})
    path = tmp_path / "s.db"

    async def fill(rig):
        await rig.commit(conversation(rig.id()), *(entry(rig.id(), head=number) for number in (None, 2, None)))
        await rig.commit(submission(rig.id()), submission(rig.id(), status="done"))

    with_store(path, fill)
    _edit(
        path,
        "DROP INDEX sessions_wake",
        "ALTER TABLE sessions DROP COLUMN wake",
        "DROP INDEX submissions_open",
        "ALTER TABLE submissions DROP COLUMN settled",
        "CREATE TABLE lines AS SELECT rid, conversation, seq, body FROM entries",
        "CREATE INDEX old_lines ON lines (conversation, rid)",
        "DROP TABLE entries",
        "UPDATE meta SET schema = -1",
    )
    return path


async def check(rig):
    """Check that everything is there, and that the tables are those of this schema."""
    marker = await rig.storage.latest_head_marker("session", 1)
    assert marker == entry(3, head=2)
    assert await rig.storage.entry("session", 4) == (entry(4), 1)
    queued = await rig.storage.scan_submissions("session", SubmissionQuery(status="queued"), 9)
    assert queued.items == [submission(5)]
    rig.seq, rig.last_id = 2, 6
    await rig.commit(entry(rig.id(), head=7), submission(rig.id()), wake=3)
    assert await rig.storage.submission("session", 8) == submission(8)
    queued = await rig.storage.scan_submissions("session", SubmissionQuery(status="queued"), 9)
    assert queued.items == [submission(5), submission(8)]
    assert await rig.storage.due(5, 9) == ["session"]


def schema(path):
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT schema FROM meta").fetchone()
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql IS NOT NULL")}
    (kept,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'kept_lines'").fetchone()
    kept = kept and connection.execute("SELECT count(*) FROM kept_lines").fetchone()[0]
    connection.close()
    return found, names, kept


def test_an_older_file_is_brought_up_to_date_when_it_is_opened(old):
    with_store(old, check)
    found, names, kept = schema(old)
    fresh = sqlite3.connect(":memory:")
    fresh.executescript(TABLES)
    expected = {name for (name,) in fresh.execute("SELECT name FROM sqlite_master WHERE sql IS NOT NULL")}
    fresh.close()
    assert found == 1
    assert names == expected | {"kept_lines"}
    assert kept == 3, "a migration deleted what an older version had stored"
    with_store(old, lambda rig: rig.storage.session("session"))


def open_and_die(path, statement):
    """Open the store in a process that is killed before its nth statement; tell whether it was."""
    child = os.fork()
    if child == 0:
        counter = Counter()

        class Dying(sqlite3.Connection):
            def execute(self, sql, *parameters):
                counter["statements"] += 1
                if counter["statements"] == statement:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().execute(sql, *parameters)

        connect = sqlite3.connect
        sqlite3.connect = lambda *args, **options: connect(*args, **options, factory=Dying)
        try:
            asyncio.run(SqliteStorage(path).open())
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_an_owner_that_is_killed_at_any_statement_of_a_migration_is_gone_on_from(old):
    original = old.read_bytes()
    seen = Counter()
    for statement in range(1, 100):
        for left in old.parent.iterdir():
            left.unlink()
        old.write_bytes(original)
        died = open_and_die(old, statement)
        seen[schema(old)[0]] += 1
        with_store(old, check)
        assert schema(old)[0] == 1
        if not died:
            break
    assert not died
    assert seen[-1] > len(TO_ZERO), seen
    assert seen[0] > len(TO_ONE), seen
    assert seen[1] > 1, seen


def test_a_migration_that_fails_leaves_the_file_at_the_schema_before(old, monkeypatch):
    monkeypatch.setitem(sqlite_migrations.MIGRATIONS, 0, [*TO_ONE, "INSERT INTO sessions (sid) VALUES (NULL)"])
    for _ in range(2):
        asyncio.run(fails(StorageError, SqliteStorage(old).open()))
        assert schema(old)[0] == 0
    monkeypatch.setitem(sqlite_migrations.MIGRATIONS, 0, TO_ONE)
    with_store(old, check)


@pytest.mark.parametrize("statement", ["DELETE FROM lines", "DROP TABLE lines", "DELETE FROM meta"])
def test_a_migration_cannot_delete_anything(old, monkeypatch, statement):
    monkeypatch.setitem(sqlite_migrations.MIGRATIONS, -1, [statement, *TO_ZERO])
    asyncio.run(fails(StorageError, SqliteStorage(old).open()))
    assert schema(old)[0] == -1
    monkeypatch.setitem(sqlite_migrations.MIGRATIONS, -1, TO_ZERO)
    with_store(old, check)


def test_a_schema_that_nothing_leads_on_from_is_refused_and_left_alone(old, monkeypatch):
    monkeypatch.setattr(sqlite_migrations, "MIGRATIONS", {})
    before = old.read_bytes()
    assert "has schema -1" in str(asyncio.run(fails(StorageError, SqliteStorage(old).open())))
    assert old.read_bytes() == before


def test_only_an_owner_migrates(old):
    before = old.read_bytes()
    assert "open it with a System" in str(asyncio.run(fails(StorageError, SqliteReader(old).open())))
    assert old.read_bytes() == before


def test_a_newer_schema_is_refused_by_owner_and_reader_and_left_alone(old):
    _edit(old, "UPDATE meta SET schema = 2")
    before = old.read_bytes()
    for opening in (SqliteStorage(old), SqliteReader(old)):
        assert asyncio.run(fails(SchemaTooNew, opening.open())).found == 2
    assert old.read_bytes() == before


def test_a_disk_that_is_full_in_the_middle_of_a_migration_changes_nothing(old, monkeypatch):
    monkeypatch.setitem(
        sqlite_migrations.MIGRATIONS,
        -1,
        [*TO_ZERO, "PRAGMA max_page_count = 1", "CREATE TABLE big AS SELECT zeroblob(99999)"],
    )
    asyncio.run(fails(StorageFull, SqliteStorage(old).open()))
    assert schema(old)[0] == -1
    monkeypatch.setitem(sqlite_migrations.MIGRATIONS, -1, TO_ZERO)
    with_store(old, check)
