"""The scheduler of one session: gives ready tasks to invocations, and takes them back.

Reservation happens inside the commit that makes a task ready, so a transition costs one commit, not two. An invocation
is an actor of its own under the session's supervisor; while none runs, a task is a record.
Proved by tests/actors/task/test_engine.py.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog

from ...storage.records import Orphaned, TaskRecord
from ...supervisors.settlement import reserved, turn
from ..session.commit import Commit
from ..session.core import SessionCore
from ..session.errors import SessionClosed, SessionFailed
from ..session.tx import BaseTx
from .definition import Definitions, Task
from .steps import Blocked, Mode, fit
from .tx import finish

log = structlog.get_logger("perdure.task")


class Invocation(msgspec.Struct):
    """A task's code running, or about to, in this process."""

    task: int
    mode: Mode
    definition: Any
    seq: int = 0
    """The commit that must be durable before the code runs."""
    handler: "asyncio.Task[Any] | None" = None
    signalled: bool = False

    def signal(self) -> None:
        """Tell the code to stop. It is not run again by this invocation."""
        self.signalled = True
        if self.handler is not None:
            self.handler.cancel()


Start = Callable[["Engine", Invocation], None]
"""Makes the actor that runs an invocation."""


class Engine:
    """Scheduler of one session (see ``session.environment.Scheduler``)."""

    def __init__(self, core: SessionCore, definitions: Definitions, start: Start) -> None:
        self.core = core
        self.definitions = definitions
        self.invocations: dict[int, Invocation] = {}
        self.blocked: dict[int, Blocked] = {}
        """Ready tasks that no installed code can take, and why."""
        self._failed_migrations: dict[int, Task[Any, Any]] = {}
        self._start = start
        self._backlog: dict[int, None] = {}
        self._pass: asyncio.Task[None] | None = None
        self._closing = False
        self._unsubscribe = definitions.subscribe(self._reconsider)

    # --- the scheduler protocol

    @property
    def waiting(self) -> bool:
        """Whether it wants to look at tasks in the next commit, whatever that changes."""
        return bool(self._backlog)

    def reserve(self, tx: BaseTx, candidates: Iterable[int]) -> None:
        """Stage what follows for tasks whose turn may have come."""
        if self._closing:
            return
        for task in sorted({*candidates, *self._backlog}):
            record = self.core.forest.get(task)
            if record is not None and task not in self.invocations and task not in tx.starting:
                self._consider(tx, record)

    def admitted(self, tx: BaseTx, concerned: Iterable[int]) -> None:
        """Start what was reserved, signal what was marked."""
        for task in (*concerned, *tx.starting):
            self._backlog.pop(task, None)
            self._signal_marked(task)
        for invocation in tx.starting.values():
            invocation.seq = self.core.seq
            self.invocations[invocation.task] = invocation
            self._start(self, invocation)

    def signal(self) -> None:
        """Ask all invocations to end; start none any more."""
        self._closing = True
        self._unsubscribe()
        if self._pass is not None:
            self._pass.cancel()
        for invocation in list(self.invocations.values()):
            invocation.signal()

    def resume(self) -> None:
        """Look at every live task: the session has just been opened."""
        self.consider([record.id for record in self.core.forest])

    def due(self) -> None:
        """Look at the tasks whose deadlines have come."""
        self.consider(self.core.forest.take_due(self.core.clock.now()))

    def invocation_ended(self, child: str) -> None:
        """Take note that the invocation which a child of the session's actor ran has ended."""
        task = int(child.rpartition("/")[2])
        self.invocations.pop(task, None)
        if self.core.forest.get(task) is not None:
            self.consider([task])
        else:
            self.blocked.pop(task, None)

    def can_take(self, record: TaskRecord, definition: Task[Any, Any]) -> bool:
        """Whether a definition could go on with a task from its checkpoint."""
        return not isinstance(self._fit(record, definition), Blocked)

    # --- reservation

    def _consider(self, tx: BaseTx, record: TaskRecord) -> None:
        mode = turn(self.core.forest, record, self.core.clock.now())
        if mode is None:
            return
        definition = self.definitions.get(record.kind)
        fitted = self._fit(record, definition)
        if isinstance(fitted, TaskRecord):
            self.blocked.pop(record.id, None)
            staged = reserved(fitted, self.core.clock.now())
            if staged is not record:
                tx.stage_task(staged)
            tx.starting[record.id] = Invocation(record.id, mode, definition)
        elif mode == "abort":
            self.blocked.pop(record.id, None)
            finish(tx, record, Orphaned(reason=fitted.reason))
        else:
            self.blocked[record.id] = fitted

    def _fit(self, record: TaskRecord, definition: Task[Any, Any] | None) -> TaskRecord | Blocked:
        """A migration that failed is tried again only with another definition."""
        known = self.blocked.get(record.id)
        if known is not None and definition is not None and self._failed_migrations.get(record.id) is definition:
            return known
        fitted = fit(record, definition)
        if isinstance(fitted, Blocked) and fitted.reason == "migration_failed" and definition is not None:
            self._failed_migrations[record.id] = definition
            log.error("migration_failed", session=self.core.key, task=record.id, kind=record.kind, error=fitted.error)
        else:
            self._failed_migrations.pop(record.id, None)
        return fitted

    def _signal_marked(self, task: int) -> None:
        invocation = self.invocations.get(task)
        record = self.core.forest.get(task)
        if invocation is not None and invocation.mode == "run" and record is not None and record.abort_requested:
            invocation.signal()

    # --- passes of its own

    def consider(self, tasks: Iterable[int]) -> None:
        """Look at tasks soon, in a commit of the engine's own."""
        self._backlog.update(dict.fromkeys(tasks))
        if self._backlog and not self._closing and (self._pass is None or self._pass.done()):
            self._pass = asyncio.get_running_loop().create_task(self._run_passes())

    def _reconsider(self) -> None:
        self.consider(list(self.blocked))

    async def _run_passes(self) -> None:
        try:
            while self._backlog and not self._closing:
                before = list(self._backlog)
                async with Commit(self.core, lambda: BaseTx(self.core), wait=False):
                    pass
                for task in before:
                    self._backlog.pop(task, None)
        except (SessionClosed, SessionFailed):
            pass
