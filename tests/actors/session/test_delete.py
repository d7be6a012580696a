"""Deleting a session under a running system: its work ends, nothing of it is left, and nobody else notices."""

import asyncio

import perdure
import pytest
from perdure.models import UserMessage, call, plain_text
from perdure.storage.faulty import FaultyStorage
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.memory import MemoryStorage

from .support import until


class Office:
    """Sessions whose tool can be held in the middle of its work."""

    def __init__(self, storage):
        self.storage = storage
        self.free, self.working, self.left = asyncio.Event(), asyncio.Event(), []

        @perdure.tool(replay="safe")
        async def work(ctx: perdure.ToolContext) -> str:
            """Work."""
            self.working.set()
            try:
                await self.free.wait()
            finally:
                self.left.append(ctx.conversation_id)
            return "done"

        def brain(request):
            last = request.messages[-1]
            return call("work") if isinstance(last, UserMessage) else plain_text(last.content)

        self.options = {
            "models": [perdure.ScriptedModel(brain)],
            "extensions": [perdure.Extension(name="work", tools=[work])],
            "clock": perdure.VirtualClock(autojump=True, quiet_s=0.001),
        }

    def open(self):
        return perdure.System.open(self.storage, **self.options)

    async def submit(self, system, key="doomed"):
        root = await (await system.session(key)).root(agent=perdure.Agent(model="scripted/model"))
        return await root.submit("work", request_id="job-1")


async def keys(storage):
    return [row.key for row in (await storage.sessions(99)).items]


class SlowReads(FaultyStorage):
    """Answers reads only when a test lets it, as a storage thread that is busy does."""

    def __init__(self):
        super().__init__(MemoryStorage())
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.slow, self.skip = None, 0

    async def _read(self, query, *args, **kwargs):
        self.skip -= query.__name__ == self.slow
        if self.slow is not None and self.skip < 0:
            self.slow = None
            self.asked.set()
            await self.answer.wait()
        return await super()._read(query, *args, **kwargs)


STORES = {
    "memory": lambda folder: MemoryStorage(),
    "sqlite": lambda folder: perdure.SqliteStorage(folder / "s.db"),
    "jsonl": lambda folder: JsonlStorage(folder / "store"),
}


@pytest.fixture(params=STORES)
def office(request, tmp_path):
    return Office(FaultyStorage(STORES[request.param](tmp_path)))


def test_running_work_ends_with_its_session_and_whoever_waits_for_it_is_told(office):
    async def run():
        async with office.open() as system:
            doomed, spared = [await office.submit(system, key) for key in ("doomed", "spared")]
            waiting = asyncio.ensure_future(doomed.wait())
            await office.working.wait()
            assert await system.delete_session("doomed")
            assert len(office.left) == 1, "the tool runs on"
            with pytest.raises(perdure.SessionClosed):
                await waiting
            assert await keys(office.storage) == ["spared"]
            assert "doomed" not in system.inspect().sessions
            office.free.set()
            assert (await spared.wait()).answer.text == "done"
        async with office.open() as system:
            assert await keys(office.storage) == ["spared"]

    asyncio.run(run())


QUESTIONS = {
    ("submission", 0): lambda root, job: job.wait(),
    ("submission", 1): lambda root, job: job.wait(),
    ("scan_entries", 0): lambda root, job: root.entries(),
    ("entry", 0): lambda root, job: root.fork(1),
}
"""By the read that each of them needs, and how many of its kind go before it."""


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_a_question_that_storage_answers_after_the_deletion_says_that_the_session_is_closed(question):
    """Not that the record is unknown or that there is nothing: what is there then is about no session or a new one."""

    async def run():
        office = Office(SlowReads())
        async with office.open() as system:
            job = await office.submit(system)
            root = await (await system.session("doomed")).root()
            await office.working.wait()
            office.storage.slow, office.storage.skip = question
            asking = asyncio.ensure_future(QUESTIONS[question](root, job))
            await office.storage.asked.wait()
            assert await system.delete_session("doomed")
            office.storage.answer.set()
            with pytest.raises(perdure.SessionClosed):
                await asking

    asyncio.run(run())


def test_a_handle_that_is_kept_begins_a_new_session(office):
    async def run():
        office.free.set()
        async with office.open() as system:
            session = await system.session("doomed")
            first = await (await office.submit(system)).wait()
            assert await system.delete_session("doomed")
            assert await session.tasks() == []
            again = await office.submit(system)
            assert (await again.wait()).answer.text == first.answer.text
            assert len(office.left) == 2, "an old request id was known"
            assert (await office.storage.session("doomed")).seq > 1

    asyncio.run(run())


def test_who_asks_for_a_session_that_is_being_deleted_gets_the_new_one(office):
    async def run():
        async with office.open() as system:
            await office.submit(system)
            deleting = asyncio.ensure_future(system.delete_session("doomed"))
            twice = asyncio.ensure_future(system.delete_session("doomed"))
            asking = asyncio.ensure_future(system.session("doomed"))
            session = await asking
            assert await deleting
            assert not await twice
            assert await session.tasks() == []
            assert await keys(office.storage) == []

    asyncio.run(run())


def test_a_session_that_sleeps_is_deleted_without_being_woken(office):
    async def run():
        office.free.set()
        async with office.open() as system:
            await (await office.submit(system)).wait()
        async with office.open() as system:
            assert system.inspect().sessions == {}
            assert await system.delete_session("doomed")
            assert not await system.delete_session("doomed")
            assert not await system.delete_session("nobody")
            assert system.inspect().sessions == {}
            with pytest.raises(perdure.InvalidValue):
                await system.delete_session("")

    asyncio.run(run())


def test_a_commit_on_its_way_is_deleted_with_its_session(office):
    async def run():
        async with office.open() as system:
            root = await (await system.session("doomed")).root()
            release = office.storage.hold(office.storage.writes + 1)

            async def commit():
                async with root.commit() as tx:
                    await tx.append("note", "late")

            committing = asyncio.ensure_future(commit())
            written = office.storage.writes
            await until(lambda: office.storage.writes > written)
            deleting = asyncio.ensure_future(system.delete_session("doomed"))
            await asyncio.sleep(0)
            release.set()
            await committing
            assert await deleting
            assert await keys(office.storage) == []

    asyncio.run(run())


class Keeper(FaultyStorage):
    """A store that cannot delete."""

    async def delete_session(self, key):
        raise perdure.StorageRejected("this store keeps everything")


def test_a_backend_that_cannot_delete_says_so_and_the_work_goes_on():
    async def run():
        office = Office(Keeper(MemoryStorage()))
        async with office.open() as system:
            submission = await office.submit(system)
            await office.working.wait()
            with pytest.raises(perdure.StorageRejected):
                await system.delete_session("doomed")
            office.working.clear()
            await office.working.wait()
            office.free.set()
            assert (await submission.wait()).answer.text == "done"

    asyncio.run(run())


class FullOnce(FaultyStorage):
    """A store whose first deletion finds the disk full."""

    full = True

    async def delete_session(self, key):
        if self.full:
            self.full, self._failed = False, True
            raise perdure.StorageFull("the disk is full")
        return await super().delete_session(key)


def test_storage_that_fails_over_a_deletion_is_opened_again_and_the_deletion_can_be_repeated():
    async def run():
        office = Office(FullOnce(MemoryStorage()))
        async with office.open() as system:
            await office.submit(system)
            await office.working.wait()
            with pytest.raises(perdure.SessionFailed):
                await system.delete_session("doomed")
            assert await keys(office.storage) == ["doomed"]
            while True:
                try:
                    assert await system.delete_session("doomed")
                    break
                except perdure.SessionFailed:
                    await asyncio.sleep(0)
            assert await keys(office.storage) == []
            office.free.set()
            assert (await (await office.submit(system, "next")).wait()).answer.text == "done"

    asyncio.run(run())
