"""The mutation line: one commit block of a session runs at a time, in order of arrival.

A baton, not a worker: whoever's turn it is runs its own block in its own task, so an uncontended commit costs no task,
no future and no turn of the loop. A waiter that is cancelled while the baton is on its way to it passes it on.
Proved by tests/actors/session/test_line.py.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar

from .errors import LineReentry


class Hold:
    """That a block of some task holds a line; ``outer`` is the hold of another session's line around it."""

    __slots__ = ("line", "open", "outer")

    def __init__(self, line: "Line", outer: "Hold | None") -> None:
        self.line = line
        self.open = True
        self.outer = outer


_innermost: ContextVar[Hold | None] = ContextVar("perdure_line", default=None)


class Line:
    """A FIFO lock whose ``release`` hands over directly; ``freed`` is called when nobody wants it."""

    __slots__ = ("_freed", "_hold", "_waiting", "held")

    def __init__(self, freed: Callable[[], object] = lambda: None) -> None:
        self._freed = freed
        self.held = False
        """Whether somebody has the baton, or it is on its way to somebody."""
        self._hold: Hold | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for the baton. Raises LineReentry where waiting could never end: inside a block that holds it."""
        self.refuse_reentry()
        if self.held:
            await self._turn()
        self.held = True
        self._hold = Hold(self, _innermost.get())
        _innermost.set(self._hold)

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._hand_on()
            raise

    def refuse_reentry(self) -> None:
        """Raise LineReentry when the calling code runs inside a block that holds this line."""
        hold = _innermost.get()
        while hold is not None:
            if hold.open and hold.line is self:
                raise LineReentry("inside a commit block of a session nothing may wait for that session's line")
            hold = hold.outer

    def release(self) -> None:
        """Hand the baton to the next waiter that is still there."""
        if self._hold is not None:
            self._hold.open = False
            _innermost.set(self._hold.outer)
            self._hold = None
        self._hand_on()

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Let everybody who waits for the baton have an error made by ``failure`` instead: it may never come."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(failure())
        self._waiting.clear()

    def _hand_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.held = False
        self._freed()
