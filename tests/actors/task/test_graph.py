"""The task graph: one JSON value of the live tasks, and the exact operations of each commit."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from perdure import Extension, MemoryStorage, Publication, Settings, VirtualClock
from perdure.actors.task.graph import PAGE, blocked_ops, derive_graph, graph_ops
from perdure.actors.task.steps import Blocked
from perdure.chord import apply_immutable
from perdure.storage.records import (
    Completed,
    Completing,
    ConversationOwner,
    ConversationRecord,
    Pending,
    Running,
    TaskRecord,
    Terminal,
    Waiting,
)

from .support import Script, Scripted, home, opened, outcome, scene, spawn_and_wait, start, turns, until

HERE = {"phase": "here"}


def record(id, state=None, **fields):
    given = {"conversation_id": 1, "kind": "x", "version": 1, "background": False, "abort_requested": False} | fields
    return TaskRecord(id=id, state=state or Pending(checkpoint=HERE), **given)


def conversation(id, owner):
    return ConversationRecord(id=id, owner=ConversationOwner(conversation_id=1, task_id=owner))


# --- pure


def test_a_place_says_whose_a_task_is_what_it_does_and_what_it_waits_for():
    waiting = Waiting(checkpoint={"phase": "collect", "big": "x" * 100}, on=[8, 9], policy="failFast", until=5)
    tasks = [
        record(7, waiting, owner=3, started_at=4, version=2),
        record(8, Completing(outcome=Completed(result="big")), background=True, abort_requested=True),
        record(9, Terminal(outcome=Completed())),
    ]
    assert derive_graph(tasks, {7: [5, 6]}, {}) == {
        "7": {
            "id": 7,
            "kind": "x",
            "version": 2,
            "conversationId": 1,
            "owner": 3,
            "background": False,
            "abortRequested": False,
            "startedAt": 4,
            "conversations": [5, 6],
            "status": "waiting",
            "phase": "collect",
            "on": [8, 9],
            "policy": "failFast",
            "until": 5,
            "mail": False,
        },
        "8": {
            "id": 8,
            "kind": "x",
            "version": 1,
            "conversationId": 1,
            "background": True,
            "abortRequested": True,
            "conversations": [],
            "status": "completing",
            "outcome": "completed",
        },
    }


def test_a_change_touches_only_what_has_changed():
    graph = derive_graph([record(7)], {}, {7: Blocked("missing_task")})
    changed = Publication(2, (record(7, Running(checkpoint={"phase": "there"}), started_at=1),), ())
    assert graph_ops(graph, changed, {}) == [
        ["d", ["7", "blocked"]],
        ["s", ["7", "startedAt"], 1],
        ["s", ["7", "status"], "running"],
        ["s", ["7", "phase"], "there"],
    ]
    assert graph_ops(graph, Publication(2, (record(7, Terminal(outcome=Completed())),), ()), {}) == [["d", ["7"]]]
    assert graph_ops(graph, Publication(2, (record(9, Terminal(outcome=Completed())),), ()), {}) == []


STATES = st.one_of(
    st.builds(Pending, checkpoint=st.just(HERE)),
    st.builds(Running, checkpoint=st.sampled_from([HERE, {"phase": "there"}])),
    st.builds(
        Waiting,
        checkpoint=st.just(HERE),
        on=st.lists(st.integers(1, 9), max_size=2),
        policy=st.just("allSettled"),
        until=st.none() | st.integers(1, 3),
    ),
    st.builds(Completing, outcome=st.just(Completed())),
    st.builds(Terminal, outcome=st.just(Completed())),
)
TASKS = st.builds(record, st.integers(2, 6), STATES, owner=st.none() | st.just(3), abort_requested=st.booleans())
BLOCKED = st.dictionaries(st.integers(2, 6), st.builds(Blocked, st.sampled_from(["missing_task", "task_too_old"])))
COMMITS = st.lists(st.tuples(st.lists(TASKS, unique_by=lambda one: one.id), st.lists(st.integers(2, 6)), BLOCKED))


@given(COMMITS)
def test_applying_the_operations_of_each_commit_gives_what_deriving_anew_would_give(commits):
    """VE-11."""
    graph, live, owned, ended, minted = {}, {}, {}, set(), 100
    for seq, (tasks, owners, blocked) in enumerate(commits):
        changed = [one for one in tasks if one.id not in ended]
        live |= {one.id: one for one in changed}
        made = [conversation(minted + at, owner) for at, owner in enumerate(owners) if owner in live]
        minted += len(owners)
        for one in made:
            owned.setdefault(one.owner.task_id, []).append(one.id)
        ended |= {one.id for one in changed if not one.live}
        graph = apply_immutable(graph, graph_ops(graph, Publication(seq, (*made, *changed), ()), blocked))
        for task, why in blocked.items():
            if task in live and isinstance(live[task].state, Pending | Running | Waiting):
                graph = apply_immutable(graph, blocked_ops(graph, task, why))
        for task in [one for one in live if one not in blocked and one not in {new.id for new in changed}]:
            unblocked = Publication(seq, (live[task],), ())  # what unblocks a task changes its record
            graph = apply_immutable(graph, graph_ops(graph, unblocked, blocked))
        assert graph == derive_graph([one for one in live.values() if one.id not in ended], owned, blocked)


# --- watched


class Replica:
    """What somebody far away makes of the operations."""

    def __init__(self, watch):
        self.watch = watch
        self.value = watch.value
        self.frames = 0
        watch.start(self.take)

    async def take(self, value, ops):
        self.frames += 1
        self.value = apply_immutable(self.value, ops)
        assert self.value == value


@scene
async def test_a_replica_follows_a_tree_of_tasks_from_its_beginning_to_its_end(script, session, root):
    replica = Replica(await session.watch_tasks())
    assert replica.value == {}
    script.gate("run:b")
    script.on("a", run=spawn_and_wait("b", "c"))
    task = await start(root, "a")
    await script.began("run:b", "run:c")
    await turns()
    graph = await session.task_graph()
    assert replica.value == graph
    names = {one["id"]: (one["status"], one.get("owner")) for one in graph.values()}
    assert sorted(names.values(), key=str) == [("running", task.id), ("waiting", None)]
    late = await session.watch_tasks()
    assert late.value == graph
    script.open("run:b")
    await task.result()
    await turns()
    assert replica.value == await session.task_graph() == {}


@scene
async def test_conversations_stand_with_the_task_that_owns_them(script, session, root):
    script.gate("run:a")
    replica = Replica(await session.watch_tasks())
    task = await start(root, "a")
    await script.began("run:a")
    async with session.commit() as tx:
        owned = (await tx.create_conversation(owner=task.id)).id
        inner = await tx.create_task(Scripted, "b", conversation_id=owned, background=True)
    await inner.settled()
    await turns()
    assert replica.value[str(task.id)]["conversations"] == [owned]
    assert replica.value == await session.task_graph()
    replica.watch.stop()
    assert (await session.watch_tasks()).value[str(task.id)]["conversations"] == [owned]
    script.open("run:a")


class Scanned(MemoryStorage):
    """Counts the scans for conversations."""

    scans = 0

    async def scan_conversations(self, *args):
        self.scans += 1
        return await super().scan_conversations(*args)


def test_the_first_watcher_costs_one_scan_however_many_tasks_live_and_however_much_came_before_them():
    async def main():
        script, store = Script(), Scanned()
        async with opened(store, script) as system:
            session, root = await home(system)
            async with session.commit() as tx:
                for _ in range(PAGE):
                    await tx.create_conversation()
            script.gate("run:a")
            tasks = [await start(root, "a") for _ in range(30)]
            owned = {}
            async with session.commit() as tx:
                for task in tasks * 2:
                    owned.setdefault(task.id, []).append((await tx.create_conversation(owner=task.id)).id)
            before = store.scans
            graph = (await session.watch_tasks()).value
            assert {int(name): one["conversations"] for name, one in graph.items()} == owned
            assert store.scans == before + 1
            script.open("run:a")

    asyncio.run(main())


@scene
async def test_there_is_one_mount_which_goes_with_its_last_watcher(script, session, root):
    """VE-11."""
    first, second = await session.watch_tasks(), await session.watch_tasks()
    core = await session._core()
    assert core.subscribers.watchers == 1
    script.gate("run:a")
    await start(root, "a")
    await turns()
    assert (await anext(first))[0] is (await anext(second))[0]
    first.stop()
    assert core.subscribers.watchers == 1
    second.stop()
    assert core.subscribers.watchers == 0
    script.open("run:a")


@scene
async def test_a_slow_watcher_gets_one_replacement_for_what_it_did_not_keep_up_with(script, session, root):
    """VE-08."""
    watch = await session.watch_tasks()
    for number in range(60):
        await (await start(root, str(number))).settled()
    await turns()
    value, ops = await anext(watch)
    assert ops[0][0] == "r"
    frames = 1 + len(watch._frames)
    assert frames <= 101
    while watch._frames:
        value, _ = await anext(watch)
    assert value == {} == await session.task_graph()


def test_a_task_that_no_code_can_take_says_why_as_soon_as_that_is_known():
    """No commit tells of it: its record is as it was."""

    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=lambda run: run.wait(then=Scripted.Resume(), until=clock.now() + 1_000))
        async with opened(MemoryStorage(), script, clock=clock) as system:
            session, root = await home(system)
            replica = Replica(await session.watch_tasks())
            task = await start(root, "a")
            await script.began("run:a")
            system.registry.uninstall("test")
            await turns()
            assert "blocked" not in replica.value[str(task.id)]
            clock.advance(1)
            await until(lambda: "blocked" in replica.value[str(task.id)])
            assert replica.value[str(task.id)]["blocked"] == "missing_task"
            assert replica.value == await session.task_graph()
            system.registry.install(Extension(name="test", tasks=[Scripted]))
            assert (await outcome(task)).__struct_config__.tag == "completed"
            await turns()
            assert replica.value == {}

    asyncio.run(main())


def test_a_watch_outlives_passivation_and_misses_nothing():
    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=lambda run: run.wait(then=Scripted.Resume(), until=clock.now() + 3_600_000))
        async with opened(MemoryStorage(), script, clock=clock) as system:
            session, root = await home(system)
            replica = Replica(await session.watch_tasks())
            task = await start(root, "a")
            await script.began("run:a")
            await turns()
            clock.advance(system.services.get(Settings).idle_after_s)
            await until(lambda: not system.inspect().sessions)
            assert replica.value[str(task.id)]["until"] == clock.now() + 3_540_000
            clock.advance(3_600)
            await script.began("resume:a")
            await turns()
            assert replica.value == {}
            assert replica.watch.ended is None
            again = await session.watch_tasks()
            assert (await session._core()).subscribers.watchers == 1
            again.stop()

    asyncio.run(main())


def test_a_watch_ends_with_a_crash_of_its_session():
    async def main():
        async with opened(MemoryStorage(), Script(), clock=VirtualClock(autojump=True)) as system:
            session, _ = await home(system)
            watch = await session.watch_tasks()
            system.kill("session:s")
            assert (await watch.closed).reason == "closed"
            assert (await session.watch_tasks()).value == {}

    asyncio.run(main())
