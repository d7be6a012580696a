"""Time, injectable: everything in perdure that waits, waits on a clock.

Deadlines are wall-clock milliseconds since the epoch, since they are stored and outlive the process; durations are
monotonic seconds. All timers belong to the thread of the loop that runs when they are set. Proved by
tests/actors/runtime/test_clock.py.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

from . import events

LONGEST_NAP_S = 60.0
"""How long the system clock trusts its loop's monotonic timer before it looks at the wall clock again."""


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Do not run it. Harmless when it ran or was cancelled. Loop thread."""


class Clock(Protocol):
    """What perdure knows of time."""

    def now(self) -> int:
        """Milliseconds since the epoch. May jump when somebody sets the machine's clock. Any thread."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back. Any thread."""

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> Timer:
        """Call ``callback()`` once ``now()`` has reached ``when_ms``, soon if it has already. Loop thread.

        Timers run in the order of their times, equal times in the order of their calls. What a callback raises is logged.
        """

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback()`` after ``delay_s`` monotonic seconds. Loop thread."""

    async def sleep_until(self, when_ms: int) -> None:
        """Return once ``now()`` has reached ``when_ms``, after at least one loop turn. Cancelling it leaves nothing behind."""

    async def sleep(self, delay_s: float) -> None:
        """Return after ``delay_s`` monotonic seconds, after at least one loop turn. Cancelling it leaves nothing behind."""


class TimerQueue:
    """Timers in the order in which they are due: one heap, O(log n) to add, O(1) to cancel.

    Units are the owner's. Cancelled timers are swept out when they are the majority, so they do not pile up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Entry]] = []
        self._order = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, when: float, callback: Callable[[], object]) -> Timer:
        """Queue ``callback`` for ``when``."""
        entry = _Entry(self, callback)
        heapq.heappush(self._heap, (when, next(self._order), entry))
        return entry

    def next_due(self) -> float | None:
        """When the first timer is due; None if there is none."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Callable[[], object] | None:
        """Take the first timer if it is due at ``now``."""
        due = self.next_due()
        if due is None or due > now:
            return None
        entry = heapq.heappop(self._heap)[2]
        callback, entry.callback = entry.callback, None
        return callback

    def discard(self) -> None:
        """Note that one timer was cancelled."""
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [item for item in self._heap if item[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0


class _Entry:
    __slots__ = ("_queue", "callback")

    def __init__(self, queue: TimerQueue, callback: Callable[[], object]) -> None:
        self._queue = queue
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._queue.discard()


def run_timer(callback: Callable[[], object]) -> None:
    """Run one timer's callback; the timers behind it run whatever it raises."""
    try:
        callback()
    except (SystemExit, KeyboardInterrupt):  # as asyncio's own timers: these end the loop
        raise
    except BaseException as exc:  # noqa: BLE001
        events.error(events.CALLBACK_FAILED, exc_info=exc)


async def wait_for_timer(set_timer: Callable[[Callable[[], object]], Timer]) -> None:
    """Sleep until the timer that ``set_timer(callback)`` sets runs."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = set_timer(wake)
    try:
        await waiter
    finally:
        timer.cancel()


class SystemClock:
    """The machine's clocks.

    Wall-clock timers share one loop timer. It naps for at most a minute, so a deadline is met within a minute after the
    machine slept or its clock was set, however far away the deadline was.
    """

    def __init__(self) -> None:
        self._timers = TimerQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nap: asyncio.TimerHandle | None = None

    def now(self) -> int:
        """Milliseconds since the epoch. Any thread."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Monotonic seconds. Any thread."""
        return time.monotonic()

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> Timer:
        """Call ``callback()`` once the wall clock has reached ``when_ms``. Loop thread."""
        self._bind(asyncio.get_running_loop())
        timer = self._timers.add(when_ms, callback)
        if self._timers.next_due() == when_ms:
            self._take_nap()
        return timer

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback()`` after ``delay_s`` monotonic seconds. Loop thread."""
        return asyncio.get_running_loop().call_later(delay_s, run_timer, callback)

    async def sleep_until(self, when_ms: int) -> None:
        """Return once the wall clock has reached ``when_ms``."""
        await wait_for_timer(lambda callback: self.call_at(when_ms, callback))

    async def sleep(self, delay_s: float) -> None:
        """Return after ``delay_s`` monotonic seconds."""
        await wait_for_timer(lambda callback: self.call_later(delay_s, callback))

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:  # timers of an earlier loop ended with it
            self._loop, self._nap, self._timers = loop, None, TimerQueue()

    def _take_nap(self) -> None:
        if self._nap is not None:
            self._nap.cancel()
            self._nap = None
        due = self._timers.next_due()
        if due is not None and self._loop is not None:
            nap_s = min(max(0.0, (due - self.now()) / 1000), LONGEST_NAP_S)
            self._nap = self._loop.call_later(nap_s, self._wake_up)

    def _wake_up(self) -> None:
        now = self.now()
        while (callback := self._timers.pop_due(now)) is not None:
            run_timer(callback)
        self._take_nap()
