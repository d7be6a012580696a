"""The active transcripts of busy conversations, kept in memory and grown by publications.

A request costs its new entries, not the transcript: entries are immutable, so every reader shares them, and what they say is
decoded once. Proved by tests/actors/conversation/test_transcripts.py.
"""

import asyncio
from collections.abc import Mapping

from ...storage.contract import EntryQuery
from ...storage.records import ConversationRecord, EntryRecord
from ..models.growing import Growing
from ..session.core import SessionCore
from ..session.errors import UnknownRecord
from ..session.forks import visible_entry
from ..session.publication import Publication
from .context import ContextView, Decoded, Derivation, active_range, decode, derive, place_in

MAX_KEPT = 64
MAX_KEPT_ENTRIES = 50_000
"""More ranges are kept as long as they hold no more than this together."""
PAGE = 256


class _Kept:
    """A kept active range, what its entries say as far as somebody has asked, and the context that they make."""

    def __init__(self, entries: list[EntryRecord], now: float, known: Mapping[int, Decoded] | None = None) -> None:
        self.used = now
        """When somebody last asked for it, in monotonic seconds."""
        self.said = dict(known or {})
        self.move(entries)

    def move(self, entries: list[EntryRecord]) -> None:
        """Take over another range, a later one."""
        self.entries = Growing(entries)
        self.said = {entry.id: self.said[entry.id] for entry in entries if entry.id in self.said}
        self._derivation = Derivation(self.entries, self.decoded)

    def add(self, entry: EntryRecord) -> None:
        """Grow by an entry without a head."""
        self.entries.items.append(entry)

    @property
    def first(self) -> EntryRecord | None:
        """The head marker, or the oldest entry."""
        return self.entries.items[0] if self.entries.items else None

    @property
    def newest(self) -> int:
        """The highest id; 0 when the range is empty."""
        return max((entry.id for entry in (*self.entries.items[:1], *self.entries.items[-1:])), default=0)

    def shows(self, at: int) -> bool:
        """Whether this is the range that was active when entry ``at``, which is one of it, was the newest."""
        return place_in(self.entries.items, at) is not None and not self.begins_after(at)

    def begins_after(self, at: int) -> bool:
        """Whether another range was active when ``at`` was the newest entry."""
        first = self.first
        return first is not None and first.head is not None and first.id > at

    def as_of(self, at: int | None) -> list[EntryRecord]:
        """Give the entries up to ``at``."""
        return [entry for entry in self.entries.items if at is None or entry.id <= at]

    def context(self, at: int | None) -> ContextView:
        """Derive the context up to ``at``: a request asks for the one that its preparation has looked at."""
        if at is not None and at < self.newest:
            return derive(self.as_of(at), self.decoded)
        return self._derivation.view()

    def decoded(self, entry: EntryRecord) -> Decoded:
        """Decode one of the entries, once. Raises MessageInvalid."""
        known = self.said.get(entry.id)
        if known is None:
            known = self.said[entry.id] = decode(entry)
        return known

    def undecoded(self) -> list[EntryRecord]:
        """Give the entries that came since the context was last derived."""
        return self.entries.items[self._derivation.done :]


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
        """Derive what a model would be sent now, or as of entry ``at``.

        Raises UnknownRecord, EntryNotVisible, MessageInvalid.
        """
        kept = await self._range(conversation_id)
        await self._decode(kept)
        if at is None or kept.shows(at):
            return kept.context(at)
        await visible_entry(self._core, conversation_id, at)
        return derive(await self._read(conversation_id, at))

    async def _decode(self, kept: _Kept) -> None:
        """Decode what has just been read in slices, so that a long transcript does not hold the loop."""
        fresh = kept.undecoded()
        for start in range(0, len(fresh) - PAGE, PAGE):
            for entry in fresh[start : start + PAGE]:
                kept.decoded(entry)
            await asyncio.sleep(0)

    async def _range(self, conversation_id: int) -> _Kept:
        await self._core.drained()
        if conversation_id in self._core.gone:
            raise UnknownRecord("conversation", conversation_id)
        while (kept := self._kept.pop(conversation_id, None)) is None:
            async with self._loading:
                if conversation_id not in self._kept:
                    await self._load(conversation_id)
        kept.used = self._core.clock.monotonic()
        self._kept[conversation_id] = kept  # behind those that were asked for longer ago
        return kept

    def rest(self, before: float) -> bool:
        """Forget what nobody has asked for since ``before`` (monotonic seconds); tell whether anything is kept."""
        for conversation_id in [one for one, kept in self._kept.items() if kept.used <= before]:
            del self._kept[conversation_id]
        return bool(self._kept)

    async def _load(self, conversation_id: int) -> None:
        record = await self._core.storage.conversation(self._core.key, conversation_id)
        if record is None or record.deleted:
            raise UnknownRecord("conversation", conversation_id)
        self._arrived.clear()
        kept = await self._inherited(record) or self._keep(await self._read(conversation_id, None))
        self._kept[conversation_id] = kept
        self._make_room()
        for entry in self._arrived:
            self._add(entry)

    def _keep(self, entries: list[EntryRecord], known: Mapping[int, Decoded] | None = None) -> _Kept:
        return _Kept(entries, self._core.clock.monotonic(), known)

    def _make_room(self) -> None:
        """Keep a few ranges however long they are, and many short ones; the longest unused go first."""
        size = sum(len(kept.entries.items) for kept in self._kept.values())
        while len(self._kept) > MAX_KEPT and size > MAX_KEPT_ENTRIES:
            size -= len(self._kept.pop(next(iter(self._kept))).entries.items)

    async def _inherited(self, fork: ConversationRecord) -> _Kept | None:
        """Take what a fork shows of its parent from memory, if it is there: then only what is its own is read."""
        parent = None if fork.parent is None else self._kept.get(fork.parent.conversation_id)
        if fork.parent is None or parent is None or not parent.shows(fork.parent.at):
            return None
        shared, said = parent.as_of(fork.parent.at), parent.said
        own = await self._scan(fork.id, fork.parent.at + 1, None)
        newest = next((entry for entry in reversed(own) if entry.head is not None), shared[0])
        if _first(newest) < _first(shared[0]):
            return None
        return self._keep(active_range([*shared, *own], newest), said)

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
        for conversation in publication.gone:
            self._kept.pop(conversation, None)

    def _add(self, entry: EntryRecord) -> None:
        kept = self._kept.get(entry.conversation_id)
        if kept is None or entry.id <= kept.newest:
            return
        if entry.head is None:
            kept.add(entry)
        elif entry.head >= _first(kept.first):
            kept.move(active_range([*kept.entries.items, entry], entry))
        else:
            del self._kept[entry.conversation_id]  # it keeps more than is here


def _first(marker: EntryRecord | None) -> int:
    """Give the first entry that stays in context; 0 when nothing says so."""
    return 0 if marker is None or marker.head is None else marker.head
