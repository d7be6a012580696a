"""Storage that fails at any write of a run.

The caller learns of it, nothing that was not stored is ever seen, the supervisors bring everything back, and sending the
same request again goes on with the work.
"""

import asyncio

import perdure
import pytest
from perdure.actors.models import ErrorInfo
from perdure.storage.errors import StorageError, StorageRejected

from . import scenario
from .observer import FaultyStore
from .scenario import KEY
from .world import World, restarts, until


def fail_each_write(make_storage, when, **options):
    """Run the work once for each of its writes, with that one failing. Returns how many there were."""
    for write in range(1, 100):
        world = World(FaultyStore(make_storage(write)))
        world.storage.fail(write, when)
        asyncio.run(world.complete(**options))
        failed = world.restarts["storage"]
        assert len(world.failures) == failed <= 1, f"write {write}: {world.failures}"
        if not failed:
            return write - 1
    raise AssertionError("the run has no end")


@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_write_fails_the_caller_is_told_and_the_same_request_completes_the_work(when):
    """B014, B025, B092, B164, CR-04."""
    assert fail_each_write(lambda write: perdure.MemoryStorage(), when) >= 12


@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_write_to_a_file_fails_the_same_request_completes_the_work(tmp_path, when):
    def make(write):
        return perdure.SqliteStorage(tmp_path / f"{write}.db", durability="process")

    assert fail_each_write(make, when) >= 12


@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_write_fails_while_answers_stream_nothing_that_was_shown_is_lost(when):
    """B080, B164: partials and tool output are commits like any others."""
    assert fail_each_write(lambda write: perdure.MemoryStorage(), when, tokens_per_second=100) >= 24


def test_a_task_whose_creation_is_not_stored_does_not_run():
    """P1, B092: its code starts behind the commit that made it, however long that takes to fail."""
    ran = []

    class Errand(perdure.Task[None, None], name="chaos.errand"):
        class Go(perdure.Phase):
            pass

        async def go(self, run, state):
            ran.append(run.id)
            await run.complete()

    async def fail_late():
        for _ in range(100):
            await asyncio.sleep(0)
        raise StorageError("the write took long, and failed")

    async def run():
        world = World()
        async with world.open() as system:
            system.registry.install(perdure.Extension(name="errands", tasks=[Errand]))
            session = await system.session(KEY)
            root = await session.root()
            world.storage.call(2, "before", fail_late)
            with pytest.raises(perdure.SessionFailed):
                async with root.commit() as tx:
                    await tx.create_task(Errand)
            assert await session.tasks() == []
            assert ran == []
            async with root.commit() as tx:
                errand = await tx.create_task(Errand)
            await errand.result()
            assert ran == [errand.id]

    asyncio.run(run())


# --- certain rejections


def test_a_rejected_batch_fails_its_own_session_and_the_rest_of_its_group_is_stored():
    """Nothing is uncertain then, so neither the storage nor another session is any the wiser."""

    async def run():
        world = World()
        async with world.open() as system:
            first_written = world.storage.hold(1)
            first = asyncio.ensure_future(scenario.submit(system, "first"))
            await until(lambda: world.storage.writes == 1)
            group = [asyncio.ensure_future(scenario.submit(system, key)) for key in ("refused", "neighbour")]
            await until(lambda: {"refused", "neighbour"} <= set(system.inspect().sessions))
            world.storage.fail(2, error=StorageRejected("this cannot be stored", index=0))
            first_written.set()
            with pytest.raises(perdure.SessionFailed) as failure:
                await group[0]
            assert isinstance(failure.value.__cause__, StorageRejected)
            assert await world.storage.session("refused") is None
            settled = [await (await one).wait() for one in (first, group[1])]
            again = await (await scenario.submit(system, "refused")).wait()
            assert [one.status for one in (*settled, again)] == ["done"] * 3
            assert restarts(system)["storage"] == 0

    asyncio.run(run())


def test_a_rejection_in_the_middle_of_the_work_is_followed_by_the_work_going_on():
    world = World()
    world.storage.fail(9, error=StorageRejected("this cannot be stored", index=0))
    asyncio.run(world.complete())
    assert len(world.failures) == 1
    assert world.restarts["storage"] == 0


# --- storage that stays away for a while, or for good


class Unplugged(FaultyStore):
    """A store whose disk goes away at its eighth write, and is still away at so many attempts to open it."""

    def __init__(self, refusals):
        super().__init__(perdure.MemoryStorage())
        self.refusals = refusals
        self.unplugged = False
        self.call(8, "before", self._unplug)

    async def _unplug(self):
        self.unplugged = True
        raise StorageError("the disk has gone away")

    async def open(self):
        if self.unplugged and self.refusals > 0:
            self.refusals -= 1
            raise StorageError("the disk is not there")
        await super().open()


def test_storage_that_fails_three_times_in_a_row_and_heals_interrupts_the_work_three_times():
    """B026: every waiting call ends with a known outcome, and the session goes on without a restart of the process."""
    world = World()
    for write in (8, 9, 10):
        world.storage.fail(write)
    asyncio.run(world.complete())
    assert world.restarts["storage"] == 3
    assert 1 <= len(world.failures) <= 3


def test_storage_that_cannot_be_opened_again_at_once_is_tried_until_it_can():
    world = World(Unplugged(refusals=4))
    asyncio.run(world.complete())
    assert len(world.failures) == 1
    assert world.restarts["storage"] == 5


def test_storage_that_never_comes_back_ends_the_system_and_nobody_waits_for_ever():
    async def run():
        world = World(Unplugged(refusals=1_000_000))
        async with world.open() as system:
            with pytest.raises(perdure.SessionClosed):
                await world.work(system)
            with pytest.raises(perdure.SessionClosed):
                await scenario.submit(system)
        assert len(world.failures) == 1

    asyncio.run(run())


# --- reads that fail


class Misread(FaultyStore):
    """A store whose nth read fails, once."""

    def __init__(self, number):
        super().__init__(perdure.MemoryStorage())
        self.number = number
        self.reads = 0
        self.healed = False

    def heal(self):
        self.healed = True

    async def _read(self, query, *args, **kwargs):
        self.reads += not self.healed
        if self.reads == self.number and not self.healed:
            raise StorageError("a block cannot be read")
        return await super()._read(query, *args, **kwargs)


def test_whichever_read_fails_no_task_ends_by_it_and_the_work_is_completed():
    """CR-10: the session dies of it and reads everything anew."""
    for number in range(1, 1_000):
        world = World(Misread(number))
        asyncio.run(world.complete())
        assert len(world.failures) <= 1, f"read {number}: {world.failures}"
        assert set(world.restarts.values()) == {0}
        if world.storage.reads < number:
            break
    assert 12 < number < 999


def test_deadlines_that_cannot_be_read_are_read_a_little_later():
    """B071."""

    async def run():
        world = World()
        async with world.open(tokens_per_second=100) as system:
            submission = await scenario.submit(system)
        world.storage.fail_reads(StorageError("the disk is not there"))
        async with world.open() as system:
            await world.clock.sleep(10)
            world.storage.fail_reads(None)
            await world.clock.sleep(10)
            assert (await world.storage.submission(KEY, submission.id)).status == "done"
            assert restarts(system) == {"storage": 0, "timer": 0, "sessions": 0}

    asyncio.run(run())


class Unreadable(FaultyStore):
    """A store that cannot give the tasks of one session."""

    def __init__(self):
        super().__init__(perdure.MemoryStorage())
        self.unreadable = None

    async def live_tasks(self, session):
        if session == self.unreadable:
            raise StorageError(f"the tasks of {session} cannot be read")
        return await super().live_tasks(session)


def test_a_session_that_cannot_be_read_is_given_up_with_its_reason_and_asked_for_again_later():
    """CR-10: reads count, too."""

    async def run():
        world = World(Unreadable())
        async with world.open() as system:
            await (await scenario.submit(system)).wait()
            world.storage.unreadable = KEY
            system.kill(f"session:{KEY}")
            with pytest.raises(perdure.SessionFailed, match="cannot be read"):
                await scenario.submit(system)
            await (await scenario.submit(system, "neighbour")).wait()
            world.storage.unreadable = None
            assert (await (await scenario.submit(system)).wait()).status == "done"
            assert restarts(system) == {"storage": 0, "timer": 0, "sessions": 0}

    asyncio.run(run())


def test_a_session_that_cannot_be_read_when_its_time_has_come_holds_up_nobody_elses():
    """B071: the timer goes on to the deadlines of others."""

    async def run():
        world = World(Unreadable())
        busy_until = world.clock.now() + 1_000

        def overloaded(request):
            if world.clock.now() < busy_until:
                return ErrorInfo(kind="overloaded", message="try again later", retryable=True)
            return scenario.brain(request)

        async with world.open(tokens_per_second=100) as system:
            broken = await scenario.submit(system, "broken")
        world.storage.unreadable = "broken"
        async with world.open(script=overloaded) as system:
            sound = await scenario.submit(system, "sound")
            await world.clock.sleep(0.5)
        async with world.open() as system:
            await world.clock.sleep(60)
            assert (await world.storage.submission("broken", broken.id)).status == "placed"
            assert (await world.storage.submission("sound", sound.id)).status == "done"
            assert restarts(system) == {"storage": 0, "timer": 0, "sessions": 0}

    asyncio.run(run())
