"""A limit on how long a tool may take, on the system's clock. Proved by tests/actors/agent/test_timelimit.py."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from ..runtime import Clock
from .errors import ToolTimeout
from .threads import Outcome

log = structlog.get_logger("perdure.agent")

GRACE_S = 5.0
"""How long code that was cancelled may take for its clean-up before it is left behind."""


async def within(clock: Clock, limit_s: float | None, work: Coroutine[Any, Any, Any]) -> Any:
    """Return what ``work`` returns and raise what it raises. Raises ToolTimeout when it has not ended in time.

    Then it is cancelled, and left behind if it goes on all the same. Cancelling this cancels it, too.
    """
    if limit_s is None:
        return await work
    task = asyncio.ensure_future(_outcome(work))
    try:
        if not await _ends(clock, limit_s, task):
            task.cancel()
            if not await _ends(clock, GRACE_S, task):
                log.warning("tool_ignores_cancel", limit_s=limit_s)
            raise ToolTimeout(f"did not end within {limit_s:g} s")
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    result, error = task.result()
    if error is not None:
        raise error
    return result


async def _outcome(work: Coroutine[Any, Any, Any]) -> Outcome:
    """Hand on what was raised as a value: not everything that a tool may raise can pass through an asyncio task."""
    try:
        return await work, None
    except BaseException as error:  # noqa: BLE001
        return None, error


async def _ends(clock: Clock, limit_s: float, task: "asyncio.Task[Outcome]") -> bool:
    """Wait for the task's end, for a while."""
    over = asyncio.Event()
    timer = clock.call_later(limit_s, over.set)
    task.add_done_callback(lambda _: over.set())
    try:
        await over.wait()
    finally:
        timer.cancel()
    return task.done()
