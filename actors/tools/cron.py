"""When a schedule comes due: cron text in a time zone, and what to do about due times that were missed. No I/O.

Cron text has five fields, as Debian's cron reads them. Times are ms since the epoch. Where a zone's clock is set forward, a
fixed time that it skips comes due at the moment in which it jumps; where it is set back, a fixed time comes due the first
time that the clock shows it. Text with ``*`` as minute or hour keeps to what the clock shows: nothing in the hour that is
skipped, twice in the one that is doubled. Proved by tests/actors/tools/test_cron.py.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from ...chord import PerdureError

CatchUp = Literal["skip", "once", "all"]
"""What becomes of due times at which nobody was awake: none of them, the newest, or each (the newest of very many)."""
ON_TIME_MS = 60_000
"""How late a due time may be acted on without having been missed: so precise is a clock after its machine slept."""
LEEWAY = timedelta(days=1)
"""More than any zone's clock is ever set by: backward and forward search agree beyond it."""


class InvalidSchedule(PerdureError, ValueError):
    """What was asked for says no time at which it could come due, or cannot be scheduled. Nothing was stored."""


def zone_of(name: str) -> ZoneInfo:
    """Give a time zone by its name in the zone database. Raises InvalidSchedule."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):  # a folder's name, a path, no text at all
        raise InvalidSchedule(f'expected a time zone such as "Europe/Berlin" or "UTC", got: {name!r}') from None


def parse_time(said: str, zone: str) -> int:
    """Read a time in ISO 8601; one without an offset is what the zone's clock shows. Raises InvalidSchedule."""
    try:
        when = datetime.fromisoformat(said)
    except (ValueError, TypeError):
        raise InvalidSchedule(f'expected a time such as "2026-12-24T18:00" or with an offset, got: {said!r}') from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=zone_of(zone))
    return _ms(when)


def show_time(when: int, zone: str) -> str:
    """Show a time as a zone's clock does, in ISO 8601 with its offset."""
    return datetime.fromtimestamp(when / 1_000, zone_of(zone)).isoformat(timespec="seconds")


class Cron:
    """Cron text and a zone. Raises InvalidSchedule for text that cannot be read or never comes due."""

    def __init__(self, text: str, zone: str) -> None:
        self._zone = zone_of(zone)
        self._text = text
        if not isinstance(text, str) or len(text.split()) != 5:
            raise InvalidSchedule(
                f'expected cron text with five fields, such as "0 9 * * mon-fri" (minute, hour, day, month, weekday), '
                f"got: {text!r}"
            )
        try:
            CronSim(text, datetime.now(UTC))
        except CronSimError as error:
            raise InvalidSchedule(f"cron text {text!r} cannot be read: {error}") from None

    def after(self, when: int) -> int | None:
        """Give the first due time after ``when``; None if there is none within 50 years."""
        return next(self._from(when), None)

    def newest(self, after: int, until: int, limit: int) -> list[int]:
        """Give the newest due times after ``after`` and not after ``until``, ``limit`` at most, oldest first.

        The cost is that of ``limit`` due times and those of two days, however long ago ``after`` is.
        """
        start = max(after, self._back(after, until, limit))
        found = list(takewhile(lambda tick: tick <= until, self._from(start)))
        return found[-limit:]

    def _from(self, when: int) -> Iterator[int]:
        """Due times after a moment. In an hour that is doubled the library may begin with some before it."""
        found = (_ms(tick) for tick in CronSim(self._text, self._local(when)))
        return (tick for tick in found if tick > when)

    def _back(self, after: int, until: int, limit: int) -> int:
        """A moment before the newest ``limit`` due times in a span, as far as there are so many."""
        backwards = takewhile(lambda tick: _ms(tick) > after, CronSim(self._text, self._local(until), reverse=True))
        ticks = list(islice(backwards, limit))
        return after if len(ticks) < limit else _ms(ticks[-1] - LEEWAY)

    def _local(self, when: int) -> datetime:
        return datetime.fromtimestamp(when // 1_000, self._zone)


class Firing(msgspec.Struct, frozen=True):
    """A due time to act on, and how many earlier ones that were missed it stands for."""

    tick: int
    missed: int = 0


def firings(ticks: Sequence[int], now: int, rule: CatchUp) -> list[Firing]:
    """Decide what to act on of the due times that have come (oldest first) by the catch-up rule."""
    if not ticks:
        return []
    if rule == "all":
        return [Firing(tick) for tick in ticks]
    if rule == "skip" and now - ticks[-1] > ON_TIME_MS:
        return []
    return [Firing(ticks[-1], len(ticks) - 1)]


def _ms(when: datetime) -> int:
    try:
        return round(when.timestamp() * 1_000)
    except (OverflowError, ValueError):
        raise InvalidSchedule(f"out of range: {when}") from None
