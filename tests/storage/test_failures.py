"""Every way in which SQLite fails: the right error, nothing half-written, and a store that works again once reopened."""

import asyncio
import sqlite3
import threading

import pytest
from perdure.storage.conformance_rig import conversation, document, entry, fails, ids, pages, task
from perdure.storage.contract import EntryQuery
from perdure.storage.errors import (
    SchemaTooNew,
    StorageBusy,
    StorageClosed,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageRejected,
)
from perdure.storage.records import Batch, EntryRecord
from perdure.storage.sqlite import SqliteStorage

from .support import python, with_store

LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
print("released", flush=True)
"""


async def sql(rig, statement):
    """Run a statement on the writing connection."""
    writing = rig.storage._engine.writing
    return await writing.run(lambda: writing.sqlite.execute(statement).fetchall())


async def all_entries(rig):
    return ids(
        await pages(rig.storage.scan_entries, "session", EntryQuery(conversation_id=1, order="ascending"), limit=999)
    )


# --- the disk


def test_a_full_disk_is_a_typed_error_and_the_store_goes_on_when_there_is_room(tmp_path):  # B013
    async def body(rig):
        await rig.commit(conversation(rig.id()), entry(rig.id()))
        (size,) = (await sql(rig, "PRAGMA page_count"))[0]
        await sql(rig, f"PRAGMA max_page_count = {size + 2}")
        big = EntryRecord(id=rig.id(), conversation_id=1, kind="note", data="x" * 100_000)
        await fails(StorageFull, rig.storage.write([rig.batch(entry(rig.id())), rig.batch(big)]))
        await fails(StorageClosed, rig.storage.write([rig.batch(entry(3))]))
        assert await all_entries(rig) == [2]
        assert not (await rig.storage._engine.writing.run(lambda: rig.storage._engine.writing.sqlite.in_transaction))
        await rig.restart()
        rig.seq = 1
        await rig.commit(big, entry(4))
        assert await all_entries(rig) == [2, 3, 4]

    with_store(tmp_path / "s.db", body)


def test_a_file_that_is_deleted_or_replaced_underneath_takes_no_more_commits(tmp_path):
    path = tmp_path / "s.db"

    async def body(rig, damage):
        await rig.commit(conversation(rig.id()))
        damage()
        error = await fails(StorageError, rig.storage.write([rig.batch()]))
        assert type(error) is StorageError
        await fails(StorageClosed, rig.storage.write([rig.batch()]))

    async def taken_away(rig):
        await body(rig, lambda: path.rename(tmp_path / "kept"))
        await rig.storage.close()
        assert "is gone" in str(await fails(StorageError, rig.storage.open())), "an empty store passed for the old one"
        (tmp_path / "kept").rename(path)
        await rig.storage.open()
        assert await rig.storage.conversation("session", 1) == conversation(1)

    with_store(path, taken_away)
    for left in tmp_path.iterdir():
        left.unlink()
    with_store(path, lambda rig: body(rig, lambda: (path.rename(tmp_path / "moved"), path.write_bytes(b""))))


@pytest.mark.parametrize("moment", ["INSERT", "COMMIT"])
def test_an_input_output_error_leaves_the_outcome_open(tmp_path, moment):  # B026
    async def body(rig):
        await rig.commit(conversation(rig.id()))
        writing = rig.storage._engine.writing
        writing._connection = Breaking(writing.sqlite, moment)
        error = await fails(StorageError, rig.storage.write([rig.batch(entry(rig.id()))]))
        assert type(error) is StorageError
        assert error.__cause__.sqlite_errorcode == sqlite3.SQLITE_IOERR_FSYNC
        await fails(StorageClosed, rig.storage.write([rig.batch(entry(2))]))
        writing._connection = writing._connection.inner
        await rig.restart()
        rig.seq = (await rig.storage.session("session")).seq
        await rig.commit(entry(rig.id()))

    with_store(tmp_path / "s.db", body)


class Breaking:
    """A connection whose statements of one kind fail as they do when fsync fails."""

    def __init__(self, inner, moment):
        self.inner = inner
        self.moment = moment

    def execute(self, statement, *rows):
        return self._run(self.inner.execute, statement, *rows)

    def executemany(self, statement, rows):
        return self._run(self.inner.executemany, statement, rows)

    def _run(self, run, statement, *rows):
        if statement.startswith(self.moment):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return run(statement, *rows)

    def __getattr__(self, name):
        return getattr(self.inner, name)


# --- other connections


def test_a_foreign_lock_of_moderate_length_only_delays_a_commit(tmp_path):  # B002
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        with python(LOCK, path) as other:
            assert other.stdout.readline() == "locked\n"
            writing = asyncio.ensure_future(rig.commit(entry(rig.id())))
            await asyncio.sleep(0)
            assert await rig.storage.conversation("session", 1) == conversation(1), "a read waited for the lock"
            assert not writing.done()
            other.stdin.write("\n")
            other.stdin.flush()
            assert await writing == 2

    with_store(path, body, busy_timeout_s=30.0)


def test_a_foreign_lock_that_stays_is_a_typed_error(tmp_path):  # B002
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        with python(LOCK, path) as other:
            assert other.stdout.readline() == "locked\n"
            await fails(StorageBusy, rig.storage.write([rig.batch(entry(rig.id()))]))
            await fails(StorageClosed, rig.storage.write([rig.batch(entry(2))]))
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "released\n"
        await rig.restart()
        rig.seq = 1
        await rig.commit(entry(2))

    with_store(path, body, busy_timeout_s=0.05)


def test_a_cancelled_commit_that_waits_for_a_lock_blocks_nobody(tmp_path):  # B005
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        with python(LOCK, path) as other:
            assert other.stdout.readline() == "locked\n"
            cancelled = asyncio.ensure_future(rig.storage.write([rig.batch(entry(rig.id()))]))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            behind = [rig.other("a"), rig.other("b")]
            writes = [asyncio.ensure_future(one.commit(conversation(one.id()))) for one in behind]
            other.stdin.write("\n")
            other.stdin.flush()
            assert await asyncio.gather(*writes) == [1, 1]
        assert not await rig.storage._engine.writing.run(lambda: rig.storage._engine.writing.sqlite.in_transaction)
        assert await all_entries(rig) == [2]

    with_store(path, body, busy_timeout_s=30.0)


# --- bad data


def test_one_bad_batch_of_a_hundred_is_named_and_the_rest_can_be_written(tmp_path):
    async def body(rig):
        others = [rig.other(f"s{number}") for number in range(100)]
        for number, bad in ((0, object()), (57, "\ud800"), (99, {1: object()})):
            batches = [one.batch(conversation(one.id())) for one in others]
            wrong = EntryRecord(id=1, conversation_id=1, kind="note", data=bad)
            broken = [*batches[:number], Batch(session="bad", seq=1, last_id=1, writes=[wrong]), *batches[number:]]
            assert (await fails(StorageRejected, rig.storage.write(broken))).index == number
            await rig.storage.write(batches)
        assert (await rig.storage.sessions(1000)).next is None

    with_store(tmp_path / "s.db", body)


def test_a_constraint_that_only_sqlite_sees_names_its_batch_too(tmp_path):
    async def body(rig):
        await rig.commit(conversation(rig.id()), document(rig.id(), {}))
        good = [rig.other(f"s{number}") for number in range(5)]
        batches = [one.batch(conversation(one.id())) for one in good]
        batches[3:3] = [rig.batch(task(rig.id()), document(rig.id(), {}))]
        assert (await fails(StorageRejected, rig.storage.write(batches))).index == 3
        assert await rig.storage.task("session", 3) is None
        assert (await rig.storage.sessions(9)).items == [await rig.storage.session("session")]

    with_store(tmp_path / "s.db", body)


@pytest.mark.parametrize("nonsense", [None, "1", 1.5, object()])
def test_nonsense_is_refused_not_fatal(tmp_path, nonsense):
    async def body(rig):
        await rig.commit(conversation(rig.id()))
        await rig.refuse(EntryRecord(id=nonsense, conversation_id=1, kind="note"))
        await rig.refuse(nonsense)
        await rig.commit(entry(rig.id()))

    with_store(tmp_path / "s.db", body)


# --- the file


def _edit(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def open_fails(path, kind):
    """Check that opening fails so, twice, that it changes nothing, and that it leaves no lock behind."""
    before = path.read_bytes()
    errors = [asyncio.run(fails(kind, SqliteStorage(path).open())) for _ in range(2)]
    assert path.read_bytes() == before
    return errors[0]


def test_a_newer_schema_is_refused_and_left_alone(tmp_path):  # B023
    path = tmp_path / "s.db"
    with_store(path, lambda rig: rig.commit(conversation(rig.id())))
    _edit(path, "UPDATE meta SET schema = 99")
    error = open_fails(path, SchemaTooNew)
    assert (error.found, error.supported) == (99, 1)
    _edit(path, "UPDATE meta SET schema = 1")
    assert with_store(path, lambda rig: rig.storage.conversation("session", 1)) == conversation(1)


def test_missing_metadata_is_corruption(tmp_path):  # ST-59
    path = tmp_path / "s.db"
    with_store(path, lambda rig: rig.commit())
    _edit(path, "DELETE FROM meta")
    open_fails(path, StorageCorrupt)
    _edit(path, "DROP TABLE meta")
    open_fails(path, StorageCorrupt)


def test_a_file_of_somebody_else_is_left_alone(tmp_path):
    path = tmp_path / "s.db"
    _edit(path, "CREATE TABLE mine (a)")
    open_fails(path, StorageCorrupt)
    path.write_bytes(b"not a database, but long enough to be looked at closely " * 99)
    open_fails(path, StorageCorrupt)


def test_an_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "s.db").touch()
    with_store(tmp_path / "s.db", lambda rig: rig.commit(conversation(rig.id())))


def test_a_record_that_cannot_be_read_is_corruption_of_that_record_only(tmp_path):  # B019
    async def body(rig):
        await rig.commit(conversation(rig.id()), entry(rig.id()), entry(rig.id()))
        await sql(rig, "UPDATE entries SET body = '{' WHERE rid & 0xFFFFFFFF = 2")
        await fails(StorageCorrupt, rig.storage.entry("session", 2))
        kept = await fails(StorageCorrupt, rig.storage.scan_entries("session", EntryQuery(conversation_id=1), 9))
        assert await rig.storage.entry("session", 3) == (entry(3), 1)
        await rig.commit(entry(rig.id()))
        assert (await sql(rig, "PRAGMA wal_checkpoint(TRUNCATE)"))[0][0] == 0, f"{kept!r} holds the log"

    with_store(tmp_path / "s.db", body)


def test_a_document_without_its_base_is_corruption(tmp_path):
    async def body(rig):
        await rig.commit(document(rig.id(), {}))
        await sql(rig, "DELETE FROM revisions")
        await fails(StorageCorrupt, rig.storage.document("session", 1))

    with_store(tmp_path / "s.db", body)


# --- cancellation


def test_writes_cancelled_at_twenty_moments_are_whole_or_absent(tmp_path):  # B007
    async def body(rig):
        await rig.commit(conversation(rig.id()))
        for moment in range(20):
            before = len(await all_entries(rig))
            batch = rig.batch(*(entry(rig.id()) for _ in range(400)))
            writing = asyncio.ensure_future(rig.storage.write([batch]))
            for _ in range(moment):
                await rig.storage.next_wake()
            writing.cancel()
            await asyncio.wait([writing])
            await rig.commit()
            assert len(await all_entries(rig)) in {before, before + 400}

    with_store(tmp_path / "s.db", body)
    assert threading.active_count() < 10
