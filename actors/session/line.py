"""The mutation line: one commit block of a session runs at a time, in order of arrival.

A baton, not a worker: whoever's turn it is runs its own block in its own task, so an uncontended commit costs no task,
no future and no turn of the loop. A waiter that is cancelled while the baton is on its way to it passes it on.
Proved by tests/actors/session/test_line.py.
"""

import asyncio
from collections import deque


class Line:
    """A FIFO lock whose ``release`` hands over directly."""

    __slots__ = ("_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for the baton."""
        if not self._held:
            self._held = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Hand the baton to the next waiter that is still there."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._held = False
