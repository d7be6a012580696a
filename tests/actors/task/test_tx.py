"""A task's own commits: one change of its state at most, atomic with everything else in the block."""

import asyncio

import perdure
import pytest
from perdure import (
    Aborted,
    Completed,
    Doc,
    Failed,
    Faulted,
    InvalidTransition,
    InvalidValue,
    OwnershipRefused,
    Phase,
    Task,
    TaskRef,
)
from perdure.chord.errors import InvalidJson
from perdure.storage.records import OutcomeError, Running, Waiting

from .support import Scripted, outcome, scene, spawn_and_wait, start, turns

WorkDoc = Doc("test.work", scope="task")


@scene
async def test_a_commit_that_decides_nothing_leaves_the_state(script, session, root):
    """TS-04."""

    async def run(run):
        async with run.commit() as tx:
            await tx.append("note", "one")
        record = await run.task(run.id)
        assert record.state == Running(checkpoint={"phase": "run"})
        await run.complete("done")

    script.on("a", run=run)
    task = await start(root, "a")
    assert await task.result() == "done"
    (entry,) = (await root.entries()).items
    assert (entry.data, entry.by_task_id) == ("one", task.id)


@scene
async def test_state_entries_documents_and_children_change_in_one_commit(script, session, root):
    """P2: the publication of the commit that ends the task carries all of it."""
    publications = []
    (await session._core()).subscribe(publications.append)

    async def run(run):
        async with run.commit() as tx:
            await tx.append("note", "one")
            (await tx.doc(WorkDoc, run.id))["n"] = 1
            child = await tx.create_task(Scripted, "child", owner=run.id)
            await tx.wait([child], then=Scripted.Resume(note="after"))

    script.on("a", run=run)
    task = await start(root, "a")
    await task.result()
    (one,) = [publication for publication in publications if publication.entries]
    assert {record.id for record in one.tasks} == {task.id, task.id + 3}
    assert one.documents[0].value == {"n": 1}


@scene
async def test_a_second_change_of_state_in_one_commit_is_refused(script, session, root):
    changes = [
        lambda tx: tx.goto(Scripted.Resume()),
        lambda tx: tx.complete(1),
        lambda tx: tx.fail("no"),
        lambda tx: tx.abort(),
    ]

    async def run(run):
        for change in changes:
            with pytest.raises(InvalidTransition):
                async with run.commit() as tx:
                    tx.goto(Scripted.Resume())
                    change(tx)
            with pytest.raises(InvalidTransition):
                async with run.commit() as tx:
                    tx.complete()
                    await tx.wait([], then=Scripted.Resume())
        await run.complete("done")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "done"


@scene
async def test_only_a_phase_of_the_own_definition_can_be_next(script, session, root):
    class Other(Phase):
        pass

    async def run(run):
        for wrong in (Other(), None, {"phase": "resume"}):
            with pytest.raises(InvalidTransition):
                await run.goto(wrong)
            with pytest.raises(InvalidTransition):
                await run.wait(then=wrong)
        await run.complete("done")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "done"


@scene
async def test_a_phase_carries_its_fields_to_its_handler(script, session, root):
    seen = []

    class Counting(Task[int, list], name="test.counting"):
        class Count(Phase):
            left: int
            note: str = ""

        def initial(self, input):
            return self.Count(left=input)

        async def count(self, run, state):
            seen.append((state.left, state.note))
            if state.left == 0:
                await run.complete([left for left, _ in seen])
            else:
                await run.goto(self.Count(left=state.left - 1, note=f"after {state.left}"))

    session._services.get(type((await session._core()).scheduler.definitions)).install(Counting)
    task = await start(root, 2, kind=Counting)
    assert await task.result() == [2, 1, 0]
    assert seen == [(2, ""), (1, "after 2"), (0, "after 1")]


@scene
async def test_every_way_to_end_is_kept_as_it_was_said(script, session, root):
    ways = {
        "complete": (lambda run: run.complete("done"), Completed(result="done")),
        "fail": (
            lambda run: run.fail("no", detail={"why": 1}, result="part"),
            Failed(error=OutcomeError(message="no", detail={"why": 1}), result="part"),
        ),
        "abort": (abort_itself, Aborted(reason="enough", result="part")),
    }
    for name, (way, expected) in ways.items():
        script.on(name, run=way)
        assert await outcome(await start(root, name)) == expected


async def abort_itself(run):
    async with run.commit() as tx:
        tx.abort("enough", result="part")


@scene
async def test_a_result_that_is_no_json_is_refused_and_the_task_may_go_on(script, session, root):
    """TS-05, P11."""

    async def run(run):
        for wrong in (float("nan"), {"x": float("inf")}):
            with pytest.raises(InvalidJson):
                await run.complete(wrong)
        with pytest.raises(InvalidJson):
            await run.complete(object())
        with pytest.raises(InvalidJson):
            await run.fail("no", detail=float("nan"))
        await run.complete("done")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "done"


@scene
async def test_an_input_is_copied_when_the_task_is_created(script, session, root):
    value = ["x"]
    async with root.commit() as tx:
        task = await tx.create_task(Scripted, value)
        value.append("y")
    assert (await task.record()).input == ["x"]


# --- waits


@scene
async def test_an_empty_wait_goes_on_at_once(script, session, root):
    """TS-12."""
    script.on("a", run=lambda run: run.wait(then=Scripted.Resume()))
    assert await (await start(root, "a")).result() == "a"
    assert script.log == ["run:a", "resume:a"]


@scene
async def test_a_wait_for_what_has_ended_goes_on_at_once(script, session, root):
    """SC-11."""
    ended = await start(root, "ended")
    await ended.result()
    script.on("a", run=lambda run: run.wait([ended], then=Scripted.Resume()))
    assert await (await start(root, "a")).result() == "a"


FAR = 2**50


@scene
async def test_a_parked_task_keeps_what_it_waits_for_and_has_no_actor(script, session, root):
    script.gate("run:busy")
    busy = await start(root, "busy")
    script.on("a", run=lambda run: run.wait([busy, busy.id], then=Scripted.Resume(note="x"), until=FAR))
    task = await start(root, "a")
    await script.began("run:a")
    await turns()
    state = (await task.record()).state
    assert state == Waiting(
        checkpoint={"phase": "resume", "note": "x"}, on=[busy.id, busy.id], policy="allSettled", until=FAR
    )
    core = await session._core()
    assert list(core.scheduler.invocations) == [busy.id]
    script.open("run:busy")
    await task.result()


@scene
async def test_a_wait_that_could_never_end_faults_the_task(script, session, root):
    """TS-03, SC-13, SC-14."""

    async def wait_for_itself(run):
        await run.wait([run.id], then=Scripted.Resume())

    script.on("self", run=wait_for_itself)
    fault = await outcome(await start(root, "self"))
    assert isinstance(fault, Faulted)
    assert "cycle" in fault.error.message
    script.on("unknown", run=lambda run: run.wait([99], then=Scripted.Resume()))
    assert isinstance(await outcome(await start(root, "unknown")), Faulted)


@scene
async def test_a_child_that_waits_for_its_waiting_owner_faults_and_the_owner_goes_on(script, session, root):
    """SC-13."""
    script.on("child", run=lambda run: run.wait([owner.id], then=Scripted.Resume()))
    script.on("owner", run=spawn_and_wait("child"))
    script.gate("run:owner")
    owner = await start(root, "owner")
    script.open("run:owner")
    assert await owner.result() == "owner"


@scene
async def test_of_two_tasks_that_wait_for_each_other_the_second_faults(script, session, root):
    """SC-14."""
    script.gate("run:a", "run:b")
    a, b = await start(root, "a"), await start(root, "b")
    script.on("a", run=lambda run: run.wait([b], then=Scripted.Resume()))
    script.on("b", run=lambda run: run.wait([a], then=Scripted.Resume()))
    await script.began("run:a", "run:b")
    script.open("run:a")
    await turns()
    script.open("run:b")
    assert isinstance(await outcome(b), Faulted)
    assert await a.result() == "a"


@scene
async def test_a_background_task_may_wait_for_the_owner_of_its_conversation(script, session, root):
    """SC-16: that owner's end does not wait for background work."""
    made = {}

    async def owner(run):
        async with run.commit() as tx:
            conversation = await tx.create_conversation(owner=run.id)
            made["background"] = await tx.create_task(
                Scripted, "background", conversation_id=conversation.id, background=True
            )
            tx.goto(Scripted.Resume())

    script.gate("resume:owner")
    script.on("owner", run=owner)
    script.on("background", run=lambda run: run.wait([task], then=Scripted.Resume()))
    task = await start(root, "owner")
    await script.began("run:background", "resume:owner")
    await turns()
    script.open("resume:owner")
    assert await task.result() == "owner"
    assert await made["background"].result() == "background"


@scene
async def test_fail_fast_is_for_a_tasks_own_tasks(script, session, root):
    other = await start(root, "other")
    script.on("a", run=lambda run: run.wait([other], then=Scripted.Resume(), policy="failFast"))
    fault = await outcome(await start(root, "a"))
    assert "failFast" in fault.error.message


@scene
async def test_a_handle_of_another_session_cannot_be_waited_for(script, session, root):
    stranger = TaskRef(session._services, "another", 2)

    async def run(run):
        with pytest.raises(InvalidValue):
            await run.wait([stranger], then=Scripted.Resume())
        with pytest.raises(InvalidValue):
            await run.outcomes([stranger])
        await run.complete("done")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "done"


# --- ownership from inside


@scene
async def test_a_commit_that_creates_a_child_and_finishes_its_owner_faults_and_leaves_nothing(script, session, root):
    """SC-05."""

    async def run(run):
        async with run.commit() as tx:
            await tx.append("note", "gone")
            tx.complete()
            await tx.create_task(Scripted, "child", owner=run.id)

    script.on("a", run=run)
    fault = await outcome(await start(root, "a"))
    assert "is completing" in fault.error.message
    assert (await root.entries()).items == []
    assert script.log == ["run:a"]


@scene
async def test_an_abort_handler_cannot_create_owned_children(script, session, root):
    async def abort(run):
        with pytest.raises(OwnershipRefused, match="abort-marked"):
            await run.spawn(Scripted, "child")
        async with run.commit() as tx:
            await tx.append("note", "cleaned up")
            tx.abort("done")

    script.gate("run:a")
    script.on("a", abort=abort)
    task = await start(root, "a")
    await script.began("run:a")
    await task.abort()
    assert await outcome(task) == Aborted(reason="done")
    assert [entry.data for entry in (await root.entries()).items] == ["cleaned up"]


@scene
async def test_a_task_may_create_work_for_its_conversation(script, session, root):
    made = {}

    async def run(run):
        async with run.commit() as tx:
            made["sibling"] = await tx.create_task(Scripted, "sibling")
        await run.complete("a")

    script.gate("run:sibling")
    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "a"
    record = await made["sibling"].record()
    assert (record.owner, record.conversation_id) == (None, root.id)
    script.open("run:sibling")
    await made["sibling"].result()


# --- memos


@scene
async def test_the_first_memo_of_a_name_stays_over_checkpoints_and_is_gone_at_the_end(script, session, root):
    """TS-22."""
    seen = []

    async def run(run):
        seen.append(await run.memo("key", "first"))
        seen.append(await run.memo("key", "second"))
        seen.append(await run.memos())
        await run.goto(Scripted.Resume())

    async def resume(run):
        seen.append(await run.memo("key", "third"))
        async with run.commit() as tx:
            assert tx.memo("other", [1]) == [1]
            tx.complete()
            with pytest.raises(InvalidTransition):
                tx.memo("late", 1)

    script.on("a", run=run, resume=resume)
    task = await start(root, "a")
    record = await task.settled()
    assert seen == ["first", "first", {"key": "first"}, "first"]
    assert record.memos is None


@scene
async def test_concurrent_memos_of_one_name_agree(script, session, root):
    async def run(run):
        values = await asyncio.gather(*(run.memo("key", number) for number in range(10)))
        assert len(set(values)) == 1
        await run.complete("done")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "done"


@scene
async def test_a_memo_is_copied_and_must_be_json(script, session, root):
    async def run(run):
        value = [1]
        kept = await run.memo("key", value)
        value.append(2)
        kept.append(3)
        assert await run.memos() == {"key": [1]}
        assert await run.memos() is not (await run.memos())
        with pytest.raises(InvalidJson):
            await run.memo("bad", float("nan"))
        await run.complete("done")

    script.on("a", run=run)
    assert await (await start(root, "a")).result() == "done"


@scene
async def test_memos_vanish_while_the_outcome_is_held(script, session, root):
    """TS-22: at hold as well as at the end."""

    async def run(run):
        await run.memo("key", 1)
        await run.spawn(Scripted, "child")
        await run.complete("done")

    script.gate("run:child")
    script.on("a", run=run)
    task = await start(root, "a")
    await script.began("run:child")
    await turns()
    assert (await task.record()).memos is None
    script.open("run:child")
    await task.result()


def test_a_mark_set_in_the_same_block_as_a_step_is_kept():
    class Marked(perdure.Task[None, None], name="t.marked", version=1):
        class A(perdure.Phase): ...

        class B(perdure.Phase): ...

        async def a(self, run, state):
            async with run.commit() as tx:
                await tx.abort_task(run.id)
                tx.memo("seen", value=True)
                tx.goto(self.B())

        async def b(self, run, state):
            await run.complete("B ran")

    async def main():
        extension = perdure.Extension(name="t", tasks=[Marked])
        async with perdure.System.open(perdure.MemoryStorage(), extensions=[extension]) as system:
            root = await (await system.session("s")).root()
            async with root.commit() as tx:
                task = await tx.create_task(Marked)
            return (await task.settled()).state.outcome

    assert asyncio.run(main()) == perdure.Aborted()
