"""What a task's code holds: who it is, what it can read, and that it ends with its invocation."""

import asyncio

import msgspec
import pytest
from perdure import (
    Completed,
    Doc,
    Failed,
    InvalidTransition,
    InvocationEnded,
    LineReentry,
    MemoryStorage,
    Phase,
    Services,
    SessionFailed,
    Task,
    UnknownRecord,
    VirtualClock,
    WaitCycle,
)

from .support import Script, Scripted, home, opened, outcome, scene, start, turns

NotesDoc = Doc("test.notes", scope="session")


@scene
async def test_a_run_knows_its_task_its_input_and_its_session(script, session, root):
    seen = {}

    async def run(run):
        seen.update(id=run.id, conversation=run.conversation_id, session=run.session, input=run.input)
        seen["service"] = run.service(Script) is script
        with pytest.raises(UnknownRecord):
            run.service(Services)
        await run.complete()

    script.on("a", run=run)
    task = await start(root, "a")
    await task.settled()
    assert seen == {"id": task.id, "conversation": root.id, "session": "s", "input": "a", "service": True}


@scene
async def test_an_input_is_given_as_the_declared_type(script, session, root):
    class Card(msgspec.Struct):
        number: str

    class Pay(Task[Card, Card], name="test.pay"):
        class Run(Phase):
            pass

        async def run(self, run, state):
            assert type(run.input) is Card
            await run.complete(Card(run.input.number + "!"))

    session._services.get(type((await session._core()).scheduler.definitions)).install(Pay)
    assert await (await start(root, Card("1"), kind=Pay)).result() == Card("1!")
    bad = await outcome(await start(root, {"number": 5}, kind=Pay))
    assert "str" in bad.error.message  # P11: what does not fit faults this task only


@scene
async def test_a_run_reads_records_documents_and_outcomes(script, session, root):
    script.on("failed", run=lambda run: run.fail("no"))
    ended, failed = await start(root, "ended"), await start(root, "failed")
    await ended.settled()
    await failed.settled()
    script.gate("run:live")
    live = await start(root, "live")
    async with root.commit() as tx:
        entry = await tx.append("note", 1)
        (await tx.doc(NotesDoc))["n"] = 1

    async def run(run):
        first, second = await run.outcomes([ended, failed.id])
        assert first == Completed(result="ended")
        assert isinstance(second, Failed)
        with pytest.raises(InvalidTransition):
            await run.outcomes([live])
        with pytest.raises(UnknownRecord):
            await run.outcomes([99])
        assert (await run.entry(entry.id)) == entry
        with pytest.raises(UnknownRecord):
            await run.entry(ended.id)
        assert await run.snapshot(NotesDoc) == {"n": 1}
        assert (await run.task(run.id)).kind == "test.script"
        await run.complete("fine")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "fine"
    script.open("run:live")


@scene
async def test_a_run_is_over_when_its_handler_has_returned(script, session, root):
    """TS-24: later calls do nothing."""
    kept = []

    async def run(run):
        kept.append(run)
        await run.complete("done")

    script.on("a", run=run)
    task = await start(root, "a")
    await task.settled()
    await turns()
    (run,) = kept
    calls = [
        run.complete,
        lambda: run.goto(Scripted.Resume()),
        lambda: run.memo("key", 1),
        lambda: run.spawn(Scripted, "x"),
        lambda: run.task(run.id),
        lambda: run.snapshot(NotesDoc),
        lambda: run.outcomes([run.id]),
        run.memos,
    ]
    for call in calls:
        with pytest.raises(InvocationEnded):
            await call()


@scene
async def test_the_run_of_an_earlier_phase_is_over_too(script, session, root):
    kept = []

    async def run(run):
        kept.append(run)
        await run.goto(Scripted.Resume())

    async def resume(run):
        with pytest.raises(InvocationEnded):
            await kept[0].complete("from the past")
        await run.complete("now")

    script.on("a", run=run, resume=resume)
    assert await (await start(root, "a")).result() == "now"


@scene
async def test_a_run_that_has_decided_or_parked_can_commit_nothing_more(script, session, root):
    """TS-21."""

    async def run(run):
        await run.wait(then=Scripted.Resume())
        with pytest.raises(InvocationEnded):
            await run.goto(Scripted.Resume())

    async def resume(run):
        await run.complete("done")
        with pytest.raises(InvocationEnded):
            async with run.commit() as tx:
                await tx.append("note", "late")

    script.on("a", run=run, resume=resume)
    assert await (await start(root, "a")).result() == "done"
    assert (await root.entries()).items == []


@scene
async def test_a_marked_task_can_commit_nothing_but_in_its_abort_handler(script, session, root):
    """TS-21: also when its code swallows the signal."""
    swallowed = []

    async def run(run):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(InvocationEnded, match="abort mark"):
                await run.complete("too late")
            swallowed.append(True)

    script.on("a", run=run)
    task = await start(root, "a")
    await script.began("run:a")
    await task.abort()
    assert (await outcome(task)).__struct_config__.tag == "aborted"
    assert swallowed == [True]
    assert script.log == ["run:a", "abort:a"]


def test_a_run_sleeps_and_tells_the_time_by_the_systems_clock():
    """TS-23."""

    async def main():
        clock, script = VirtualClock(autojump=True), Script()

        async def run(run):
            began = run.now()
            await run.sleep_until(began + 3_600_000)
            await run.complete(str(run.now() - began))

        script.on("a", run=run)
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            task = await start(root, "a")
            assert await task.result() == "3600000"
            record = await task.record()
            assert record.ended_at - record.started_at == 3_600_000

    asyncio.run(main())


@scene
async def test_a_run_is_the_first_only_until_code_of_its_task_has_run(script, session, root):
    seen = []

    async def run(run):
        seen.append(run.first)
        if len(seen) == 1:
            run._core.fail(None)  # as storage does: this session's next life goes on from the checkpoint
        await run.goto(Scripted.Resume())

    async def resume(run):
        seen.append(run.first)
        await run.complete()

    script.on("a", run=run, resume=resume)
    task = await start(root, "a")
    while True:
        try:
            await task.settled()
            break
        except SessionFailed:
            await asyncio.sleep(0)
    assert seen == [True, False, False]


@scene
async def test_the_run_after_a_kill_of_the_tasks_actor_is_not_the_first(script, session, root):
    seen = []

    async def run(run):
        seen.append(run.first)
        if len(seen) == 1:
            run._core.scheduler._kill(run._core.scheduler, run._core.scheduler.invocations[run.id])
            await asyncio.sleep(0)
        await run.complete()

    script.on("a", run=run)
    await (await start(root, "a")).settled()
    assert seen == [True, False]


@scene
async def test_a_run_waits_in_memory_for_another_tasks_receipt(script, session, root):
    async def run(run):
        child = await run.spawn(Scripted, "child")
        first = await run.settled(child)
        assert await run.settled(child.id) == first  # it is over already
        with pytest.raises(UnknownRecord):
            await run.settled(99)
        with pytest.raises(WaitCycle):
            await run.settled(run.id)
        await run.complete(first.state.outcome.result)

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "child"


@scene
async def test_a_last_commit_need_not_be_waited_for(script, session, root):
    """P1: who waits for the task learns of its end once it is durable."""
    durable = []

    async def run(run):
        async with run.commit(wait=False) as tx:
            tx.complete("done")
        durable.append(run._core.gate.durable == run._core.seq)

    script.on("a", run=run)
    task = await start(root, "a")
    assert await task.result() == "done"
    core = await session._core()
    assert core.gate.durable == core.seq
    assert durable == [False]


@scene
async def test_a_check_raises_what_a_commit_would(script, session, root):
    kept = []

    async def run(run):
        kept.append(run)
        run.check()
        async with run.commit() as tx:
            with pytest.raises(LineReentry):
                run.check()
            tx.complete()

    script.on("a", run=run)
    await (await start(root, "a")).settled()
    with pytest.raises(InvocationEnded):
        kept[0].check()


@scene
async def test_a_commit_lists_the_live_tasks_that_its_task_owns_directly(script, session, root):
    script.gate("run:child")

    async def run(run):
        child = await run.spawn(Scripted, "child")
        async with run.commit() as tx:
            new = await tx.create_task(Scripted, "new", owner=run.id)
            assert [record.id for record in tx.owned_tasks()] == [child.id, new.id]
        script.open("run:child")
        await run.settled(child)
        await run.settled(new)
        async with run.commit() as tx:
            assert tx.owned_tasks() == []
            tx.complete("ok")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "ok"
