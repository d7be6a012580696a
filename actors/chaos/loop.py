"""An event loop without an outside: no sockets, no threads, no real time. What is ready runs in the order that a seed says.

asyncio promises that callbacks run in the order in which they became ready. A real system keeps that promise and still
takes its turns differently each time, since what comes from outside comes when it comes. Here everything that would come
from there, storage and models and hosts, takes seeded times; actors that are ready take seeded turns; and so do tasks that
wake up in the same moment. Proved by tests/actors/chaos/test_loop.py.
"""

import asyncio
from asyncio.events import Handle, TimerHandle
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any

from ..runtime import Timer, VirtualClock

BUSY_S = 0.0002
"""The most that passes between two looks at the processor's time."""


class Stalled(Exception):
    """Nothing can happen any more, and the work is not done: somebody waits for what will never come."""


class ProcessDied(BaseException):
    """Raised out of the loop where the process dies. Nothing that runs in it learns of that."""


class Turns(deque[Any]):
    """A queue whose next item is picked by the seed: the first one, or with the chance ``unrest`` any one."""

    def __init__(self, dice: Random, unrest: float) -> None:
        super().__init__()
        self._dice = dice
        self._unrest = unrest

    def popleft(self) -> Any:
        """Take the item whose turn it is."""
        if len(self) < 2 or self._dice.random() >= self._unrest:
            return super().popleft()
        at = int(self._dice.random() * len(self))
        item = self[at]
        del self[at]
        return item


class SimTimer(TimerHandle):
    """A timer of the loop, on the virtual clock."""

    __slots__ = ("timer",)
    timer: Timer
    _scheduled: bool


class SimLoop(asyncio.BaseEventLoop):
    """Runs one life of a process on a virtual clock, which moves when nothing is ready.

    ``unrest`` is how often the seed picks who runs next, instead of who came first: from 0.0, never, to 1.0. ``steps``
    counts callbacks; when it comes to ``dies_at`` the process dies.
    """

    def __init__(self, dice: Random, clock: VirtualClock, *, unrest: float = 0.5, dies_at: int | None = None) -> None:
        super().__init__()
        self.clock = clock
        self.steps = 0
        self.dies_at = dies_at
        self._dice = dice
        self._unrest = unrest
        self._ready: deque[Handle] = Turns(dice, unrest)  # where asyncio puts what is to be called
        self._plans: dict[int, Callable[[], None]] = {}
        self._busy_s = 0.0

    def at(self, step: int, action: Callable[[], None]) -> None:
        """Have ``action()`` called before a step that is still to come."""
        self._plans[step] = action

    def ready_queue(self) -> deque[Any]:
        """Make the queue in which ready actors wait (see ``runtime.scheduler``)."""
        return Turns(self._dice, self._unrest)

    def processor_time(self) -> float:
        """Seconds that pass as the seed says, so that the runtime's budgets of time end anywhere."""
        self._busy_s += self._dice.random() * BUSY_S
        return self._busy_s

    def time(self) -> float:
        """Virtual seconds."""
        return self.clock.monotonic()

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        """Call back at a virtual time."""
        handle = SimTimer(when, callback, args, self, context)
        handle._scheduled = True
        handle.timer = self.clock.call_later(max(0.0, when - self.time()), lambda: self._ready.append(handle))
        return handle

    def _timer_handle_cancelled(self, handle: SimTimer) -> None:
        handle.timer.cancel()

    def _run_once(self) -> None:
        while not self._ready:
            if not self.clock.jump():
                raise Stalled("nothing is ready, and no timer is set")
        self.steps += 1
        if self.steps == self.dies_at:
            raise ProcessDied
        plan = self._plans.pop(self.steps, None)
        if plan is not None:
            plan()
        handle = self._ready.popleft()
        if not handle._cancelled:
            handle._run()

    def _write_to_self(self) -> None:
        """Wake nobody: there is no selector."""

    def _process_events(self, event_list: Any) -> None:
        """Nothing comes from outside."""
