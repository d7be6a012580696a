"""The timer actor: one sleeping timer for any number of stored deadlines.

Deadlines of inactive sessions are found through storage's index when the earliest of them has come; active ones tell
theirs, each the earliest that it has. Proved by tests/actors/session/test_timer.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog

from ...chord import PerdureError
from ...storage.contract import Storage
from ...storage.errors import StorageError
from ...supervisors.deadlines import Deadlines
from ..runtime import Actor, Timer
from .outside import waiting_outside

log = structlog.get_logger("perdure.session")

PAGE = 256
RETRY_MS = 1_000
"""How long after a failed look at storage the next one comes."""

_FIRE = object()


class Wake:
    """Says when a session's earliest deadline is (ms since the epoch); None: it has none."""

    __slots__ = ("key", "when")

    def __init__(self, key: str, when: int | None) -> None:
        self.key = key
        self.when = when


class Asleep(Wake):
    """Says that a session has left memory with its deadline stored: nobody will tell of it again."""

    __slots__ = ()


class Look:
    """Says that nobody who was woken before is awake any more: the sessions have come up anew."""


class TimerActor(Actor):
    """Wakes sessions when their time has come."""

    def __init__(self, storage: Storage, wake: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._storage = storage
        self._wake = wake
        self._told: Deadlines[str] = Deadlines()
        self._stored: int | None = 0
        """The earliest deadline in storage that lay ahead when it was last asked; 0 before that."""
        self._timer: Timer | None = None
        self._armed: int | None = None

    async def on_start(self) -> None:
        """Look for work that the last process left, and for the next deadline."""
        self.actor_ref.tell(_FIRE)

    def on_receive(self, message: Any) -> Any:
        """Take deadlines; wake whoever is due."""
        if isinstance(message, Asleep):
            self._leave_to_storage(message)
            return None
        if isinstance(message, Wake):
            self._hear(message)
            return None
        if isinstance(message, Look):
            self._stored = 0
        return self._fire()

    def _hear(self, wake: Wake) -> None:
        if wake.when is None:
            self._told.drop(wake.key)
        else:
            self._told.set(wake.key, wake.when)
            self._arm()

    def _leave_to_storage(self, asleep: Asleep) -> None:
        self._told.drop(asleep.key)
        if asleep.when is not None and (self._stored is None or asleep.when < self._stored):
            self._stored = asleep.when
        self._arm()

    @property
    def next(self) -> int | None:
        """When a session must next be woken (ms since the epoch; 0: storage was not asked yet), as far as it was told."""
        return min((when for when in (self._stored, self._told.first()) if when is not None), default=None)

    async def _fire(self) -> None:
        self._armed = None
        now = self.clock.now()
        due = dict.fromkeys(self._told.take_due(now))
        await self._wake_all(due)
        if self._stored is not None and self._stored <= now:
            self._stored = await self._look(now, due)
        self._arm()

    async def _look(self, now: int, woken: dict[str, None]) -> int | None:
        """Wake whoever is due in storage; tell when to look there again."""
        try:
            await self._wake_stored(now, woken)
            with waiting_outside(self):
                return await self._storage.next_wake(after=now)
        except StorageError as error:
            log.warning("deadlines_unreadable", error=repr(error))
            return now + RETRY_MS

    async def _wake_stored(self, now: int, woken: dict[str, None]) -> None:
        """Wake page after page; those that were woken stay in storage's list until their next commit."""
        while True:
            with waiting_outside(self):
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
        soonest = self.next
        if soonest is None or (self._armed is not None and self._armed <= soonest):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = soonest
        self._timer = self.clock.call_at(self._armed, self._due)

    def _due(self) -> None:
        if self.actor_ref.is_alive():
            self.actor_ref.tell(_FIRE)

    def on_stop(self) -> None:
        """Leave no timer behind."""
        if self._timer is not None:
            self._timer.cancel()
