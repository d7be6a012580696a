"""Streamed partials in ``pi.live``: what has been shown of an answer, and what becomes of it when the stream ends early.

Proved by tests/actors/agent/test_generation.py.
"""

from typing import Any, cast

from ...storage.records import JsonObject
from ..conversation.builtin import AssistantEntry, LiveDoc
from ..models import Appended, AssistantMessage, Change, Partial, from_json, interrupted, to_json
from ..session.tx import BaseTx
from .usage import count_message


async def commit_partial(tx: BaseTx, conversation_id: int, partial: Partial) -> None:
    """Write what has changed of the answer since the last call."""
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
    live = await tx.doc(LiveDoc, conversation_id)
    if "message" not in live.get("generation", {}):
        return
    shown: JsonObject = live["generation"].pop("message")
    message = interrupted(cast("AssistantMessage", from_json(shown)))
    await tx.append(AssistantEntry, model=[to_json(message)], conversation_id=conversation_id)
    await count_message(tx, conversation_id, message)
