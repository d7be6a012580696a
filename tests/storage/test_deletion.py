"""How SQLite deletes a session: gone at once, reclaimed in small steps, whatever happens meanwhile."""

import asyncio
import os
import signal
import sqlite3
import threading
from functools import partial

import pytest
from perdure.storage import sqlite_deletion, sqlite_writer
from perdure.storage.conformance_rig import ENDED, Rig, conversation, entry, fails, submission, task
from perdure.storage.conformance_sessions import assert_empty, fill
from perdure.storage.errors import StorageClosed, StorageError
from perdure.storage.records import ConversationDelete, EntryRecord
from perdure.storage.sqlite import SqliteStorage

from .support import with_store
from .test_failures import Breaking

TABLES = (
    "sessions",
    "conversations",
    "entries",
    "live_tasks",
    "ended_tasks",
    "submissions",
    "messages",
    "documents",
    "revisions",
)


def rows(path):
    """Count the rows of every table."""
    connection = sqlite3.connect(path)
    counts = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    return counts


async def fill_both(rig):
    """Store a session of more than two steps, and a neighbour."""
    for one in (rig, rig.other("neighbour")):
        await fill(one)
    await rig.commit(*(entry(rig.id()) for _ in range(700)))


async def reclaimed(storage):
    """Wait until the writing thread has nothing left to reclaim."""
    writing = storage._engine.writing
    while await writing.run(sqlite_deletion.has_deleted, writing.sqlite):
        pass


def test_every_row_of_a_deleted_session_is_reclaimed_and_no_other(tmp_path):
    path = tmp_path / "s.db"
    with_store(path, lambda rig: fill(rig.other("neighbour")))
    alone = rows(path)
    path.unlink()

    async def body(rig):
        await fill_both(rig)
        assert await rig.storage.delete_session("session")
        await assert_empty(rig)
        await reclaimed(rig.storage)

    with_store(path, body)
    assert rows(path) == alone


def test_a_write_waits_for_one_step_at_most(tmp_path, monkeypatch):
    steps = []
    reclaim = sqlite_writer.reclaim_some
    monkeypatch.setattr(sqlite_writer, "reclaim_some", lambda connection: steps.append(1) or reclaim(connection))
    monkeypatch.setattr(sqlite_deletion, "STEP_ROWS", 4)

    async def body(rig):
        await fill_both(rig)
        other, waited = rig.other("neighbour"), []
        other.seq, other.last_id = 3, 8
        await rig.storage.delete_session("session")
        for _ in range(5):
            at = await write_behind_a_pause(rig.storage, other, steps)
            waited.append(at[1] - at[0])
        assert max(waited) <= 1
        await reclaimed(rig.storage)

    with_store(tmp_path / "s.db", body)
    assert len(steps) > 100


async def write_behind_a_pause(storage, rig, steps):
    """Write while the thread stands still; give how many steps had been made when it did, and when it wrote."""
    writing, writer = storage._engine.writing, storage._engine.writer
    held, free, at = threading.Event(), threading.Event(), []

    def pause():
        held.set()
        free.wait()
        at.append(len(steps))

    def write(*arguments):
        at.append(len(steps))
        return type(writer).write(writer, *arguments)

    writer.write = write
    pausing = asyncio.ensure_future(writing.run(pause))
    while not held.is_set():
        await asyncio.sleep(0)
    committing = asyncio.ensure_future(rig.commit(entry(rig.id())))
    await asyncio.sleep(0)
    free.set()
    await asyncio.gather(pausing, committing)
    del writer.write
    return at


def test_a_step_deletes_only_so_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_deletion, "STEP_ROWS", 5)
    with_store(tmp_path / "s.db", fill)
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    sqlite_deletion.forget_session(connection, "session")
    changes = []
    while sqlite_deletion.has_deleted(connection):
        before = connection.total_changes
        sqlite_deletion.reclaim_some(connection)
        changes.append(connection.total_changes - before)
    connection.close()
    assert sum(changes) == 11
    assert max(changes) <= 5 + 1
    assert len(changes) >= 2


def test_an_owner_that_is_killed_while_it_reclaims_is_gone_on_from(tmp_path):
    path = tmp_path / "s.db"
    with_store(path, lambda rig: fill(rig.other("neighbour")))
    alone = rows(path)
    for steps in (1, 2, 3):
        path.unlink()
        with_store(path, fill_both)
        kill_in_step(path, steps)
        left = rows(path)
        assert left["sessions"] == 2
        assert left["entries"] > alone["entries"] or steps == 3

        async def go_on(rig):
            await assert_empty(rig)
            assert [row.key for row in (await rig.storage.sessions(9)).items] == ["neighbour"]
            again = Rig(rig.storage, reopen=False)
            await fill(again)
            await reclaimed(rig.storage)
            assert await rig.storage.delete_session("session")
            await reclaimed(rig.storage)

        with_store(path, go_on)
        assert rows(path) == alone


def kill_in_step(path, step):
    """Delete the session in a process that is killed in the middle of so many steps."""
    child = os.fork()
    if child == 0:
        left = [step]
        reclaim = sqlite_writer.reclaim_some

        def dying(connection):
            reclaim(connection)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sqlite_writer.reclaim_some = dying

        async def run():
            storage = SqliteStorage(path)
            await storage.open()
            await storage.delete_session("session")
            await asyncio.Event().wait()

        try:
            asyncio.run(run())
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("moment", ["UPDATE sessions SET key", "COMMIT"])
def test_a_deletion_whose_outcome_is_unknown_stops_the_store(tmp_path, moment):
    async def body(rig):
        await fill(rig)
        writing = rig.storage._engine.writing
        writing._connection = Breaking(writing.sqlite, moment)
        await fails(StorageError, rig.storage.delete_session("session"))
        await fails(StorageClosed, rig.storage.delete_session("session"))
        await fails(StorageClosed, rig.storage.write([rig.batch()]))
        writing._connection = writing._connection.inner
        await rig.restart()
        assert await rig.storage.session("session") is not None

    with_store(tmp_path / "s.db", body)


def test_a_reclamation_that_fails_is_tried_after_the_next_open_and_stops_nobody(tmp_path):
    async def body(rig):
        await fill_both(rig)
        writing = rig.storage._engine.writing
        whole, writing._connection = writing._connection, Breaking(writing.sqlite, "\nDELETE")
        assert await rig.storage.delete_session("session")
        other = rig.other("neighbour")
        other.seq, other.last_id = 3, 8
        await other.commit(conversation(other.id()))
        assert await writing.run(partial(sqlite_deletion.has_deleted, whole))
        writing._connection = whole
        await rig.restart()
        await reclaimed(rig.storage)

    with_store(tmp_path / "s.db", body)
    assert rows(tmp_path / "s.db")["entries"] == 1


def test_the_pages_of_a_deleted_conversation_are_used_again(tmp_path):
    """A file that loses and gets conversations of one size does not grow; nothing of the lost ones is in the tables."""
    path = tmp_path / "s.db"
    sizes = []

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        empty = None
        for _ in range(4):
            home = rig.id()
            await rig.commit(conversation(home))
            for _ in range(5):
                await rig.commit(*large(rig, home))
            await rig.commit(ConversationDelete(id=home))
            sizes.append(pages(path))
            empty = empty or rows(path)
            assert rows(path) == empty

    with_store(path, body)
    assert sizes[0] > 100
    assert max(sizes) <= sizes[0] + 8
    assert rows(path)["entries"] == rows(path)["submissions"] == rows(path)["ended_tasks"] == 0


def large(rig, home):
    """Make entries, submissions and ended tasks of a conversation."""
    for _ in range(20):
        yield EntryRecord(id=rig.id(), conversation_id=home, kind="note", data={"text": "x" * 1_000})
        yield submission(rig.id(), conversation_id=home, status="done")
        yield task(rig.id(), ENDED, conversation_id=home, input={"text": "x" * 300})


def pages(path):
    """Count the pages of a file, those in its log included."""
    connection = sqlite3.connect(path)
    (count,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    return count
