"""Asking a model once, for an agent as it is now, and what its retries are by policy. Whatever a model does is an answer.

Proved by tests/actors/agent/test_generation.py.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog

from ..conversation.builtin import AgentDoc
from ..conversation.settings import RetryPolicy, Settings
from ..models import AssistantMessage, Done, ErrorInfo, Event, Model, ModelRequest, Partial
from ..task.run import Run
from . import spans
from .registry import Registry, Resolved
from .responses import broken_off, failure_text, said, storable
from .stopping import told_to_stop

log = structlog.get_logger("perdure.agent")

GOLDEN = 0.6180339887
"""Multiples of it spread evenly between whole numbers."""


async def agent_of(run: Run[Any]) -> Resolved:
    """Resolve the agent of a task's conversation by what is chosen and installed now."""
    choice = await run.snapshot(AgentDoc, run.conversation_id) or {}
    return run.service(Registry).resolve(choice, run.service(Settings))


async def ask(
    model: Model, request: ModelRequest, partial: Partial, touched: Callable[[], None] = lambda: None, *, of: Run[Any]
) -> AssistantMessage:
    """Give a model's answer as it will be read again, a failure as an error message. Being told to stop is raised.

    ``partial`` is the answer so far; ``touched`` is called whenever there is more of it to show; ``of`` is who asks.
    """
    with spans.request(of, model, request) as answered:
        message = await _ask(of, model, request, partial, touched)
        answered(message)
        return message


async def _ask(
    run: Run[Any], model: Model, request: ModelRequest, partial: Partial, touched: Callable[[], None]
) -> AssistantMessage:
    try:
        shown = await _consume(model.stream(request), partial, touched)
        return storable(partial.message(), shown, model)
    except BaseException as error:
        if told_to_stop(error):
            raise
        log.warning("model_raised", session=run.session, task=run.id, model=model.name, error=said(error))
        return broken_off(partial, model, error)


async def _consume(stream: AsyncIterator[Event], partial: Partial, touched: Callable[[], None]) -> AssistantMessage:
    """Take in a whole stream, and close it whatever happens. Gives what had come before the final message."""
    shown = AssistantMessage(content=[])
    try:
        async for event in stream:
            if isinstance(event, Done):
                shown = partial.message()
            partial.feed(event)
            if partial.has_content and not isinstance(event, Done):
                touched()
    finally:
        await _close(stream)
    return shown


async def _close(stream: AsyncIterator[Event]) -> None:
    """Close a stream; that it cannot be closed takes nothing from what it said."""
    close: Any = getattr(stream, "aclose", None)
    try:
        if close is not None:
            await close()
    except Exception as error:  # noqa: BLE001
        log.warning("stream_not_closed", error=said(error))


def seconds(ms: int | None) -> float | None:
    """Give a time that is set in ms as requests take it."""
    return None if ms is None else ms / 1_000


def may_retry(policy: RetryPolicy, attempt: int, error: ErrorInfo | None) -> bool:
    """Whether a failed attempt (counted from 1) is followed by another."""
    if not policy.enabled or error is None or not error.retryable:
        return False
    return attempt <= policy.max_retries and (error.retry_after_ms or 0) <= policy.max_wait_ms


def retry_delay(policy: RetryPolicy, attempt: int, error: ErrorInfo | None, task: int = 0) -> int:
    """Decide how long to wait after a failed attempt, in ms: doubling up to a cap, and never less than asked for.

    The id of a ``task`` decides its share of the jitter, so that it is the same again after a crash.
    """
    backoff: int = min(policy.base_delay_ms * 2 ** (attempt - 1), policy.max_delay_ms)
    spread = task * GOLDEN % 1.0
    return max(round(backoff * (1 + policy.jitter * spread)), (error.retry_after_ms or 0) if error is not None else 0)


def why_given_up(policy: RetryPolicy, message: AssistantMessage) -> str:
    """Say why there is no answer and no other attempt."""
    error = message.error
    asked = 0 if error is None else error.retry_after_ms or 0
    if asked <= policy.max_wait_ms:
        return failure_text(message)
    wait, most = (f"{ms / 1_000:,.0f} s" for ms in (asked, policy.max_wait_ms))
    return f"{failure_text(message)} (the provider asks to wait {wait}; {most} are allowed)"
