"""The decisions between phases and at reservation, as pure functions. Proved by tests/actors/task/test_steps.py."""

import math
from typing import Any, Literal

import msgspec

from ...storage.records import JsonObject, Running, TaskRecord, Waiting
from ...supervisors.restart import Restart, charge
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
    """End the task as faulted, unless its code ``crashed`` in a phase and its definition has the phase run again."""

    message: str
    crashed: bool = False


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
        return Fault(error_text(error), crashed=mode == "run")
    if mode == "abort":
        return Fault("the abort handler returned without an outcome")
    if record.state.checkpoint == ran:
        return Fault("returned without durable progress")
    return Go()


def restarted(record: TaskRecord, restart: Restart | None, now: int, random: float) -> TaskRecord | None:
    """Give the record of a task whose code has crashed as it waits for its next try, or None when it has had them all.

    What it waits for is stored, so the backoff costs no memory and the count outlives the process. ``now`` is in ms;
    ``random`` lies in [0, 1).
    """
    if restart is None or not isinstance(record.state, Running):
        return None
    history = charge(restart.intensity, [at / 1_000 for at in record.restarts or ()], now / 1_000)
    if history is None:
        return None
    until = now + math.ceil(restart.backoff.delay_s(len(history), random) * 1_000)
    waiting = Waiting(checkpoint=record.state.checkpoint, on=[], policy="allSettled", until=until)
    return msgspec.structs.replace(record, state=waiting, restarts=[round(at * 1_000) for at in history])


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
