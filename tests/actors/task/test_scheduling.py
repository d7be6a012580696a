"""Facts about scheduling, aborts and recovery that need more than one room to be seen."""

import asyncio

import pytest
from perdure import (
    Extension,
    ExtensionInvalid,
    MemoryStorage,
    SessionFailed,
    SqliteStorage,
    StorageError,
    System,
    VirtualClock,
)
from perdure.actors.task.definition import Definitions
from perdure.storage.faulty import FaultyStorage

from ..session.support import Rig
from .support import Script, Scripted, crash, home, opened, outcome, scene, scripted, start, turns, until
from .test_engine import RUN, Running, definitions, engine, record, ref, stored

# --- definitions


def test_the_built_in_tasks_are_always_there():
    """TS-11: differs on purpose. Nobody hands a registry in that could lack them, and none can take them away."""

    async def main():
        system = System.open(MemoryStorage())
        built_in = sorted(system.registry._built_in)
        assert "pi.generation" in built_in
        for task in built_in:
            thief = Extension(name="thief", tasks=[scripted(name=task)])
            with pytest.raises(ExtensionInvalid, match=task):
                system.registry.install(thief)
        async with system:
            await (await system.session("s")).root()

    asyncio.run(main())


@scene
async def test_many_wakes_are_one_pass_and_no_caller_commits_for_them(script, session, root):
    """TS-27."""
    script.gate("run:a")
    task = await start(root, "a", kind=scripted(name="test.gone"))
    await turns()
    core, scheduler = await session._core(), await engine(session)
    considered = []
    reserve = scheduler.reserve

    def counted(tx, candidates):
        considered.append(tx)
        reserve(tx, candidates)

    scheduler.reserve = counted
    for _ in range(100):
        scheduler.consider([task.id])
        definitions(session).install(scripted(name="test.other"))
    assert considered == []
    await turns()
    assert len(considered) == 1
    assert core.scheduler.blocked[task.id].reason == "missing_task"


# --- owned tasks


def test_a_task_lists_the_live_tasks_that_it_owns_whoever_made_them(place):
    """TS-30: in id order, as copies, in another invocation and another process than the one that made them."""
    listed = []

    async def main():
        script = Script()

        async def run(run):
            for name in ("c", "b", "a"):
                await run.spawn(Scripted, name)
            await run.goto(Scripted.Resume())

        async def resume(run):
            owned = await run.owned_tasks()
            owned[0].state.checkpoint["phase"] = "spoilt"
            listed.append([one.input for one in await run.owned_tasks()])
            assert (await run.owned_tasks())[0].state.checkpoint == RUN
            if len(listed) > 1:
                await run.complete("done")
            await asyncio.Event().wait()

        script.gate("run:a", "run:b", "run:c", "run:below")
        script.on("owner", run=run, resume=resume)
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "owner")
            await start(root, "beside")
            await script.began("run:a", "run:b", "run:c", "resume:owner")
            await until(lambda: listed)
            script.open("run:b")
            await until(lambda: len(system.inspect().sessions["s"]) == 3)
            await (await system.core("s")).drained()
            await crash(system)
        async with opened(place.store(), script) as system:
            await until(lambda: len(listed) == 2)
            script.open("run:a", "run:c")
            assert await ref(system, task.id).result() == "done"

    asyncio.run(main())
    assert listed == [["c", "b", "a"], ["c", "a"]]


# --- restarts


@pytest.mark.parametrize("marked", [False, True])
def test_a_task_that_must_not_outlive_a_restart_says_so_in_its_own_checkpoint(marked, place):
    """TS-32, TS-33, TS-34: differs on purpose. There is no mark for restarts, nor a kind of abort that they cascade as.

    Actors restart without anybody's noticing (P5, P8), so that found live at open is no event in a task's life. Its
    checkpoint tells its code that it has begun before, as an unsafe tool's does; what it owns is then cancelled by the
    failure that it holds, bottom-up. An abort that somebody has asked for is the one that counts.
    """

    async def main():
        script = Script()

        async def run(run):
            async with run.commit() as tx:
                await tx.create_task(Scripted, "child", owner=run.id)
                tx.goto(Scripted.Resume(note="begun"))

        async def resume(run):
            if script.log.count("resume:a") == 1:
                await asyncio.Event().wait()
            async with run.commit() as tx:
                tx.abort("restart")

        script.gate("run:child")
        script.on("a", run=run, resume=resume)
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:child", "resume:a")
            await turns()
            await crash(system)
        async with opened(place.store(), script) as system:
            if marked:
                await ref(system, task.id).abort()
            ended = (await ref(system, task.id).settled()).state.outcome
            assert ended.__struct_config__.tag == "aborted"
            assert "abort:child" in script.log
        assert script.log.count("run:a") == 1

    asyncio.run(main())


def test_a_thousand_live_tasks_are_the_same_after_a_crash_in_the_middle_of_their_recovery():
    """B040: each runs once in each life, and nothing is built on top of what was half built."""

    async def main():
        script, storage = Script(), Interrupted(MemoryStorage())

        class Place:
            @staticmethod
            def store():
                return storage

        chains = {tid: tid - 1 if tid % 10 else None for tid in IDS}
        tasks = [record(tid, Running(checkpoint=RUN), owner=owner, name=str(tid)) for tid, owner in chains.items()]
        begun = [f"run:{tid}" for tid in IDS]
        script.gate(*begun)
        await stored(Place, *tasks)
        system = System.open(storage, clock=VirtualClock(autojump=True))
        definitions_of(system).install(Scripted)
        system.services.provide(Script, script)
        storage.interrupt = lambda: system.kill("session:s")
        async with system:
            await script.began(*begun)
            assert storage.lives == 2
            assert sorted(script.log) == sorted(begun)
            forest = (await system.core("s")).forest
            assert [one.id for one in forest.all_kept()] == list(IDS)
            clean = await clean_recovery(storage.inner)
            assert dict(forest._records) == dict(clean._records)
            assert forest.ownership._parent == clean.ownership._parent
            assert forest.ownership._below == clean.ownership._below

    asyncio.run(main())


IDS = range(10, 1_010)


class Interrupted(FaultyStorage):
    """The first reading of live tasks is under way when ``interrupt`` is called, and answers only then."""

    def __init__(self, inner):
        super().__init__(inner)
        self.lives = 0

    async def live_tasks(self, session):
        self.lives += 1
        found = await super().live_tasks(session)
        if self.lives == 1:
            self.interrupt()
            await asyncio.sleep(0)
        return found


def definitions_of(system):
    return system.services.get(Definitions)


async def clean_recovery(storage):
    rig = Rig(storage)
    await rig.core.load()
    return rig.core.forest


# --- aborts


@scene
async def test_marks_that_an_abort_causes_are_in_its_own_commit(script, session, root):
    """SC-35: differs on purpose. The reference marks in a later commit; here no crash can come between the two.

    What somebody else has left out is derived at open, as there.
    """

    async def owner(run):
        made.append(await run.spawn(Scripted, "child"))
        await asyncio.Event().wait()

    made, published = [], []
    script.gate("run:child", "abort:child")
    script.on("owner", run=owner)
    task = await start(root, "owner")
    await script.began("run:child")
    await turns()
    (await session._core()).subscribe(published.append)
    await task.abort()
    marked = {one.id for one in published[0].tasks if one.abort_requested}
    assert marked == {task.id, made[0].id}
    script.open("abort:child")
    await task.settled()


@scene
async def test_an_abort_handler_begins_when_the_running_code_has_ended(script, session, root):
    """SC-37: asking for the abort does not wait for that; waiting for the end does."""
    free = asyncio.Event()

    async def slow_to_stop(run):
        try:
            await asyncio.Event().wait()
        finally:
            script.log.append("cleaning up")
            await free.wait()
            script.log.append("clean")

    script.on("a", run=slow_to_stop)
    task = await start(root, "a")
    await script.began("run:a")
    assert await task.abort()
    await until(lambda: script.log[-1] == "cleaning up")
    settled = asyncio.create_task(task.settled())
    await turns()
    assert not settled.done()
    free.set()
    await settled
    assert script.log == ["run:a", "cleaning up", "clean", "abort:a"]


def test_whoever_waits_for_an_aborted_task_is_told_when_the_session_fails():
    """SC-37."""

    async def main():
        script = Script()
        script.gate("run:a", "abort:a")
        async with opened(MemoryStorage(), script, clock=VirtualClock(autojump=True)) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            await task.abort()
            settled = asyncio.create_task(task.settled())
            await script.began("abort:a")
            await turns()
            system.kill("session:s")
            with pytest.raises(SessionFailed):
                await settled
            script.open("abort:a")
            assert (await outcome(task)).__struct_config__.tag == "aborted"

    asyncio.run(main())


@scene
async def test_a_background_abort_marks_and_awaits_what_it_reached_and_nothing_later(script, session, root):
    """SC-32, SC-46: across every boundary."""
    made = {}

    async def background(run):
        async with run.commit() as tx:
            conversation = await tx.create_conversation(owner=run.id)
            made["inner"] = await tx.create_task(Scripted, "inner", conversation_id=conversation.id, background=True)
        await asyncio.Event().wait()

    script.gate("run:inner", "abort:inner", "run:later", "run:front")
    script.on("background", run=background)
    first = await start(root, "background", background=True)
    front = await start(root, "front")
    await script.began("run:inner", "run:front")
    await turns()
    aborting = asyncio.create_task(root.abort(background=True))
    await script.began("abort:inner", "abort:background", "abort:front")
    later = await start(root, "later", background=True)
    await script.began("run:later")
    assert not aborting.done()
    script.open("abort:inner")
    await aborting
    assert all([(await one.record()).abort_requested for one in (first, front, made["inner"])])
    assert not (await later.record()).abort_requested
    script.open("run:later")
    assert await later.result() == "later"


@scene
async def test_a_plain_abort_leaves_background_work_alone(script, session, root):
    """SC-46."""
    script.gate("run:background", "run:front")
    background, front = await start(root, "background", background=True), await start(root, "front")
    await script.began("run:background", "run:front")
    await root.abort()
    assert (await outcome(front)).__struct_config__.tag == "aborted"
    assert not (await background.record()).abort_requested
    script.open("run:background")
    assert await background.result() == "background"


# --- opening


@pytest.mark.parametrize("what", ["storage", "extension"])
def test_an_open_that_fails_says_why_and_leaves_the_store_to_the_next(what, tmp_path):
    """CR-08: the error of the opening is raised, not one of the closing after it."""

    async def main():
        path = tmp_path / "store.db"
        async with System.open(path) as system:
            await (await system.session("s")).root()
        wrong = [Extension(name="wrong", tasks=[scripted(name="pi.generation")])] if what == "extension" else []
        store = Unwilling(path, broken=what == "storage")
        with pytest.raises(ExtensionInvalid if wrong else Unreadable):
            async with System.open(store, extensions=wrong):
                pytest.fail("it is open")
        async with System.open(path) as system:
            await (await system.session("s")).conversation(1)

    asyncio.run(main())


class Unreadable(StorageError):
    """What a test's storage raises when it is opened."""


class Unwilling(SqliteStorage):
    """A file that cannot be opened, if ``broken``, and whose closing always ends with an error."""

    def __init__(self, path, *, broken):
        super().__init__(path)
        self.broken = broken

    async def open(self):
        if self.broken:
            raise Unreadable("as a test asked")
        await super().open()

    async def close(self):
        await super().close()
        raise StorageError("as a test asked")
