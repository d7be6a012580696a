"""A handle on a task: ids only, resolved at each use, so it survives restarts. Proved by tests/actors/task/test_ref.py."""

from typing import Any, Generic, TypeVar, cast

from ...chord import Watch
from ...storage.records import Completed, TaskRecord, Terminal
from ..session.arguments import name, reference, whole
from ..session.commit import Commit
from ..session.directory import core_of
from ..session.documents import Doc
from ..session.environment import Services
from ..session.errors import InvalidValue, Undeliverable, UnknownRecord
from ..session.mail import body_of, post
from ..session.read import snapshot
from ..session.tx import BaseTx
from ..session.watch import watch_document
from .definition import decode
from .errors import TaskUnsuccessful

R = TypeVar("R")


class TaskRef(Generic[R]):
    """One task of one session. Compare by ``session`` and ``id``."""

    __slots__ = ("_result_type", "_services", "id", "session")

    def __init__(self, services: Services, session: str, id: int, result_type: Any = Any) -> None:
        self._services = services
        self._result_type = result_type
        self.session = session
        self.id = id

    def __repr__(self) -> str:
        return f"TaskRef({self.session!r}, {self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskRef) and (self.session, self.id) == (other.session, other.id)

    def __hash__(self) -> int:
        return hash((self.session, self.id))

    async def record(self) -> TaskRecord:
        """Read the committed record. Raises UnknownRecord."""
        core = await core_of(self._services, self.session)
        record = await core.row(TaskRecord, self.id)
        await core.drained()
        if record is None:
            raise UnknownRecord("task", self.id)
        return record

    async def settled(self) -> TaskRecord:
        """Wait for the task's end and return its receipt. Raises UnknownRecord, SessionFailed, WaitCycle."""
        core = await core_of(self._services, self.session)
        return cast("TaskRecord", await core.settled(TaskRecord, self.id))

    async def result(self) -> R:
        """Wait for the task's end and return its result.

        Raises TaskUnsuccessful, UnknownRecord, SessionFailed, and WaitCycle in the code of a task that must end first.
        """
        record = await self.settled()
        assert isinstance(record.state, Terminal)
        outcome = record.state.outcome
        if not isinstance(outcome, Completed):
            raise TaskUnsuccessful(self.id, outcome)
        return cast("R", decode(outcome.result, self._result_type))

    async def snapshot(self, doc: Doc[Any], *, key: str | None = None) -> Any:
        """Read one of the task's documents, as committed; None when there is none, or the task has ended."""
        return await snapshot(await core_of(self._services, self.session), doc, self.id, key=key)

    async def watch_doc(self, doc: Doc[Any], *, key: str | None = None) -> Watch | None:
        """Watch one of the task's documents, which ends "retired" with the task; None when there is none."""
        return await watch_document(await core_of(self._services, self.session), doc, self.id, key=key)

    async def tell(self, message: Any, *, request_id: str | None = None) -> None:
        """Send the task a message (anything that msgspec can turn into JSON); return when it is durable in its inbox.

        With a ``request_id`` sending again is harmless: of all messages with it to this task, the first one counts.
        Raises InboxFull when too many wait already, Undeliverable when the task has ended or does not exist (the message
        is kept as a dead letter), InvalidJson, InvalidValue, SessionFailed. In a commit, use ``tx.tell``.
        """
        await tell_task(self._services, self.session, self.id, message, request_id)

    async def abort(self) -> bool:
        """Mark the task for abort, durably; False when it had ended. Does not wait for its end."""
        core = await core_of(self._services, self.session)
        async with Commit(core, lambda: BaseTx(core)) as tx:
            return await tx.mark_task(self.id)


async def tell_task(services: Services, session: str, task_id: int, message: Any, request_id: str | None) -> None:
    """Queue a message for a task from outside of all sessions (see ``TaskRef.tell``)."""
    body = body_of(message)
    if request_id is not None:
        name("a request id", request_id)
    core = await core_of(services, session)
    async with Commit(core, lambda: BaseTx(core)) as tx:
        if core.seq == 0:
            raise Undeliverable(session, task_id, "unknown_session")
        record = await post(tx, reference(task_id), body, request_id)
    if record.status == "dead":
        raise Undeliverable(session, task_id, record.reason or "ended")


def local_id(task: int | TaskRef[Any], session: str) -> int:
    """Give a task's id in a session. Raises InvalidValue for a handle of another session: there its id is another task."""
    if not isinstance(task, TaskRef):
        return whole("a task's id", task)
    if task.session != session:
        raise InvalidValue(f"{task!r} belongs to another session than {session!r}")
    return task.id
