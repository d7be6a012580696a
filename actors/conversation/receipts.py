"""Receipts: what a command with a ``request_id`` has done, stored by the commit that did it.

Whoever sends a command again, because the answer was lost with a connection or a process, gets the first answer, and nothing
happens twice. Submissions are their own receipts (``inbox``). Proved by tests/actors/conversation/test_receipts.py.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...storage.records import Json, JsonObject
from ..session.documents import Doc
from ..session.tx import BaseTx
from .errors import RequestIdReused
from .inbox import check_request_id


def _once_written(value: JsonObject, ops: Sequence[Any], deltas: int) -> bool:
    return True


def _seed(seed: Json) -> JsonObject:
    return {}


ReceiptDoc: Doc[Json] = Doc("pi.receipt", family=True, initial=_seed, checkpoint_when=_once_written)
"""By request id: what a command to a conversation has done, ``{command, result}``."""
SessionReceiptDoc: Doc[Json] = Doc(
    "pi.session-receipt", scope="session", family=True, initial=_seed, checkpoint_when=_once_written
)
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
    doc = SessionReceiptDoc if conversation_id is None else ReceiptDoc
    receipt = await tx.doc(doc, conversation_id, key=request_id)
    if "command" in receipt:
        return _known(receipt.to_json(), request_id, command), False
    result = await make()
    receipt.update({"command": command, "result": result})
    return result, True


def _known(receipt: JsonObject, request_id: str, command: str) -> Json:
    if receipt["command"] != command:
        raise RequestIdReused(f"request id {request_id!r} named another command: {receipt['command']}")
    return receipt["result"]
