"""A clock that moves only when told to, or when nothing else can happen. For tests, perdure's and users'.

Proved by tests/actors/runtime/test_virtual_clock.py.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from .clock import Timer, TimerQueue, run_timer, wait_for_timer

EPOCH_MS = 1_700_000_000_000
"""Where virtual time starts by default: 14 November 2023, 22:13:20 UTC."""

QUIET_S = 0.004
"""Real seconds without any input or output before an idle loop's clock jumps."""


class VirtualClock:
    """Time under the test's control.

    ``advance(seconds)`` moves it by hand. With ``autojump=True`` it also moves by itself, as far as the next timer,
    whenever its loop has nothing to run and nothing from outside (a socket, a helper thread) has arrived for ``quiet_s``
    real seconds: a test that sleeps for an hour takes no time, and what happens in that hour happens in order. While a
    ``hold`` says so it does not jump, however long that takes: an actor system holds it while storage work is in flight.

    Autojump needs asyncio's own selector loop; it cannot see when uvloop is idle.
    """

    def __init__(self, start_ms: int = EPOCH_MS, *, autojump: bool = False, quiet_s: float = QUIET_S) -> None:
        self._start_ms = start_ms
        self._elapsed_ms = 0.0  # small numbers: an epoch in a float leaves no room for microseconds
        self._timers = TimerQueue()
        self._autojump = autojump
        self._quiet_s = quiet_s
        self._holds: list[Callable[[], bool]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> int:
        """Virtual milliseconds since the epoch. Any thread."""
        return self._start_ms + int(self._elapsed_ms)

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made. Any thread."""
        return self._elapsed_ms / 1000

    def next_due(self) -> int | None:
        """When the next timer is due, in virtual milliseconds since the epoch; None if there is none."""
        due = self._timers.next_due()
        return None if due is None else self._start_ms + int(due)

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> Timer:
        """Call ``callback()`` once virtual time has reached ``when_ms``. Loop thread.

        One that is due already runs in the next turn of the running loop, or at the next ``advance``.
        """
        return self._add(when_ms - self._start_ms, callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback()`` after ``delay_s`` virtual seconds. Loop thread."""
        return self._add(self._elapsed_ms + delay_s * 1000, callback)

    async def sleep_until(self, when_ms: int) -> None:
        """Return once virtual time has reached ``when_ms``."""
        await wait_for_timer(lambda callback: self.call_at(when_ms, callback))

    async def sleep(self, delay_s: float) -> None:
        """Return after ``delay_s`` virtual seconds."""
        await wait_for_timer(lambda callback: self.call_later(delay_s, callback))

    def advance(self, seconds: float) -> None:
        """Move time and run what falls due on the way, in order, each at its own time. Loop thread.

        Tasks that the timers wake run after this returns, at the new time; to let them run in between, advance in
        steps, or let the clock jump.
        """
        target_ms = self._elapsed_ms + seconds * 1000
        while (due := self._timers.next_due()) is not None and due <= target_ms:
            self._elapsed_ms = max(self._elapsed_ms, due)
            self._run_due()
        self._elapsed_ms = target_ms

    def jump(self) -> bool:
        """Move time to the next timer and run what is due then. Returns False when there is no timer. Loop thread."""
        due = self._timers.next_due()
        if due is None:
            return False
        self._elapsed_ms = max(self._elapsed_ms, due)
        self._run_due()
        return True

    def hold(self, busy: Callable[[], bool]) -> Callable[[], None]:
        """Do not jump by itself while ``busy()``: something real is under way that will wake the loop.

        Returns what ends the hold; call it once.
        """
        self._holds.append(busy)
        return lambda: self._holds.remove(busy)

    def may_jump(self) -> bool:
        """Whether there is a timer to jump to and nothing holds the clock."""
        return self._timers.next_due() is not None and not any(busy() for busy in self._holds)

    def _add(self, due_ms: float, callback: Callable[[], object]) -> Timer:
        timer = self._timers.add(due_ms, callback)
        loop = asyncio._get_running_loop()
        if loop is not None:
            if due_ms <= self._elapsed_ms:
                loop.call_soon(self._run_due)
            if self._autojump:
                self._watch(loop)
        return timer

    def _run_due(self) -> None:
        while (callback := self._timers.pop_due(self._elapsed_ms)) is not None:
            run_timer(callback)

    def _watch(self, loop: Any) -> None:
        if loop is self._loop:
            return
        selector = getattr(loop, "_selector", None)
        if selector is None:
            raise RuntimeError(f"expected asyncio's selector loop for autojump, got: {loop!r}; use advance() instead")
        loop._selector = _JumpingSelector(selector, self, self._quiet_s)
        self._loop = loop


class _JumpingSelector:
    """Stands before a loop's selector and learns from its calls when the loop is idle."""

    def __init__(self, selector: Any, clock: VirtualClock, quiet_s: float) -> None:
        self._selector = selector
        self._clock = clock
        self._quiet_s = quiet_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:  # something is ready to run
            return self._selector.select(timeout)
        # Never longer than that, also without a timer to jump to: returning early is harmless to the loop, and what is
        # behind this selector may be another clock's, whose jump made something ready to run.
        arrived = self._selector.select(self._quiet_s if timeout is None else min(timeout, self._quiet_s))
        if not arrived and self._clock.may_jump():
            self._clock.jump()
        return arrived
