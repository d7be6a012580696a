"""What a tool holds while it runs: its call, a channel for progress, and durable doors into its session.

Everything here belongs to one execution and is refused once its task has ended. Proved by
tests/actors/agent/test_toolcontext.py.
"""

from typing import Any, TypeVar

from ...storage.records import Json
from ..conversation.builtin import Diagnostic
from ..conversation.handles import Conversation
from ..session.commit import Commit
from ..session.documents import Doc
from ..task.definition import Task
from ..task.ref import TaskRef
from ..task.run import Run
from ..task.tx import RunTx
from .output import Output, storable
from .pump import Pump
from .results import tidy

R = TypeVar("R")
S = TypeVar("S")


class ToolContext:
    """The context of one tool call. ``idempotency_key`` is the same in every execution of this call, and only in those.

    ``output``, ``details`` and ``diagnostic`` are for any thread, the rest is for the loop's.
    """

    def __init__(self, run: Run[Any], call_id: str, output: Output) -> None:
        self._run = run
        self._output = output
        self._pump: Pump | None = None
        self._details: Json = None
        self._diagnostics: list[Diagnostic] = []
        self.call_id = call_id
        self.task_id = run.id
        self.conversation_id = run.conversation_id
        self.session = run.session
        self.idempotency_key = f"{run.session}:{run.id}"

    # --- progress

    def output(self, chunk: str | bytes) -> None:
        """Append text output. It is shown while the tool runs and, bounded, is the result if the tool returns none."""
        self._output.write(chunk)
        self._touch()

    def details(self, value: Any) -> None:
        """Replace the details shown to people and programs (JSON). Raises InvalidJson."""
        self._details = storable(value)
        self._touch()

    def diagnostic(self, message: str, *, severity: Any = "info", code: str | None = None) -> None:
        """Add a remark about the call, for the model and for people: a truncation, a corrected path. Raises InvalidValue.

        ``severity`` is "info", "warn" or "error".
        """
        given: Diagnostic = {"severity": severity, "message": message}
        self._diagnostics.append(tidy(given if code is None else {**given, "code": code}))
        self._touch()

    def _touch(self) -> None:
        if self._pump is not None:
            self._pump.touch()

    # --- durable doors

    def commit(self) -> Commit[RunTx]:
        """Begin a commit of this call's task: create owned conversations and tasks, change documents."""
        return self._run.commit()

    async def memo(self, name: str, value: Json) -> Json:
        """Keep a small value with this call; after a crash the first one kept under a name is returned again."""
        return await self._run.memo(f"tool:{name}", value)

    async def spawn(self, task: type[Task[Any, R]], input: Any = None) -> TaskRef[R]:
        """Create a task that this call owns: it ends before the call does."""
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
