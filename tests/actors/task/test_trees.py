"""Random trees on the real system against the slow model of them: states, abort order, crashes, and what stays in memory.

After every step both must agree on every record, on whose code runs, and on whose code has begun how often. An abort
handler runs until it is told to end, so that it begins while the work below still lives would be seen at once.
"""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure import (
    Extension,
    MemoryStorage,
    Quorum,
    SessionFailed,
    SqliteStorage,
    System,
    TaskRecord,
    TaskRef,
    VirtualClock,
)
from perdure.storage.records import Aborted, Completed, Completing, Failed, OutcomeError, Terminal, Waiting

from ...supervisors.model import POLICIES, waiting
from .puppets import Model, Puppet, Puppets, create, finish, seen, wait
from .support import crash, turns

ERROR = OutcomeError(message="as told")
ENDS = {"completed": Completed(), "failed": Failed(error=ERROR), "aborted": Aborted()}
HOWS = [*ENDS, "crashed"]
VICTIMS = ["session:s", "guard:s", "sessions", "storage"]
PATIENCE_S = 20


class Stage:
    """The real system beside its model, over a store that outlives it."""

    def __init__(self, make_store):
        self.make_store = make_store
        self.clock = VirtualClock()
        self.puppets = Puppets()
        self.model = Model(self.clock.now())
        self.aborts = []

    async def open(self):
        self.system = System.open(
            self.make_store(), extensions=[Extension(name="test", tasks=(Puppet,))], clock=self.clock
        )
        self.system.services.provide(Puppets, self.puppets)
        await self.system.__aenter__()
        self.session = await self.system.session("s")
        self.root = await self.session.root()

    async def end(self, *, kill):
        for abort in self.aborts:
            abort.cancel()
        await asyncio.gather(*self.aborts, return_exceptions=True)
        self.aborts.clear()
        await (crash(self.system) if kill else self.system.close())

    # --- what may happen, chosen by numbers; nothing when there is nothing to choose from

    async def step(self, kind, a, b, c):
        world, running = self.model.world, self.model.running
        code = sorted(tid for tid, mode in running.items() if mode == "run")
        live = sorted(world.live())
        if kind < 2 or not live:
            await self.create(sorted(world.owners)[a % len(world.owners)], background=b % 3 == 0)
        elif kind < 5 and code:
            chosen = self.parents(code) if c % 2 else code
            await self.spawn(chosen[a % len(chosen)], inner=b % 3 == 0, background=c % 3 == 0)
        elif kind < 7 and code:
            chosen = self.parents(code)
            await self.wait(chosen[a % len(chosen)], b, c)
        elif kind == 7 and code:
            await self.join(code[a % len(code)], b, c)
        elif kind < 11 and running:
            chosen = self.awaited(running) if c % 2 else sorted(running)
            tid = chosen[a % len(chosen)]
            await self.finish(tid, "aborted" if running[tid] == "abort" else HOWS[b % len(HOWS)])
        elif kind == 11:
            await self.abort(live[a % len(live)])
        elif kind == 12:
            await self.abort_conversation(sorted(world.owners)[a % len(world.owners)])
        elif kind == 13:
            await self.pass_time([1, 20, 60][b % 3])
        elif kind == 14 and running:
            await self.kill_task(sorted(running)[a % len(running)])
        elif kind == 15:
            await self.kill(VICTIMS[a % len(VICTIMS)])
        elif kind == 16:
            await self.reopen(kill=b % 2 == 0)

    def parents(self, code):
        """Those that own a live task, so that trees get broad and waits are for own children more often; or else all."""
        owners = {self.model.world.tasks[tid].owner for tid in self.model.world.live()}
        return [tid for tid in code if tid in owners] or code

    def awaited(self, running):
        """Those that their owner waits for; or else all."""
        states = {tid: record.state for tid, record in self.model.world.tasks.items()}
        wanted = {one for state in states.values() if isinstance(state, Waiting) for one in state.on}
        return sorted(set(running) & wanted) or sorted(running)

    async def create(self, conversation, *, background):
        async with self.session.commit() as tx:
            made = await tx.create_task(Puppet, conversation_id=conversation, background=background)
        self.model.create(made.id, conversation, background=background)

    async def spawn(self, tid, *, inner, background):
        conversation, made = await self.puppets.pull(tid, create(tid, inner=inner, background=background))
        if inner:
            self.model.world.owners[conversation] = tid
            self.model.create(made, conversation, background=background)
        else:
            self.model.create(made, self.model.world.tasks[tid].conversation_id, tid)

    async def wait(self, tid, b, c):
        world = self.model.world
        policy = POLICIES[b % len(POLICIES)]
        own = policy == "failFast" or b > 5
        others = [one for one in world.tasks if one != tid and (not own or world.tasks[one].owner == tid)]
        on = sorted({others[(b + k * c) % len(others)] for k in range(3)}) if others and c % 5 else []
        if isinstance(policy, Quorum) and policy.quorum > len(on):
            policy = "firstCompleted"
        until = world.now + [10, 30][c % 2] * 1_000 if c % 4 > 1 else None
        refused = until is None and world.closes_cycle(tid, on)
        error = await self.puppets.pull(tid, wait(on, policy, until))
        assert (error is not None and "cycle" in str(error)) == refused
        if refused:
            self.model.crash(tid)
        else:
            self.model.become(tid, waiting(on, policy, until))

    async def join(self, tid, b, c):
        """Make children and wait for all of them."""
        for _ in range(2 + c % 2):
            await self.spawn(tid, inner=False, background=False)
        on = [one for one in sorted(self.model.world.live()) if self.model.world.tasks[one].owner == tid]
        policy = POLICIES[b % len(POLICIES)]
        await self.puppets.pull(tid, wait(on, policy, None))
        self.model.become(tid, waiting(on, policy))

    async def finish(self, tid, how):
        await self.puppets.pull(tid, finish(how), self.model.running[tid])
        if how == "crashed":
            self.model.crash(tid)
        else:
            self.model.become(tid, Completing(outcome=ENDS[how]))

    async def abort(self, tid):
        assert await self.ref(tid).abort()
        self.model.mark([tid])

    async def abort_conversation(self, conversation):
        handle = await self.session.conversation(conversation)
        self.aborts.append(asyncio.create_task(handle.abort()))
        self.model.mark(self.model.world.work(conversation))

    async def pass_time(self, seconds):
        """In steps, so that whoever comes back after a crash, or sleeps, does so at its own time."""
        for _ in range(5):
            await turns()
            self.clock.advance(seconds / 5)
        self.model.world.now = self.clock.now()

    async def kill_task(self, tid):
        assert self.system.kill(f"task:s/{tid}")
        self.model.begin(tid)
        await self.pass_time(5)

    async def kill(self, victim):
        assert self.system.kill(victim)
        self.model.die()
        await self.pass_time(20)

    async def reopen(self, *, kill):
        await self.end(kill=kill)
        self.model.die()
        self.puppets.reset()
        await self.open()

    # --- what must be so

    def ref(self, tid):
        return TaskRef(self.system.services, "s", tid)

    async def agree(self):
        """Return when both sides agree, and still do when nothing more happens."""
        self.model.follow()
        began = time.monotonic()
        while not await self.agrees() and time.monotonic() - began < PATIENCE_S:
            await turns()
        await turns()
        assert await self.picture() == self.expected()

    async def agrees(self):
        return await self.picture() == self.expected()

    async def picture(self):
        core = await self.system.core("s")
        await core.drained()
        records = [await core.row(TaskRecord, tid) for tid in self.model.world.tasks]
        running = {tid: one.mode for tid, one in core.scheduler.invocations.items()}
        live = {record.id for record in core.forest}
        return {record.id: seen(record) for record in records}, running, live, +self.puppets.log

    def expected(self):
        return self.model.seen(), self.model.running, self.model.world.live(), +self.model.log

    def check_ownership(self):
        """No owned work outlives its owner."""
        world = self.model.world
        for tid, record in world.tasks.items():
            if isinstance(record.state, Terminal):
                assert not any(world.tasks[one].owner == tid for one in world.live())

    # --- the end

    async def drain(self):
        """Let everything end by itself: code completes, abort handlers decide, time passes."""
        while self.model.world.live():
            for tid, mode in sorted(self.model.running.items()):
                if tid in self.model.running:
                    await self.finish(tid, "aborted" if mode == "abort" else "completed")
                    await self.agree()
            await self.pass_time(60)
            await self.agree()

    async def check_memory(self):
        """P10: nothing is left of any of it."""
        ended = await asyncio.gather(*self.aborts, return_exceptions=True)
        assert all(one is None or isinstance(one, SessionFailed) for one in ended)
        await turns()
        core, unused = await self.system.core("s"), await self.system.core("unused")
        forest, scheduler = core.forest, core.scheduler
        sets = ["_records", "_waiters", "_awaited", "_reached", "_completed", "_unawaited", "_condemned", "_over"]
        sets += ["_intents", "_before", "_active", "_deadlines"]
        kept = [len(getattr(forest, name)) for name in sets]
        kept += [len(forest.ownership), len(forest.ownership._undo), len(scheduler.invocations), len(scheduler.blocked)]
        kept += [len(scheduler._backlog), len(scheduler._stopping), len(scheduler._failed_migrations)]
        kept += [len(core._waiting), len(core.pending.rows), len(core.recovered)]
        kept += [len(core.subscribers) - len(unused.subscribers)]
        assert not any(kept)
        assert not [one for one in actors(self.system.inspect().actors) if one.startswith("task:")]
        assert await self.system.next_deadline() is None


def actors(trees):
    for one in trees:
        yield one["id"]
        yield from actors(one["children"])


async def play(make_store, history):
    stage = Stage(make_store)
    await stage.open()
    try:
        for numbers in history:
            await stage.step(*numbers)
            await stage.agree()
            stage.check_ownership()
        await stage.drain()
        await stage.check_memory()
    finally:
        await stage.end(kill=False)


step = st.tuples(st.integers(0, 16), *[st.integers(0, 11)] * 3)
histories = st.lists(step, min_size=20, max_size=50)


@pytest.mark.timeout(240)
@settings(max_examples=20, deadline=None)
@given(histories)
def test_random_trees_live_and_die_as_the_model_says(history):
    """SC-04, SC-07, SC-08, SC-19, SC-25, SC-33, SC-41, SC-43, CR-03, B043, B049, P7, P8."""
    storage = MemoryStorage()
    asyncio.run(play(lambda: storage, history))


@pytest.mark.timeout(240)
@settings(max_examples=4, deadline=None)
@given(histories)
def test_random_trees_in_a_file_do_so_too(tmp_path_factory, history):
    path = tmp_path_factory.mktemp("tree") / "store.db"
    asyncio.run(play(lambda: SqliteStorage(path, durability="process"), history))
