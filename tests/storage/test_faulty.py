import asyncio

import pytest
from perdure.storage.conformance_rig import Rig, conversation, entry, fails
from perdure.storage.errors import StorageClosed, StorageFull, StorageRejected
from perdure.storage.faulty import FaultyStorage, InjectedFailure
from perdure.storage.memory import MemoryStorage


def scenario(body):
    """Run a coroutine on a faulty storage with one commit in it."""

    async def run():
        storage = FaultyStorage(MemoryStorage())
        await storage.open()
        rig = Rig(storage, reopen=False)
        await rig.commit(conversation(rig.id()))
        await body(storage, rig)

    asyncio.run(run())


@pytest.mark.parametrize(("when", "stored"), [("before", False), ("after", True)])
def test_a_failed_write_is_stored_or_not_and_is_the_last_until_reopened(when, stored):
    async def body(storage, rig):
        storage.fail(2, when)
        await fails(InjectedFailure, rig.commit(entry(rig.id())))
        await fails(StorageClosed, rig.commit())
        assert (await storage.entry("session", 2) is not None) == stored
        assert len(storage.groups) == 1 + stored
        await rig.restart()
        rig.seq = 1 + stored
        await rig.commit()
        assert storage.writes == 3

    scenario(body)


def test_a_rejection_harms_nothing_else():
    async def body(storage, rig):
        storage.fail(2, error=StorageRejected("no", index=0))
        await fails(StorageRejected, rig.commit(entry(rig.id())))
        rig.seq = 1
        await rig.commit(entry(2))

    scenario(body)


def test_any_error_can_be_asked_for():
    async def body(storage, rig):
        storage.fail(2, error=StorageFull("full"))
        await fails(StorageFull, rig.commit())

    scenario(body)


@pytest.mark.parametrize(("when", "stored"), [("before", False), ("after", True)])
def test_a_crash_ends_reads_too(when, stored):
    async def body(storage, rig):
        storage.crash(2, when)
        await fails(InjectedFailure, rig.commit(entry(rig.id())))
        await fails(StorageClosed, rig.commit())
        await fails(StorageClosed, storage.session("session"))
        await fails(StorageClosed, storage.idle())
        await rig.restart()
        assert (await storage.entry("session", 2) is not None) == stored

    scenario(body)


@pytest.mark.parametrize(("when", "stored"), [("before", False), ("after", True)])
def test_a_held_write_waits_on_its_side_of_being_stored(when, stored):
    async def body(storage, rig):
        release = storage.hold(2, when)
        writing = asyncio.ensure_future(rig.commit(entry(rig.id())))
        await asyncio.sleep(0)
        assert not writing.done()
        assert (await storage.entry("session", 2) is not None) == stored
        release.set()
        assert await writing == 2

    scenario(body)


def test_reads_fail_until_they_are_healed():
    async def body(storage, rig):
        storage.fail_reads(InjectedFailure("no"))
        await fails(InjectedFailure, storage.conversation("session", 1))
        storage.fail_reads(None)
        assert await storage.conversation("session", 1) == conversation(1)

    scenario(body)


def test_an_action_runs_at_its_write():
    async def body(storage, rig):
        seen = []

        async def look():
            seen.append(await storage.entry("session", 2))

        storage.call(2, "before", look)
        storage.call(2, "after", look)
        await rig.commit(entry(rig.id()))
        assert seen == [None, (entry(2), 2)]

    scenario(body)
