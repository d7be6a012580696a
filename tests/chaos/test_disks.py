"""Disks and files that fail for a while under a running system: the same process goes on when they are back (P11)."""

import asyncio

import perdure
import pytest

from ..storage.support import disk, python
from ..storage.test_failures import LOCK
from .observer import FaultyStore
from .world import restarts, until

MB = 2**20
MINUTES = 60_000


def clock():
    return perdure.VirtualClock(autojump=True, quiet_s=0.001)


async def note(root, data):
    """Commit one entry; gives what the session failed of, or None."""
    try:
        async with root.commit() as tx:
            await tx.append("note", data)
    except perdure.SessionFailed as failure:
        return failure.__cause__
    return None


async def notes(root):
    page = await root.entries(order="ascending")
    found = page.items
    while page.next is not None:
        page = await root.entries(order="ascending", cursor=page.next)
        found += page.items
    return [entry.data for entry in found]


async def write_until(root, kept, done):
    """Commit notes until something is so, keeping those that were acknowledged; gives the failures."""
    failures = []
    while not done(failures):
        data = {"number": len(kept) + len(failures), "text": "x" * 20_000}
        cause = await note(root, data)
        if cause is None:
            kept.append(data)
        else:
            failures.append(cause)
    return failures


def test_a_disk_that_is_full_for_minutes_stops_the_sessions_and_not_the_system(tmp_path):
    """B013, B026."""

    async def run(folder, filler):
        time = clock()
        async with perdure.System.open(folder / "s.db", clock=time) as system:
            root, kept = await (await system.session("customer-42")).root(), []
            (cause,) = await write_until(root, kept, bool)
            assert type(cause) is perdure.StorageFull
            end = time.now() + 10 * MINUTES
            waiting = asyncio.ensure_future(write_until(root, kept, lambda failures: time.now() > end))
            await time.sleep(10 * 60)
            assert len(kept) < 50, "the disk was never full"
            filler.unlink()
            assert {type(cause) for cause in await waiting} <= {perdure.StorageFull}
            assert await note(root, "there is room again") is None
            assert await notes(root) == [*kept, "there is room again"]
            assert restarts(system)["storage"] > 10

    with disk(tmp_path / "disk", 4 * MB) as folder:
        (folder / "filler").write_bytes(b"x" * 3 * MB)
        asyncio.run(run(folder, folder / "filler"))


@pytest.mark.parametrize("seconds", [60, 240])
def test_a_lock_that_somebody_else_holds_for_long_stops_commits_only_and_only_so_long(tmp_path, seconds):
    """B002."""

    async def run(path):
        time = clock()
        storage = perdure.SqliteStorage(path, durability="process", busy_timeout_s=0.01)
        async with perdure.System.open(storage, clock=time) as system:
            root, kept = await (await system.session("customer-42")).root(), []
            assert await note(root, "before") is None
            with python(LOCK, path) as other:
                assert other.stdout.readline() == "locked\n"
                end = time.now() + seconds * 1_000
                first = asyncio.ensure_future(note(root, "during"))
                assert type(await first) is perdure.StorageBusy
                await time.sleep(seconds)
                assert time.now() >= end
                other.stdin.write("\n")
                other.stdin.flush()
                assert other.stdout.readline() == "released\n"
            assert await write_until(root, kept, lambda failures: kept) == []
            assert await notes(root) == ["before", *kept]
            assert restarts(system)["storage"] > 3

    asyncio.run(run(tmp_path / "s.db"))


def test_a_lock_of_moderate_length_is_waited_for_and_nobody_is_told(tmp_path):
    """B002: three seconds of somebody's backup are below the default timeout."""

    async def run(path):
        storage = perdure.SqliteStorage(path, durability="process", busy_timeout_s=30)
        async with perdure.System.open(storage) as system:
            roots = [await (await system.session(key)).root() for key in "ab"]
            with python(LOCK, path) as other:
                assert other.stdout.readline() == "locked\n"
                writing = [asyncio.ensure_future(note(root, "patience")) for root in roots]
                await until(system._store.storage._engine.writing._tx.empty)
                assert not any(one.done() for one in writing)
                other.stdin.write("\n")
                other.stdin.flush()
                assert await asyncio.gather(*writing) == [None, None]
            assert restarts(system)["storage"] == 0

    asyncio.run(run(tmp_path / "s.db"))


def test_a_file_that_is_taken_away_and_put_back_is_gone_on_with(tmp_path):
    async def run(path):
        time = clock()
        storage = perdure.SqliteStorage(path, durability="process")
        async with perdure.System.open(storage, clock=time) as system:
            root = await (await system.session("customer-42")).root()
            assert await note(root, "before") is None
            path.rename(tmp_path / "elsewhere.db")
            assert type(await note(root, "during")) is perdure.StorageError
            await time.sleep(100)
            assert not path.exists(), "an empty store took the place of the old one"
            (tmp_path / "elsewhere.db").rename(path)
            assert await note(root, "after") is None
            assert await notes(root) == ["before", "after"]

    asyncio.run(run(tmp_path / "s.db"))


class Damaged(FaultyStore):
    """A store that fails at its third write and turns out to be beyond hope when it is opened again."""

    def __init__(self, error):
        super().__init__(perdure.MemoryStorage())
        self.error = error
        self.attempts = 0
        self.fail(3)

    async def open(self):
        self.attempts += 1
        if self.attempts > 1:
            raise self.error
        await super().open()


@pytest.mark.parametrize(
    "error",
    [
        perdure.StorageCorrupt("a page is damaged"),
        perdure.StorageInUse("s.db", pid=1, host="elsewhere"),
        perdure.SchemaTooNew("s.db", found=9, supported=1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_store_that_no_waiting_will_heal_ends_the_system_at_once_with_the_reason(error):
    async def run():
        time = clock()
        storage = Damaged(error)
        async with perdure.System.open(storage, clock=time) as system:
            root = await (await system.session("customer-42")).root()
            await write_until(root, [], bool)
            with pytest.raises(perdure.SessionClosed) as closed:
                await note(root, "again")
            assert closed.value.__cause__ is error
            assert storage.attempts == 2

    asyncio.run(run())
