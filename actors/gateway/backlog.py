"""What waits for one client's turn, without the values that it leads to.

A watch keeps the value of every frame that waits, and each holds a text of its own while an answer streams. So a client's watch
is emptied at once into a backlog, which keeps operations only: at most ``MAX_BATCHES`` of ``MAX_BYTES``, then one replacement by
the newest value in the place of them all. Proved by tests/actors/gateway/test_following.py.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

MAX_BATCHES = 100
MAX_BYTES = 256 * 2**10

Batch = list[Any]


class Backlog:
    """Batches in order, from one who never waits to one who takes his time."""

    def __init__(self) -> None:
        self._batches: deque[tuple[Batch, int]] = deque()
        self._bytes = 0
        self._ended = False
        self._stirred = asyncio.Event()

    def put(self, batch: Batch, replace: Callable[[], Batch]) -> None:
        """Add a batch; if that is one too many, ``replace()`` takes the place of them all. Sizes count only when some wait."""
        size = len(msgspec.json.encode(batch)) if self._batches else 0
        if len(self._batches) >= MAX_BATCHES or self._bytes + size > MAX_BYTES:
            self._batches.clear()
            batch, size, self._bytes = replace(), 0, 0
        self._batches.append((batch, size))
        self._bytes += size
        self._stirred.set()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._stirred.set()

    async def take(self) -> Batch | None:
        """Give the next batch; None when there will be none any more."""
        while not self._batches and not self._ended:
            self._stirred.clear()
            await self._stirred.wait()
        if not self._batches:
            return None
        batch, size = self._batches.popleft()
        self._bytes -= size
        return batch


@asynccontextmanager
async def filled(fill: Callable[[Backlog], Any]) -> AsyncIterator[Backlog]:
    """Give a backlog that a task fills as long as the block lasts; it ends when the task does. Raises what that raised."""
    backlog = Backlog()
    filling = asyncio.get_running_loop().create_task(fill(backlog))
    filling.add_done_callback(lambda _: backlog.end())
    try:
        yield backlog
        await filling
    finally:
        filling.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await filling
