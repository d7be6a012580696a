"""The current tool round as ``pi.live.tools`` shows it. Proved by tests/actors/agent/test_tooltask.py."""

from typing import Any

from ...chord import Draft
from ...storage.records import JsonObject
from ..conversation.builtin import Diagnostic, LiveDoc
from ..session.tx import BaseTx
from .output import Bounded

PROGRESS = ("output", "droppedBytes", "droppedLines", "details", "diagnostics", "approval", "external")


async def slot_of(tx: BaseTx, conversation_id: int, task: int) -> Draft | None:
    """Give the draft of a task's slot, if the round still has it."""
    live = await tx.doc(LiveDoc, conversation_id)
    if "tools" not in live:
        return None
    return next((slot for slot in live["tools"] if slot.get("taskId") == task), None)


def clear_progress(slot: Draft) -> None:
    """Take away what a running call has shown."""
    for name in PROGRESS:
        slot.pop(name, None)


def show_progress(slot: Draft, shown: Bounded, details: Any, diagnostics: list[Diagnostic]) -> None:
    """Show a running call's output, details and diagnostics; only what changed is written."""
    values: JsonObject = {
        "output": shown.text or None,
        "droppedBytes": shown.dropped_bytes or None,
        "droppedLines": shown.dropped_lines or None,
        "details": details,
        "diagnostics": diagnostics or None,
    }
    for name, value in values.items():
        if value is not None and slot.get(name) != value:
            slot[name] = value


def finish(slot: Draft, entry: int | None) -> None:
    """Mark a call done; its result entry carries what it had shown."""
    clear_progress(slot)
    slot["status"] = "done"
    if entry is not None:
        slot["entry"] = entry
