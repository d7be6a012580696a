"""The output gate: one watermark, "durable up to n", that everything that leaves a session waits for.

Commits of a session become durable in order, so one integer says all. Proved by tests/actors/session/test_gate.py.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush


class Gate:
    """Waits for commit numbers to become durable; ``use`` is entered by whoever waits."""

    __slots__ = ("_calls", "_failure", "_order", "_use", "_waiting", "durable")

    def __init__(self, durable: int, use: AbstractContextManager[None] | None = None) -> None:
        self._use = nullcontext() if use is None else use
        self.durable = durable
        """The highest commit number that is known to be stored."""
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._calls: dict[int, list[Callable[[], object]]] = {}
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
        self._note(seq)
        self._waiting.setdefault(seq, []).append(opened)
        with self._use:
            await opened

    def call(self, seq: int, callback: Callable[[], object]) -> None:
        """Call ``callback`` when commit ``seq`` is durable, which may be now; never if that can no longer be known."""
        if seq <= self.durable:
            callback()
        elif self._failure is None:
            self._note(seq)
            self._calls.setdefault(seq, []).append(callback)

    def _note(self, seq: int) -> None:
        if seq not in self._waiting and seq not in self._calls:
            heappush(self._order, seq)

    def advance(self, seq: int) -> None:
        """Declare everything up to ``seq`` durable."""
        self.durable = seq
        while self._order and self._order[0] <= seq:
            at = heappop(self._order)
            for opened in self._waiting.pop(at, ()):
                if not opened.done():
                    opened.set_result(None)
            for callback in self._calls.pop(at, ()):
                callback()

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Let every wait for something not yet durable, now and later, raise an error made by ``failure``."""
        self._failure = failure
        for opened in [one for waiting in self._waiting.values() for one in waiting]:
            if not opened.done():
                opened.set_exception(failure())
        self._waiting.clear()
        self._calls.clear()
        self._order.clear()
