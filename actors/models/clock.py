"""Time as this room needs it: something that tells milliseconds and can wait for them."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time; tests hand in one that stands still or jumps."""

    def now(self) -> int:
        """Milliseconds since 1970."""

    async def sleep_until(self, at: int, /) -> None:
        """Return once `now()` has reached `at` (milliseconds since 1970), at once when it has passed."""


class WallClock:
    """The computer's own time."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, at: int, /) -> None:
        """Sleep on the running loop until `at` (milliseconds since 1970)."""
        await asyncio.sleep(max(0, at - self.now()) / 1000)
