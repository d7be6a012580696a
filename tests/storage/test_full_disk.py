"""A disk that is really full, or really cannot be written: typed errors, nothing half-written, and going on afterwards."""

import asyncio
import sqlite3
import subprocess

import pytest
from perdure.storage.conformance_rig import Rig, conversation, entry, fails, ids, pages
from perdure.storage.contract import EntryQuery
from perdure.storage.errors import StorageClosed, StorageError, StorageFull
from perdure.storage.records import EntryRecord
from perdure.storage.sqlite import SqliteStorage

from .support import disk, with_store

MB = 2**20


def remount(folder, mode):
    subprocess.run(["mount", "-o", f"remount,{mode}", folder], check=True)


async def entries(storage):
    root = EntryQuery(conversation_id=1, order="ascending")
    return ids(await pages(storage.scan_entries, "session", root, limit=999))


async def begin(storage):
    rig = Rig(storage, reopen=False)
    await rig.commit(conversation(rig.id()))


async def fill(rig):
    """Commit until the disk is full; give the ids that were acknowledged."""
    acknowledged = []
    while True:
        big = EntryRecord(id=rig.id(), conversation_id=1, kind="note", data="x" * 20_000)
        try:
            await rig.commit(big)
        except StorageFull:
            return acknowledged
        acknowledged.append(big.id)


def test_a_full_disk_is_a_typed_error_and_the_same_store_goes_on_when_there_is_room(tmp_path):  # B013, P11
    async def body(rig, filler):
        await rig.commit(conversation(rig.id()))
        kept = await fill(rig)
        assert len(kept) > 3
        await fails(StorageClosed, rig.storage.write([rig.batch(entry(rig.id()))]))
        assert await entries(rig.storage) == kept, "a store that is full can still be read"
        for _ in range(3):
            rig.seq, rig.last_id = 0, 0
            try:
                await rig.restart()
            except StorageFull:
                continue
            row = await rig.storage.session("session")
            rig.seq, rig.last_id = row.seq, row.last_id
            kept += await fill(rig)
            assert await entries(rig.storage) == kept
        filler.unlink()
        await rig.restart()
        row = await rig.storage.session("session")
        rig.seq, rig.last_id = row.seq, row.last_id
        await rig.commit(entry(rig.id()))
        assert await entries(rig.storage) == [*kept, rig.last_id]

    with disk(tmp_path / "disk", 4 * MB) as folder:
        (folder / "filler").write_bytes(b"x" * 3 * MB)
        with_store(folder / "s.db", lambda rig: body(rig, folder / "filler"), durability="power")
        connection = sqlite3.connect(folder / "s.db")
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


@pytest.mark.parametrize("room", [0, 4, 8, 16, 32, 64])
def test_a_store_that_finds_no_room_to_begin_in_says_so_and_begins_later(tmp_path, room):
    with disk(tmp_path / "disk", MB) as folder:
        filler = folder / "filler"
        filler.write_bytes(b"x" * (MB - room * 1_024))

        async def run():
            storage = SqliteStorage(folder / "s.db")
            for _ in range(2):
                await fails(StorageFull, storage.open())
            filler.unlink()
            await storage.open()
            await begin(storage)
            await storage.close()

        asyncio.run(run())


def test_a_disk_that_cannot_be_written_is_a_typed_error_and_nothing_is_changed(tmp_path):
    with disk(tmp_path / "disk", 4 * MB) as folder:
        path = folder / "s.db"
        with_store(path, lambda rig: rig.commit(conversation(rig.id())))
        before = path.read_bytes()

        async def run():
            storage = SqliteStorage(path)
            remount(folder, "ro")
            for _ in range(2):
                assert type(await fails(StorageError, storage.open())) is StorageError
            assert type(await fails(StorageError, SqliteStorage(folder / "new.db").open())) is StorageError
            assert path.read_bytes() == before
            remount(folder, "rw")
            await storage.open()
            assert await storage.conversation("session", 1) == conversation(1)
            await storage.close()

        asyncio.run(run())
