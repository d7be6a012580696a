"""Who runs when: joins and holds at run time, aborts, background work, blocked tasks, recovery, and what stays in memory."""

import asyncio

import pytest
from perdure import (
    Completed,
    Doc,
    Failed,
    Faulted,
    InvalidValue,
    MemoryStorage,
    Orphaned,
    OwnershipRefused,
    TaskRecord,
    TaskRef,
    VirtualClock,
)
from perdure.actors.session.directory import Directory
from perdure.actors.task.definition import Definitions
from perdure.storage.faulty import FaultyStorage
from perdure.storage.records import (
    Batch,
    Completing,
    ConversationRecord,
    OutcomeError,
    Pending,
    Running,
    Terminal,
    Waiting,
)

from .support import (
    Script,
    Scripted,
    crash,
    home,
    opened,
    outcome,
    scene,
    scripted,
    spawn_and_wait,
    start,
    turns,
    until,
)

WorkDoc = Doc("test.work", scope="task")


def quick():
    return VirtualClock(autojump=True)


def definitions(session):
    return session._services.get(Definitions)


async def status(task):
    return (await task.record()).state.__struct_config__.tag


async def engine(session):
    return (await session._core()).scheduler


# --- joins


@scene
async def test_all_settled_goes_on_once_with_every_outcome_in_order(script, session, root):
    """SC-07."""

    async def throws(run):
        raise RuntimeError("threw")

    async def abort_itself(run):
        async with run.commit() as tx:
            tx.abort("enough")

    async def run(run):
        async with run.commit() as tx:
            children = [await tx.create_task(Scripted, n, owner=run.id) for n in ("ok", "failed", "threw", "aborted")]
            children.append(await tx.create_task(scripted(9), "orphaned", owner=run.id))
            await tx.abort_task(children[4])
            await tx.wait(children, then=Scripted.Resume())
        seen.extend(children)

    async def resume(run):
        kinds = [outcome.__struct_config__.tag for outcome in await run.outcomes(seen)]
        await run.complete(kinds)

    seen = []
    script.on("failed", run=lambda run: run.fail("no"))
    script.on("threw", run=throws)
    script.on("aborted", run=abort_itself)
    script.on("parent", run=run, resume=resume)
    task = await start(root, "parent")
    assert await task.settled()
    assert (await task.record()).state.outcome.result == ["completed", "failed", "faulted", "aborted", "orphaned"]
    marked = [(await child.record()).abort_requested for child in seen]
    assert marked == [False, False, False, False, True]
    assert script.log.count("resume:parent") == 1


@pytest.mark.parametrize("how", ["fails", "throws"])
def test_fail_fast_aborts_the_siblings_and_the_parent_reads_all_outcomes(how):
    """SC-08."""

    async def main():
        script = Script()

        async def fails(run):
            if how == "throws":
                raise RuntimeError("no")
            await run.fail("no")

        children = []

        async def run(run):
            async with run.commit() as tx:
                children.extend([await tx.create_task(Scripted, n, owner=run.id) for n in ("a", "bad", "c", "d")])
                await tx.wait(children, then=Scripted.Resume(), policy="failFast")

        async def resume(run):
            kinds = [outcome.__struct_config__.tag for outcome in await run.outcomes(children)]
            await run.complete(",".join(kinds))

        script.gate("run:a", "run:bad", "run:c", "run:d")
        script.on("bad", run=fails)
        script.on("parent", run=run, resume=resume)
        async with opened(MemoryStorage(), script) as system:
            _, root = await home(system)
            task = await start(root, "parent")
            await script.began("run:a", "run:bad", "run:c", "run:d")
            script.open("run:bad")
            expected = "faulted" if how == "throws" else "failed"
            assert await task.result() == f"aborted,{expected},aborted,aborted"
            assert not (await task.record()).abort_requested
            assert [(await child.record()).abort_requested for child in children] == [True, False, True, True]

    asyncio.run(main())


@scene
async def test_fail_fast_reacts_to_a_held_failure_and_waits_for_it_to_drain(script, session, root):
    """SC-09."""
    children = []

    async def parent(run):
        async with run.commit() as tx:
            children.extend([await tx.create_task(Scripted, name, owner=run.id) for name in ("p1", "p2")])
            await tx.wait(children, then=Scripted.Resume(), policy="failFast")

    async def p1(run):
        await run.spawn(Scripted, "grandchild")
        await run.fail("no")

    script.gate("run:grandchild", "abort:grandchild", "run:p1", "run:p2")
    script.on("parent", run=parent)
    script.on("p1", run=p1)
    task = await start(root, "parent")
    await script.began("run:p1", "run:p2")
    script.open("run:p1")
    await script.began("abort:grandchild", "abort:p2")
    await children[1].settled()
    assert await status(children[0]) == "completing"
    assert await status(task) == "waiting"
    script.open("abort:grandchild")
    await task.result()
    assert not (await children[0].record()).abort_requested


@scene
async def test_a_child_outside_the_fail_fast_list_goes_on_and_holds_its_parent(script, session, root):
    """SC-10."""

    async def parent(run):
        async with run.commit() as tx:
            await tx.create_task(Scripted, "outside", owner=run.id)
            bad = await tx.create_task(Scripted, "bad", owner=run.id)
            await tx.wait([bad], then=Scripted.Resume(), policy="failFast")

    script.gate("run:outside")
    script.on("bad", run=lambda run: run.fail("no"))
    script.on("parent", run=parent)
    task = await start(root, "parent")
    await script.began("run:outside", "resume:parent")
    await turns()
    assert await status(task) == "completing"
    script.open("run:outside")
    assert await task.result() == "parent"
    assert "abort:outside" not in script.log


@scene
async def test_a_wait_for_a_held_task_ends_with_its_end_not_with_its_hold(script, session, root):
    """SC-17."""

    async def held(run):
        await run.spawn(Scripted, "child")
        await run.complete("held")

    script.gate("run:child")
    script.on("held", run=held)
    task = await start(root, "held")
    await script.began("run:child")
    script.on("waiter", run=lambda run: run.wait([task], then=Scripted.Resume()))
    waiter = await start(root, "waiter")
    await script.began("run:waiter")
    await turns()
    assert await status(waiter) == "waiting"
    script.open("run:child")
    await waiter.result()


# --- holds


@scene
async def test_a_finished_task_with_live_work_holds_its_outcome_and_its_documents(script, session, root):
    """SC-19, DF-01."""

    async def run(run):
        async with run.commit() as tx:
            (await tx.doc(WorkDoc, run.id))["n"] = 1
            await tx.create_task(Scripted, "child", owner=run.id)
        await run.complete("held")

    script.gate("run:child")
    script.on("a", run=run)
    task = await start(root, "a")
    await script.began("run:child")
    await turns()
    record = await task.record()
    assert record.state == Completing(outcome=Completed(result="held"))
    assert record.ended_at is None
    waits = [asyncio.create_task(one) for one in (task.settled(), session.wait_for_idle(), root.wait_for_idle())]
    await turns()
    assert not any(wait.done() for wait in waits)
    assert await session.snapshot(WorkDoc, task.id) == {"n": 1}
    script.open("run:child")
    await asyncio.gather(*waits)
    assert await session.snapshot(WorkDoc, task.id) is None
    assert (await task.record()).ended_at is not None


@scene
async def test_work_that_appears_during_the_hold_extends_it(script, session, root):
    """SC-20: the child, which is live, may own more."""
    made = []

    async def child(run):
        made.append(await run.spawn(Scripted, "grandchild"))
        await run.complete()

    async def run(run):
        await run.spawn(Scripted, "child")
        await run.complete("held")

    script.gate("run:child", "run:grandchild")
    script.on("child", run=child)
    script.on("a", run=run)
    task = await start(root, "a")
    await script.began("run:child")
    await turns()
    assert await status(task) == "completing"
    with pytest.raises(OwnershipRefused, match="is completing"):
        await start(root, "late", owner=task)
    script.open("run:child")
    await script.began("run:grandchild")
    await turns()
    assert await status(task) == "completing"
    script.open("run:grandchild")
    await task.result()
    assert await status(made[0]) == "terminal"


@pytest.mark.parametrize("how", ["fails", "faults"])
def test_a_held_failure_or_fault_aborts_the_work_below_first(how):
    """SC-21."""

    async def main():
        script = Script()

        async def run(run):
            await run.spawn(Scripted, "child")
            await script.began("run:child")
            if how == "faults":
                raise RuntimeError("no")
            await run.fail("no")

        script.gate("run:child", "abort:child")
        script.on("a", run=run)
        async with opened(MemoryStorage(), script) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("abort:child")
            await turns()
            assert await status(task) == "completing"
            script.open("abort:child")
            assert type(await outcome(task)) is (Faulted if how == "faults" else Failed)
            assert "abort:a" not in script.log

    asyncio.run(main())


@pytest.mark.parametrize("through", ["task", "conversation"])
def test_aborting_a_held_task_aborts_the_work_below_and_keeps_its_outcome(through):
    """SC-22, SC-23."""

    async def main():
        script = Script()

        async def run(run):
            await run.spawn(Scripted, "child")
            await run.complete("kept")

        script.gate("run:child")
        script.on("a", run=run)
        async with opened(MemoryStorage(), script) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:child")
            await turns()
            if through == "task":
                assert await task.abort()
            else:
                await root.abort()
            record = await task.settled()
            assert record.state.outcome == Completed(result="kept")
            assert record.abort_requested
            assert not await task.abort()
            assert "abort:a" not in script.log
            assert "abort:child" in script.log

    asyncio.run(main())


# --- aborts


@scene
async def test_a_chain_is_aborted_from_its_end_and_each_handler_sees_its_child_ended(script, session, root):
    """SC-25, SC-27."""
    ids, seen = {}, []

    def spawning(child):
        async def run(run):
            async with run.commit() as tx:
                ids[child] = await tx.create_task(Scripted, child, owner=run.id)
                await tx.wait([ids[child]], then=Scripted.Resume())

        return run

    def looking(child):
        async def abort(run):
            seen.append((await run.task(ids[child].id)).state.__struct_config__.tag)
            async with run.commit() as tx:
                tx.abort()

        return abort

    script.gate("run:c")
    script.on("a", run=spawning("b"), abort=looking("b"))
    script.on("b", run=spawning("c"), abort=looking("c"))
    task = await start(root, "a")
    await script.began("run:c")
    await turns()
    await task.abort()
    await task.settled()
    assert [entry for entry in script.log if entry.startswith("abort")] == ["abort:c", "abort:b", "abort:a"]
    assert seen == ["terminal", "terminal"]


@scene
async def test_an_aborted_waiter_leaves_its_wait_and_what_it_merely_waited_for_alone(script, session, root):
    """SC-26."""
    script.gate("run:other")
    other = await start(root, "other")
    script.on("a", run=lambda run: run.wait([other], then=Scripted.Resume()))
    task = await start(root, "a")
    await script.began("run:a")
    await turns()
    await task.abort()
    assert (await outcome(task)).__struct_config__.tag == "aborted"
    assert not (await other.record()).abort_requested
    script.open("run:other")
    assert await other.result() == "other"


@scene
async def test_an_abort_crosses_tasks_and_owned_conversations(script, session, root):
    """SC-29."""

    async def a(run):
        await run.spawn(Scripted, "b")
        await asyncio.Event().wait()

    async def b(run):
        async with run.commit() as tx:
            conversation = await tx.create_conversation(owner=run.id)
            await tx.create_task(Scripted, "x", conversation_id=conversation.id)
        await asyncio.Event().wait()

    script.gate("run:x")
    script.on("a", run=a)
    script.on("b", run=b)
    task = await start(root, "a")
    await script.began("run:x")
    await task.abort()
    await task.settled()
    assert [entry for entry in script.log if entry.startswith("abort")] == ["abort:x", "abort:b", "abort:a"]


@scene
async def test_a_background_task_is_a_boundary_for_its_owners_abort(script, session, root):
    """SC-33, SC-34."""
    made = {}

    async def owner(run):
        async with run.commit() as tx:
            made["conversation"] = await tx.create_conversation(owner=run.id)
            made["background"] = await tx.create_task(
                Scripted, "background", conversation_id=made["conversation"].id, background=True
            )
        await asyncio.Event().wait()

    script.gate("run:background", "run:below", "run:beside", "abort:owner")
    script.on("owner", run=owner)
    task = await start(root, "owner")
    await script.began("run:background")
    await task.abort()
    await script.began("abort:owner")  # at once: background work is not waited for
    below = await start(root, "below", owner=made["background"])
    beside = await start(root, "beside", conversation_id=made["conversation"].id)
    assert (await outcome(beside)).__struct_config__.tag == "aborted"
    assert "run:beside" not in script.log
    await script.began("run:below")
    script.open("abort:owner")
    await task.settled()
    assert not (await below.record()).abort_requested
    await made["background"].abort()
    await made["background"].settled()
    assert "abort:below" in script.log


@scene
async def test_new_work_in_the_conversation_of_an_aborted_finished_task_runs(script, session, root):
    """SC-31."""
    made = {}

    async def agent(run):
        async with run.commit() as tx:
            made["conversation"] = await tx.create_conversation(owner=run.id)
        await asyncio.Event().wait()

    script.on("agent", run=agent)
    task = await start(root, "agent")
    await until(lambda: made)
    await task.abort()
    await task.settled()
    late = await start(root, "late", conversation_id=made["conversation"].id)
    assert await late.result() == "late"


@scene
async def test_idleness_does_not_wait_for_background_work_and_sees_below_ended_tasks(script, session, root):
    """SC-45."""
    made = {}

    async def child(run):
        async with run.commit() as tx:
            conversation = await tx.create_conversation(owner=run.id)
            made["inner"] = await tx.create_task(Scripted, "inner", conversation_id=conversation.id)
        await run.complete()

    script.gate("run:background", "run:inner")
    background = await start(root, "background", background=True)
    await root.wait_for_idle()
    await session.wait_for_idle()
    script.on("child", run=child)
    await start(root, "child")
    await script.began("run:inner")
    idle = asyncio.create_task(root.wait_for_idle())
    await turns()
    assert not idle.done()
    script.open("run:inner")
    await idle
    script.open("run:background")
    await background.result()


@scene
async def test_a_child_attached_in_the_tick_of_the_abort_is_refused_or_aborted(script, session, root):
    """B050: before it the child is aborted with its owner, after it the child is refused."""
    refused = set()
    for round_ in range(100):
        owner_name, child_name = f"owner-{round_}", f"child-{round_}"
        script.gate(f"run:{owner_name}", f"run:{child_name}")
        owner = await start(root, owner_name)
        await script.began(f"run:{owner_name}")
        abort = asyncio.create_task(owner.abort())
        await turns(round_ % 3)
        try:
            child = await start(root, child_name, owner=owner)
        except OwnershipRefused:
            child = None
        await abort
        assert (await outcome(owner)).__struct_config__.tag == "aborted"
        assert child is None or (await outcome(child)).__struct_config__.tag == "aborted"
        refused.add(child is None)
    assert refused == {True, False}


# --- blocked tasks


@scene
async def test_a_task_without_code_is_blocked_until_code_is_installed(script, session, root):
    """TS-06: it stays waiting while it is blocked, and goes on at the migrated checkpoint."""
    script.gate("run:awaited")
    definitions(session).install(scripted(name="test.other"))
    awaited = await start(root, "awaited", kind=scripted(name="test.other"))
    script.on("a", run=lambda run: run.wait([awaited], then=Scripted.Resume(note="old")))
    task = await start(root, "a")
    await script.began("run:a")
    await turns()
    definitions(session).uninstall("test.script")
    script.open("run:awaited")
    await awaited.settled()
    await turns()
    assert (await engine(session)).blocked[task.id].reason == "missing_task"
    assert await status(task) == "waiting"
    second = scripted(2, migrate=lambda _, checkpoint, __: (checkpoint["note"], second.Resume(note="new")))
    definitions(session).install(second)
    assert await task.result() == "old"
    assert script.log[-1] == "resume:old"
    assert (await engine(session)).blocked == {}


@scene
async def test_a_task_that_is_newer_than_the_code_is_blocked_and_orphaned_only_by_an_abort(script, session, root):
    """TS-09."""
    task = await start(root, "a", kind=scripted(5))
    await turns()
    assert (await engine(session)).blocked[task.id].reason == "task_too_old"
    record = await task.record()
    assert (record.state.__struct_config__.tag, record.started_at) == ("pending", None)
    assert await task.abort()
    record = await task.settled()
    assert record.state.outcome == Orphaned(reason="task_too_old")
    assert record.started_at is None  # TS-35
    assert record.ended_at is not None
    assert script.log == []


@scene
async def test_a_migration_that_fails_blocks_and_is_tried_again_only_with_other_code(script, session, root):
    tries = []

    def broken(input, checkpoint, from_version):
        tries.append(from_version)
        raise RuntimeError("not yet written")

    definitions(session).install(scripted(2, migrate=broken))
    task = await start(root, "a")
    await turns()
    blocked = (await engine(session)).blocked[task.id]
    assert (blocked.reason, blocked.error) == ("migration_failed", "not yet written")
    for _ in range(3):
        (await engine(session)).consider([task.id])
        await turns()
    assert tries == [1]
    definitions(session).install(scripted(2, migrate=broken))
    await turns()
    assert tries == [1, 1]
    good = scripted(2, migrate=lambda given, *_: (given, good.Resume()))
    definitions(session).install(good)
    assert await task.result() == "a"


@pytest.mark.parametrize("reason", ["missing_task", "task_too_old", "migration_failed"])
def test_an_abort_orphans_a_blocked_task_whatever_blocks_it(reason, place):
    """TS-20: only an abort settles it."""

    async def main():
        script = Script()
        kind = {
            "missing_task": scripted(name="test.gone"),
            "task_too_old": scripted(9),
            "migration_failed": Scripted,
        }[reason]
        newer = scripted(2, migrate=lambda *_: 1 / 0)
        async with opened(place.store(), script, newer if reason == "migration_failed" else Scripted) as system:
            session, root = await home(system)
            task = await start(root, "a", kind=kind)
            await turns()
            assert (await engine(session)).blocked[task.id].reason == reason
        async with opened(place.store(), script, newer if reason == "migration_failed" else Scripted) as system:
            session = await system.session("s")
            again = await session.task(task.id)
            await until(lambda: core_of(system).scheduler.blocked)
            assert await again.abort()
            assert await outcome(again) == Orphaned(reason=reason)
            assert (await engine(session)).blocked == {}
            assert (await engine(session))._failed_migrations == {}

    asyncio.run(main())


def core_of(system, key="s"):
    return system._sessions._cores[key]


@scene
async def test_a_blocked_owner_is_orphaned_only_after_its_owned_work_has_ended(script, session, root):
    """SC-28."""
    kind = scripted(name="test.owner")
    script.on("owner", run=spawn_and_wait("child", then=kind.Resume()))
    script.gate("run:child", "abort:child")
    definitions(session).install(kind)
    owner = await start(root, "owner", kind=kind)
    await script.began("run:child")
    await turns()
    definitions(session).uninstall("test.owner")
    assert await owner.abort()
    await script.began("abort:child")
    await turns()
    assert await status(owner) == "waiting"
    script.open("abort:child")
    assert await outcome(owner) == Orphaned(reason="missing_task")


@scene
async def test_an_abort_that_is_rolled_back_leaves_the_task_blocked_and_revivable(script, session, root):
    task = await start(root, "a", kind=scripted(name="test.gone"))
    await turns()

    class Undone(Exception):
        pass

    broken = Doc("test.broken", scope="session", checkpoint_when=lambda *_: 1 / 0)
    async with root.commit() as tx:
        await tx.doc(broken)
    with pytest.raises(ZeroDivisionError):  # in the last step before admission, after the task was orphaned
        async with root.commit() as tx:
            await tx.abort_task(task)
            (await tx.doc(broken))["n"] = 1
    assert await status(task) == "pending"
    definitions(session).install(scripted(name="test.gone"))
    assert await task.result() == "a"


def test_installing_inside_a_commit_block_is_followed_up_after_it():
    """TS-27."""

    async def main():
        script = Script()
        async with opened(MemoryStorage(), script) as system:
            session, root = await home(system)
            task = await start(root, "a", kind=scripted(name="test.gone"))
            await turns()
            async with root.commit() as tx:
                definitions(session).install(scripted(name="test.gone"))
                await turns()
                await tx.append("note", 1)
            assert await task.result() == "a"

    asyncio.run(main())


def test_a_scheduling_commit_that_cannot_be_made_ends_the_sessions_life_and_loses_nothing():
    """TS-28."""

    async def main():
        script, storage = Script(), FaultyStorage(MemoryStorage())
        script.gate("run:a")
        async with opened(storage, script, clock=quick()) as system:
            session, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            scheduler, broken = await engine(session), []

            def reserve(tx, candidates):
                broken.append(True)
                raise ZeroDivisionError

            scheduler.reserve = reserve
            waiting = asyncio.create_task(task.result())
            await turns()
            scheduler.consider([task.id])
            with pytest.raises(Exception, match="failed"):
                await waiting
            assert broken == [True]
            script.open("run:a")
            assert await task.result() == "a"

    asyncio.run(main())


# --- recovery


def record(id, state, *, owner=None, name="x", marked=False, conversation=1):
    return TaskRecord(
        id=id,
        conversation_id=conversation,
        kind="test.script",
        version=1,
        state=state,
        input=name,
        background=False,
        abort_requested=marked,
        owner=owner,
    )


async def stored(place, *records):
    """A store with these records, written by somebody who derived nothing from them."""
    store = place.store()
    await store.open()
    writes = [ConversationRecord(id=1), *records]
    last_id = max(write.id for write in writes)
    await store.write([Batch(session="s", seq=1, last_id=last_id, writes=writes, wake=0)])
    await store.close()


RUN, RESUME = {"phase": "run"}, {"phase": "resume"}
DONE, BAD = Completed(result="done"), Failed(error=OutcomeError(message="no"))


def waits(*on, policy="allSettled"):
    return Waiting(checkpoint=RESUME, on=list(on), policy=policy)


def ref(system, id):
    return TaskRef(system.services, "s", id, str)


def test_a_parent_whose_child_has_ended_goes_on_directly(place):
    """SC-39."""

    async def main():
        script = Script()
        await stored(
            place, record(2, waits(3), name="parent"), record(3, Terminal(outcome=DONE), owner=2, name="child")
        )
        async with opened(place.store(), script) as system:
            assert await ref(system, 2).result() == "parent"
        assert script.log == ["resume:parent"]

    asyncio.run(main())


def test_a_fail_fast_parent_with_a_failed_child_marks_the_other_before_it_runs(place):
    """SC-40."""

    async def main():
        script = Script()
        await stored(
            place,
            record(2, waits(3, 4, policy="failFast"), name="parent"),
            record(3, Terminal(outcome=BAD), owner=2, name="c1"),
            record(4, Pending(checkpoint=RUN), owner=2, name="c2"),
        )
        async with opened(place.store(), script) as system:
            assert await ref(system, 2).result() == "parent"
            assert (await ref(system, 4).record()).abort_requested
        assert script.log == ["abort:c2", "resume:parent"]

    asyncio.run(main())


def test_a_stored_hold_ends_at_open_when_its_work_has_drained(place):
    """SC-41."""

    async def main():
        script = Script()
        script.gate("run:live")
        await stored(
            place,
            record(2, Completing(outcome=DONE), name="drained"),
            record(3, Terminal(outcome=DONE), owner=2, name="ended"),
            record(4, Completing(outcome=DONE), name="held"),
            record(5, Running(checkpoint=RUN), owner=4, name="live"),
        )
        async with opened(place.store(), script) as system:
            await ref(system, 2).settled()
            await script.began("run:live")
            assert (await ref(system, 4).record()).state == Completing(outcome=DONE)
            script.open("run:live")
            await ref(system, 4).settled()
        assert script.log == ["run:live"]

    asyncio.run(main())


def test_marks_below_a_cancelled_owner_are_derived_at_open(place):
    """SC-44, SC-35, SC-38: nothing below it runs, and it ends last."""

    async def main():
        script = Script()
        await stored(
            place,
            record(2, Running(checkpoint=RUN), name="owner", marked=True),
            record(3, Pending(checkpoint=RUN), owner=2, name="child"),
            record(4, Running(checkpoint=RUN), owner=3, name="grandchild"),
        )
        async with opened(place.store(), script) as system:
            await ref(system, 2).settled()
        assert script.log == ["abort:grandchild", "abort:child", "abort:owner"]

    asyncio.run(main())


def test_a_close_while_children_run_is_waited_over(place):
    """SC-43, CR-03."""

    async def main():
        script, children = Script(), []

        async def parent(run):
            async with run.commit() as tx:
                children.extend([await tx.create_task(Scripted, name, owner=run.id) for name in ("c1", "c2")])
                await tx.wait(children, then=Scripted.Resume())

        async def resume(run):
            await run.complete(",".join(one.result for one in await run.outcomes([child.id for child in children])))

        script.gate("run:c1", "run:c2")
        script.on("parent", run=parent, resume=resume)
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "parent")
            await script.began("run:c1", "run:c2")
        script.open("run:c1", "run:c2")
        async with opened(place.store(), script) as system:
            assert await ref(system, task.id).result() == "c1,c2"

    asyncio.run(main())


def test_tasks_that_were_stored_as_running_run_again_and_keep_their_times(place):
    """TS-14, TS-35."""

    async def main():
        clock, script = VirtualClock(), Script()
        script.gate("run:a")
        async with opened(place.store(), script, clock=clock) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            began = (await task.record()).started_at
            await crash(system)
        clock.advance(60)
        script.open("run:a")
        async with opened(place.store(), script, clock=clock) as system:
            record = await ref(system, task.id).settled()
            assert (record.started_at, record.ended_at) == (began, began + 60_000)

    asyncio.run(main())


def test_a_task_from_before_times_were_kept_gets_them_as_it_goes_on(place):
    """TS-36."""

    async def main():
        script = Script()
        await stored(place, record(2, Running(checkpoint=RUN), name="old"))
        async with opened(place.store(), script) as system:
            settled = await ref(system, 2).settled()
            assert None not in (settled.started_at, settled.ended_at)

    asyncio.run(main())


def test_opening_a_store_whose_consequences_are_all_drawn_writes_nothing(place):
    async def main():
        script = Script()
        script.gate("run:child")
        script.on("parent", run=spawn_and_wait("child"))
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            await start(root, "parent")
            await script.began("run:child")
            await turns()
            seq = core_of(system).seq
        async with opened(place.store(), script) as system:
            await until(lambda: script.log.count("run:child") == 2)
            await turns()
            assert core_of(system).seq == seq

    asyncio.run(main())


def test_a_task_that_was_blocked_as_its_wait_ended_goes_on_at_the_next_open_with_its_code(place):
    """Nobody asks for the session: what it has to do is stored with it."""

    async def main():
        script = Script()
        other = scripted(name="test.other")
        async with opened(place.store(), script, Scripted, other) as system:
            session, root = await home(system)
            script.gate("run:awaited")
            awaited = await start(root, "awaited", kind=other)
            script.on("a", run=lambda run: run.wait([awaited], then=Scripted.Resume()))
            task = await start(root, "a")
            await script.began("run:a", "run:awaited")
            await turns()
            definitions(session).uninstall("test.script")
            script.open("run:awaited")
            await awaited.settled()
            await turns()
            assert (await engine(session)).blocked[task.id].reason == "missing_task"
        async with opened(place.store(), script) as system:
            await script.began("resume:a")
            await ref(system, task.id).settled()

    asyncio.run(main())


def test_a_background_ancestor_that_has_ended_is_still_a_boundary_after_a_restart(place):
    """SC-46."""

    async def main():
        script, made = Script(), {}

        async def background(run):
            async with run.commit() as tx:
                conversation = await tx.create_conversation(owner=run.id)
                made["work"] = await tx.create_task(Scripted, "work", conversation_id=conversation.id, background=False)
            await asyncio.Event().wait()

        script.gate("run:work")
        script.on("background", run=background)
        async with opened(place.store(), script) as system:
            _, root = await home(system)
            task = await start(root, "background", background=True)
            await script.began("run:work")
        script.on("background", run=lambda run: run.complete())
        async with opened(place.store(), script) as system:
            session = await system.session("s")
            root = await session.root()
            await root.wait_for_idle()
            await root.abort()
            assert not (await ref(system, made["work"].id).record()).abort_requested
            script.open("run:work")
            await ref(system, task.id).settled()

    asyncio.run(main())


# --- memory


@scene
async def test_nothing_of_1_000_ended_tasks_stays_in_memory(script, session, root):
    """P10."""
    core = await session._core()
    script.on("parent", run=spawn_and_wait("c1", "c2"))
    script.on("failing", run=lambda run: run.fail("no"))
    for _ in range(200):
        tasks = [await start(root, name) for name in ("parent", "failing", "plain")]
        for task in tasks:
            await task.settled()
    await turns()
    forest, scheduler = core.forest, core.scheduler
    assert (len(forest), len(forest.ownership)) == (0, 0)
    kept = [forest._records, forest._waiters, forest._intents, forest._active, forest._before]
    kept += [scheduler.invocations, scheduler.blocked, scheduler._failed_migrations, scheduler._backlog]
    kept += [core.task_documents, core.recovered, core.retired, core.pending.rows, core._waiting]
    assert not any(kept)
    assert forest.ownership._undo == []
    actors = [actor["id"] for actor in session_actors(session)]
    assert actors == []


def session_actors(session):
    system = session._services.get(Directory)
    (sessions,) = [one for one in system.inspect().actors[0]["children"] if one["id"] == "sessions"]
    (guard,) = sessions["children"]
    (actor,) = guard["children"]
    return actor["children"]


@scene
async def test_nothing_of_blocked_tasks_that_were_aborted_stays_in_memory(script, session, root):
    """P10."""
    definitions(session).install(scripted(2, migrate=lambda *_: 1 / 0))
    for _ in range(30):
        task = await start(root, "a")
        await turns()
        await task.abort()
        await task.settled()
    scheduler = await engine(session)
    assert (scheduler.blocked, scheduler._failed_migrations) == ({}, {})


@scene
async def test_a_chain_of_300_live_tasks_is_aborted_from_its_end_in_about_one_commit_each(script, session, root):
    """Bookkeeping wakes nobody: only handlers run."""
    core = await session._core()
    async with root.commit() as tx:
        owner = None
        for number in range(300):
            owner = await tx.create_task(scripted(9), str(number), owner=owner, conversation_id=root.id)
    seq = core.seq
    first = ref_of(session, owner.id - 299)
    await first.abort()
    await first.settled()
    assert core.seq == seq + 1  # blocked tasks are orphaned in the commit of the mark
    assert script.log == []


def ref_of(session, id):
    return TaskRef(session._services, session.key, id)


@scene
async def test_foreign_handles_are_refused_where_tasks_are_named(script, session, root):
    async with root.commit() as tx:
        with pytest.raises(InvalidValue):
            await tx.abort_task(TaskRef(session._services, "elsewhere", 2))
