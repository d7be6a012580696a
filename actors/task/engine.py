"""The scheduler of one session: gives ready tasks to invocations, and takes them back.

Reservation happens inside the commit that makes a task ready, so a transition costs one commit, not two. An invocation
is an actor of its own under the session's supervisor; while none runs, a task is a record.
Proved by tests/actors/task/test_engine.py.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage.records import Orphaned, TaskRecord, Waiting
from ...supervisors.settlement import reserved, turn
from ..session.commit import Commit
from ..session.core import SessionCore
from ..session.errors import SessionClosed, SessionFailed
from ..session.tx import BaseTx
from . import events
from .definition import Definitions, Task
from .steps import Blocked, Mode, fit
from .tx import finish

if TYPE_CHECKING:
    from .run import Run


class Invocation(msgspec.Struct):
    """A task's code running, or about to, in this process."""

    task: int
    mode: Mode
    definition: Any
    fresh: bool = False
    """Whether the task was created with it: no code has run it before."""
    seq: int = 0
    """The commit that must be durable before the code runs."""
    handler: "asyncio.Task[Any] | None" = None
    run: "Run[Any] | None" = None
    """What the code holds while it runs."""
    signalled: bool = False
    cancels: int = 0
    """How often the code was cancelled and nobody here had asked for it."""

    def signal(self) -> None:
        """Tell the code to stop. It is not run again by this invocation."""
        self.signalled = True
        if self.handler is not None:
            self.handler.cancel()


CANCEL_GRACE_S = 5.0
"""How long code that was told to stop may take for its clean-up before it is abandoned."""

Act = Callable[["Engine", Invocation], None]
"""Makes, or kills, the actor that runs an invocation."""


class Engine:
    """Scheduler of one session (see ``session.environment.Scheduler``)."""

    def __init__(self, core: SessionCore, definitions: Definitions, start: Act, kill: Act) -> None:
        self.core = core
        self.definitions = definitions
        self.invocations: dict[int, Invocation] = {}
        self.blocked: dict[int, Blocked] = {}
        """Ready tasks that no installed code can take, and why."""
        self.on_blocked: Callable[[int, Blocked], None] | None = None
        """Hears of tasks that have become blocked: no commit may tell of it."""
        self._failed_migrations: dict[int, tuple[Task[Any, Any] | None, Blocked]] = {}
        self._start = start
        self._kill = kill
        self._backlog: dict[int, object] = {}
        """Tasks to look at in the next commit, each with a ticket of its own."""
        self._looked_at: dict[int, object] = {}
        """The backlog as the commit under way has seen it."""
        self._stopping: dict[int, asyncio.Task[None]] = {}
        """Tasks whose code is about to be told to stop."""
        self._pass: asyncio.Task[None] | None = None
        self._closing = False
        self._drained: asyncio.Event | None = None
        """Set when the last phase has ended, once no more are to be started."""
        self._unsubscribe = definitions.subscribe(self._reconsider)

    # --- the scheduler protocol

    @property
    def waiting(self) -> bool:
        """Whether it wants to look at tasks in the next commit, whatever that changes."""
        return bool(self._backlog)

    @property
    def idle(self) -> bool:
        """Whether no invocation runs, nothing is about to be decided, and nobody waits for code."""
        passing = self._pass is not None and not self._pass.done()
        return not (self.invocations or self.blocked or self._backlog or self._stopping or passing)

    def reserve(self, tx: BaseTx, candidates: Iterable[int]) -> None:
        """Stage what follows for tasks whose turn may have come."""
        if self.halted:
            return
        self._looked_at = dict(self._backlog)
        for task in sorted({*candidates, *self._backlog}):
            record = self.core.forest.get(task)
            taken = task in self.invocations or isinstance(tx.turns.get(task), Invocation)
            if record is not None and not taken:
                self._consider(tx, record)

    def admitted(self, tx: BaseTx, concerned: Iterable[int]) -> None:
        """Start what was reserved, signal what was marked, forget what has ended."""
        for task, ticket in self._looked_at.items():
            if self._backlog.get(task) is ticket:  # otherwise somebody asked again since
                del self._backlog[task]
        self._looked_at = {}
        for task in concerned:
            record = self.core.forest.get(task)
            if record is None:
                self._forget(task)
            elif record.abort_requested:
                self._signal_marked(task)
        for task, decided in tx.turns.items():
            if isinstance(decided, Blocked):
                self._block(task, decided)
            else:
                self._forget(task)
                self._begin(decided)

    def _begin(self, invocation: Invocation) -> None:
        invocation.seq = self.core.seq
        self.invocations[invocation.task] = invocation
        self._start(self, invocation)

    def _block(self, task: int, why: Blocked) -> None:
        self.blocked[task] = why
        if self.on_blocked is not None:
            self.on_blocked(task, why)

    def _forget(self, task: int) -> None:
        """Forget why a task was blocked: it has ended, or code has been found for it."""
        self.blocked.pop(task, None)
        self._failed_migrations.pop(task, None)

    @property
    def halted(self) -> bool:
        """Whether no phase is started any more."""
        return self._closing or self._drained is not None

    def halt(self) -> None:
        """Start no phase any more; those that run may end."""
        self._drained = self._drained or asyncio.Event()
        self._note_drained()

    async def drain(self) -> None:
        """Start no phase any more; return when the phases that run have ended."""
        self.halt()
        assert self._drained is not None
        await self._drained.wait()

    def _note_drained(self) -> None:
        if self._drained is not None and (self._closing or not self.invocations):
            self._drained.set()

    def signal(self) -> None:
        """Ask all invocations to end; start none any more."""
        self._closing = True
        self._note_drained()
        self._unsubscribe()
        if self._pass is not None:
            self._pass.cancel()
        for invocation in list(self.invocations.values()):
            invocation.signal()

    def resume(self) -> None:
        """Look at every live task: the session has just been opened."""
        if len(self.core.forest):
            self._run(self._run_passes(recover=True))

    def due(self) -> None:
        """Look at the tasks whose deadlines have come."""
        self.consider(self.core.forest.take_due(self.core.clock.now()))

    def invocation_ended(self, child: str) -> None:
        """Take note that the invocation which a child of the session's actor ran has ended."""
        task = int(child.rpartition("/")[2])
        self.invocations.pop(task, None)
        if self.core.forest.is_live(task):
            self.consider([task])
        self.core.use.note()
        self._note_drained()

    def can_take(self, record: TaskRecord, definition: Task[Any, Any]) -> bool:
        """Whether a definition could go on with a task from its checkpoint."""
        return not isinstance(self._fit(record, definition), Blocked)

    def why_blocked(self, record: TaskRecord) -> Blocked | None:
        """Say why no installed code can take a task, as far as that is known without trying a migration."""
        definition = self.definitions.get(record.kind)
        failed = self._failed_migrations.get(record.id)
        if definition is not None and definition.version > record.version:
            return failed[1] if failed is not None and failed[0] is definition else None
        fitted = fit(record, definition)
        return fitted if isinstance(fitted, Blocked) else None

    # --- reservation

    def _consider(self, tx: BaseTx, record: TaskRecord) -> None:
        mode = turn(self.core.forest, record, self.core.clock.now())
        if mode is None:
            return
        definition = self.definitions.get(record.kind)
        fitted = self._fit(record, definition)
        if isinstance(fitted, TaskRecord):
            staged = reserved(fitted, self.core.clock.now())
            if staged is not record:
                tx.stage_task(staged)
            fresh = self.core.forest.kept(record.id) is None
            tx.turns[record.id] = Invocation(record.id, mode, definition, fresh)
        elif mode == "abort":
            finish(tx, record, Orphaned(reason=fitted.reason))
        else:
            tx.turns[record.id] = fitted

    def _fit(self, record: TaskRecord, definition: Task[Any, Any] | None) -> TaskRecord | Blocked:
        """A migration that failed is tried again only with another definition."""
        failed = self._failed_migrations.get(record.id)
        if failed is not None and failed[0] is definition:
            return failed[1]
        fitted = fit(record, definition)
        if isinstance(fitted, Blocked) and fitted.reason == "migration_failed":
            self._failed_migrations[record.id] = (definition, fitted)
            fields = {"session": self.core.key, "task": record.id, "kind": record.kind}
            events.error(events.MIGRATION_FAILED, **fields, error=fitted.error)
        return fitted

    def _signal_marked(self, task: int) -> None:
        invocation = self.invocations.get(task)
        if invocation is None or invocation.mode != "run" or invocation.signalled:
            return
        if task not in self._stopping:
            stop = self._stop_when_durable(invocation, self.core.seq)
            self._stopping[task] = asyncio.get_running_loop().create_task(stop, context=Context())

    async def _stop_when_durable(self, invocation: Invocation, seq: int) -> None:
        """Tell code to stop once the mark is stored: what it does about it may leave the session."""
        try:
            await self.core.gate.wait(seq)
        except (SessionClosed, SessionFailed):
            return
        finally:
            del self._stopping[invocation.task]
        if self.invocations.get(invocation.task) is invocation:
            invocation.signal()
            self.core.clock.call_later(CANCEL_GRACE_S, lambda: self._abandon(invocation))

    def _abandon(self, invocation: Invocation) -> None:
        """Go on without code that does not stop. What it still does can no longer be stored."""
        if self.invocations.get(invocation.task) is invocation:
            events.warning(events.CODE_IGNORES_CANCEL, session=self.core.key, task=invocation.task)
            self._kill(self, invocation)

    # --- passes of its own

    def consider(self, tasks: Iterable[int]) -> None:
        """Look at tasks soon, in a commit of the engine's own."""
        self._backlog.update({task: object() for task in tasks})
        if self._backlog:
            self._run(self._run_passes())

    def _reconsider(self) -> None:
        self.consider(list(self.blocked))

    def _run(self, passes: Coroutine[Any, Any, None]) -> None:
        """Run passes unless some are under way. In a context of their own: whoever asks may hold the line."""
        if self.halted or (self._pass is not None and not self._pass.done()):
            passes.close()
        else:
            self._pass = asyncio.get_running_loop().create_task(passes, context=Context())

    async def _run_passes(self, *, recover: bool = False) -> None:
        """Commit until nothing is left to look at. What fails here would fail again: it ends the session's life."""
        try:
            if recover:
                async with Commit(self.core, lambda: BaseTx(self.core), wait=False) as tx:
                    await self._touch_all(tx)
            while self._backlog and not self.halted:
                async with Commit(self.core, lambda: BaseTx(self.core), wait=False):
                    pass
        except (SessionClosed, SessionFailed):
            pass
        except Exception as error:  # noqa: BLE001
            events.error(events.SCHEDULING_FAILED, session=self.core.key, exc_info=error)
            self.core.fail(error)

    async def _touch_all(self, tx: BaseTx) -> None:
        """Have the consequences of everything that is stored derived again: whoever wrote it may not have done so."""
        for record in self.core.forest:
            tx.touched[record.id] = None
            if isinstance(record.state, Waiting) and record.state.policy == "failFast":
                for task in record.state.on:
                    awaited = await tx.task(task)
                    if awaited is not None and not awaited.live:
                        tx.awaited[task] = awaited
