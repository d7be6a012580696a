"""Turns at a file: whoever reads a file to change it has it for itself, in the whole process, on whichever loop it runs.

Proved by tests/actors/tools/test_queues.py.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class _Waiter:
    """Somebody who has asked for a turn; a future wakes them on their own loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.woken: asyncio.Future[None] = self.loop.create_future()
        self.has_turn = False

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


_lock = threading.Lock()
_waiting: dict[Hashable, deque[_Waiter]] = {}
"""Who waits for a key's turn; a key is in it while somebody has the turn."""


@asynccontextmanager
async def turn(key: Hashable) -> AsyncIterator[None]:
    """Have the turn at a key for the time of a block; in the order of asking."""
    waiter = _Waiter()
    _ask(key, waiter)
    try:
        if not waiter.has_turn:
            await waiter.woken
        yield
    finally:
        _leave(key, waiter)


def _ask(key: Hashable, waiter: _Waiter) -> None:
    with _lock:
        if key in _waiting:
            _waiting[key].append(waiter)
        else:
            _waiting[key] = deque()
            waiter.has_turn = True


def _leave(key: Hashable, waiter: _Waiter) -> None:
    """Pass the turn on, or leave the queue if it has not come yet."""
    with _lock:
        if waiter.has_turn:
            _pass_on(key)
        elif waiter in _waiting.get(key, ()):
            _waiting[key].remove(waiter)


def _pass_on(key: Hashable) -> None:
    """Give the turn to the next whose loop still runs."""
    queue = _waiting[key]
    while queue:
        following = queue.popleft()
        try:
            following.loop.call_soon_threadsafe(following.wake)
        except RuntimeError:  # its loop has been closed
            continue
        following.has_turn = True
        return
    del _waiting[key]
