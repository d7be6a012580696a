"""One invocation: phase after phase, faults, signals, crashes, and the hand-over to other code."""

import asyncio

import pytest
from perdure import Completed, Doc, Faulted, MemoryStorage, Phase, Task, VirtualClock
from perdure.storage.faulty import FaultyStorage
from structlog.testing import capture_logs

from .support import Script, Scripted, crash, home, opened, outcome, scene, scripted, start, turns

WorkDoc = Doc("test.work", scope="task")


def quick():
    return VirtualClock(autojump=True)


async def install(session, kind):
    session._services.get(type((await session._core()).scheduler.definitions)).install(kind)


# --- phases


@scene
async def test_phases_follow_each_other_in_one_invocation(script, session, root):
    """TS-02."""
    actors = []

    async def run(run):
        actors.append(asyncio.current_task())
        await run.goto(Scripted.Resume())

    async def resume(run):
        actors.append(asyncio.current_task())
        await run.complete("done")

    script.on("a", run=run, resume=resume)
    assert await (await start(root, "a")).result() == "done"
    assert script.log == ["run:a", "resume:a"]
    assert actors[0] is actors[1]


def test_a_phase_begins_when_the_commit_that_leads_to_it_is_durable():
    """P1, P4: nothing runs from a checkpoint that storage may not have."""

    async def main():
        script, storage = Script(), FaultyStorage(MemoryStorage())
        async with opened(storage, script) as system:
            _, root = await home(system)
            release = storage.hold(storage.writes + 1)
            starting = asyncio.create_task(start(root, "a"))
            await turns()
            assert script.log == []
            release.set()
            assert await (await starting).result() == "a"

    asyncio.run(main())


@scene
async def test_running_is_stored_with_the_commit_that_makes_the_task_ready(script, session, root):
    """TS-15: a reservation costs no commit of its own."""
    core = await session._core()
    script.gate("run:a")
    seq = core.seq
    task = await start(root, "a")
    assert core.seq == seq + 1
    record = await task.record()
    assert record.state.__struct_config__.tag == "running"
    assert record.started_at is not None
    script.open("run:a")
    await task.settled()
    assert core.seq == seq + 2


# --- faults


@scene
async def test_a_phase_that_raises_faults_the_task_with_its_text(script, session, root):
    """TS-03."""

    async def run(run):
        raise RuntimeError("disk on fire")

    script.on("a", run=run)
    fault = await outcome(await start(root, "a"))
    assert isinstance(fault, Faulted)
    assert fault.error.message == "disk on fire"


@scene
async def test_a_phase_that_raises_after_its_commit_keeps_the_commit_and_faults(script, session, root):
    async def run(run):
        async with run.commit() as tx:
            await tx.append("note", "kept")
            tx.goto(Scripted.Resume())
        raise RuntimeError("after that")

    script.on("a", run=run)
    fault = await outcome(await start(root, "a"))
    assert fault.error.message == "after that"
    assert [entry.data for entry in (await root.entries()).items] == ["kept"]
    assert script.log == ["run:a"]


@scene
async def test_an_error_after_the_outcome_changes_nothing(script, session, root):
    """TS-16: it is not running any more when it is looked at."""

    async def run(run):
        await run.complete("done")
        raise RuntimeError("too late")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "done"


@scene
async def test_returning_without_durable_progress_faults(script, session, root):
    """TS-16: entries and documents are no progress, nor is the same checkpoint again."""

    async def only_notes(run):
        async with run.commit() as tx:
            await tx.append("note", 1)
            (await tx.doc(WorkDoc, run.id))["n"] = 1

    async def nothing(run):
        pass

    script.on("notes", run=only_notes)
    script.on("nothing", run=nothing)
    script.on("same", run=lambda run: run.goto(Scripted.Run()))
    for name in ("notes", "nothing", "same"):
        fault = await outcome(await start(root, name))
        assert fault.error.message == "returned without durable progress"
    assert len((await root.entries()).items) == 1


@scene
async def test_an_abort_handler_that_decides_nothing_faults(script, session, root):
    async def nothing(run):
        pass

    async def broken(run):
        raise RuntimeError("cannot clean up")

    script.gate("run:a", "run:b")
    script.on("a", abort=nothing)
    script.on("b", abort=broken)
    for name, text in (("a", "without an outcome"), ("b", "cannot clean up")):
        task = await start(root, name)
        await task.abort()
        fault = await outcome(task)
        assert isinstance(fault, Faulted)
        assert text in fault.error.message


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, asyncio.CancelledError])
def test_a_base_exception_is_the_fault_of_one_task_only(kind):
    """B032: in a phase, in a commit block, and in an abort handler, with other work going on."""

    async def main():
        script = Script()

        async def raises(run):
            raise kind

        async def raises_in_block(run):
            async with run.commit() as tx:
                await tx.append("note", "gone")
                raise kind

        script.gate("run:other", "run:c")
        script.on("a", run=raises)
        script.on("b", run=raises_in_block)
        script.on("c", abort=raises)
        async with opened(MemoryStorage(), script) as system:
            _, root = await home(system)
            _, elsewhere = await home(system, "elsewhere")
            other = await start(elsewhere, "other")
            await script.began("run:other")
            c = await start(root, "c")
            await c.abort()
            for task in (await start(root, "a"), await start(root, "b"), c):
                fault = await outcome(task)
                assert isinstance(fault, Faulted)
                assert fault.error.message == kind.__name__
            assert (await root.entries()).items == []
            script.open("run:other")
            assert await other.result() == "other"

    asyncio.run(main())


@scene
async def test_a_faults_cleanup_belongs_to_the_commit_that_ends_the_task(script, session, root):
    cleaned = []

    class Careful(Task[str, str], name="test.careful"):
        class Run(Phase):
            pass

        async def run(self, run, state):
            raise RuntimeError("broken")

        @staticmethod
        async def undecided(tx, record):
            cleaned.append(record.state.outcome.error.message)
            await tx.append("note", "cleaned", conversation_id=record.conversation_id)

    await install(session, Careful)
    publications = []
    (await session._core()).subscribe(publications.append)
    await outcome(await start(root, "a", kind=Careful))
    assert cleaned == ["broken"]
    (last,) = [one for one in publications if one.entries]
    assert last.tasks[0].state.__struct_config__.tag == "terminal"


@scene
async def test_a_task_ends_though_its_cleanup_fails_and_its_phase_runs_once(script, session, root):
    runs = []

    class Careless(Task[str, str], name="test.careless"):
        class Run(Phase):
            pass

        async def run(self, run, state):
            runs.append(run.id)
            raise RuntimeError("broken")

        @staticmethod
        async def undecided(tx, record):
            raise ZeroDivisionError

    await install(session, Careless)
    with capture_logs() as logs:
        assert isinstance(await outcome(await start(root, "a", kind=Careless)), Faulted)
    assert len(runs) == 1
    assert "clean_up_failed" in [log["event"] for log in logs]


@scene
async def test_a_stored_checkpoint_that_its_definition_cannot_read_faults(script, session, root):
    """P11: the same version, but other fields."""

    class Strict(Task[str, str], name="test.script", version=1):
        class Run(Phase):
            needed: int

        def initial(self, input):
            raise AssertionError

        async def run(self, run, state):
            raise AssertionError

    async with root.commit() as tx:
        task = await tx.create_task(Scripted, "a")
        tx.core.scheduler.definitions.install(Strict)
    assert "needed" in (await outcome(task)).error.message


# --- signals


@scene
async def test_an_abort_cancels_the_running_handler_and_then_runs_the_abort_handler(script, session, root):
    """TS-17: cleanup in a finally block may take its time, and raising there is no fault."""
    order = []

    async def run(run):
        try:
            await asyncio.Event().wait()
        finally:
            await turns(5)
            order.append("cleaned up")
            raise RuntimeError("raised because it was told to stop")

    async def abort(run):
        order.append("abort")
        async with run.commit() as tx:
            tx.abort("asked to")

    script.on("a", run=run, abort=abort)
    task = await start(root, "a")
    await script.began("run:a")
    await task.abort()
    assert (await outcome(task)).reason == "asked to"
    assert order == ["cleaned up", "abort"]


@scene
async def test_an_abort_before_the_first_phase_runs_only_the_abort_handler(script, session, root):
    async with root.commit() as tx:
        task = await tx.create_task(Scripted, "a")
        await tx.abort_task(task)
    assert (await outcome(task)).__struct_config__.tag == "aborted"
    assert script.log == ["abort:a"]


@scene
async def test_an_abort_handler_is_not_cancelled_by_a_second_abort(script, session, root):
    script.gate("run:a", "abort:a")
    task = await start(root, "a")
    await script.began("run:a")
    await task.abort()
    await script.began("abort:a")
    await task.abort()
    await turns()
    script.open("abort:a")
    await task.settled()
    assert script.log == ["run:a", "abort:a"]


@scene
async def test_a_commit_that_was_admitted_when_the_mark_came_stays(script, session, root):
    """A runtime commit ahead of the mark on the line lands; one behind it is refused."""
    first, second = [], []

    async def run(run):
        async with run.commit() as tx:
            await tx.append("note", "before")
        first.append(True)
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with run.commit() as tx:
                    await tx.append("note", "after")
            except Exception as error:
                second.append(type(error).__name__)

    script.on("a", run=run)
    task = await start(root, "a")
    await script.began("run:a")
    await turns()
    await task.abort()
    await task.settled()
    assert [entry.data for entry in (await root.entries()).items] == ["before"]
    assert second == ["InvocationEnded"]


# --- crashes


def test_a_killed_task_actor_runs_the_phase_again_from_its_checkpoint():
    """P5, P8."""

    async def main():
        script = Script()
        memos = []

        async def resume(run):
            memos.append(await run.memo("attempt", len(memos)))
            if len(memos) == 1:
                await asyncio.Event().wait()
            await run.complete("done")

        script.on("a", run=lambda run: run.goto(Scripted.Resume()), resume=resume)
        async with opened(MemoryStorage(), script, clock=quick()) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("resume:a")
            await turns()
            assert system.kill(f"task:s/{task.id}")
            assert await task.result() == "done"
        assert script.log == ["run:a", "resume:a", "resume:a"]
        assert memos == [0, 0]

    asyncio.run(main())


def test_a_mark_that_comes_while_a_killed_task_is_down_leads_to_its_abort_handler():
    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(MemoryStorage(), script, clock=quick()) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            system.kill(f"task:s/{task.id}")
            await task.abort()
            assert (await outcome(task)).__struct_config__.tag == "aborted"
        assert script.log == ["run:a", "abort:a"]

    asyncio.run(main())


def test_a_task_that_is_killed_again_and_again_costs_its_session_a_life_and_goes_on():
    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(MemoryStorage(), script, clock=quick()) as system:
            _, root = await home(system)
            task = await start(root, "a")
            for round_ in range(1, 43):
                while script.log.count("run:a") < round_:
                    script._news.clear()
                    await script._news.wait()
                assert system.kill(f"task:s/{task.id}")
            script.open("run:a")
            assert await task.result() == "a"

    asyncio.run(main())


def test_a_crash_of_the_process_in_mid_phase_runs_it_again(place):
    """CR-01: and the task does not count as aborted."""

    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            await crash(system)
        script.open("run:a")
        async with opened(place.store(), script) as system:
            session = await system.session("s")
            assert await (await session.task(task.id)).result() == "a"
        assert script.log == ["run:a", "run:a"]

    asyncio.run(main())


def test_a_close_in_mid_phase_cancels_the_handler_and_decides_nothing(place):
    """CR-01, CR-07."""

    async def main():
        script, told = Script(), []

        async def run(run):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append(True)
                raise

        script.on("a", run=run)
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            await turns()
        assert told == [True]
        script.on("a", run=lambda run: run.complete("after"))
        async with opened(place.store(), script) as system:
            session = await system.session("s")
            assert await (await session.task(task.id)).result() == "after"

    asyncio.run(main())


def test_a_close_during_an_abort_handler_runs_it_again(place):
    """CR-02."""

    async def main():
        script = Script()
        script.gate("run:a", "abort:a")
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            await task.abort()
            await script.began("abort:a")
        script.open("abort:a")
        async with opened(place.store(), script) as system:
            session = await system.session("s")
            assert (await outcome(await session.task(task.id))).__struct_config__.tag == "aborted"
        assert script.log == ["run:a", "abort:a", "abort:a"]

    asyncio.run(main())


def test_a_fault_that_cannot_be_stored_is_decided_again_after_the_session_came_back():
    """CR-12, GE-35: its phase runs again from the checkpoint, as after any death of the session."""

    async def main():
        script, storage = Script(), FaultyStorage(MemoryStorage())
        script.gate("run:a")

        async def run(run):
            raise RuntimeError("broken")

        script.on("a", run=run)
        async with opened(storage, script, clock=quick()) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            storage.fail(storage.writes + 1)
            script.open("run:a")
            while len(script.log) < 2:
                script._news.clear()
                await script._news.wait()
            assert isinstance(await outcome(task), Faulted)
        assert script.log == ["run:a", "run:a"]

    asyncio.run(main())


# --- other code


@scene
async def test_running_work_keeps_the_code_it_took_and_the_next_phase_takes_the_new(script, session, root):
    """TS-18, P5."""
    moved = []

    def migrate(input, checkpoint, from_version):
        moved.append((input, checkpoint, from_version))
        return "b", newer.Resume(note="migrated")

    newer = scripted(2, migrate=migrate)
    script.gate("run:a")
    script.on("a", run=lambda run: run.goto(Scripted.Resume(note="old")))
    task = await start(root, "a")
    await script.began("run:a")
    await install(session, newer)
    script.open("run:a")
    assert await task.result() == "b"
    assert script.log == ["run:a", "resume:b"]
    assert moved[-1] == ("a", {"phase": "resume", "note": "old"}, 1)
    record = await task.record()
    assert (record.version, record.input) == (2, "b")


@scene
async def test_code_of_the_same_version_is_taken_over_between_phases_too(script, session, root):
    """TS-18."""
    replacement = scripted()
    script.gate("run:a")
    script.on("a", run=lambda run: run.goto(Scripted.Resume()))
    task = await start(root, "a")
    await script.began("run:a")
    await install(session, replacement)
    invocation = (await session._core()).scheduler.invocations[task.id]
    assert type(invocation.definition) is Scripted
    script.gate("resume:a")
    script.open("run:a")
    await script.began("resume:a")
    invocation = (await session._core()).scheduler.invocations[task.id]
    assert type(invocation.definition) is replacement
    script.open("resume:a")
    assert await task.result() == "a"


@scene
async def test_code_that_cannot_take_the_task_leaves_it_to_the_old(script, session, root):
    """TS-18."""
    script.gate("run:a")
    script.on("a", run=lambda run: run.goto(Scripted.Resume()))
    task = await start(root, "a")
    await script.began("run:a")
    with capture_logs() as logs:
        await install(session, scripted(2))  # has no migration
        script.open("run:a")
        assert await task.result() == "a"
    assert (await task.record()).version == 1
    assert [log["event"] for log in logs].count("migration_failed") == 1


@scene
async def test_uninstalling_a_running_tasks_code_lets_it_run_to_its_end(script, session, root):
    script.gate("run:a")
    script.on("a", run=lambda run: run.goto(Scripted.Resume()))
    task = await start(root, "a")
    await script.began("run:a")
    (await session._core()).scheduler.definitions.uninstall("test.script")
    script.open("run:a")
    assert await task.result() == "a"


@scene
async def test_a_held_outcome_is_never_migrated(script, session, root):
    """TS-08."""
    script.gate("run:child")

    async def run(run):
        await run.spawn(Scripted, "child")
        await run.complete("done")

    script.on("a", run=run)
    task = await start(root, "a")
    await script.began("run:child")
    with capture_logs() as logs:
        await install(session, scripted(2, migrate=lambda *_: 1 / 0))
        script.open("run:child")
        assert await task.result() == "done"
    record = await task.record()
    assert (record.version, record.state.outcome) == (1, Completed(result="done"))
    assert task.id not in [log["task"] for log in logs if log["event"] == "migration_failed"]
