"""The durable doors that code of an extension gets while a task runs it: commits, reads, the clock.

They belong to one invocation and are refused once it has ended. Proved by tests/actors/agent/test_toolcontext.py.
"""

from typing import Any, TypeVar

from ..conversation.handles import Conversation
from ..session.commit import Commit
from ..session.documents import Doc
from ..task.definition import Task
from ..task.ref import TaskRef
from ..task.run import Run
from ..task.tx import RunTx

R = TypeVar("R")
S = TypeVar("S")


class Doors:
    """What tools and hooks share. For the loop's thread."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run
        self.task_id = run.id
        self.conversation_id = run.conversation_id
        self.session = run.session

    def commit(self) -> Commit[RunTx]:
        """Begin a commit of this task: create owned conversations and tasks, change documents."""
        return self._run.commit()

    async def spawn(self, task: type[Task[Any, R]], input: Any = None) -> TaskRef[R]:
        """Create a task that this one owns: it ends before this one does."""
        return await self._run.spawn(task, input)

    def conversation(self, conversation_id: int | None = None) -> Conversation:
        """Give a handle on a conversation (default: the calling one)."""
        target = self.conversation_id if conversation_id is None else conversation_id
        return Conversation(self._run.services, self.session, target)

    async def snapshot(self, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None) -> Any:
        """Read a committed document; None when there is none."""
        return await self._run.snapshot(doc, scope_id, key=key)

    def service(self, kind: type[S]) -> S:
        """Give a service of the system by its type."""
        return self._run.service(kind)

    def now(self) -> int:
        """Read the system's clock: ms since the epoch."""
        return self._run.now()

    async def sleep(self, seconds: float) -> None:
        """Wait on the system's clock."""
        await self._run.sleep_until(self._run.now() + round(seconds * 1_000))
