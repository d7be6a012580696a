"""Who hears of a session's commits. Some outlive its incarnation: those who only watch keep no session in memory.

When a session is passivated its watchers wait beside it, and its next incarnation, which begins where the last one ended,
takes them in again: they miss nothing, since nobody can commit in between.
Proved by tests/actors/session/test_passivation.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from .publication import Publication

if TYPE_CHECKING:
    from .core import SessionCore

log = structlog.get_logger("perdure.session")

Listener = Callable[[Publication], None]
Moved = Callable[["SessionCore | None"], None]
"""Called with None when the session leaves memory, and with its next incarnation."""


class Subscription:
    """One who hears of commits, and is told when there will be no more."""

    __slots__ = ("ended", "home", "listener", "moved")

    def __init__(self, listener: Listener, ended: Callable[[], None], moved: Moved | None) -> None:
        self.listener = listener
        self.ended = ended
        self.moved = moved
        self.home: Subscribers | None = None

    def dispose(self) -> None:
        """Hear no more, wherever the session is now."""
        if self.home is not None:
            self.home.remove(self)


class Subscribers:
    """All who hear of one session; ``emptied`` is called when the last of them has gone."""

    def __init__(self, emptied: Callable[[], object] = lambda: None) -> None:
        self._all: dict[Subscription, None] = {}
        self._emptied = emptied

    def __len__(self) -> int:
        return len(self._all)

    @property
    def watchers(self) -> int:
        """How many outlive an incarnation."""
        return sum(one.moved is not None for one in self._all)

    def add(self, one: Subscription) -> None:
        """Take somebody in."""
        self._all[one] = None
        one.home = self

    def remove(self, one: Subscription) -> None:
        """Let somebody go."""
        self._all.pop(one, None)
        one.home = None
        if not self._all:
            self._emptied()

    def publish(self, session: str, publication: Publication) -> None:
        """Tell everybody of a commit; what one of them raises concerns nobody else."""
        for one in list(self._all):
            try:
                one.listener(publication)
            except Exception:
                log.exception("listener_failed", session=session, seq=publication.seq)

    def end(self) -> None:
        """Tell everybody that there will be no more."""
        everybody, self._all = self._all, {}
        for one in everybody:
            one.home = None
            one.ended()

    def move(self, home: "Subscribers", core: "SessionCore | None") -> None:
        """Have those who outlive an incarnation live elsewhere."""
        for one in [one for one in self._all if one.moved is not None]:
            del self._all[one]
            home.add(one)
            if one.moved is not None:
                one.moved(core)


class Dormant:
    """Those who wait for sessions that are not in memory, and how far each of these was."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, Subscribers]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, core: "SessionCore") -> None:
        """Keep those who outlive an incarnation that is about to leave memory."""
        key = core.key
        waiting = Subscribers(lambda: self._waiting.pop(key, None))
        core.subscribers.move(waiting, None)
        if waiting:
            self._waiting[key] = (core.seq, waiting)

    def wake(self, core: "SessionCore") -> None:
        """Have them go on with the next incarnation; they end if it does not begin where the last one has ended."""
        seq, waiting = self._waiting.pop(core.key, (0, None))
        if waiting is not None and seq == core.gate.durable:
            waiting.move(core.subscribers, core)
        elif waiting is not None:
            waiting.end()

    def end(self, key: str) -> None:
        """End those who wait for a session that is no more."""
        _, waiting = self._waiting.pop(key, (0, None))
        if waiting is not None:
            waiting.end()

    def end_all(self) -> None:
        """End everybody."""
        for key in list(self._waiting):
            self.end(key)
