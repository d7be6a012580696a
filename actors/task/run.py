"""What a task's code holds while it runs: its identity, its commits, and reads of its session.

A run belongs to one invocation and refuses everything once that has ended. Proved by tests/actors/task/test_run.py.
"""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Generic, TypeVar

from ...storage.records import EntryRecord, JoinPolicy, Json, JsonObject, Outcome, Running, TaskRecord, Terminal
from ..session.commit import Commit
from ..session.core import SessionCore
from ..session.documents import Doc
from ..session.errors import UnknownRecord
from ..session.read import between_commits, snapshot
from .definition import Phase, Task, decode
from .errors import InvalidTransition, InvocationEnded
from .ref import TaskRef, local_id
from .steps import Mode
from .tx import RunTx

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
S = TypeVar("S")


class Run(Generic[I]):
    """One invocation of a task, as its handlers see it."""

    def __init__(
        self, core: SessionCore, record: TaskRecord, definition: Task[Any, Any], mode: Mode, *, first: bool = False
    ) -> None:
        self._core = core
        self._definition = definition
        self._mode = mode
        self.ended = False
        self.first = first
        """Whether it is certain that no code has run this task before."""
        self.id = record.id
        self.conversation_id = record.conversation_id
        self.session = core.key
        self.services = core.services
        self.clock = core.clock
        self.input: I = decode(record.input, definition.input_type)

    # --- commits

    def commit(self, *, wait: bool = True) -> Commit[RunTx]:
        """Begin a commit of this task. Raises InvocationEnded when the task is no longer this invocation's to change.

        ``wait=False`` returns before it is durable: for the last thing that a handler does.
        """
        return Commit(self._core, self._begin, wait=wait)

    def check(self) -> None:
        """Raise what a commit that is begun here and now would raise before its turn. Raises LineReentry, too."""
        self._core.check()
        self._core.line.refuse_reentry()
        self._check_current()

    def _begin(self) -> RunTx:
        return RunTx(self._core, self._check_current(), self._check_phase)

    def _check_current(self) -> TaskRecord:
        record = self._core.forest.get(self.id)
        if self.ended or record is None or not isinstance(record.state, Running):
            raise InvocationEnded(f"task {self.id}: this invocation has ended")
        if self._mode == "run" and record.abort_requested:
            raise InvocationEnded(f"task {self.id} has an abort mark")
        return record

    def _check_phase(self, phase: Phase) -> None:
        if type(phase) not in self._definition.phases.values():
            raise InvalidTransition(f"{type(phase).__name__} is not a phase of {self._definition.name}")

    async def goto(self, phase: Phase) -> None:
        """Store the next checkpoint; its handler runs when this one returns."""
        async with self.commit() as tx:
            tx.goto(phase)

    async def complete(self, result: Any = None) -> None:
        """End as completed."""
        async with self.commit() as tx:
            tx.complete(result)

    async def fail(self, message: str, *, detail: Json = None, result: Any = None) -> None:
        """End as failed."""
        async with self.commit() as tx:
            tx.fail(message, detail=detail, result=result)

    async def wait(
        self,
        on: Sequence[int | TaskRef[Any]] = (),
        *,
        then: Phase,
        policy: JoinPolicy = "allSettled",
        until: int | None = None,
        mail: bool = False,
    ) -> None:
        """Park until ``on`` satisfy ``policy``, ``until`` (ms) has come, or with ``mail`` a message is queued.

        Then ``then`` is handled. See ``RunTx.wait``.
        """
        async with self.commit() as tx:
            await tx.wait(on, then=then, policy=policy, until=until, mail=mail)

    async def spawn(self, task: type[Task[Any, R]], input: Any = None) -> TaskRef[R]:
        """Create a task that this one owns."""
        async with self.commit() as tx:
            return await tx.create_task(task, input, owner=self.id)

    async def memo(self, name: str, value: Json) -> Json:
        """Keep a small value with the task until it ends; the first one kept under a name stays and is returned."""
        async with self.commit() as tx:
            return tx.memo(name, value)

    # --- reads

    async def expect(self, task: int, receipt: "asyncio.Future[Any]") -> None:
        """Have ``receipt`` get a task's receipt once it has ended, durably. Of many tasks, cheaper than ``settled`` of each.

        For tasks that cannot be waiting for this one. Returns at once for a live task. Raises UnknownRecord.
        """
        core = self._read()
        if core.forest.kept(task) is not None:
            core.expect(task, receipt)
            return
        ended = await self.settled(task)
        if not receipt.done():
            receipt.set_result(ended)

    async def settled(self, task: int | TaskRef[Any]) -> TaskRecord:
        """Wait in memory for a task's end and return its receipt. Raises UnknownRecord, WaitCycle."""
        receipt = await self._read().settled(TaskRecord, local_id(task, self.session))
        assert isinstance(receipt, TaskRecord)
        return receipt

    async def outcomes(self, tasks: Sequence[int | TaskRef[Any]]) -> list[Outcome]:
        """Read the outcomes of ended tasks, in order. Raises UnknownRecord, InvalidTransition for a live one."""
        return [await self._outcome(local_id(task, self.session)) for task in tasks]

    async def _outcome(self, task: int) -> Outcome:
        outcome = await self._outcome_so_far(task)
        if outcome is None:
            raise InvalidTransition(f"task {task} has not ended")
        return outcome

    async def outcomes_so_far(self, tasks: Sequence[int | TaskRef[Any]]) -> list[Outcome | None]:
        """Read the outcomes of tasks, in order, None for each that has not ended. Raises UnknownRecord."""
        return [await self._outcome_so_far(local_id(task, self.session)) for task in tasks]

    async def _outcome_so_far(self, task: int) -> Outcome | None:
        record = await self.task(task)
        return record.state.outcome if isinstance(record.state, Terminal) else None

    async def task(self, task: int) -> TaskRecord:
        """Read a task's record. Raises UnknownRecord."""
        core = self._read()
        record = await core.row(TaskRecord, task)
        await core.drained()
        if record is None:
            raise UnknownRecord("task", task)
        return record

    async def owned_tasks(self) -> list[TaskRecord]:
        """List the live tasks that this one owns directly, by id, whichever invocation created them. They are copies."""
        core = self._read()
        return deepcopy(await between_commits(core, lambda: core.forest.owned_kept(self.id)))

    async def entry(self, entry: int) -> EntryRecord:
        """Read an entry. Raises UnknownRecord."""
        core = self._read()
        record = await core.row(EntryRecord, entry)
        await core.drained()
        if record is None:
            raise UnknownRecord("entry", entry)
        return record

    async def snapshot(self, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None) -> Any:
        """Read a document's committed value (None when there is none): the definition's type, or JSON."""
        return await snapshot(self._read(), doc, scope_id, key=key)

    async def memos(self) -> JsonObject:
        """Read the values kept with ``memo``."""
        return dict((await self.task(self.id)).memos or {})

    def service(self, kind: type[S]) -> S:
        """Give a service of the system by its type. Raises UnknownRecord."""
        return self.services.get(kind)

    def now(self) -> int:
        """Read the system's clock: ms since the epoch."""
        return self._core.clock.now()

    async def sleep_until(self, when: int) -> None:
        """Wait in memory until a time in ms. For waits of more than a moment, park with ``wait(until=...)`` instead."""
        await self._core.clock.sleep_until(when)

    def _read(self) -> SessionCore:
        if self.ended:
            raise InvocationEnded(f"task {self.id}: this invocation has ended")
        return self._core
