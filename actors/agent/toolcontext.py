"""What a tool holds while it runs: its call, a channel for progress, and durable doors into its session.

Everything here belongs to one execution and is refused once its task has ended. Proved by
tests/actors/agent/test_toolcontext.py.
"""

from collections.abc import Coroutine
from typing import Any

import msgspec

from ...storage.records import Json, JsonObject
from ..conversation.builtin import Diagnostic
from ..conversation.settings import Settings
from ..session.arguments import whole
from ..task.run import Run
from .calls import ANNOUNCED
from .doors import Doors
from .nested import NestedCalls
from .output import Output, OutputLimits, storable
from .pump import Pump
from .results import tidy
from .slots import slot_of
from .tool import ToolResult


class OutputWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What of a tool's output is kept, and how often it is shown (ms)."""

    limits: OutputLimits
    interval_ms: int


class External:
    """What a tool returns whose call is completed later, from outside. Made by ``ToolContext.external``."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id


class ToolContext(Doors):
    """The context of one tool call, with the doors of its task.

    ``idempotency_key`` is the same in every execution of this call, and only in those.
    ``output``, ``details`` and ``diagnostic`` are for any thread, the rest is for the loop's.
    """

    def __init__(self, run: Run[Any], call_id: str, output: Output, nested: NestedCalls) -> None:
        super().__init__(run)
        self._nested = nested
        self._output = output
        self._pump: Pump | None = None
        self._details: Json = None
        self._diagnostics: list[Diagnostic] = []
        self._external_until: int | None = None
        self.call_id = call_id
        self.idempotency_key = f"{run.session}:{run.id}"

    # --- progress

    def output(self, chunk: str | bytes) -> None:
        """Append text output. It is shown while the tool runs and, bounded, is the result if the tool returns none."""
        self._output.write(chunk)
        self._touch()

    @property
    def window(self) -> OutputWindow | None:
        """What of the output is kept and how often it is shown, for a tool that keeps the tail; None for the head.

        Who produces output elsewhere may leave out what would be dropped anyway, and say so with ``skipped``.
        """
        if self._output.limits.retain == "head":
            return None
        interval = self._run.service(Settings).progress.output_interval_ms
        return OutputWindow(limits=self._output.limits, interval_ms=interval)

    def skipped(self, dropped_bytes: int, dropped_lines: int) -> None:
        """Say that output was left out since the last ``output``: what was written before it counts as dropped, too."""
        self._output.skip(whole("dropped_bytes", dropped_bytes), whole("dropped_lines", dropped_lines))
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

    # --- what lasts

    async def memo(self, name: str, value: Json) -> Json:
        """Keep a small value with this call; after a crash the first one kept under a name is returned again."""
        return await self._run.memo(f"tool:{name}", value)

    def call(self, tool: str, arguments: JsonObject, *, key: str | None = None) -> Coroutine[Any, Any, ToolResult]:
        """Call another tool of this conversation's agent, with the same checks, hooks and limits, and get its result.

        It is a task that this call owns; the model sees nothing of it. An error of the tool is a result with
        ``is_error``. An execution that runs again after a crash gets the results of the calls that it has made before, by
        ``key`` (default: the number of the call), which names one call of an execution. Calls that are left running are
        aborted when this one ends. So many as ``Settings.max_nested_calls`` say are under way at once; those that are begun
        together are stored together. Raises InvalidValue for a key that was used, InvalidJson.
        """
        return self._nested.call(tool, arguments, key)

    async def external(self, *, timeout_s: float | None = None) -> External:
        """Have this call completed from outside, by its id (``Conversation.complete_call``): return what this gives.

        From now on the call can be completed. When the tool has returned, the call waits without memory, for
        ``timeout_s`` at most, and survives restarts; until then, its replay policy holds. Ask for this before the work
        outside is started.
        """
        self._external_until = None if timeout_s is None else self.now() + round(timeout_s * 1_000)
        async with self.commit() as tx:
            tx.memo(ANNOUNCED, value=True)
            slot = await slot_of(tx, self.conversation_id, self.task_id)
            if slot is not None:
                slot["external"] = True
        return External(self.call_id)
