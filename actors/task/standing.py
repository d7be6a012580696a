"""How live tasks stand, for people who look: derived from records and what runs, never by running anything.

Proved by tests/actors/task/test_standing.py.
"""

from typing import Literal

import msgspec

from ...storage.records import Completing, TaskRecord, Waiting
from ...supervisors.settlement import turn
from .engine import Engine


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a live task does, or what it waits for.

    ``running``: its code runs. ``completing``: its outcome is held until ``on``, the nearest live work below, has ended.
    ``waiting``: for the live tasks ``on``, the time ``until`` (ms) or a message (``mail``); ``on`` of an aborted task is
    the work below that ends first. ``blocked``: no installed code can take it, for a ``reason``; ``error`` is what a
    migration raised. ``ready``: it runs next, by a migration if ``migrates``.
    """

    kind: Literal["running", "completing", "waiting", "blocked", "ready"]
    on: list[int] = []
    until: int | None = None
    mail: bool = False
    reason: str | None = None
    error: str | None = None
    migrates: bool = False


def standing(engine: Engine, record: TaskRecord) -> Standing:
    """Tell how a live task stands."""
    forest = engine.core.forest
    if record.id in engine.invocations:
        return Standing(kind="running")
    if isinstance(record.state, Completing):
        return Standing(kind="completing", on=sorted(forest.ownership.holds(record.id)))
    if turn(forest, record, engine.core.clock.now()) is None:
        return _waiting(engine, record)
    return _ready(engine, record)


def _waiting(engine: Engine, record: TaskRecord) -> Standing:
    forest = engine.core.forest
    if record.abort_requested:
        return Standing(kind="waiting", on=sorted(forest.ownership.holds(record.id)))
    if not isinstance(record.state, Waiting):  # below a cancelled owner, and about to be marked
        return Standing(kind="waiting")
    live = [task for task in dict.fromkeys(record.state.on) if forest.is_live(task)]
    return Standing(kind="waiting", on=live, until=record.state.until, mail=record.state.mail)


def _ready(engine: Engine, record: TaskRecord) -> Standing:
    blocked = engine.why_blocked(record)
    if blocked is not None:
        return Standing(kind="blocked", reason=blocked.reason, error=blocked.error)
    definition = engine.definitions.get(record.kind)
    return Standing(kind="ready", migrates=definition is not None and definition.version > record.version)
