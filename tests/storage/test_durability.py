"""What was acknowledged is there: after SIGKILL, and with the log on disk before the acknowledgement."""

import random
import shutil
import signal
import sqlite3
from functools import partial

import pytest
from perdure.storage.conformance_rig import conversation, entry, ids, pages
from perdure.storage.contract import EntryQuery
from perdure.storage.sqlite_log import WAL_BUSY_BYTES

from .support import python, with_store

WRITER = """
import asyncio, sys
from perdure.storage.conformance_rig import Rig, conversation, entry, task, ENDED
from perdure.storage import sqlite_log
from perdure.storage.sqlite import SqliteStorage

async def main():
    sqlite_log.WAL_BUSY_BYTES = int(sys.argv[3])
    storage = SqliteStorage(sys.argv[1], durability=sys.argv[2])
    await storage.open()
    rigs = [Rig(storage, reopen=False, key=f"s{number}") for number in range(3)]
    for rig in rigs:
        known = await storage.session(rig.key)
        if known is None:
            await rig.commit(conversation(rig.id()))
        else:
            rig.seq, rig.last_id = known.seq, known.last_id
    while True:
        await storage.write([rig.batch(entry(rig.id()), entry(rig.id()), task(rig.id(), ENDED)) for rig in rigs])
        print(rigs[0].seq, flush=True)
        if rigs[0].seq % 7 == 0:
            await storage.idle()

asyncio.run(main())
"""


async def check(rig, acknowledged):
    """Check that every session stands at one commit, not before the acknowledged one, whole and without gaps."""
    seqs = set()
    for number in range(3):
        key = f"s{number}"
        record = await rig.storage.session(key)
        seqs.add(record.seq)
        entries = ids(
            await pages(rig.storage.scan_entries, key, EntryQuery(conversation_id=1, order="ascending"), limit=500)
        )
        commits = record.seq - 1
        assert entries == [2 + 3 * commit + n for commit in range(commits) for n in (0, 1)]
        assert record.last_id == 1 + 3 * commits
    assert len(seqs) == 1, "a group was torn"
    assert seqs.pop() >= acknowledged


@pytest.mark.parametrize("busy_bytes", [WAL_BUSY_BYTES, 16_384], ids=["", "while the log is copied"])
@pytest.mark.parametrize("durability", ["power", "process"])
def test_sigkill_at_any_moment_loses_nothing_acknowledged(tmp_path, durability, busy_bytes):  # B016
    path = tmp_path / "s.db"
    moments = random.Random(durability)
    acknowledged = 0
    for _ in range(3):
        with python(WRITER, path, durability, str(busy_bytes)) as writer:
            for _ in range(moments.randrange(1, 60)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split("\n")
            acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        with_store(path, partial(check, acknowledged=acknowledged))
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


@pytest.mark.parametrize(("durability", "level"), [("power", 2), ("process", 1)])
def test_the_promise_is_kept_by_the_settings_that_sqlite_documents_for_it(tmp_path, durability, level):
    async def body(rig):
        writing = rig.storage._engine.writing

        def settings():
            names = ("journal_mode", "synchronous", "fullfsync", "wal_autocheckpoint", "locking_mode")
            return [writing.sqlite.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

        return await writing.run(settings)

    assert with_store(tmp_path / "s.db", body, durability=durability) == ["wal", level, 1, 0, "normal"]


def test_reads_see_what_was_acknowledged_and_never_wait_for_the_writer(tmp_path):
    async def body(rig):
        await rig.commit(conversation(rig.id()), entry(rig.id()))
        writing = rig.storage._engine.writing
        await writing.run(writing.sqlite.execute, "BEGIN IMMEDIATE")
        await writing.run(writing.sqlite.execute, "DELETE FROM entries")
        assert await rig.storage.entry("session", 2) == (entry(2), 1)
        await writing.run(writing.sqlite.execute, "ROLLBACK")
        for _ in range(50):
            seq = await rig.commit(entry(rig.id()))
            assert await rig.storage.entry("session", rig.last_id) == (entry(rig.last_id), seq)

    with_store(tmp_path / "s.db", body)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_commit_is_acknowledged_only_after_its_log_was_flushed(tmp_path):  # P3, seen from the kernel
    path, trace = tmp_path / "s.db", tmp_path / "trace"
    traced = ["strace", "-f", "-y", "-e", "trace=pwrite64,fdatasync,fsync,write", "-o", str(trace)]
    with python(WRITER, path, "power", prefix=traced) as writer:
        acknowledged = [writer.stdout.readline() for _ in range(12)]
        writer.send_signal(signal.SIGKILL)
    if not acknowledged[-1]:
        pytest.skip("strace may not trace here")
    wal_written = acks = 0
    for line in trace.read_text().splitlines():
        if "pwrite64(" in line and "s.db-wal>" in line:
            wal_written += 1
        elif "sync(" in line and "s.db-wal>" in line and line.endswith("= 0"):
            wal_written = 0
        elif "write(1<" in line:
            acks += 1
            assert wal_written == 0, f"acknowledgement {acks} came before its flush"
    assert acks >= 12
