"""Hooks: an extension's say at points of a run, and what runs those of a conversation's agent.

Hooks of one point run in the order in which their extensions were installed. Work that runs keeps the hooks that it
took; its next phase takes those installed then. One that raises, or answers with what does not belong there, is reported
and passed over. A phase that a crash interrupts runs its hooks again. Proved by tests/actors/agent/test_hooks.py.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import structlog

from ...storage.records import Json
from ..session.documents import Doc
from ..task.run import Run
from .responses import said
from .stopping import told_to_stop
from .summaries import CompactionPlan, Decline, Summary

if TYPE_CHECKING:
    from .registry import Resolved

log = structlog.get_logger("perdure.agent")

S = TypeVar("S")
V = TypeVar("V")


class HookContext:
    """What a hook holds while it runs: the agent, and doors of the task that runs it."""

    def __init__(self, run: Run[Any], agent: "Resolved") -> None:
        self._run = run
        self.agent = agent
        self.session = run.session
        self.task_id = run.id
        self.conversation_id = run.conversation_id

    async def snapshot(self, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None) -> Any:
        """Read a committed document; None when there is none."""
        return await self._run.snapshot(doc, scope_id, key=key)

    async def memo(self, name: str, value: Json) -> Json:
        """Keep a small value with the task; after a crash the first one kept under a name is returned again."""
        return await self._run.memo(f"hook:{name}", value)

    def service(self, kind: type[S]) -> S:
        """Give a service of the system by its type."""
        return self._run.service(kind)

    def now(self) -> int:
        """Read the system's clock: ms since the epoch."""
        return self._run.now()


Maybe: TypeAlias = V | None | Awaitable[V | None]


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """An extension's hooks: plain or async functions, whose first argument is a ``HookContext``. None changes nothing.

    ``before_compact(ctx, plan)`` may give a ``Summary`` to use, or ``Decline`` the compaction; the first that does is heard.
    """

    before_compact: Callable[[HookContext, CompactionPlan], Maybe[Summary | Decline]] | None = None


class AgentHooks:
    """The hooks of one conversation's agent, for one phase of one of its tasks."""

    def __init__(self, run: Run[Any], agent: "Resolved") -> None:
        self._run = run
        self._agent = agent
        self._context = HookContext(run, agent)

    async def before_compact(self, plan: CompactionPlan) -> Summary | Decline | None:
        """Give what the first hook that has decided on a compaction says."""
        for name, hook in self._of("before_compact"):
            try:
                answer = await _asked(hook, self._context, plan)
                if answer is not None:
                    return plan.decided(answer)
            except BaseException as error:
                self._report("before_compact", name, error)
        return None

    # --- asking

    def _of(self, point: str) -> list[tuple[str, Callable[..., Any]]]:
        hooks = ((name, getattr(given, point)) for name, given in self._agent.hooks)
        return [(name, hook) for name, hook in hooks if hook is not None]

    def _report(self, point: str, extension: str, error: BaseException) -> None:
        """Report a hook that failed; that the whole task was told to stop is no failure of it."""
        if told_to_stop(error):
            raise error
        log.warning(
            "hook_failed",
            session=self._run.session,
            task=self._run.id,
            extension=extension,
            hook=point,
            error=said(error),
            exc_info=error,
        )


async def _asked(hook: Callable[..., Any], *given: Any) -> Any:
    answer = hook(*given)
    return await answer if inspect.isawaitable(answer) else answer
