"""The write-ahead log is kept short when nobody waits, bounded when everybody does, and gone at the end."""

import sqlite3

from perdure.storage import sqlite_log
from perdure.storage.conformance_rig import conversation, entry
from perdure.storage.records import EntryRecord
from perdure.storage.sqlite_log import WAL_IDLE_BYTES

from .support import with_store


def big(number):
    return EntryRecord(id=number, conversation_id=1, kind="note", data="x" * 32_768)


def wal_size(path):
    return path.with_name(path.name + "-wal").stat().st_size


async def fill(rig, commits):
    for _ in range(commits):
        await rig.commit(big(rig.id()))


def test_an_idle_store_copies_a_log_that_has_grown_and_reuses_its_file(tmp_path):  # ST-65
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        await fill(rig, 150)
        assert wal_size(path) > WAL_IDLE_BYTES
        before = path.stat().st_size
        await rig.storage.idle()
        assert path.stat().st_size > before, "idle copied nothing"
        await rig.commit(entry(rig.id()))
        assert wal_size(path) <= WAL_IDLE_BYTES, "the log did not begin anew"
        size = path.stat().st_size
        await rig.storage.idle()
        assert path.stat().st_size == size, "a short log is not worth copying"

    with_store(path, body)


def test_a_busy_store_never_lets_the_log_grow_beyond_its_limit(tmp_path, monkeypatch):  # ST-65
    path = tmp_path / "s.db"
    limit = 3 * WAL_IDLE_BYTES
    monkeypatch.setattr(sqlite_log, "WAL_BUSY_BYTES", 2 * WAL_IDLE_BYTES)
    monkeypatch.setattr(sqlite_log, "WAL_LIMIT_BYTES", limit)

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        longest = 0
        for _ in range(60):
            await fill(rig, 20)
            longest = max(longest, wal_size(path))
        assert longest < limit + 2 * 2**20

    with_store(path, body)


def test_a_foreign_reader_delays_the_copying_and_breaks_nothing(tmp_path, monkeypatch):
    path = tmp_path / "s.db"
    limit = 2 * WAL_IDLE_BYTES
    monkeypatch.setattr(sqlite_log, "WAL_BUSY_BYTES", limit)

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchall()
        await fill(rig, 600)
        assert wal_size(path) > 2 * limit, "the log was cut under a reader"
        reader.execute("COMMIT")
        for _ in range(1_000):
            await rig.commit(big(rig.id()))
            if wal_size(path) <= WAL_IDLE_BYTES:
                break
        else:
            raise AssertionError("the log did not begin anew")
        reader.close()

    with_store(path, body)


def test_closing_leaves_an_empty_log_even_beside_a_reader(tmp_path):  # ST-65
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        await fill(rig, 20)
        body.reader = sqlite3.connect(path)
        body.reader.execute("SELECT * FROM meta").fetchall()

    with_store(path, body)
    assert wal_size(path) == 0
    body.reader.close()
    with_store(path, lambda rig: rig.storage.idle())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s.db", "s.db.lock"]
