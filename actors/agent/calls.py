"""What people and programs outside decide about a tool call: whether it may run, and how it ended.

A call that waits is a parked task, without memory; a decision is one commit that stores it with the task and lets it go
on. So it is bound to its call and arguments, used once, and survives whatever dies. Proved by
tests/actors/agent/test_calls.py.
"""

import hashlib
import json
from typing import Any, cast

import msgspec

from ...storage.contract import TaskQuery
from ...storage.records import JsonObject, Pending, TaskRecord, Terminal, Waiting
from ..conversation.builtin import LiveDoc
from ..session.arguments import text as valid_text
from ..session.errors import InvalidValue
from ..task.definition import Phase
from . import results
from .errors import ApprovalMismatch, CallNotWaiting, UnknownCall
from .tool import ToolResult

KIND = "pi.tool"
ANNOUNCED = "pi:external"
"""Memo of a call that is completed from outside: since when it may be (True), or how it was."""
PAGE = 100


class ToolInput(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which call of which assistant entry, to which tool; or, without one, a call that another tool makes: with what."""

    assistant: int | None
    call_id: str
    name: str = ""
    arguments: JsonObject = {}
    replay: str | None = None
    """The policy of a tool that may run without anybody being asked: storing the call is storing the intent."""


class ToolOutcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result entry that a call ended with, and what the call asked for; who completed it, if somebody did.

    A call that another tool has made has no entry: its ``result`` is for that tool.
    """

    entry_id: int | None = None
    result: ToolResult | None = None
    add_tools: list[str] = []
    terminate: bool = False
    handoff: str | None = None
    request_id: str | None = None


class Execute(Phase):
    """The tool is about to run, or may have run: with what, if not with what the call says, and whether it may again."""

    replay: str
    arguments: JsonObject | None = None


class Approval(Phase):
    """Parked until somebody decides; runs when nobody has in time."""

    arguments: JsonObject
    hash: str


class Approved(Phase):
    """Somebody has approved exactly these arguments."""

    arguments: JsonObject


class Denied(Phase):
    """Somebody has denied the call."""

    reason: str


class External(Phase):
    """Parked until the call is completed from outside; runs when it is, or has not been in time."""


class Completion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a call was completed from outside."""

    result: ToolResult
    request_id: str | None = None


def arguments_hash(tool: str, arguments: JsonObject) -> str:
    """Name a tool's arguments: SHA-256, in hex, of the tool's name and the arguments as JSON with sorted keys."""
    canonical = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


class CallDesk:
    """Takes decisions about calls (see ``conversation.calls.Calls``)."""

    async def approve(self, tx: Any, conversation_id: int, call_id: str, arguments_hash: str) -> None:
        """Let a call run with the arguments of this hash. Raises UnknownCall, CallNotWaiting, ApprovalMismatch."""
        record, asked = await _asked(tx, conversation_id, call_id, arguments_hash)
        await tx.wake(record.id, Approved(arguments=asked.arguments))

    async def deny(self, tx: Any, conversation_id: int, call_id: str, arguments_hash: str, reason: str | None) -> None:
        """Have a call answered with an error instead. Raises UnknownCall, CallNotWaiting, ApprovalMismatch."""
        record, _ = await _asked(tx, conversation_id, call_id, arguments_hash)
        said = "" if reason is None else f": {valid_text('a reason', reason)}"
        await tx.wake(record.id, Denied(reason=f"was denied{said}"))

    async def complete(self, tx: Any, conversation_id: int, call_id: str, value: Any, request_id: str | None) -> None:
        """Give the result of a call that is completed from outside; again with its ``request_id`` changes nothing.

        Raises UnknownCall, CallNotWaiting, and InvalidJson or InvalidValue for what cannot be a result.
        """
        completion = Completion(result=_result(value), request_id=request_id)
        record = await _call_task(tx, conversation_id, call_id)
        if request_id is not None and _completed_by(record) == request_id:
            return
        if (record.memos or {}).get(ANNOUNCED) is not True or record.abort_requested:
            raise CallNotWaiting(f"call {call_id!r} does not wait to be completed from outside")
        memos = {**(record.memos or {}), ANNOUNCED: msgspec.to_builtins(completion)}
        await tx.put_task(msgspec.structs.replace(record, state=_awake(record.state), memos=memos))


def completion_of(memo: Any) -> Completion | None:
    """Read how a call was completed, if it was."""
    return msgspec.convert(memo, Completion) if isinstance(memo, dict) else None


def _result(value: Any) -> ToolResult:
    """Make a stored result of what was given, as if a tool had returned it."""
    try:
        return results.as_returned(value)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise InvalidValue(f"this cannot be the result of a call: {error}") from None


def _awake(state: Any) -> Any:
    """A parked call goes on; one whose tool still runs goes on when that has returned."""
    return Pending(checkpoint=state.checkpoint) if isinstance(state, Waiting) else state


async def _asked(tx: Any, conversation_id: int, call_id: str, given_hash: str) -> tuple[TaskRecord, Approval]:
    record = await _call_task(tx, conversation_id, call_id)
    state = record.state
    if not isinstance(state, Waiting) or state.checkpoint.get("phase") != "approval" or record.abort_requested:
        raise CallNotWaiting(f"call {call_id!r} does not wait for approval")
    asked = msgspec.convert(state.checkpoint, Approval)
    if asked.hash != given_hash:
        raise ApprovalMismatch(f"call {call_id!r} waits for approval of other arguments: their hash is {asked.hash}")
    return record, asked


async def _call_task(tx: Any, conversation_id: int, call_id: str) -> TaskRecord:
    """Find the task of a call: of the current round, or else the newest that has ended. Raises UnknownCall."""
    live = await tx.doc(LiveDoc, conversation_id)
    for slot in live.get("tools", ()):
        if slot["callId"] == call_id and "taskId" in slot:
            return cast("TaskRecord", await tx.task(slot["taskId"]))
    return await _ended_task(tx, conversation_id, call_id)


async def _ended_task(tx: Any, conversation_id: int, call_id: str) -> TaskRecord:
    query = TaskQuery(kind=KIND, conversation_id=conversation_id, order="descending")
    page = await tx.scan_tasks(query, PAGE)
    while True:
        for record in page.items:
            if record.input["callId"] == call_id:
                return cast("TaskRecord", record)
        if page.next is None:
            raise UnknownCall(f"conversation {conversation_id} has no call {call_id!r} that has begun")
        page = await tx.scan_tasks(query, PAGE, page.next)


def _completed_by(record: TaskRecord) -> str | None:
    """The request id under which a call was completed from outside, also after its end."""
    completion = completion_of((record.memos or {}).get(ANNOUNCED))
    if completion is not None:
        return completion.request_id
    result = getattr(record.state.outcome, "result", None) if isinstance(record.state, Terminal) else None
    return result.get("requestId") if isinstance(result, dict) else None
