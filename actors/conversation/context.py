"""From stored entries to the messages of a request. Pure; everything a model sees passes through here.

The active range begins at the newest head marker. Between heads and edits a longer transcript's context begins with the
shorter one's, since providers bind caches and thinking to the exact prefix: so results answer their calls within the
round in which they were called, a call without a result is answered by a synthesized error for good, and a result that
comes later is told as news at its own place (rounds.py). Proved by tests/actors/conversation/test_context.py.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ...storage.records import EntryRecord, JsonObject
from ..models import AssistantMessage, Message, SystemMessage, from_json
from ..models.growing import Growing
from .rounds import Rounds

LEFT_OUT = ("aborted", "error", "deferred", "pending")
"""Stop reasons of assistant messages that stay in the transcript and out of requests."""


class ContextView(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript as a model sees it, immutable. ``contributions`` are per entry of ``entries``, in their own order.

    Made without copying: the sequences share what they have in common with earlier and later contexts.
    """

    head: EntryRecord | None
    entries: Sequence[EntryRecord]
    contributions: Sequence[Sequence[Message]]
    messages: Sequence[Message]

    @property
    def newest(self) -> int | None:
        """The id of the newest entry, if there is any: the head marker stands first."""
        return max(self.entries[0].id, self.entries[-1].id) if self.entries else None


class Decoded(msgspec.Struct, frozen=True):
    """What an entry says, ready to be used again: entries never change."""

    own: list[Message]
    """What it contributes unless a later entry edits it."""
    edits: dict[int, list[Message]]
    """What other entries contribute because of it."""


def decode(entry: EntryRecord) -> Decoded:
    """Decode an entry. Raises MessageInvalid."""
    edits = {edit.target: _contributed(edit.messages) for edit in entry.edits or ()}
    return Decoded(_contributed(entry.model), edits)


def derive(entries: Sequence[EntryRecord], decoded: Callable[[EntryRecord], Decoded] = decode) -> ContextView:
    """Derive the context at the end of ``entries``, which are visible ones in id order, from the head on or earlier.

    ``decoded`` gives what an entry says; who keeps entries keeps that beside them. Raises MessageInvalid.
    """
    head = next((entry for entry in reversed(entries) if entry.head is not None), None)
    return Derivation(Growing(active_range(entries, head)), decoded).view()


def check_messages(entry: EntryRecord) -> None:
    """Refuse an entry whose messages no context could be derived from. Raises MessageInvalid."""
    decode(entry)


def active_range(entries: Sequence[EntryRecord], head: EntryRecord | None) -> list[EntryRecord]:
    """The head marker, then the unmarked entries from its target on; without a marker, everything."""
    if head is None or head.head is None:
        return list(entries)
    kept = [entry for entry in entries if entry.id >= head.head and entry.head is None]
    return [head, *kept]


def place_in(active: Sequence[EntryRecord], id: int) -> int | None:
    """Find an entry in an active range: its marker stands first, the others in the order of their ids."""
    if active and active[0].id == id:
        return 0
    at = bisect_left(active, id, lo=min(1, len(active)), key=lambda entry: entry.id)
    return at if at < len(active) and active[at].id == id else None


class Derivation:
    """The context of an active range that grows: each view costs the entries that are new since the last one.

    An edit of something that was derived already begins anew; a head does so too, with another range. ``done`` counts
    the entries of the present view.
    """

    def __init__(self, active: Growing[EntryRecord], decoded: Callable[[EntryRecord], Decoded]) -> None:
        self._active = active
        self._decoded = decoded
        self._begin()

    def view(self) -> ContextView:
        """Derive the context at the present end of the range. Raises MessageInvalid, and does so again."""
        entries = self._active.items
        fresh = [self._decoded(entry) for entry in entries[self.done :]]
        if any(self._rewrites(said) for said in fresh):
            self._begin()
        self._extend(entries[self.done :])
        return ContextView(
            head=entries[0] if entries and entries[0].head is not None else None,
            entries=self._active.view(),
            contributions=self._contributions.view(),
            messages=self._rounds.settled.view(self._rounds.tail()),
        )

    def _begin(self) -> None:
        self.done = 0
        self._edits: dict[int, list[Message]] = {}
        self._contributions: Growing[Sequence[Message]] = Growing()
        self._rounds = Rounds()
        self._unprompted = bool(self._active.items) and self._active.items[0].head is not None

    def _add(self, entry: EntryRecord, message: Message) -> None:
        """Take in a message. The prompt that is written after a head, before anything was answered, goes to the front."""
        if self._unprompted and entry.id > self._active.items[0].id:
            if isinstance(message, SystemMessage):
                self._unprompted = False
                self._rounds.lead(message)
                return
            self._unprompted = not isinstance(message, AssistantMessage)
        self._rounds.add(message)

    def _rewrites(self, said: Decoded) -> bool:
        places = (place_in(self._active.items, target) for target in said.edits)
        return any(place is not None and place < self.done for place in places)

    def _extend(self, fresh: Sequence[EntryRecord]) -> None:
        for entry in sorted(
            fresh, key=lambda entry: entry.id
        ):  # the newest edit counts, and a marker is not the oldest
            self._edits.update(self._decoded(entry).edits)
        for entry in fresh:
            contribution = self._edits[entry.id] if entry.id in self._edits else self._decoded(entry).own
            self._contributions.items.append(tuple(contribution))
            for message in contribution:
                self._add(entry, message)
        self.done += len(fresh)


def _contributed(stored: Iterable[JsonObject] | None) -> list[Message]:
    messages = [from_json(value) for value in stored or ()]
    return [one for one in messages if not (isinstance(one, AssistantMessage) and one.stop_reason in LEFT_OUT)]
