"""Hooks: an extension's say at eight points of a run, and what runs those of a conversation's agent.

Hooks of one point run in the order in which their extensions were installed, each seeing what the one before made of
it. Work that runs keeps the hooks that it took; its next phase takes those installed then. One that raises, or answers
with what does not belong there, is reported and passed over; only a ``before_tool`` that raises blocks its call. A phase
that a crash interrupts runs its hooks again. Proved by tests/actors/agent/test_hooks.py.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import structlog

from ...chord import copy_json
from ...storage.records import Json
from ..conversation.inbox import UserInput, content_json
from ..conversation.settings import Settings
from ..models import AssistantMessage, ModelRequest, ToolCall, ToolResultMessage
from ..task.run import Run
from .doors import Doors
from .responses import said
from .results import checked
from .stopping import told_to_stop
from .summaries import CompactionPlan, Decline, Summary
from .tool import ToolResult

if TYPE_CHECKING:
    from .registry import Resolved

log = structlog.get_logger("perdure.agent")

V = TypeVar("V")


class Deny(msgspec.Struct, frozen=True):
    """What ``before_tool`` returns to have a call answered with an error instead of run. The model reads the reason."""

    reason: str


class HookContext(Doors):
    """What a hook holds while it runs: the agent, and the doors of the task that runs it."""

    def __init__(self, run: Run[Any], agent: "Resolved") -> None:
        super().__init__(run)
        self.agent = agent

    async def memo(self, name: str, value: Json) -> Json:
        """Keep a small value with the task; after a crash the first one kept under a name is returned again."""
        return await self._run.memo(f"hook:{name}", value)


Maybe: TypeAlias = V | Awaitable[V | None] | None


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """An extension's hooks: plain or async functions, whose first argument is a ``HookContext``. None changes nothing.

    ``before_request(ctx, request)`` may give another request; the conversation's identity at its provider stays.
    ``after_response(ctx, message)`` may give another message, before it is stored; deferred responses are not shown.
    ``on_yield(ctx, message)`` may give something to say to a model that has answered: the run goes on with that, unless
    queued input comes first. The first that has something to say is heard.
    ``before_tool(ctx, call)`` may give other arguments, or ``Deny``.
    ``after_tool(ctx, call, result)`` may give another result of a call that was executed, ``on_abort(ctx, call, result)``
    of one that was aborted, which it stays.
    ``after_tools(ctx, message, results)`` may give something to say to the model behind a round's results; the first
    that has something to say is heard.
    ``before_compact(ctx, plan)`` may give a ``Summary`` to use, or ``Decline`` the compaction; the first that does is
    heard.
    """

    before_request: Callable[[HookContext, ModelRequest], Maybe[ModelRequest]] | None = None
    after_response: Callable[[HookContext, AssistantMessage], Maybe[AssistantMessage]] | None = None
    on_yield: Callable[[HookContext, AssistantMessage], Maybe[UserInput]] | None = None
    before_tool: Callable[[HookContext, ToolCall], Maybe[dict[str, Any] | Deny]] | None = None
    after_tool: Callable[[HookContext, ToolCall, ToolResult], Maybe[ToolResult]] | None = None
    on_abort: Callable[[HookContext, ToolCall, ToolResult], Maybe[ToolResult]] | None = None
    after_tools: Callable[[HookContext, AssistantMessage, list[ToolResultMessage]], Maybe[UserInput]] | None = None
    before_compact: Callable[[HookContext, CompactionPlan], Maybe[Summary | Decline]] | None = None


class AgentHooks:
    """The hooks of one conversation's agent, for one phase of one of its tasks."""

    def __init__(self, run: Run[Any], agent: "Resolved") -> None:
        self._run = run
        self._agent = agent

    @cached_property
    def _context(self) -> HookContext:
        return HookContext(self._run, self._agent)

    def asked(self, point: str) -> bool:
        """Whether anybody wants to be asked at a point."""
        return bool(self._of(point))

    async def before_request(self, request: ModelRequest) -> ModelRequest:
        """Give the request as the hooks would have it."""
        changed = await self._chain("before_request", request, ModelRequest)
        return msgspec.structs.replace(changed, session_id=request.session_id)

    async def after_response(self, message: AssistantMessage) -> AssistantMessage:
        """Give the message as the hooks would have it stored."""
        return await self._chain("after_response", message, AssistantMessage)

    async def on_yield(self, message: AssistantMessage) -> Json:
        """Give what is to be said to a model that has answered, if anything."""
        return await self._first("on_yield", message)

    async def after_tools(self, message: AssistantMessage, results: list[ToolResultMessage]) -> Json:
        """Give what is to be said behind a round's results, if anything."""
        return await self._first("after_tools", message, results)

    async def before_tool(self, call: ToolCall) -> ToolCall | Deny:
        """Give the call as it is to be run, or the first denial: a hook that raises denies, too."""
        for name, hook in self._of("before_tool"):
            try:
                answer = await _asked(hook, self._context, call)
                if isinstance(answer, Deny):
                    return answer
                if answer is not None:
                    call = msgspec.structs.replace(call, arguments=_arguments(answer))
            except BaseException as error:  # noqa: BLE001
                self._report("before_tool", name, error)
                return Deny(said(error))
        return call

    async def result(self, point: str, call: ToolCall, result: ToolResult) -> ToolResult:
        """Give a call's result as the hooks of ``after_tool`` or ``on_abort`` would have it."""
        for name, hook in self._of(point):
            with self._contained(point, name):
                answer = await _asked(hook, self._context, call, result)
                result = result if answer is None else checked(_checked(answer, ToolResult))
        return result

    async def before_compact(self, plan: CompactionPlan) -> Summary | Decline | None:
        """Give what the first hook that has decided on a compaction says."""
        for name, hook in self._of("before_compact"):
            with self._contained("before_compact", name):
                answer = await _asked(hook, self._context, plan)
                if answer is not None:
                    return plan.decided(answer)
        return None

    # --- asking

    def _of(self, point: str) -> list[tuple[str, Callable[..., Any]]]:
        return [(name, hook) for name, given in self._agent.hooks if (hook := getattr(given, point)) is not None]

    async def _chain(self, point: str, value: V, kind: type[V]) -> V:
        for name, hook in self._of(point):
            with self._contained(point, name):
                answer = await _asked(hook, self._context, value)
                value = value if answer is None else _checked(answer, kind)
        return value

    async def _first(self, point: str, *given: Any) -> Json:
        """Give what the first hook says, as it is stored; None when none says anything."""
        limit = self._run.service(Settings).max_submission_bytes
        for name, hook in self._of(point):
            with self._contained(point, name):
                answer = await _asked(hook, self._context, *given)
                if answer is not None:
                    return content_json(answer, limit)
        return None

    @contextmanager
    def _contained(self, point: str, extension: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # noqa: BLE001
            self._report(point, extension, error)

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


def _checked(answer: Any, kind: type[V]) -> V:
    if not isinstance(answer, kind):
        raise TypeError(f"expected a {kind.__name__} or None, got {type(answer).__name__}")
    return answer


def _arguments(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise TypeError(f"expected arguments as a dict, Deny or None, got {type(answer).__name__}")
    arguments: dict[str, Any] = copy_json(answer)
    return arguments
