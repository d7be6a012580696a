"""Submissions: how input is admitted, queued, placed at boundaries and settled.

The records and documents are the only state: ``pi.inbox`` holds what waits, ``pi.live.run`` who answers what is placed.
Everything here runs inside a commit block. Proved by tests/actors/conversation/test_inbox.py.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import msgspec
import structlog

from ...chord import Draft, copy_json, valid_text
from ...storage.records import Faulted, Json, JsonObject, Orphaned, SubmissionRecord, TaskRecord, Terminal
from ..models import Content, Image, UserMessage, to_json
from ..models.repair import valid_json
from ..session.errors import InvalidValue, UnknownRecord
from ..session.tracing import here, under
from ..session.tx import BaseTx
from .budget import pause
from .builtin import InboxDoc, LiveDoc, UserEntry
from .errors import ConversationBusy, InboxFull, RequestIdReused, SubmissionTooLarge
from .settings import QueueMode, Settings
from .tracing import end_span, run_place
from .writes import is_reset, place_write

log = structlog.get_logger("perdure.conversation")

UserInput = str | list[Content]
WhenBusy = Literal["steer", "follow_up", "reject"]
Boundary = Literal["postTools", "final", "paused"]
Withdrawal = Literal["aborted", "already_placed", "settled", "not_found"]

MODES = {"steer": "steer", "follow_up": "followUp"}
MAX_REQUEST_ID_BYTES = 512
MAX_AUTHOR_BYTES = 256


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


def check_request_id(request_id: Any) -> None:
    """Raises InvalidValue for what cannot name a request."""
    valid = isinstance(request_id, str) and valid_text(request_id) == request_id
    if not valid or len(request_id.encode()) > MAX_REQUEST_ID_BYTES:
        raise InvalidValue(f"a request id is text of at most {MAX_REQUEST_ID_BYTES} bytes of valid Unicode")


# --- admission


async def submit_input(
    tx: BaseTx,
    conversation_id: int,
    content: UserInput,
    *,
    when_busy: WhenBusy,
    request_id: str | None,
    author: str | None = None,
) -> SubmissionRecord:
    """Admit an input: placed with a run at once when the conversation is idle and nothing waits, else queued.

    A request id that the conversation knows gives the earlier submission and writes nothing.
    Raises ConversationBusy, SubmissionTooLarge, InboxFull, RequestIdReused, UnknownRecord, OwnershipRefused, InvalidValue.
    """
    if when_busy not in get_args(WhenBusy):
        raise InvalidValue(f"when_busy is one of {', '.join(get_args(WhenBusy))}, not {when_busy!r}")
    await _check_target(tx, conversation_id)
    value = content_json(content, tx.core.services.get(Settings).max_submission_bytes)
    known = await _known_request(tx, conversation_id, "input", request_id)
    if known is not None:
        return known
    await _check_owner(tx, conversation_id)
    item = {"mode": MODES.get(when_busy, "followUp"), "content": value} | _origin()
    if author is not None:
        item["author"] = checked_author(author)
    return await _admit(tx, conversation_id, "input", item, request_id, reject=when_busy == "reject")


def checked_author(author: Any) -> str:
    """Give back the name of whoever says something. Raises InvalidValue."""
    valid = isinstance(author, str) and author.strip() and valid_text(author) == author
    if not valid or len(author.encode()) > MAX_AUTHOR_BYTES:
        raise InvalidValue(f"an author is a name of 1 to {MAX_AUTHOR_BYTES} bytes of valid Unicode")
    return str(author)


async def submit_write(
    tx: BaseTx, conversation_id: int, draft: JsonObject, *, request_id: str | None = None
) -> SubmissionRecord:
    """Admit a write (``draft`` as ``writes.write_draft`` gives it): appended at once when nothing runs or waits, else queued.

    Raises InboxFull, RequestIdReused, UnknownRecord, InvalidValue.
    """
    await _check_target(tx, conversation_id)
    known = await _known_request(tx, conversation_id, "write", request_id)
    if known is not None:
        return known
    return await _admit(tx, conversation_id, "write", {"mode": "write", "entry": draft}, request_id)


async def _check_target(tx: BaseTx, conversation_id: int) -> None:
    leaving = tx.by_task is None and conversation_id in tx.core.unfinished
    if leaving or await tx.conversation(conversation_id) is None:
        raise UnknownRecord("conversation", conversation_id)


async def _check_owner(tx: BaseTx, conversation_id: int) -> None:
    """Refuse work under an owner that has ended or is about to: nobody would wait for it."""
    record = await tx.conversation(conversation_id)
    if record is not None and record.owner is not None:
        await tx.owner(record.owner.task_id)


async def _known_request(
    tx: BaseTx, conversation_id: int, kind: str, request_id: str | None
) -> SubmissionRecord | None:
    if request_id is None:
        return None
    check_request_id(request_id)
    known = await tx.submission_by_request(conversation_id, request_id)
    if known is not None and known.type != kind:
        raise RequestIdReused(f"request id {request_id!r} named a submission of another kind: {known.type}")
    return known


async def _admit(
    tx: BaseTx,
    conversation_id: int,
    kind: Literal["input", "write"],
    item: JsonObject,
    request_id: str | None,
    *,
    reject: bool = False,
) -> SubmissionRecord:
    await heal_run(tx, conversation_id)
    busy = "run" in await tx.doc(LiveDoc, conversation_id)
    if busy and reject:
        raise ConversationBusy(f"conversation {conversation_id} is busy")
    inbox = await tx.doc(InboxDoc, conversation_id)
    queued = busy or bool(inbox["items"])
    if queued:
        _check_room(tx, conversation_id, inbox["items"].to_json(), item)
    record = tx.put_submission(
        SubmissionRecord(
            id=tx.mint(), conversation_id=conversation_id, type=kind, status="queued", request_id=request_id
        )
    )
    if not queued:
        await _place_item(tx, {"id": record.id, **item})
        if kind == "input":
            await start_run(tx, conversation_id, [record.id], item.get("trace"))
        return record
    inbox["items"].append({"id": record.id, **item})
    if not busy:
        await final_boundary(tx, conversation_id)
    return record


def _check_room(tx: BaseTx, conversation_id: int, items: list[JsonObject], item: JsonObject) -> None:
    settings = tx.core.services.get(Settings)
    size = len(msgspec.json.encode(items)) + len(msgspec.json.encode(item))
    if len(items) >= settings.max_queued_submissions or size > settings.max_queued_bytes:
        raise InboxFull(tx.core.key, "conversation", conversation_id, len(items), size)


async def _place_item(tx: BaseTx, item: JsonObject) -> None:
    record = await _known(tx, item["id"])
    if item["mode"] == "write":
        await place_write(tx, record, item["entry"])
    else:
        await place(tx, record, item["content"], item.get("author"))


async def place(tx: BaseTx, record: SubmissionRecord, content: Json, author: str | None = None) -> None:
    """Append the entry of a queued input, with its author as data; from now on its run owes it an answer."""
    message = to_json(UserMessage(content="", timestamp=tx.core.clock.now())) | {"content": content}
    data = None if author is None else {"author": author}
    entry = await tx.append(UserEntry, data, model=[message], conversation_id=record.conversation_id)
    tx.put_submission(msgspec.structs.replace(record, status="placed", entry=entry.id))


async def start_run(tx: BaseTx, conversation_id: int, inputs: Sequence[int], trace: str | None = None) -> None:
    """Begin a run that answers ``inputs``; ``trace`` is where the first of them came from."""
    live = await tx.doc(LiveDoc, conversation_id)
    runner = tx.core.services.get(Runner)  # type: ignore[type-abstract]
    with under(run_place(tx.core.key, trace, inputs)):
        task = await runner.start(tx, conversation_id)
    traced = {} if trace is None else {"trace": trace, "since": tx.core.clock.now()}
    live["run"] = {"taskId": task, "inputs": list(inputs), **traced}


def _origin() -> JsonObject:
    """Say where in a trace an input comes from, if anybody traces."""
    place = here()
    return {} if place is None else {"trace": place}


# --- boundaries


def select(
    items: Sequence[JsonObject], boundary: Boundary, steering: QueueMode, follow_up: QueueMode
) -> list[JsonObject]:
    """Choose the queued items that a boundary places: all writes, then inputs, each in id order.

    Steers are taken after a tool round and at the final boundary, follow-ups at the final one; where a budget has paused the
    conversation, inputs wait.
    """
    taken = {"postTools": ("steer",), "final": ("steer", "followUp"), "paused": ()}[boundary]
    modes = {"steer": steering, "followUp": follow_up}
    inputs = [item for mode in taken for item in _first(items, mode, modes[mode])]
    return sorted(_first(items, "write", "all"), key=_item_id) + sorted(inputs, key=_item_id)


def _first(items: Iterable[JsonObject], mode: str, queue: QueueMode) -> list[JsonObject]:
    matching = [item for item in items if item["mode"] == mode]
    return matching if queue == "all" else matching[:1]


def _item_id(item: JsonObject) -> int:
    return int(item["id"])


class Placed(NamedTuple):
    """What a boundary has placed: the inputs that are now owed an answer, and whether a reset was among the writes."""

    inputs: list[int]
    reset: bool
    trace: str | None = None


async def place_selected(tx: BaseTx, conversation_id: int, boundary: Boundary) -> Placed:
    """Place what a boundary selects."""
    settings = tx.core.services.get(Settings)
    inbox = await tx.doc(InboxDoc, conversation_id)
    items: list[JsonObject] = inbox["items"].to_json()
    chosen = select(items, boundary, settings.steering_mode, settings.follow_up_mode)
    for item in chosen:
        await _place_item(tx, item)
    remove_items(inbox, {item["id"] for item in chosen})
    inputs = [item for item in chosen if item["mode"] in MODES.values()]
    traces = [item.get("trace") for item in inputs]
    return Placed([item["id"] for item in inputs], any(is_reset(item) for item in chosen), next(iter(traces), None))


def remove_items(inbox: Draft, ids: set[int]) -> None:
    """Take items out of an inbox, leaving the others as they are."""
    items = inbox["items"]
    for index in range(len(items) - 1, -1, -1):
        if items[index]["id"] in ids:
            del items[index]


async def after_tools(tx: BaseTx, conversation_id: int) -> bool:
    """Take what waits for the end of a tool round into the run; False when a reset has ended the run instead.

    A reset takes away what the run was answering, so its inputs get no answer and the boundary is a final one.
    """
    inbox = await tx.doc(InboxDoc, conversation_id)
    if any(is_reset(item) for item in inbox["items"].to_json()):
        await end_run(tx, conversation_id, "reset")
        await final_boundary(tx, conversation_id)
        return False
    paused = await pause(tx, conversation_id)
    placed = await place_selected(tx, conversation_id, "paused" if paused else "postTools")
    live = await tx.doc(LiveDoc, conversation_id)
    live["run"]["inputs"].extend(placed.inputs)
    return True


async def final_boundary(tx: BaseTx, conversation_id: int) -> Placed:
    """Where a run has ended, or none was: place what waits for that and begin a run for the inputs among it."""
    paused = await pause(tx, conversation_id)
    placed = await place_selected(tx, conversation_id, "paused" if paused else "final")
    if placed.inputs:
        await start_run(tx, conversation_id, placed.inputs, placed.trace)
    return placed


async def resume(tx: BaseTx, conversations: Iterable[int]) -> None:
    """Go on with what waits in conversations that a budget had paused, unless they are busy or another one pauses them."""
    for conversation in conversations:
        if await tx.conversation(conversation) is None:
            continue
        await heal_run(tx, conversation)
        inbox = await tx.doc(InboxDoc, conversation)
        if inbox["items"] and "run" not in await tx.doc(LiveDoc, conversation):
            await final_boundary(tx, conversation)


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
    run = live["run"].to_json()
    end_span(tx, conversation_id, run, reason)
    for name in ("run", "generation", "tools"):
        live.pop(name, None)
    await settle_inputs(tx, run["inputs"], unanswered(reason, detail))


async def heal_run(tx: BaseTx, conversation_id: int) -> None:
    """End a run that nobody answers any more: its task has ended without doing so, as it may if cleaning up after it failed."""
    live = await tx.doc(LiveDoc, conversation_id)
    if "run" not in live or tx.core.forest.is_live(live["run"]["taskId"]):
        return
    record = await tx.task(live["run"]["taskId"])
    log.error("run_without_task", session=tx.core.key, conversation=conversation_id, task=live["run"]["taskId"])
    await end_run(tx, conversation_id, *why_unanswered(record))


async def withdraw(tx: BaseTx, submission_id: int, conversation_id: int | None = None) -> Withdrawal:
    """Take a queued submission back: it ends unanswered, ``aborted``. Anything further on stays as it is, and is named.

    One of another conversation than the named one is not found.
    """
    record = await tx.submission(submission_id)
    if record is None or conversation_id not in (None, record.conversation_id):
        return "not_found"
    if record.settled:
        return "settled"
    if record.status == "placed":
        return "already_placed"
    remove_items(await tx.doc(InboxDoc, record.conversation_id), {submission_id})
    tx.put_submission(unanswered("aborted")(record))
    return "aborted"


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
