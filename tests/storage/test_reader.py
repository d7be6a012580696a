"""Reading a store beside its owner, or after its death: everything is seen, nothing is touched."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess

import pytest
from perdure.storage.conformance_rig import ENDED, ROOT, conversation, delta, document, entry, fails, ids, set_n, task
from perdure.storage.contract import ConversationQuery, DocumentQuery, EntryQuery, TaskQuery
from perdure.storage.errors import SchemaTooNew, StorageClosed, StorageCorrupt, StorageError, StorageRejected
from perdure.storage.owner import find_owner
from perdure.storage.records import SessionScope
from perdure.storage.sqlite_reader import SqliteReader

from .support import python, with_store
from .test_failures import _edit

OWNER = """
import asyncio, sys
from perdure.storage.conformance_rig import Rig, conversation, entry
from perdure.storage.sqlite import SqliteStorage

async def main():
    storage = SqliteStorage(sys.argv[1])
    await storage.open()
    rig = Rig(storage, reopen=False)
    await rig.commit(conversation(rig.id()))
    while True:
        print(await rig.commit(entry(rig.id())), flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


def read(path, body):
    """Run a coroutine on a reader."""

    async def run():
        async with SqliteReader(path) as reader:
            return await body(reader)

    return asyncio.run(run())


async def seq(reader):
    return (await reader.session("session")).seq


async def fill(rig):
    """Store something of everything."""
    await rig.commit(conversation(rig.id()), entry(rig.id()), task(rig.id()), document(rig.id(), {"n": 0}, scope=ROOT))
    await rig.commit(task(rig.id(), ENDED), set_n(4, 5), entry(rig.id(), head=2), wake=7)


def questions(store):
    """Ask a bit of everything."""
    root = EntryQuery(conversation_id=1)
    return [
        store.session("session"),
        store.sessions(9),
        store.due(9, 9),
        store.next_wake(),
        store.conversation("session", 1),
        store.scan_conversations("session", ConversationQuery(), 9),
        store.entry("session", 2, 1),
        store.scan_entries("session", root, 9),
        store.latest_head_marker("session", 1),
        store.task("session", 5),
        store.live_tasks("session"),
        store.scan_tasks("session", TaskQuery(), 9),
        store.find_document("session", "doc", ROOT),
        store.document("session", 4),
        store.scan_documents("session", DocumentQuery(scope=SessionScope()), 9),
        store.session("nobody"),
    ]


def test_a_reader_answers_as_the_owner_does(tmp_path):
    async def body(rig):
        await fill(rig)
        async with SqliteReader(tmp_path / "s.db") as reader:
            assert [await answer for answer in questions(reader)] == [await answer for answer in questions(rig.storage)]
            refused = await fails(StorageRejected, reader.scan_entries("session", EntryQuery(conversation_id=9), 9))
            assert "unknown conversation" in str(refused)

    with_store(tmp_path / "s.db", body)


def test_a_reader_keeps_the_picture_it_opened_with_and_holds_nobody_up(tmp_path):
    async def body(rig):
        await fill(rig)
        async with SqliteReader(tmp_path / "s.db") as reader:
            for _ in range(3):
                await rig.commit(entry(rig.id()))
                await rig.storage.idle()
            assert await seq(reader) == 2
            assert await rig.storage.session("session") is not None
        async with SqliteReader(tmp_path / "s.db") as reader:
            assert await seq(reader) == 5

    with_store(tmp_path / "s.db", body)


def test_a_live_owner_is_read_and_named_and_never_notices(tmp_path):
    path = tmp_path / "s.db"
    with python(OWNER, path) as owner:
        assert owner.stdout.readline() == "2\n"
        before = fence(path)
        assert read(path, seq) == 2
        found = find_owner(path)
        assert (found.pid, found.host) == (owner.pid, socket.gethostname())
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert owner.stdout.readline() == "3\n", "the owner was fenced off"
        assert read(path, seq) == 3
        assert fence(path) == before
        owner.send_signal(signal.SIGKILL)


def fence(path):
    with sqlite3.connect(path) as connection:
        (found,) = connection.execute("SELECT fence FROM meta").fetchone()
    connection.close()
    return found


def test_a_dead_owners_store_is_read_with_its_log_and_left_as_it_is(tmp_path):
    path = tmp_path / "s.db"
    with python(OWNER, path) as owner:
        assert owner.stdout.readline() == "2\n"
        owner.send_signal(signal.SIGKILL)
    files = [path, tmp_path / "s.db-wal", tmp_path / "s.db.lock"]
    before = [file.read_bytes() for file in files]
    assert len(before[1]) > 0, "everything is in the file already"
    for _ in range(2):
        assert read(path, seq) == 2
        assert find_owner(path) is None
        assert [file.read_bytes() for file in files] == before
    (tmp_path / "s.db-shm").unlink()
    assert read(path, seq) == 2
    assert [file.read_bytes() for file in files] == before


def test_a_closed_store_on_a_disk_that_cannot_be_written_is_read(tmp_path):
    (tmp_path / "disk").mkdir()
    path = tmp_path / "disk" / "s.db"
    with_store(path, fill)
    if subprocess.run(
        ["mount", "--bind", "-o", "ro", path.parent, path.parent], check=False, capture_output=True
    ).returncode:
        pytest.skip("may not mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path.parent], check=True)
        assert read(path, seq) == 2
        assert sorted(left.name for left in path.parent.iterdir()) == ["s.db", "s.db.lock"]
    finally:
        subprocess.run(["umount", path.parent], check=True)


def test_without_the_kernels_list_an_owner_is_known_by_its_description(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure.storage.owner._KERNEL_LOCKS", tmp_path / "missing")
    path = tmp_path / "s.db"
    with python(OWNER, path) as process:
        assert process.stdout.readline() == "2\n"
        assert find_owner(path).pid == process.pid
        process.send_signal(signal.SIGKILL)
    assert find_owner(path) is None
    (tmp_path / "s.db.lock").write_text(f'{{"pid":{os.getpid()},"host":"elsewhere","startedAt":1}}')
    assert find_owner(path) is None


def test_nobody_owns_what_was_never_opened_or_was_closed(tmp_path):
    assert find_owner(str(tmp_path / "s.db")) is None
    with_store(tmp_path / "s.db", fill)
    assert find_owner(str(tmp_path / "s.db")) is None


def test_a_reader_writes_nothing_and_takes_no_lock(tmp_path):
    with_store(tmp_path / "s.db", fill)

    async def body(reader):
        for statement in ("DELETE FROM entries", "PRAGMA user_version = 3"):
            await fails(StorageError, reader._ask(lambda connection, sql=statement: connection.execute(sql)))

        async def owner(rig):
            assert await seq(rig.storage) == 2

        await asyncio.to_thread(with_store, tmp_path / "s.db", owner)
        return await reader.live_tasks("session")

    assert ids(read(tmp_path / "s.db", body)) == [3]


def refuses(path, kind):
    """Check that a reader does not open, twice, and changes nothing."""
    before = path.read_bytes() if path.exists() else None
    errors = [asyncio.run(fails(kind, SqliteReader(path).open())) for _ in range(2)]
    assert before == (path.read_bytes() if path.exists() else None)
    assert type(errors[0]) is kind
    return str(errors[0])


def test_what_is_no_store_of_this_schema_is_refused(tmp_path):  # B023
    path = tmp_path / "s.db"
    assert "does not exist" in refuses(path, StorageError)
    path.touch()
    assert "empty" in refuses(path, StorageCorrupt)
    path.write_text("some notes " * 999)
    refuses(path, StorageCorrupt)
    path.unlink()
    with_store(path, fill)
    _edit(path, "UPDATE meta SET schema = 99")
    assert "upgrade perdure" in refuses(path, SchemaTooNew)
    _edit(path, "UPDATE meta SET schema = 0")
    assert "has schema 0" in refuses(path, StorageError)


def test_a_closed_reader_says_so(tmp_path):
    with_store(tmp_path / "s.db", fill)

    async def run():
        reader = SqliteReader(tmp_path / "s.db")
        await fails(StorageClosed, reader.session("session"))
        await reader.open()
        await reader.open()
        await reader.close()
        await reader.close()
        await fails(StorageClosed, reader.session("session"))

    asyncio.run(run())


def test_sizes_count_one_session_only(tmp_path):
    async def body(rig):
        await fill(rig)
        other = rig.other("other")
        await other.commit(conversation(other.id()), document(other.id(), {"text": "x" * 1_000}))
        await other.commit(delta(2, ["s", ["n"], 1]))

    with_store(tmp_path / "s.db", body)

    async def count(reader):
        found = [await reader.session_sizes(key) for key in ("session", "other", "nobody")]
        assert await reader.all_sizes() == {"session": found[0], "other": found[1]}
        return found, reader.sizes()

    (one, two, none), store = read(tmp_path / "s.db", count)
    assert (one.conversations, one.entries, one.live_tasks, one.ended_tasks, one.documents) == (1, 2, 1, 1, 1)
    assert (two.entries, two.documents, two.revisions) == (0, 1, 2)
    assert two.bytes > 1_000 > one.bytes > 100
    assert none.bytes == none.conversations == 0
    assert store.file_bytes == (tmp_path / "s.db").stat().st_size
