import asyncio
import json
import os
import signal
import socket
import sqlite3
import stat
from pathlib import Path

import pytest
from perdure.storage.conformance_rig import conversation, entry, fails
from perdure.storage.errors import StorageError, StorageFenced, StorageInUse
from perdure.storage.owner import OwnerLock
from perdure.storage.sqlite import SqliteStorage

from .support import opened, python, with_store

HOLD = """
import asyncio, sys
from perdure.storage.sqlite import SqliteStorage

async def main():
    storage = SqliteStorage(sys.argv[1])
    await storage.open()
    print("open", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def in_use(path: Path) -> StorageInUse:
    """Check that a store cannot be opened."""
    return await fails(StorageInUse, SqliteStorage(path).open())


def test_a_second_process_learns_who_has_the_store_and_gets_it_when_that_dies(tmp_path):  # B004
    path = tmp_path / "s.db"
    with python(HOLD, path) as owner:
        assert owner.stdout.readline() == "open\n"
        error = asyncio.run(in_use(path))
        assert (error.pid, error.host, error.path) == (owner.pid, socket.gethostname(), str(path))
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with_store(path, lambda rig: rig.commit(conversation(rig.id())))


def test_a_store_cannot_be_opened_twice_in_one_process_under_any_name(tmp_path):  # B004
    path = tmp_path / "folder" / "s.db"
    path.parent.mkdir()
    (tmp_path / "alias").symlink_to(path.parent)
    (tmp_path / "link.db").symlink_to(path)
    relative = Path(os.path.relpath(path))

    async def body(rig):
        for alias in (path, tmp_path / "alias" / "s.db", tmp_path / "link.db", relative):
            assert (await in_use(alias)).pid == os.getpid()
        await rig.commit(conversation(rig.id()))

    with_store(path, body)


def test_a_description_left_by_somebody_else_means_nothing(tmp_path):  # B004: a reused pid, a crashed owner
    (tmp_path / "s.db.lock").write_text(
        json.dumps({"pid": os.getpid(), "host": "elsewhere", "startedAt": 1}) + "x" * 999
    )
    with_store(tmp_path / "s.db", lambda rig: rig.commit(), clock=lambda: 77)
    left = json.loads((tmp_path / "s.db.lock").read_text())
    assert left == {"pid": os.getpid(), "host": socket.gethostname(), "startedAt": 77}


def test_an_owner_without_a_description_is_still_an_owner(tmp_path):
    lock = OwnerLock(str(tmp_path / "s.db"))
    lock.acquire(0)
    (tmp_path / "s.db.lock").write_text("")
    assert asyncio.run(in_use(tmp_path / "s.db")).pid == 0
    lock.release()
    lock.release()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_inherit_ownership(tmp_path):
    lock = OwnerLock(str(tmp_path / "s.db"))
    lock.acquire(0)
    told, tell = os.pipe()
    hold, let_go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(let_go)
        os.write(tell, b"x")
        os.read(hold, 1)
        os._exit(0)
    os.read(told, 1)
    lock.release()
    again = OwnerLock(str(tmp_path / "s.db"))
    again.acquire(0)
    again.release()
    os.close(let_go)
    os.waitpid(child, 0)
    for end in (told, tell, hold):
        os.close(end)


def test_a_newer_owner_fences_an_older_one_off(tmp_path):
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        other = tmp_path / "hardlink.db"  # a name that no lock can see through
        os.link(path, other)
        for suffix in ("-wal", "-shm"):
            os.link(f"{path}{suffix}", f"{other}{suffix}")
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("UPDATE meta SET fence = fence + 1")
        connection.close()
        for _ in range(2):
            await fails(StorageFenced, rig.storage.write([rig.batch(entry(1))]))
        assert await rig.storage.entry("session", 1) is None

    with_store(path, body)


def test_every_file_is_for_its_owner_only(tmp_path):  # B184
    previous = os.umask(0)
    try:

        async def body(rig):
            await rig.commit(conversation(rig.id()))
            await rig.storage.session("session")
            return {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

        modes = with_store(tmp_path / "s.db", body)
    finally:
        os.umask(previous)
    assert modes == dict.fromkeys(["s.db", "s.db-shm", "s.db-wal", "s.db.lock"], 0o600)


def test_fifty_tasks_open_one_store_once(tmp_path):  # B029
    async def main():
        storage = SqliteStorage(tmp_path / "s.db")
        await asyncio.gather(*(storage.open() for _ in range(50)))
        fence = storage._engine.writer._fence
        await storage.close()
        return fence

    assert asyncio.run(main()) == 1


def test_of_fifty_stores_on_one_path_one_wins(tmp_path):  # B029
    async def main():
        stores = [SqliteStorage(tmp_path / "s.db") for _ in range(50)]
        outcomes = await asyncio.gather(*(store.open() for store in stores), return_exceptions=True)
        await asyncio.gather(*(store.close() for store in stores))
        return outcomes

    outcomes = asyncio.run(main())
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, StorageInUse) for outcome in outcomes) == 49


def test_a_folder_that_does_not_exist_is_a_clear_error(tmp_path):
    error = asyncio.run(fails(StorageError, SqliteStorage(tmp_path / "none" / "s.db").open()))
    assert type(error) is StorageError
    assert "No such file or directory" in str(error)


@pytest.mark.parametrize("bad", ["", ":memory:"])
def test_a_store_needs_a_file(bad):
    with pytest.raises(ValueError, match="MemoryStorage"):
        SqliteStorage(bad)


def test_a_durability_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'power' or 'process'"):
        SqliteStorage(tmp_path / "s.db", durability="disk")


def test_closing_frees_the_store_for_the_next_owner(tmp_path):
    async def main():
        for _ in range(3):
            async with opened(tmp_path / "s.db") as rig:
                await rig.storage.close()
                async with opened(tmp_path / "s.db"):
                    pass

    asyncio.run(main())
