"""Receipts: what a command with a ``request_id`` has done, stored by the commit that did it.

Whoever sends a command again, because the answer was lost with a connection or a process, gets the first answer, and nothing
happens twice. Of each conversation, and of the session as a whole, the newest 1,000 are kept, in one document: an id that so
many newer ones followed is new again, and no step costs more for the past. Submissions are their own receipts (``inbox``).
Proved by tests/actors/conversation/test_receipts.py.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...storage.records import Json, JsonObject
from ..session.documents import Doc
from ..session.tx import BaseTx
from .errors import RequestIdReused
from .inbox import check_request_id

KEPT = 1_000
"""How many receipts of one conversation, or of one session, are kept."""
BASE_EVERY = 64
"""How many receipts are stored by themselves before all are."""


def _in_turn(value: JsonObject, ops: Sequence[Any], deltas: int) -> bool:
    return deltas >= BASE_EVERY


ReceiptsDoc: Doc[Json] = Doc("pi.receipts", checkpoint_when=_in_turn)
"""By request id, oldest first: what a command to a conversation has done, ``{command, result}``."""
SessionReceiptsDoc: Doc[Json] = Doc("pi.session-receipts", scope="session", checkpoint_when=_in_turn)
"""The same of commands to the session as a whole."""


async def once(
    tx: BaseTx,
    conversation_id: int | None,
    request_id: str | None,
    command: str,
    make: Callable[[], Awaitable[Json]],
) -> tuple[Json, bool]:
    """Run ``make`` unless the request id is known; give its result, or that of the first time, and whether it ran.

    The result and what ``make`` did are one commit. Raises RequestIdReused when the id named another command, and what
    ``make`` raises: then nothing is stored, and the id is free.
    """
    if request_id is None:
        return await make(), True
    check_request_id(request_id)
    receipts = await tx.doc(SessionReceiptsDoc if conversation_id is None else ReceiptsDoc, conversation_id)
    if request_id in receipts:
        return _known(receipts[request_id].to_json(), request_id, command), False
    result = await make()
    receipts[request_id] = {"command": command, "result": result}
    while len(receipts) > KEPT:
        del receipts[next(iter(receipts))]
    return result, True


def _known(receipt: JsonObject, request_id: str, command: str) -> Json:
    if receipt["command"] != command:
        raise RequestIdReused(f"request id {request_id!r} named another command: {receipt['command']}")
    return receipt["result"]
