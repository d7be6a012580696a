"""Responses that a provider computes in the background: polled from a parked task, so that nothing waits in memory.

Proved by tests/actors/agent/test_deferred.py.
"""

from typing import Any

import msgspec
import structlog

from ..conversation.builtin import LiveDoc
from ..models import AssistantMessage, DeferredHandle, DeferringModel, Model, error_info
from ..task.run import Run
from ..task.tx import RunTx
from .responses import said, storable
from .stopping import told_to_stop

log = structlog.get_logger("perdure.agent")

POLL_MS = 5_000
"""How long to wait for a response whose provider does not say."""


def poll_at(handle: DeferredHandle, now: int, before: int) -> int:
    """Decide when to look again (ms since the epoch): when the provider says, and later than ``before``."""
    return max(now + (POLL_MS if handle.poll_after_ms is None else handle.poll_after_ms), before + 1)


async def show_poll(tx: RunTx, conversation_id: int, attempt: int, at: int) -> None:
    """Show in ``pi.live`` when the response is looked for next."""
    live = await tx.doc(LiveDoc, conversation_id)
    live["generation"] = {"attempt": attempt, "deferred": {"pollAt": at}}


async def fetch(run: Run[Any], model: Model, handle: DeferredHandle) -> AssistantMessage:
    """Ask for a deferred response once. Whatever goes wrong is an answer; so is that its time is over."""
    if not isinstance(model, DeferringModel):
        return _lost(model, f"Model {model.name} cannot be asked for a response that was deferred")
    try:
        message = storable(await model.fetch(handle), AssistantMessage(content=[]), model)
    except BaseException as error:
        if told_to_stop(error):
            raise
        log.warning("model_raised", session=run.session, task=run.id, model=model.name, error=said(error))
        return _lost(model, f"The model failed: {said(error)}")
    if message.stop_reason == "deferred" and handle.expires_at is not None and run.now() >= handle.expires_at:
        return _lost(model, "The deferred response did not come in time")
    return message


async def cancel(run: Run[Any], model: Model | None, handle: DeferredHandle) -> None:
    """Tell the provider that nobody waits any more. That it cannot be told is reported, and changes nothing."""
    try:
        if isinstance(model, DeferringModel):
            await model.cancel(handle)
    except BaseException as error:
        if told_to_stop(error):
            raise
        log.warning("deferred_not_cancelled", session=run.session, task=run.id, id=handle.id, error=said(error))


def _lost(model: Model, reason: str) -> AssistantMessage:
    blank = AssistantMessage(content=[], api=model.api, provider=model.provider, model=model.id)
    return msgspec.structs.replace(blank, stop_reason="error", error=error_info("unknown", reason))
