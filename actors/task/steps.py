"""The decisions between phases and at reservation, as pure functions. Proved by tests/actors/task/test_steps.py."""

from typing import Any, Literal

import msgspec

from ...storage.records import JsonObject, Running, TaskRecord
from .definition import Task, encode

Mode = Literal["run", "abort"]
MAX_ERROR_TEXT = 4_000


class Blocked(msgspec.Struct, frozen=True):
    """No code can take the task now; it stays as it is. ``error`` is what a migration raised."""

    reason: Literal["missing_task", "task_too_old", "migration_failed"]
    error: str | None = None


class Stop(msgspec.Struct, frozen=True):
    """The invocation ends here."""


class Go(msgspec.Struct, frozen=True):
    """Run the handler of the stored checkpoint."""


class Fault(msgspec.Struct, frozen=True):
    """End the task as faulted."""

    message: str


def step(
    mode: Mode, record: TaskRecord | None, ran: JsonObject | None, error: BaseException | None
) -> Stop | Go | Fault:
    """Decide what an invocation does next, before its first phase (``ran`` is None) and after each.

    ``record`` is the live task's record (None: it has ended), ``ran`` the checkpoint whose handler just returned or
    raised ``error``. The order of the rules is their meaning: a handler that raises because it was told to stop is not
    at fault.
    """
    if record is None or not isinstance(record.state, Running):
        return Stop()
    if mode == "run" and record.abort_requested:
        return Stop()
    if ran is None:
        return Go()
    if error is not None:
        return Fault(error_text(error))
    if mode == "abort":
        return Fault("the abort handler returned without an outcome")
    if record.state.checkpoint == ran:
        return Fault("returned without durable progress")
    return Go()


def fit(record: TaskRecord, definition: Task[Any, Any] | None) -> TaskRecord | Blocked:
    """Give the record as the definition can take it, migrated if need be, or say why it cannot."""
    if definition is None:
        return Blocked("missing_task")
    if record.version > definition.version:
        return Blocked("task_too_old")
    if record.version == definition.version:
        return record
    return _migrate(record, definition)


def _migrate(record: TaskRecord, definition: Task[Any, Any]) -> TaskRecord | Blocked:
    state: Any = record.state
    try:
        given, phase = definition.migrate(record.input, state.checkpoint, record.version)
        definition.decode_state(encode(phase))
        moved = msgspec.structs.replace(state, checkpoint=encode(phase))
        return msgspec.structs.replace(record, version=definition.version, input=encode(given), state=moved)
    except Exception as error:  # noqa: BLE001
        return Blocked("migration_failed", error_text(error))


def error_text(error: BaseException) -> str:
    """Say what was raised, bounded, never blank."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - it is user code, too
        text = ""
    return (text or type(error).__name__)[:MAX_ERROR_TEXT].encode("utf-8", "replace").decode()
