"""Tool calls that wait for approval, and how somebody's decision gets to the owner of the store."""

import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...storage.owner import find_owner
from ...storage.records import JsonObject, Waiting
from ...storage.sqlite_reader import SqliteReader
from ..conversation.decisions import Answer, Decision, DecisionBox

PATIENCE_S = 30.0
"""How long to wait for the owner's answer: it looks twice a second, if it is not one of an older version."""


class Asked(msgspec.Struct, frozen=True):
    """A call that waits for approval."""

    conversation_id: int
    call_id: str
    arguments: JsonObject
    hash: str


async def waiting(reader: SqliteReader, session: str, call: str, conversation: int | None) -> list[Asked]:
    """Find the calls of an id that wait in a session."""
    tasks: list[Any] = await reader.live_tasks(session)
    return [
        Asked(one.conversation_id, call, one.state.checkpoint["arguments"], one.state.checkpoint["hash"])
        for one in tasks
        if one.kind == "pi.tool" and isinstance(one.state, Waiting) and one.state.checkpoint["phase"] == "approval"
        if one.input["callId"] == call and conversation in (None, one.conversation_id)
    ]


def decision(
    asked: Asked,
    session: str,
    verdict: Literal["approve", "deny"],
    *,
    arguments_hash: str | None = None,
    reason: str | None = None,
) -> Decision:
    """Decide about exactly the arguments that were found, or those of a hash that somebody has seen before."""
    return Decision(
        session=session,
        conversation_id=asked.conversation_id,
        call_id=asked.call_id,
        arguments_hash=asked.hash if arguments_hash is None else arguments_hash,
        verdict=verdict,
        reason=reason,
    )


def describe(asked: Asked) -> str:
    """Say in a line what is decided about. Control characters of the arguments are escaped, as JSON does."""
    arguments = msgspec.json.encode(asked.arguments).decode("ascii", "backslashreplace")
    return f"call {asked.call_id!a} in conversation {asked.conversation_id}: {arguments} (hash {asked.hash})"


def leave(file: Path, decided: Decision) -> Answer | None:
    """Leave a decision beside the store; gives what has become of it, None when nobody is there to carry it out."""
    box = DecisionBox(str(file))
    name = box.put(decided)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        owned = find_owner(str(file)) is not None
        answer = box.answer(name)
        if answer is not None or not owned:
            return answer
        time.sleep(0.05)
    return None
