"""Trees of tasks whose code does what it is told, one thing at a time, and the model of what follows.

``Puppets`` holds the strings of the real tasks. ``Model`` adds to the slow model of the tree who is run when, as simply as
it can be said: again and again, whoever may have a turn gets one.
"""

import asyncio
from collections import Counter

import msgspec
from perdure import Backoff, Phase, Restart, Task
from perdure.storage.records import Completing, Faulted, OutcomeError, Running, Terminal, Waiting

from ...supervisors.model import World, marked, task, with_state


class Puppets:
    """What the code of all tasks waits for, and a log of what began."""

    def __init__(self):
        self.log = Counter()
        self._strings = {}

    def begin(self, what, run):
        self.log[what, run.id] += 1

    def strings(self, mode, tid):
        return self._strings.setdefault((mode, tid), asyncio.Queue())

    async def pull(self, tid, command, mode="run"):
        """Have a running task do something; give what came of it, also if that was an error."""
        done = asyncio.get_running_loop().create_future()
        self.strings(mode, tid).put_nowait((command, done))
        return await done

    def reset(self):
        """Forget the queues of a loop that is gone."""
        self._strings.clear()


BACKOFF_MS, WITHIN_MS, TRIES = 5_000, 100_000, 2
RESTART = Restart(
    max=TRIES,
    within=WITHIN_MS / 1_000,
    backoff=Backoff(first_s=BACKOFF_MS / 1_000, factor=1.0, max_s=BACKOFF_MS / 1_000, jitter=0.0),
)


class Puppet(Task[None, None], name="test.puppet", restart=RESTART):
    class Run(Phase):
        pass

    class Resume(Phase):
        pass

    async def run(self, run, state):
        await self._play("run", "run", run)

    async def resume(self, run, state):
        await self._play("resume", "run", run)

    async def abort(self, run, state):
        await self._play("abort", "abort", run)

    async def _play(self, what, mode, run):
        puppets = run.service(Puppets)
        puppets.begin(what, run)
        over = False
        while not over:
            command, done = await puppets.strings(mode, run.id).get()
            try:
                result, over = await command(run)
            except Exception as error:
                done.set_result(error)
                raise
            done.set_result(result)


# --- what they can be told


def create(owned, *, inner, background):
    """Make a task that the run owns, or one in a conversation that it owns; give the ids of what was made."""

    async def command(run):
        async with run.commit() as tx:
            conversation = (await tx.create_conversation(owner=run.id)).id if inner else None
            owner = None if inner else run.id
            made = await tx.create_task(
                Puppet, owner=owner, conversation_id=conversation, background=background and inner
            )
        return (conversation, made.id), False

    return command


def wait(on, policy, until):
    async def command(run):
        await run.wait(on, then=Puppet.Resume(), policy=policy, until=until)
        return None, True

    return command


def finish(how):
    """End as completed, failed or aborted, or crash."""

    async def command(run):
        if how == "crashed":
            raise RuntimeError("as told")
        async with run.commit() as tx:
            {"completed": tx.complete, "failed": lambda: tx.fail("as told"), "aborted": tx.abort}[how]()
        return None, True

    return command


# --- the model


class Model:
    """The tree, what runs in it, and what has begun."""

    def __init__(self, now):
        self.world = World()
        self.world.now = now
        self.world.owners[1] = None
        self.running = {}
        """The mode of every task whose code runs."""
        self.log = Counter()

    def put(self, record):
        self.world.tasks[record.id] = record

    def create(self, tid, conversation=1, owner=None, *, background=False):
        self.put(task(tid, conversation, owner, background=background))

    def become(self, tid, state):
        """A running task's code has decided; it runs no more."""
        del self.running[tid]
        self.put(with_state(self.world.tasks[tid], state))

    def crash(self, tid):
        """A running task's code has raised: it waits for its next try, or has had them all."""
        record, now = self.world.tasks[tid], self.world.now
        times = [at for at in record.restarts or () if now - at < WITHIN_MS]
        if len(times) < TRIES:
            wait = Waiting(checkpoint=record.state.checkpoint, on=[], policy="allSettled", until=now + BACKOFF_MS)
            self.become(tid, wait)
            self.put(msgspec.structs.replace(self.world.tasks[tid], restarts=[*times, now]))
        else:
            self.become(tid, Completing(outcome=Faulted(error=OutcomeError(message="as told"))))

    def mark(self, tids):
        for tid in tids:
            self.put(marked(self.world.tasks[tid]))

    def die(self):
        """All code is gone; the records stay."""
        self.running.clear()

    def follow(self):
        """Let happen what follows, until nothing does."""
        while self._settle() | self._stop() | self._start():
            pass

    def _settle(self):
        before = dict(self.world.tasks)
        self.world.settle()
        return self.world.tasks != before

    def _stop(self):
        told = [tid for tid, mode in self.running.items() if mode == "run" and self.world.tasks[tid].abort_requested]
        for tid in told:
            del self.running[tid]
        return bool(told)

    def _start(self):
        turns = {tid: self.world.turn(tid) for tid in self.world.live() if tid not in self.running}
        turns = {tid: mode for tid, mode in turns.items() if mode is not None}
        for tid, mode in turns.items():
            record = self.world.tasks[tid]
            self.running[tid] = mode
            self.begin(tid)
            self.put(with_state(record, Running(checkpoint=record.state.checkpoint)))
        return bool(turns)

    def begin(self, tid):
        """Note that a task's code begins: in its abort handler, or in the phase of its checkpoint."""
        mode = self.running[tid]
        self.log[mode if mode == "abort" else self.world.tasks[tid].state.checkpoint["phase"], tid] += 1

    def seen(self):
        return {tid: seen(record) for tid, record in self.world.tasks.items()}


def seen(record):
    """What both sides must agree on of a task: everything but times, and the words of errors."""
    state = record.state
    if isinstance(state, Completing | Terminal):
        shown = state.outcome.__struct_config__.tag
    elif isinstance(state, Waiting):
        shown = (tuple(state.on), state.policy, state.until, state.checkpoint)
    else:
        shown = state.checkpoint
    return (
        state.__struct_config__.tag,
        shown,
        record.conversation_id,
        record.owner,
        record.background,
        record.abort_requested,
        record.restarts,
    )
