"""The active transcripts of busy conversations, kept in memory and grown by publications.

A request costs its new entries, not the transcript: entries are immutable, so every reader shares them, and what they say is
decoded once. Proved by tests/actors/conversation/test_transcripts.py.
"""

import asyncio

import msgspec

from ...storage.contract import EntryQuery
from ...storage.records import EntryRecord
from ..session.core import SessionCore
from ..session.errors import UnknownRecord
from ..session.publication import Publication
from .context import ContextView, Decoded, active_range, decode, derive

MAX_KEPT = 64
PAGE = 256


class _Kept:
    """A kept active range, and what its entries say as far as somebody has asked."""

    def __init__(self, entries: list[EntryRecord], now: float) -> None:
        self.entries = entries
        self.used = now
        """When somebody last asked for it, in monotonic seconds."""
        self._decoded: dict[int, Decoded] = {}
        self._view: ContextView | None = None
        """The context at the end of the range."""

    def begins_after(self, at: int) -> bool:
        """Whether another range was active when ``at`` was the newest entry."""
        return bool(self.entries) and self.entries[0].head is not None and self.entries[0].id > at

    def as_of(self, at: int | None) -> list[EntryRecord]:
        """Give the entries up to ``at``."""
        return list(self.entries) if at is None else [entry for entry in self.entries if entry.id <= at]

    def context(self, at: int | None) -> ContextView:
        """Derive the context up to ``at``: a request asks for the one that its preparation has looked at."""
        if at is not None and any(entry.id > at for entry in self.entries[-1:]):
            return derive(self.as_of(at), self.decoded)
        if self._view is None:
            self._view = derive(self.entries, self.decoded)
        view = self._view
        lists = {name: list(getattr(view, name)) for name in ("entries", "contributions", "messages")}
        return msgspec.structs.replace(view, **lists)

    def decoded(self, entry: EntryRecord) -> Decoded:
        """Decode one of the entries, once. Raises MessageInvalid."""
        known = self._decoded.get(entry.id)
        if known is None:
            known = self._decoded[entry.id] = decode(entry)
        return known

    def add(self, entry: EntryRecord) -> None:
        """Grow by an entry without a head."""
        self.entries.append(entry)
        self._view = None

    def move(self, entries: list[EntryRecord]) -> None:
        """Take over another range, a later one."""
        self.entries = entries
        self._decoded = {entry.id: self._decoded[entry.id] for entry in entries if entry.id in self._decoded}
        self._view = None


class Transcripts:
    """The active ranges of one session's most recently read conversations."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._kept: dict[int, _Kept] = {}
        self._loading = asyncio.Lock()
        self._arrived: list[EntryRecord] = []
        """What was published while a transcript was being read from storage."""
        core.subscribe(self._published, self._kept.clear)

    async def active(self, conversation_id: int, at: int | None = None) -> list[EntryRecord]:
        """Give the active range, as far as it is durable, or as it was when ``at`` was the newest entry."""
        kept = await self._range(conversation_id)
        if at is not None and kept.begins_after(at):
            return await self._read(conversation_id, at)
        return kept.as_of(at)

    async def context(self, conversation_id: int, at: int | None = None) -> ContextView:
        """Derive what a model would be sent now, or as of entry ``at``. Raises UnknownRecord, MessageInvalid."""
        kept = await self._range(conversation_id)
        if at is not None and kept.begins_after(at):
            return derive(await self._read(conversation_id, at))
        return kept.context(at)

    async def _range(self, conversation_id: int) -> _Kept:
        await self._core.drained()
        while (kept := self._kept.get(conversation_id)) is None:
            async with self._loading:
                if conversation_id not in self._kept:
                    await self._load(conversation_id)
        kept.used = self._core.clock.monotonic()
        return kept

    def rest(self, before: float) -> bool:
        """Forget what nobody has asked for since ``before`` (monotonic seconds); tell whether anything is kept."""
        for conversation_id in [one for one, kept in self._kept.items() if kept.used <= before]:
            del self._kept[conversation_id]
        return bool(self._kept)

    async def _load(self, conversation_id: int) -> None:
        if await self._core.storage.conversation(self._core.key, conversation_id) is None:
            raise UnknownRecord("conversation", conversation_id)
        self._arrived.clear()
        read = await self._read(conversation_id, None)
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[conversation_id] = _Kept(read, self._core.clock.monotonic())
        for entry in self._arrived:
            self._add(entry)

    async def _read(self, conversation_id: int, at: int | None) -> list[EntryRecord]:
        """Read an active range from storage, again if a head comes meanwhile that keeps more."""
        marker = await self._core.storage.latest_head_marker(self._core.key, conversation_id, at)
        while True:
            read = await self._scan(conversation_id, _first(marker), at)
            newest = next((entry for entry in reversed(read) if entry.head is not None), None)
            if _first(newest) >= _first(marker):
                return active_range(read, newest)
            marker = newest

    async def _scan(self, conversation_id: int, first: int, last: int | None) -> list[EntryRecord]:
        read: list[EntryRecord] = []
        query = EntryQuery(conversation_id=conversation_id, min_entry_id=first, max_entry_id=last, order="ascending")
        page = await self._core.storage.scan_entries(self._core.key, query, PAGE)
        read.extend(page.items)
        while page.next is not None:
            page = await self._core.storage.scan_entries(self._core.key, query, PAGE, page.next)
            read.extend(page.items)
        return read

    def _published(self, publication: Publication) -> None:
        if self._loading.locked():
            self._arrived.extend(publication.entries)
        for entry in publication.entries:
            self._add(entry)

    def _add(self, entry: EntryRecord) -> None:
        kept = self._kept.get(entry.conversation_id)
        if kept is None or not all(entry.id > known.id for known in (kept.entries[:1] + kept.entries[-1:])):
            return
        if entry.head is None:
            kept.add(entry)
        elif entry.head >= _first(kept.entries[0] if kept.entries else None):
            kept.move(active_range([*kept.entries, entry], entry))
        else:
            del self._kept[entry.conversation_id]  # it keeps more than is here


def _first(marker: EntryRecord | None) -> int:
    """Give the first entry that stays in context; 0 when nothing says so."""
    return 0 if marker is None or marker.head is None else marker.head
