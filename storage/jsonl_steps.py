"""Steps of an object's life that follow one another, each to its end, whoever stops waiting for it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class Steps:
    """Runs coroutines one at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._last: asyncio.Task[Any] | None = None

    def run(self, step: Callable[[], Coroutine[Any, Any, R]]) -> Awaitable[R]:
        """Run a step after those before it. Cancelling the caller does not cancel the step."""
        self._last = task = asyncio.ensure_future(_after(self._last, step))
        return asyncio.shield(task)


async def _after(before: "asyncio.Task[Any] | None", step: Callable[[], Coroutine[Any, Any, R]]) -> R:
    if before is not None and not before.done():
        await asyncio.wait([before])
    return await step()
