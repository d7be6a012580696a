"""Throttled commits of progress: at most one in flight, at most one each interval.

Proved by tests/actors/agent/test_pump.py.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context

import structlog

from ...chord import PerdureError
from ..runtime import Clock

log = structlog.get_logger("perdure.agent")


class Pump:
    """Calls ``flush`` after ``touch``, not more often than each ``interval_ms``, the first time after ``delay_ms``.

    ``stop`` waits for a flush in flight, so that nothing stale lands after what follows it.
    """

    def __init__(
        self, clock: Clock, interval_ms: int, flush: Callable[[], Awaitable[None]], *, delay_ms: int = 0
    ) -> None:
        self._clock = clock
        self._interval = interval_ms
        self._flush = flush
        self._next = clock.now() + delay_ms
        self._dirty = asyncio.Event()
        self._context = copy_context()  # whoever touches first may hold a session's line
        self._stopped = False
        self._pause: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._task: asyncio.Task[None] | None = None

    def touch(self) -> None:
        """Say that there is something to flush. Any thread."""
        if threading.get_ident() == self._thread:
            self._touch()
        elif not self._dirty.is_set():
            self._loop.call_soon_threadsafe(self._touch)

    def _touch(self) -> None:
        self._dirty.set()
        if self._task is None and not self._stopped:
            self._task = self._loop.create_task(self._run(), context=self._context)

    async def stop(self) -> None:
        """End; what has not been flushed is dropped, a flush in flight is waited for."""
        self._stopped = True
        self._dirty.set()
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._stopped:
            await self._dirty.wait()
            if not await self._due():
                return
            self._dirty.clear()
            try:
                await self._flush()
            except PerdureError:
                return  # the session or the invocation has ended: whoever runs the task learns it from its own commit
            except Exception:
                log.exception("progress_failed")  # it is shown no more; what ends the work decides what becomes of it
                return
            self._next = self._clock.now() + self._interval

    async def _due(self) -> bool:
        """Wait for the time of the next flush; False when stopped meanwhile."""
        if not self._stopped and self._next > self._clock.now():
            self._pause = asyncio.ensure_future(self._clock.sleep_until(self._next))
            await asyncio.wait([self._pause])
        return not self._stopped
