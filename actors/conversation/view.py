"""The conversation view: active entries and built-in documents as one JSON value, with the exact operations of each commit.

All watchers of a conversation share one mount, which lives as long as somebody watches. A replica that applies the
operations, here or in a browser, holds the committed view; who prefers events gets those that the same commits mean.
Proved by tests/actors/conversation/test_view.py and test_events.py.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from ...chord import EndReason, Watch, WatchEnd, apply_immutable
from ...storage.records import Completing, ConversationRecord, EntryRecord, JsonObject
from ..session.core import SessionCore
from ..session.errors import UnknownRecord
from ..session.publication import Publication
from ..session.read import still
from .builtin import BUILT_IN
from .context import active_range
from .derivation import Seen, begin, derive, follow
from .events import AgentEvent
from .transcripts import Transcripts

MOUNTED = {doc.kind for doc in BUILT_IN}


def view_ops(conversation_id: int, entries: list[EntryRecord], publication: Publication) -> list[Any]:
    """Translate one publication into operations on the view; ``entries`` is the active range and grows by it."""
    ops: list[Any] = []
    for change in publication.documents:
        scope = change.record.scope
        if change.record.kind in MOUNTED and getattr(scope, "conversation_id", None) == conversation_id:
            ops.extend(_mounted(change.record.kind, op) for op in change.ops)
    ops.extend(_entry_op(entries, entry) for entry in publication.entries if entry.conversation_id == conversation_id)
    return ops


def _mounted(kind: str, op: list[Any]) -> list[Any]:
    if op[0] == "r":
        return ["d", ["docs", kind]] if op[1] is None else ["s", ["docs", kind], op[1]]
    return [op[0], ["docs", kind, *op[1]], *op[2:]]


def _entry_op(entries: list[EntryRecord], entry: EntryRecord) -> list[Any]:
    entries.append(entry)
    if entry.head is None:
        return ["p", ["entries"], len(entries) - 1, 0, [msgspec.to_builtins(entry)]]
    entries[:] = active_range(entries, entry)
    return ["s", ["entries"], msgspec.to_builtins(list(entries))]


class EventStream:
    """The events of a conversation, to one consumer: a snapshot first, then those of every commit.

    ``async for event in stream``. It ends with the session's life or when it is stopped; who wants to go on watches again.
    A consumer that is more than 100 commits, or 8 MiB, behind gets a snapshot instead. As an async context manager, it
    stops at the end of the block.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._events: deque[AgentEvent] = deque()

    @property
    def ended(self) -> WatchEnd | None:
        """How the stream ended, None while it has not."""
        return self._watch.ended

    def stop(self) -> None:
        """End the stream. Idempotent."""
        self._watch.stop()
        self._events.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        while not self._events:
            _, events = await anext(self._watch)
            self._events.extend(cast("list[AgentEvent]", events))
        return self._events.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Mount:
    """One conversation's view and those who watch it, or its events."""

    def __init__(self, mounts: "Mounts", conversation_id: int, seen: Seen, entries: list[EntryRecord]) -> None:
        self._mounts = mounts
        self._id = conversation_id
        self._entries: list[EntryRecord] | None = entries
        self._used = mounts.clock.monotonic()
        self._seen = seen
        self.watches: dict[object, Watch] = {}
        self._streams: dict[object, Watch] = {}

    def published(self, publication: Publication) -> None:
        """Move the view on by one commit."""
        ops = view_ops(self._id, self._active(publication), publication)
        value = apply_immutable(self._seen.view, ops) if ops else self._seen.view
        events = self._tell(value, publication)
        if ops:
            _push(self.watches, value, ops)
        if events:
            _push(self._streams, value, events)

    def _tell(self, value: JsonObject, publication: Publication) -> list[AgentEvent]:
        if not self._streams:
            self._seen = follow(self._seen, value, publication)
            return []
        self._seen, events = derive(self._seen, value, publication)
        return events

    def _active(self, publication: Publication) -> list[EntryRecord]:
        """Give the active entries, made anew from the view if they rest and the commit has more of them."""
        if any(entry.conversation_id == self._id for entry in publication.entries):
            self._used = self._mounts.clock.monotonic()
            if self._entries is None:
                self._entries = msgspec.convert(self._seen.view["entries"], list[EntryRecord])
        return [] if self._entries is None else self._entries

    def rest(self, before: float) -> bool:
        """Let go of entries that were not needed since ``before`` (monotonic seconds); tell whether some are kept.

        The value stays, which the watchers share.
        """
        if self._used <= before:
            self._entries = None
        return self._entries is not None

    def watch(self) -> Watch:
        """Add a watcher; the mount is dropped with its last one."""
        return self._join(self.watches)

    def stream(self) -> EventStream:
        """Add a watcher of events."""
        first: list[Any] = [self._seen.snapshot()]
        watch = self._join(self._streams, collapse=lambda value, events: [self._seen.snapshot()])
        watch.push(self._seen.view, first)
        return EventStream(watch)

    def _join(self, watches: dict[object, Watch], **options: Any) -> Watch:
        token = object()

        def leave() -> None:
            watches.pop(token, None)
            if not self.watches and not self._streams:
                self._mounts.drop(self._id, self)

        watch = watches[token] = Watch(self._seen.view, leave, **options)
        return watch

    def end(self, reason: EndReason) -> None:
        """End all watches: with the session ("closed"), or with the conversation ("retired")."""
        for watch in [*self.watches.values(), *self._streams.values()]:
            watch.end(reason)


def _push(watches: dict[object, Watch], value: JsonObject, news: list[Any]) -> None:
    """Hand the news of a commit to everybody, with their size as it would be on a wire."""
    size = len(msgspec.json.encode(news)) if watches else 0
    for watch in list(watches.values()):
        watch.push(value, news, size)


class Mounts:
    """The mounted conversations of one session. As long as there are any they outlive passivation."""

    def __init__(self, core: SessionCore) -> None:
        self._core: SessionCore | None = core
        self.clock = core.clock
        self._mounts: dict[int, Mount] = {}
        self._dispose: Callable[[], None] | None = None

    async def mount(self, conversation_id: int) -> Mount:
        """Give the conversation's mount, built from one committed state. Raises UnknownRecord."""
        mounted, core = self._mounts.get(conversation_id), self._core
        assert core is not None, "whoever asks for a mount has the session in memory"
        if mounted is None:
            async with still(core):
                mounted = self._mounts.get(conversation_id) or await self._build(core, conversation_id)
                self._mounts[conversation_id] = mounted
                self._dispose = self._dispose or core.subscribe(self._published, self._ended, moved=self._moved)
        return mounted

    async def _build(self, core: SessionCore, conversation_id: int) -> Mount:
        record = await core.row(ConversationRecord, conversation_id)
        if record is None:
            raise UnknownRecord("conversation", conversation_id)
        entries = await core.part(Transcripts, Transcripts).active(conversation_id)
        docs = {}
        for doc in BUILT_IN:
            loaded = await core.document(doc, doc.address(conversation_id, None))
            if loaded is not None:
                docs[doc.kind] = loaded.tracker.value
        value = {"conversation": msgspec.to_builtins(record), "entries": msgspec.to_builtins(entries), "docs": docs}
        task = core.forest.get(docs.get("pi.live", {}).get("run", {}).get("taskId", 0))
        seen = begin(value, core.seq, held=task is None or isinstance(task.state, Completing))
        return Mount(self, conversation_id, seen, entries)

    def drop(self, conversation_id: int, mount: Mount) -> None:
        """Forget a mount that nobody watches; with the last one, hear no more of the session."""
        if self._mounts.get(conversation_id) is mount:
            del self._mounts[conversation_id]
        if not self._mounts and self._dispose is not None:
            self._dispose()
            self._dispose = None

    def rest(self, before: float) -> bool:
        """Let idle mounts rest (see ``session.use.Resting``)."""
        left = [mount.rest(before) for mount in self._mounts.values()]
        return any(left)

    def _moved(self, core: SessionCore | None) -> None:
        """Keep nothing of an incarnation that leaves memory; be the next one's part."""
        self._core = core
        if core is None:
            self.rest(self.clock.monotonic())
        else:
            core.part(Mounts, lambda _: self)

    def _published(self, publication: Publication) -> None:
        for conversation in publication.gone:
            if conversation in self._mounts:
                self._mounts[conversation].end("retired")
                self._mounts.pop(conversation, None)
        for mount in list(self._mounts.values()):
            mount.published(publication)

    def _ended(self) -> None:
        for mount in list(self._mounts.values()):
            mount.end("closed")
        self._mounts.clear()


async def watch_conversation(core: SessionCore, conversation_id: int) -> Watch:
    """Watch a conversation's view: ``{conversation, entries, docs}``. Raises UnknownRecord, SessionFailed."""
    mounts = core.part(Mounts, Mounts)
    return (await mounts.mount(conversation_id)).watch()


async def watch_conversation_events(core: SessionCore, conversation_id: int) -> EventStream:
    """Watch what happens in a conversation, as events. Raises UnknownRecord, SessionFailed."""
    mounts = core.part(Mounts, Mounts)
    return (await mounts.mount(conversation_id)).stream()
