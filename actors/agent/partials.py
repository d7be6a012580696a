"""Streamed partials in ``pi.live``: what has been shown of an answer, and what becomes of it when the stream ends early.

Proved by tests/actors/agent/test_generation.py.
"""

from typing import Any

import structlog

from ...chord import Draft
from ...storage.records import JsonObject
from ..conversation.builtin import AssistantEntry, LiveDoc
from ..models import Appended, AssistantMessage, Change, MessageInvalid, Partial, from_json, interrupted, to_json
from ..session.tx import BaseTx
from .responses import check_partial
from .usage import count_message

log = structlog.get_logger("perdure.agent")


async def commit_partial(tx: BaseTx, conversation_id: int, partial: Partial) -> None:
    """Write what has changed of the answer since the last call. Raises for one that could not be read again."""
    check_partial(partial.message())
    live = await tx.doc(LiveDoc, conversation_id)
    if "generation" in live:
        for change in partial.changes():
            _write(live["generation"], change)


def _write(generation: Any, change: Change) -> None:
    *way, last = ("message", *change.path)
    node = generation
    for step in way:
        node = node[step]
    if isinstance(change, Appended):
        node.append_text(last, change.text)
    elif isinstance(last, int) and last == len(node):
        node.append(change.value)
    else:
        node[last] = change.value


async def take_partial(tx: BaseTx, conversation_id: int) -> None:
    """Turn a partial that is left in ``pi.live`` into an aborted entry, so that nothing that was shown is lost."""
    await keep_partial(tx, conversation_id, pop_partial(await tx.doc(LiveDoc, conversation_id)))


def pop_partial(live: Draft) -> JsonObject | None:
    """Take the partial out of ``pi.live``, if there is one."""
    generation = live.get("generation", {})
    return generation.pop("message") if "message" in generation else None


async def keep_partial(tx: BaseTx, conversation_id: int, shown: JsonObject | None) -> None:
    """Append what was shown as an aborted entry. What cannot be read again is dropped: it may hold up nothing."""
    message = None if shown is None else _read(shown)
    if message is not None:
        await tx.append(AssistantEntry, model=[to_json(message)], conversation_id=conversation_id)
        await count_message(tx, conversation_id, message)
    elif shown is not None:
        log.warning("partial_unreadable", session=tx.core.key, conversation=conversation_id)


def _read(shown: JsonObject) -> AssistantMessage | None:
    try:
        message = from_json(shown)
    except MessageInvalid:
        return None
    return interrupted(message) if isinstance(message, AssistantMessage) else None
