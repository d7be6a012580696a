"""Turns at a file: whoever reads a file to change it has it for itself, in the whole process, on whichever loop it runs.

Proved by tests/actors/tools/test_queues.py.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress

_lock = threading.Lock()
_waiting: dict[Hashable, deque["asyncio.Future[None]"]] = {}
"""Who waits for a key's turn; a key is in it while somebody has the turn."""


@asynccontextmanager
async def turn(key: Hashable) -> AsyncIterator[None]:
    """Have the turn at a key for the time of a block; in the order of asking."""
    own: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with _lock:
        if key in _waiting:
            _waiting[key].append(own)
        else:
            _waiting[key] = deque()
            own.set_result(None)
    try:
        await own
    except BaseException:
        _give_up(key, own)
        raise
    try:
        yield
    finally:
        _pass_on(key)


def _give_up(key: Hashable, own: "asyncio.Future[None]") -> None:
    """Leave the queue, or if the turn has come meanwhile, pass it on."""
    with _lock:
        queue = _waiting.get(key, deque())
        queued = own in queue
        if queued:
            queue.remove(own)
    if not queued:
        _pass_on(key)


def _pass_on(key: Hashable) -> None:
    """Give the turn to the next whose loop still runs."""
    with _lock:
        queue = _waiting[key]
        while queue:
            following = queue.popleft()
            with suppress(RuntimeError):
                following.get_loop().call_soon_threadsafe(_wake, following)
                return
        del _waiting[key]


def _wake(following: "asyncio.Future[None]") -> None:
    if not following.done():
        following.set_result(None)
