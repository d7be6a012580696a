"""A session's state in a few figures, taken from what it keeps in memory. Proved by tests/actors/test_inspect.py."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from ..session.core import SessionCore
from .engine import Engine
from .graph import tag


class SessionFigures(msgspec.Struct, frozen=True):
    """How an active session fares. ``idle_s`` is for how long nobody has used it, 0 while somebody does."""

    tasks: dict[str, int]
    """Its live tasks by status."""
    invocations: int
    """How many of them run code now."""
    blocked: dict[int, str]
    """The tasks that no installed code can take, and why."""
    undurable: int
    """Records that are on their way to storage."""
    watchers: int
    """What is watched of it: documents, views of conversations, its task graph."""
    restarts: int
    """How often it, or an invocation of its tasks, has crashed since it was activated."""
    idle_s: float


def figures(core: SessionCore, restarts: int) -> SessionFigures:
    """Look at one active session."""
    engine = cast("Engine", core.scheduler)
    return SessionFigures(
        tasks=dict(Counter(tag(record.state) for record in core.forest)),
        invocations=len(engine.invocations),
        blocked={task: blocked.reason for task, blocked in engine.blocked.items()},
        undurable=core.pending.writes,
        watchers=core.subscribers.watchers,
        restarts=restarts,
        idle_s=core.clock.monotonic() - core.use.last if core.idle else 0.0,
    )


def restarts_by_session(actors: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Count the restarts below each session's guard in a tree of actors."""
    guards = (one for one in _walk(actors) if one["id"].startswith("guard:"))
    return {guard["id"].removeprefix("guard:"): _restarts(guard["children"]) for guard in guards}


def _restarts(actors: Sequence[dict[str, Any]]) -> int:
    return sum(one["restarts"] for one in _walk(actors))


def _walk(actors: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    stack = list(actors)
    while stack:
        one = stack.pop()
        yield one
        stack.extend(one["children"])
