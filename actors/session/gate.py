"""The output gate: one watermark, "durable up to n", that everything that leaves a session waits for.

Commits of a session become durable in order, so one integer says all. Proved by tests/actors/session/test_gate.py.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush


class Gate:
    """Waits for commit numbers to become durable; ``use`` is entered by whoever waits."""

    __slots__ = ("_failure", "_order", "_use", "_waiting", "durable")

    def __init__(self, durable: int, use: AbstractContextManager[None] | None = None) -> None:
        self._use = nullcontext() if use is None else use
        self.durable = durable
        """The highest commit number that is known to be stored."""
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._order: list[int] = []
        """The numbers that are waited for, as a heap: thousands may wait, and each commit looks."""
        self._failure: Callable[[], Exception] | None = None

    async def wait(self, seq: int) -> None:
        """Return when commit ``seq`` is durable; raise the session's failure if that can no longer be known."""
        if seq <= self.durable:
            return
        if self._failure is not None:
            raise self._failure()
        opened = asyncio.get_running_loop().create_future()
        if seq not in self._waiting:
            self._waiting[seq] = []
            heappush(self._order, seq)
        self._waiting[seq].append(opened)
        with self._use:
            await opened

    def advance(self, seq: int) -> None:
        """Declare everything up to ``seq`` durable."""
        self.durable = seq
        while self._order and self._order[0] <= seq:
            for opened in self._waiting.pop(heappop(self._order)):
                if not opened.done():
                    opened.set_result(None)

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Let every wait for something not yet durable, now and later, raise an error made by ``failure``."""
        self._failure = failure
        for opened in [one for waiting in self._waiting.values() for one in waiting]:
            if not opened.done():
                opened.set_exception(failure())
        self._waiting.clear()
        self._order.clear()
