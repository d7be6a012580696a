"""Transactions that know tasks: creating and aborting them, and for a task's own code, changing its state.

Proved by tests/actors/task/test_tx.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ...storage.records import (
    Aborted,
    Completed,
    Completing,
    Failed,
    JoinPolicy,
    Json,
    Outcome,
    OutcomeError,
    Pending,
    Quorum,
    Running,
    TaskRecord,
    Terminal,
    Waiting,
)
from ...supervisors.forest import closes_cycle
from ..session.actors import check_key
from ..session.arguments import name as valid_name
from ..session.arguments import reference, text, whole
from ..session.core import SessionCore
from ..session.errors import InvalidValue, OwnershipRefused
from ..session.mail import body_of, send, take
from ..session.tracing import here, tracer
from ..session.tx import BaseTx
from .definition import Phase, Task, encode
from .errors import InvalidTransition
from .letters import Letter, letter_of
from .ref import TaskRef, local_id
from .spans import place

R = TypeVar("R")
POLICIES = ("allSettled", "failFast", "firstCompleted")


class Tx(BaseTx):
    """A transaction of a session."""

    async def create_task(
        self,
        task: type[Task[Any, R]],
        input: Any = None,
        *,
        owner: int | TaskRef[Any] | None = None,
        conversation_id: int | None = None,
        background: bool = False,
    ) -> TaskRef[R]:
        """Create a task, owned by a live task or else by its conversation (default: the bound one).

        ``background`` takes a conversation's task out of the conversation's abort and idleness.
        Raises OwnershipRefused, UnknownRecord, InvalidValue, InvalidJson.
        """
        definition = task()
        owner = None if owner is None else local_id(owner, self.core.key)
        home = await self._home(owner, conversation_id, background=background)
        record = TaskRecord(
            id=self.mint(),
            conversation_id=home,
            kind=definition.name,
            version=definition.version,
            state=Pending(checkpoint=definition.first_checkpoint(input)),
            input=encode(input),
            owner=owner,
            background=bool(background),
            abort_requested=False,
            trace=await self._above(owner),
        )
        await self.put_task(record)
        return TaskRef(self.core.services, self.core.key, record.id, definition.result_type)

    async def _home(self, owner: int | None, conversation_id: int | None, *, background: bool) -> int:
        if owner is None:
            return await self._target(conversation_id)
        held = await self.owner(owner)
        if conversation_id not in (None, held.conversation_id):
            raise OwnershipRefused("a task lives in its owner's conversation")
        if background:
            raise OwnershipRefused("a task that a task owns cannot be background")
        return held.conversation_id

    async def _above(self, owner: int | None) -> str | None:
        """Give the place in a trace that a new task's span hangs below: its owner's, or else the current one."""
        held = None if owner is None or tracer() is None else await self.task(owner)
        return here() if held is None or held.trace is None else place(self.core.key, held)

    async def wake(self, task: int | TaskRef[Any], then: Phase) -> None:
        """End another task's wait for ``mail``: it goes on with ``then``, a phase of its own. Raises InvalidTransition."""
        record = await self.task(local_id(task, self.core.key))
        if record is None or not isinstance(record.state, Waiting) or not record.state.mail:
            raise InvalidTransition(f"task {task} does not wait for anybody's word")
        await self.put_task(msgspec.structs.replace(record, state=Pending(checkpoint=encode(then))))

    async def abort_task(self, task: int | TaskRef[Any]) -> bool:
        """Mark a task for abort; False when it has already ended. Raises UnknownRecord."""
        return await self.mark_task(local_id(task, self.core.key))

    async def tell(self, task: int | TaskRef[Any], message: Any, *, session: str | None = None) -> None:
        """Send a message (anything that msgspec can turn into JSON) to a task.

        ``session`` is the key of the session that an id belongs to (default: this one); a handle knows its own.
        It is stored with this commit and received once, in order of all that this session sends to the task's session. A
        receiver that has ended, or does not exist, never fails the sender: the message becomes a dead letter.
        Raises InvalidJson, InvalidValue for one that is too large, and OutboxFull when ``Settings.max_outgoing_messages`` of
        this session to the task's session have not arrived yet.
        """
        receiver, task_id = self._address(task, session)
        await send(self, receiver, reference(task_id), body_of(message))

    def _address(self, task: int | TaskRef[Any], session: str | None) -> tuple[str, int]:
        if not isinstance(task, TaskRef):
            return self.core.key if session is None else check_key(session), task
        if session not in (None, task.session):
            raise InvalidValue(f"{task!r} does not belong to session {session!r}")
        return task.session, task.id


class RunTx(Tx):
    """A task's own commit: at most one change of its state, atomic with everything else in the block.

    Entries appended here name the task; tasks and conversations created here may be owned by it (``owner=run.id``).
    """

    def __init__(self, core: SessionCore, record: TaskRecord, check: Callable[[Phase], None]) -> None:
        super().__init__(core, record.conversation_id)
        self.by_task = record.id
        self._task = record
        self._check_phase = check
        self._decided = False

    def goto(self, phase: Phase) -> None:
        """Store the next checkpoint."""
        self._check_phase(phase)
        self._become(Running(checkpoint=encode(phase)))

    def complete(self, result: Any = None) -> None:
        """End as completed; held until ordinary owned work has drained."""
        self._finish(Completed(result=encode(result)))

    def fail(self, message: str, *, detail: Json = None, result: Any = None) -> None:
        """End as failed, which cancels ordinary owned work first."""
        error = OutcomeError(message=text("a failure's message", message), detail=encode(detail))
        self._finish(Failed(error=error, result=encode(result)))

    def abort(self, reason: str | None = None, *, result: Any = None) -> None:
        """End as aborted."""
        said = None if reason is None else text("an abort's reason", reason)
        self._finish(Aborted(reason=said, result=encode(result)))

    async def wait(
        self,
        on: Sequence[int | TaskRef[Any]] = (),
        *,
        then: Phase,
        policy: JoinPolicy = "allSettled",
        until: int | None = None,
        mail: bool = False,
    ) -> None:
        """Park, without memory, until ``on`` satisfy ``policy`` or the time ``until`` (ms) has come; then go on with ``then``.

        Without ``until`` there is no time limit; with ``mail`` a queued message ends the wait at once, too; without any of
        the three it goes on at once. Policies:
        "allSettled" waits for all of them. "failFast" does, too, but the first that fails has the others aborted; all of
        them must be the task's own. "firstCompleted" waits for one that completes, ``Quorum(n)`` for n of them, or until
        that can no longer come about; neither marks the others, which go on (``abort_task`` ends them).
        With ``mail`` somebody else's commit may end the wait, too (see ``wake``).
        Raises InvalidTransition for a wait that could never end, InvalidValue.
        """
        self._check_phase(then)
        if until is not None:
            whole("until, a time in ms since the epoch,", until)
        awaited = [local_id(task, self.core.key) for task in on]
        _check_policy(policy, awaited)
        for task in awaited:
            await self._check_awaited(task, policy)
        if until is None and not mail and closes_cycle(self.core.forest, self._record.id, awaited):
            raise InvalidTransition("waiting for these tasks would close a cycle: they cannot end before this one")
        self._become(Waiting(checkpoint=encode(then), on=awaited, policy=policy, until=until, mail=bool(mail)))

    async def receive(self, *, limit: int | None = None) -> list[Letter]:
        """Take the oldest queued messages (None: all), in order: this commit consumes them, or nothing does.

        What the block itself sends to its own task comes later. Raises InvalidValue.
        """
        self._check()
        if limit is not None:
            whole("limit", limit)
        taken = take(self, self._task.id, limit)
        return [letter_of(self.core.services, self.core.key, record) for record in taken]

    def owned_tasks(self) -> list[TaskRecord]:
        """List the live tasks that this one owns directly, as this block sees them."""
        self._check()
        owned = (self.core.forest.get(node) for node in self.core.forest.ownership.children(self._task.id))
        return [record for record in owned if record is not None]

    async def _check_awaited(self, task: int, policy: JoinPolicy) -> None:
        record = await self.task(task)
        if record is None:
            raise InvalidTransition(f"cannot wait for task {task}: it does not exist")
        if policy == "failFast" and record.owner != self._record.id:
            raise InvalidTransition(f"failFast is for a task's own tasks, and task {task} is not")
        if not record.live:
            self.awaited[task] = record

    def memo(self, name: str, value: Json) -> Json:
        """Keep a small value with the task until it ends; the first one kept under a name stays and is returned."""
        if isinstance(self._record.state, Completing):
            raise InvalidTransition("memos end with the outcome, and this commit has decided it")
        valid_name("a memo's name", name)
        memos = dict(self._record.memos or {})
        if name not in memos:
            memos[name] = encode(value)
            self._stage(msgspec.structs.replace(self._record, memos=memos))
        return encode(memos[name])

    def _finish(self, outcome: Outcome) -> None:
        self._become(Completing(outcome=outcome))

    def _become(self, state: Running | Waiting | Completing) -> None:
        if self._decided:
            raise InvalidTransition("a commit can change a task's state only once")
        self._decided = True
        memos = None if isinstance(state, Completing) else self._record.memos
        self._stage(msgspec.structs.replace(self._record, state=state, memos=memos))

    @property
    def _record(self) -> TaskRecord:
        """The task's record with everything that this block has staged, a mark from elsewhere in it included."""
        return self.core.forest.get(self._task.id) or self._task

    def _stage(self, record: TaskRecord) -> None:
        self._check()
        self.stage_task(record)
        self.touched[record.id] = None


def _check_policy(policy: JoinPolicy, on: Sequence[int]) -> None:
    if not isinstance(policy, Quorum):
        if policy not in POLICIES:
            raise InvalidValue(f"policy must be one of {', '.join(POLICIES)} or a Quorum, got: {policy!r}")
    elif not 1 <= whole("a quorum", policy.quorum) <= len(set(on)):
        raise InvalidValue(f"a quorum must be 1 to {len(set(on))}, the tasks waited for, got: {policy.quorum}")


def finish(tx: BaseTx, record: TaskRecord, outcome: Outcome) -> None:
    """Decide a live task's outcome from outside its code (faults, orphans)."""
    if isinstance(record.state, Completing | Terminal):
        raise InvalidValue(f"task {record.id} has its outcome")
    restage(tx, msgspec.structs.replace(record, state=Completing(outcome=outcome), memos=None))


def restage(tx: BaseTx, record: TaskRecord) -> None:
    """Stage a live task's changed record from outside its code. What follows from it is decided when the block ends."""
    tx.stage_task(record)
    tx.touched[record.id] = None
