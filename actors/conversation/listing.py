"""A session's conversations as one JSON value, with the exact operations of each commit.

    {"conversations": {"1": {"id": 1}, "7": {"id": 7, "parent": {"conversationId": 1, "at": 5}}, ...}, "omitted": true}

By decimal id: whose fork one is, and which call owns it. The newest ``MAX_LISTED`` are there; ``omitted`` says that there are
older ones, for which there is ``session.conversations()``. All watchers share one mount, also while the session is not in
memory. Proved by tests/actors/conversation/test_listing.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...chord import Watch, apply_immutable
from ...storage.contract import ConversationQuery
from ...storage.records import ConversationRecord, JsonObject
from ..session.core import SessionCore
from ..session.publication import Publication
from ..session.read import still
from ..session.reads import existing

MAX_LISTED = 1_000


def listed(newest: list[ConversationRecord], *, omitted: bool) -> JsonObject:
    """Give the value for conversations, newest first."""
    return {"conversations": {str(one.id): msgspec.to_builtins(one) for one in reversed(newest)}, "omitted": omitted}


def listing_ops(value: JsonObject, created: list[ConversationRecord], deleted: Sequence[int] = ()) -> list[Any]:
    """Translate the conversations of a commit into operations; what no longer has room goes, oldest first."""
    if deleted:
        return [["d", ["conversations", str(one)]] for one in deleted if str(one) in value["conversations"]]
    ops: list[Any] = [["s", ["conversations", str(one.id)], msgspec.to_builtins(one)] for one in created]
    ids = sorted({*map(int, value["conversations"]), *(one.id for one in created)})
    gone = ids[: max(0, len(ids) - MAX_LISTED)]
    ops += [["d", ["conversations", str(one)]] for one in gone]
    return [*ops, ["s", ["omitted"], True]] if gone and not value["omitted"] else ops


class Listing:
    """The mounted list of one session. As long as somebody watches, it outlives passivation."""

    def __init__(self, core: SessionCore) -> None:
        self._value: JsonObject | None = None
        self._watches: dict[object, Watch] = {}
        self._dispose: Callable[[], None] | None = None

    async def watch(self, core: SessionCore) -> Watch:
        """Add a watcher; the mount is dropped with its last one."""
        if self._value is None:
            async with still(core):
                if self._value is None:
                    self._value = await _read(core)
                    self._dispose = core.subscribe(self._published, self._ended, moved=self._moved)
        token = object()
        watch = self._watches[token] = Watch(self._value, lambda: self._leave(token))
        return watch

    def _leave(self, token: object) -> None:
        self._watches.pop(token, None)
        if not self._watches and self._dispose is not None:
            self._dispose()
            self._dispose = self._value = None

    def _published(self, publication: Publication) -> None:
        changed = publication.conversations or publication.gone
        ops = listing_ops(self._value or {}, publication.conversations, publication.gone) if changed else []
        if ops:
            self._value = apply_immutable(self._value, ops)
            for watch in list(self._watches.values()):
                watch.push(self._value, ops)

    def _moved(self, core: SessionCore | None) -> None:
        """Be the part of the next incarnation, too."""
        if core is not None:
            core.part(Listing, lambda _: self)

    def _ended(self) -> None:
        for watch in list(self._watches.values()):
            watch.end("closed")


async def _read(core: SessionCore) -> JsonObject:
    query = ConversationQuery(order="descending")
    page = await core.storage.scan_conversations(core.key, query, MAX_LISTED)
    return listed(existing(page).items, omitted=page.next is not None)


async def watch_conversations(core: SessionCore) -> Watch:
    """Watch a session's conversations. Raises SessionFailed."""
    return await core.part(Listing, Listing).watch(core)
