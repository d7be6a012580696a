"""Writes: entries that are submitted instead of appended, so that they take their place at a boundary.

A write says nothing to the model by itself; it waits in ``pi.inbox`` like an input and is done when its entry is appended.
A head that came too late, because a later one has cut further meanwhile, is not appended: the write settles ``stale``.
Everything here runs inside a commit block. Proved by tests/actors/conversation/test_writes.py.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from ...storage.records import ContextEdit, EntryRecord, Json, JsonObject, SubmissionRecord
from ..models import UserMessage, to_json
from ..session.arguments import context_edits, messages, name, plain, whole
from ..session.tx import BaseTx, Entry
from .errors import SubmissionTooLarge

RESET = "pi.reset"


def write_draft(
    tx: BaseTx,
    kind: str | Entry[Any],
    data: Any = None,
    *,
    model: Sequence[JsonObject] | None = None,
    head: int | Literal["self"] | None = None,
    edits: Iterable[ContextEdit] | None = None,
    limit: int,
) -> JsonObject:
    """Check what is to be written as ``append`` would, and give it as JSON: nothing may fail when its turn comes.

    Raises InvalidValue, InvalidJson, SubmissionTooLarge.
    """
    record = EntryRecord(
        id=0,
        conversation_id=0,
        kind=name("an entry's kind", kind.kind if isinstance(kind, Entry) else kind),
        model=None if model is None else messages(model),
        data=plain(data),
        head=None if head is None or head == "self" else whole("head", head),
        edits=None if edits is None else context_edits(edits),
    )
    for check in tx.core.hooks.check_entry:
        check(record)
    draft: JsonObject = {"kind": record.kind} | ({"head": "self"} if head == "self" else {})
    for field in ("model", "data", "head", "edits"):
        value = getattr(record, field)
        if value is not None:
            draft[field] = msgspec.to_builtins(value)
    size = len(msgspec.json.encode(draft))
    if size > limit:
        raise SubmissionTooLarge(f"the submission has {size:,} bytes; the limit is {limit:,}")
    return draft


def reset_model(handoff: str | None, now: int) -> list[JsonObject] | None:
    """What a reset gives to the model: the text that is handed over, if it says anything, as a user's message."""
    return None if handoff is None or not handoff.strip() else [to_json(UserMessage(content=handoff, timestamp=now))]


def is_reset(item: JsonObject) -> bool:
    """Whether a queued item is a write that takes everything before it out of context."""
    return bool(item.get("entry", {}).get("head") == "self")


async def place_write(tx: BaseTx, record: SubmissionRecord, draft: JsonObject) -> None:
    """Append a written entry and settle its submission: done, or unanswered because its head is stale."""
    head: Json = draft.get("head")
    if isinstance(head, int) and head < await first_active(tx, record.conversation_id):
        tx.put_submission(msgspec.structs.replace(record, status="unanswered", reason="stale"))
        return
    entry = await tx.append(
        draft["kind"],
        draft.get("data"),
        conversation_id=record.conversation_id,
        model=draft.get("model"),
        head=head,
        edits=msgspec.convert(draft["edits"], list[ContextEdit]) if "edits" in draft else None,
    )
    tx.put_submission(msgspec.structs.replace(record, status="done", entry=entry.id))


async def first_active(tx: BaseTx, conversation_id: int) -> int:
    """Name the first entry that is in context as of this block's own writes; 0 when nothing has cut yet."""
    marker = next((row for row in reversed(list(tx.rows.values())) if _cuts(row, conversation_id)), None)
    if marker is None:
        await tx.core.drained()
        marker = await tx.core.storage.latest_head_marker(tx.core.key, conversation_id)
    return 0 if marker is None else int(getattr(marker, "head", 0))


def _cuts(row: object, conversation_id: int) -> bool:
    return isinstance(row, EntryRecord) and row.conversation_id == conversation_id and row.head is not None
