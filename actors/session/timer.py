"""The timer actor: one sleeping timer for any number of stored deadlines.

Deadlines of inactive sessions are found through storage's index when the earliest of them has come; those of active ones
are told here as they are committed. Proved by tests/actors/session/test_timer.py.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog

from ...chord import PerdureError
from ...storage.contract import Storage
from ..runtime import Actor, Timer

log = structlog.get_logger("perdure.session")

PAGE = 256

_FIRE = object()


class Wake:
    """Says that a session has a deadline at ``when`` (ms since the epoch)."""

    __slots__ = ("key", "when")

    def __init__(self, key: str, when: int) -> None:
        self.key = key
        self.when = when


class Look:
    """Says that nobody who was woken before is awake any more: the sessions have come up anew."""


class TimerActor(Actor):
    """Wakes sessions when their time has come."""

    def __init__(self, storage: Storage, wake: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._storage = storage
        self._wake = wake
        self._told: list[tuple[int, str]] = []
        self._known: set[tuple[int, str]] = set()
        """What is in ``_told``: a session says its deadline with every commit."""
        self._stored: int | None = 0
        """The earliest deadline in storage that lay ahead when it was last asked; 0 before that."""
        self._timer: Timer | None = None
        self._armed: int | None = None

    async def on_start(self) -> None:
        """Look for work that the last process left, and for the next deadline."""
        self.actor_ref.tell(_FIRE)

    def on_receive(self, message: Any) -> Any:
        """Take deadlines; wake whoever is due."""
        if isinstance(message, Wake):
            self._hear(message)
            return None
        if isinstance(message, Look):
            self._stored = 0
        return self._fire()

    def _hear(self, wake: Wake) -> None:
        deadline = (wake.when, wake.key)
        if deadline not in self._known:
            self._known.add(deadline)
            heapq.heappush(self._told, deadline)
            self._arm()

    async def _fire(self) -> None:
        self._armed = None
        now = self.clock.now()
        due: dict[str, None] = {}
        while self._told and self._told[0][0] <= now:
            deadline = heapq.heappop(self._told)
            self._known.discard(deadline)
            due[deadline[1]] = None
        await self._wake_all(due)
        if self._stored is not None and self._stored <= now:
            await self._wake_stored(now, due)
            self._stored = await self._storage.next_wake(after=now)
        self._arm()

    async def _wake_stored(self, now: int, woken: dict[str, None]) -> None:
        """Wake page after page; those that were woken stay in storage's list until their next commit."""
        while True:
            listed = await self._storage.due(now, len(woken) + PAGE)
            new = dict.fromkeys(key for key in listed if key not in woken)
            if not new:
                return
            await self._wake_all(new)
            woken |= new

    async def _wake_all(self, keys: Iterable[str]) -> None:
        """Wake sessions. One that cannot be opened waits for somebody who asks for it, and holds up nobody else."""
        ends = await asyncio.gather(*(self._wake(key) for key in keys), return_exceptions=True)
        for key, end in zip(keys, ends, strict=True):
            if isinstance(end, PerdureError):
                log.warning("not_woken", session=key, error=repr(end))
            elif end is not None:
                raise end

    def _arm(self) -> None:
        soonest = [when for when in (self._stored, self._told[0][0] if self._told else None) if when is not None]
        if not soonest or (self._armed is not None and self._armed <= min(soonest)):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = min(soonest)
        self._timer = self.clock.call_at(self._armed, self._due)

    def _due(self) -> None:
        if self.actor_ref.is_alive():
            self.actor_ref.tell(_FIRE)

    def on_stop(self) -> None:
        """Leave no timer behind."""
        if self._timer is not None:
            self._timer.cancel()
