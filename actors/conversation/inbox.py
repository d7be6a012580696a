"""Submissions: how input is admitted, queued, placed at boundaries and settled.

The records and documents are the only state: ``pi.inbox`` holds what waits, ``pi.live.run`` who answers what is placed.
Everything here runs inside a commit block. Proved by tests/actors/conversation/test_inbox.py.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, get_args

import msgspec
import structlog

from ...chord import Draft, copy_json, valid_text
from ...storage.records import Faulted, Json, JsonObject, Orphaned, SubmissionRecord, TaskRecord, Terminal
from ..models import Content, Image, UserMessage, to_json
from ..models.repair import valid_json
from ..session.errors import InvalidValue, UnknownRecord
from ..session.tx import BaseTx
from .builtin import InboxDoc, LiveDoc, UserEntry
from .errors import ConversationBusy, RequestIdReused, SubmissionTooLarge
from .settings import QueueMode, Settings

log = structlog.get_logger("perdure.conversation")

UserInput = str | list[Content]
WhenBusy = Literal["steer", "follow_up", "reject"]
Boundary = Literal["postTools", "final"]

MODES = {"steer": "steer", "follow_up": "followUp"}
MAX_REQUEST_ID_BYTES = 512


class Runner(Protocol):
    """What answers input: the agent room's way to start a run."""

    async def start(self, tx: Any, conversation_id: int) -> int:
        """Create the task that answers, and give its id."""


def content_json(content: UserInput, limit: int) -> Json:
    """Check and repair what was submitted. Raises InvalidValue, InvalidJson, SubmissionTooLarge."""
    checked = _checked(content)
    try:
        value = copy_json(valid_json(msgspec.to_builtins(checked, str_keys=True)))
    except (TypeError, RecursionError) as error:
        raise InvalidValue(f"what is submitted must be JSON: {error}") from None
    size = len(msgspec.json.encode(value))
    if size > limit:
        raise SubmissionTooLarge(f"the submission has {size:,} bytes; the limit is {limit:,}")
    return value


def _checked(content: UserInput) -> UserInput:
    """Refuse what could not be read again as a message, or says nothing."""
    expected = "submit text, or a list of text and image blocks"
    if not isinstance(content, str | list):
        raise InvalidValue(f"{expected}, not {type(content).__name__}")
    try:
        checked = msgspec.convert(msgspec.to_builtins(content), str | list[Content])
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise InvalidValue(f"{expected}: {error}") from None
    said = [checked] if isinstance(checked, str) else ["image" if isinstance(b, Image) else b.text for b in checked]
    if not any(text.strip() for text in said):
        raise InvalidValue(f"{expected}; this is blank")
    return checked


def _check_request_id(request_id: Any) -> None:
    valid = isinstance(request_id, str) and valid_text(request_id) == request_id
    if not valid or len(request_id.encode()) > MAX_REQUEST_ID_BYTES:
        raise InvalidValue(f"a request id is text of at most {MAX_REQUEST_ID_BYTES} bytes of valid Unicode")


async def submit_input(
    tx: BaseTx, conversation_id: int, content: UserInput, *, when_busy: WhenBusy, request_id: str | None
) -> SubmissionRecord:
    """Admit an input: placed with a run at once when the conversation is idle and nothing waits, else queued.

    A request id that the conversation knows gives the earlier submission and writes nothing.
    Raises ConversationBusy, SubmissionTooLarge, RequestIdReused, UnknownRecord, InvalidValue.
    """
    if when_busy not in get_args(WhenBusy):
        raise InvalidValue(f"when_busy is one of {', '.join(get_args(WhenBusy))}, not {when_busy!r}")
    if await tx.conversation(conversation_id) is None:
        raise UnknownRecord("conversation", conversation_id)
    value = content_json(content, tx.core.services.get(Settings).max_submission_bytes)
    if request_id is not None:
        _check_request_id(request_id)
        known = await tx.submission_by_request(conversation_id, request_id)
        if known is not None and known.type != "input":
            raise RequestIdReused(f"request id {request_id!r} named a {known.type}")
        if known is not None:
            return known
    return await _admit(tx, conversation_id, value, when_busy, request_id)


async def _admit(
    tx: BaseTx, conversation_id: int, content: Json, when_busy: WhenBusy, request_id: str | None
) -> SubmissionRecord:
    await heal_run(tx, conversation_id)
    live = await tx.doc(LiveDoc, conversation_id)
    inbox = await tx.doc(InboxDoc, conversation_id)
    busy = "run" in live
    if busy and when_busy == "reject":
        raise ConversationBusy(f"conversation {conversation_id} is busy")
    record = tx.put_submission(
        SubmissionRecord(
            id=tx.mint(), conversation_id=conversation_id, type="input", status="queued", request_id=request_id
        )
    )
    if not busy and not inbox["items"]:
        await place(tx, record.id, content)
        await start_run(tx, conversation_id, [record.id])
        return record
    inbox["items"].append({"id": record.id, "mode": MODES.get(when_busy, "followUp"), "content": content})
    if not busy:
        await final_boundary(tx, conversation_id)
    return record


async def place(tx: BaseTx, submission_id: int, content: Json) -> None:
    """Append the entry of a queued input; from now on its run owes it an answer."""
    record = await _known(tx, submission_id)
    message = to_json(UserMessage(content="", timestamp=tx.core.clock.now())) | {"content": content}
    entry = await tx.append(UserEntry, model=[message], conversation_id=record.conversation_id)
    tx.put_submission(msgspec.structs.replace(record, status="placed", entry=entry.id))


async def start_run(tx: BaseTx, conversation_id: int, inputs: Sequence[int]) -> None:
    """Begin a run that answers ``inputs``."""
    live = await tx.doc(LiveDoc, conversation_id)
    runner = tx.core.services.get(Runner)  # type: ignore[type-abstract]
    task = await runner.start(tx, conversation_id)
    live["run"] = {"taskId": task, "inputs": list(inputs)}


# --- boundaries


def select(
    items: Sequence[JsonObject], boundary: Boundary, steering: QueueMode, follow_up: QueueMode
) -> list[JsonObject]:
    """Choose the queued items that a boundary places, in id order: steers at both boundaries, follow-ups at the final one."""
    modes = {"steer": steering} if boundary == "postTools" else {"steer": steering, "followUp": follow_up}
    chosen = [item for mode, queue in modes.items() for item in _first(items, mode, queue)]
    return sorted(chosen, key=_item_id)


def _first(items: Iterable[JsonObject], mode: str, queue: QueueMode) -> list[JsonObject]:
    matching = [item for item in items if item["mode"] == mode]
    return matching if queue == "all" else matching[:1]


def _item_id(item: JsonObject) -> int:
    return int(item["id"])


async def place_selected(tx: BaseTx, conversation_id: int, boundary: Boundary) -> list[int]:
    """Place what a boundary selects, and name those submissions."""
    settings = tx.core.services.get(Settings)
    inbox = await tx.doc(InboxDoc, conversation_id)
    items: list[JsonObject] = inbox["items"].to_json()
    chosen = select(items, boundary, settings.steering_mode, settings.follow_up_mode)
    for item in chosen:
        await place(tx, item["id"], item["content"])
    remove_items(inbox, {item["id"] for item in chosen})
    return [item["id"] for item in chosen]


def remove_items(inbox: Draft, ids: set[int]) -> None:
    """Take items out of an inbox, leaving the others as they are."""
    items = inbox["items"]
    for index in range(len(items) - 1, -1, -1):
        if items[index]["id"] in ids:
            del items[index]


async def final_boundary(tx: BaseTx, conversation_id: int) -> None:
    """Where a run has ended, or none was: place what waits for that and begin a run for it."""
    placed = await place_selected(tx, conversation_id, "final")
    if placed:
        await start_run(tx, conversation_id, placed)


# --- settlement


async def settle_inputs(
    tx: BaseTx, inputs: Iterable[int], change: Callable[[SubmissionRecord], SubmissionRecord]
) -> None:
    """Settle the placed inputs among ``inputs``; what is settled already, or is not there, stays as it is."""
    for submission in inputs:
        record = await tx.submission(submission)
        if record is not None and not record.settled:
            tx.put_submission(change(record))


def answered(entry: int) -> Callable[[SubmissionRecord], SubmissionRecord]:
    """Make the change of an input that is answered by ``entry``."""
    return lambda record: msgspec.structs.replace(record, status="done", answer=entry)


def unanswered(reason: str, detail: Json = None) -> Callable[[SubmissionRecord], SubmissionRecord]:
    """Make the change of an input that gets no answer."""
    return lambda record: msgspec.structs.replace(record, status="unanswered", reason=reason, detail=detail)


def why_unanswered(record: TaskRecord | None) -> tuple[str, Json]:
    """Give the reason, and its detail, why the inputs of a task get no answer that ended without settling them."""
    outcome = record.state.outcome if record is not None and isinstance(record.state, Terminal) else None
    if isinstance(outcome, Orphaned):
        return outcome.reason, None
    return "faulted", outcome.error.message if isinstance(outcome, Faulted) else None


async def end_run(tx: BaseTx, conversation_id: int, reason: str, detail: Json = None) -> None:
    """End a run without an answer. What is queued stays queued."""
    live = await tx.doc(LiveDoc, conversation_id)
    inputs = list(live["run"]["inputs"])
    for name in ("run", "generation", "tools"):
        live.pop(name, None)
    await settle_inputs(tx, inputs, unanswered(reason, detail))


async def heal_run(tx: BaseTx, conversation_id: int) -> None:
    """End a run that nobody answers any more: its task has ended without doing so, as it may if cleaning up after it failed."""
    live = await tx.doc(LiveDoc, conversation_id)
    if "run" not in live or tx.core.forest.is_live(live["run"]["taskId"]):
        return
    record = await tx.task(live["run"]["taskId"])
    log.error("run_without_task", session=tx.core.key, conversation=conversation_id, task=live["run"]["taskId"])
    await end_run(tx, conversation_id, *why_unanswered(record))


async def withdraw_inputs(tx: BaseTx, conversation_id: int) -> None:
    """Withdraw a conversation's queued inputs: they end unanswered, ``aborted``."""
    inbox = await tx.doc(InboxDoc, conversation_id)
    ids = {item["id"] for item in inbox["items"].to_json() if item["mode"] in MODES.values()}
    await settle_inputs(tx, sorted(ids), unanswered("aborted"))
    remove_items(inbox, ids)


async def _known(tx: BaseTx, submission_id: int) -> SubmissionRecord:
    record = await tx.submission(submission_id)
    if record is None:
        raise UnknownRecord("submission", submission_id)
    return record
