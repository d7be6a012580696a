"""The task graph: a session's live tasks as one JSON value, with the exact operations of each commit.

    {"7": {"id": 7, "kind": "app.report", "status": "waiting", "phase": "collect", "on": [8, 9], ...}, "8": ...}

By decimal id: whose a task is, what it does or waits for, why no code can take it, and the conversations that it owns. All
watchers share one mount, which lives as long as somebody watches, also while the session is not in memory.
Proved by tests/actors/task/test_graph.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...chord import Watch, apply_immutable
from ...storage.contract import ConversationQuery, Cursor
from ...storage.records import Completing, ConversationRecord, JsonObject, TaskRecord, Terminal
from ..session.core import SessionCore
from ..session.publication import Publication
from ..session.read import still
from .engine import Engine
from .steps import Blocked

PAGE = 1_000
NEWEST_FIRST = ConversationQuery(order="descending")

# --- pure


def derive_graph(
    tasks: Iterable[TaskRecord], owned: Mapping[int, list[int]], blocked: Mapping[int, Blocked]
) -> JsonObject:
    """Give the graph of some tasks; ``owned`` are the conversations of each."""
    return {str(one.id): node(one, owned.get(one.id, []), blocked.get(one.id)) for one in tasks if one.live}


def node(record: TaskRecord, conversations: list[int], blocked: Blocked | None) -> JsonObject:
    """Give a live task's place in the graph. What is None is left out."""
    shown = {
        "id": record.id,
        "kind": record.kind,
        "version": record.version,
        "conversationId": record.conversation_id,
        "owner": record.owner,
        "background": record.background,
        "abortRequested": record.abort_requested,
        "startedAt": record.started_at,
        "conversations": conversations,
        **_state(record),
        **_blocked(blocked if getattr(record.state, "checkpoint", None) is not None else None),
    }
    return {name: value for name, value in shown.items() if value is not None}


def _state(record: TaskRecord) -> JsonObject:
    """Tell what a task does or waits for, without what its checkpoint or outcome carry."""
    state = record.state
    if isinstance(state, Completing | Terminal):
        return {"status": tag(state), "outcome": tag(state.outcome)}
    fields = zip(state.__struct_encode_fields__, state.__struct_fields__, strict=True)
    shown = {name: msgspec.to_builtins(getattr(state, field)) for name, field in fields if field != "checkpoint"}
    return {"status": tag(state), "phase": state.checkpoint.get("phase"), **shown}


def tag(union: msgspec.Struct) -> str:
    """Name which of several a struct is."""
    return str(union.__struct_config__.tag)


def _blocked(blocked: Blocked | None) -> JsonObject:
    return {} if blocked is None else {"blocked": blocked.reason, "blockedError": blocked.error}


def graph_ops(graph: JsonObject, publication: Publication, blocked: Mapping[int, Blocked]) -> list[Any]:
    """Translate one commit into operations on the graph."""
    ops: list[Any] = []
    fresh = _owners(publication.conversations)
    changed = {one.id: one for one in publication.tasks}
    for task in {**dict.fromkeys(changed), **dict.fromkeys(fresh)}:
        old: JsonObject | None = graph.get(str(task))
        conversations = [*(old or {}).get("conversations", []), *fresh.get(task, [])]
        if task in changed:
            new = node(changed[task], conversations, blocked.get(task)) if changed[task].live else None
        else:
            new = None if old is None else old | {"conversations": conversations}
        ops.extend(node_ops(str(task), old, new))
    return ops


def _owners(created: Iterable[ConversationRecord]) -> dict[int, list[int]]:
    owners: dict[int, list[int]] = {}
    for one in created:
        if one.owner is not None:
            owners.setdefault(one.owner.task_id, []).append(one.id)
    return owners


def blocked_ops(graph: JsonObject, task: int, blocked: Blocked) -> list[Any]:
    """Tell that no code can take a task any more; nothing when it is not in the graph."""
    old = graph.get(str(task))
    return [] if old is None else node_ops(str(task), old, _without_reason(old) | _without_none(_blocked(blocked)))


def _without_reason(node: JsonObject) -> JsonObject:
    return {name: value for name, value in node.items() if not name.startswith("blocked")}


def _without_none(node: JsonObject) -> JsonObject:
    return {name: value for name, value in node.items() if value is not None}


def node_ops(id: str, old: JsonObject | None, new: JsonObject | None) -> list[Any]:
    """Give the operations between two states of a task's place."""
    if old is None:
        return [] if new is None else [["s", [id], new]]
    if new is None:
        return [["d", [id]]]
    gone = [["d", [id, name]] for name in old if name not in new]
    return gone + [["s", [id, name], value] for name, value in new.items() if name not in old or old[name] != value]


# --- mounted


class TaskGraph:
    """The mounted graph of one session. As long as somebody watches, it outlives passivation."""

    def __init__(self, core: SessionCore) -> None:
        self._core: SessionCore | None = core
        self._value: JsonObject | None = None
        self._watches: dict[object, Watch] = {}
        self._dispose: Callable[[], None] | None = None

    async def read(self) -> JsonObject:
        """Give the graph as committed. Shared: not to be changed."""
        if self._value is not None:
            return self._value
        core = self._awake()
        async with still(core):
            return await self._derive(core)

    async def watch(self) -> Watch:
        """Add a watcher; the mount is dropped with its last one."""
        core = self._awake()
        if self._value is None:
            async with still(core):
                self._mount(core, self._value if self._value is not None else await self._derive(core))
        token = object()
        watch = self._watches[token] = Watch(self._value, lambda: self._leave(token))
        return watch

    def _awake(self) -> SessionCore:
        assert self._core is not None, "whoever asks for the graph has the session in memory"
        return self._core

    async def _derive(self, core: SessionCore) -> JsonObject:
        tasks = [one for one in core.forest.all_kept() if one.live]
        return derive_graph(tasks, await self._owned(core, tasks), _engine(core).blocked)

    async def _owned(self, core: SessionCore, tasks: Sequence[TaskRecord]) -> dict[int, list[int]]:
        """Find the conversations of tasks in one scan. It ends at the oldest task: what a task owns is younger than it."""
        oldest = min((one.id for one in tasks), default=None)
        found: list[ConversationRecord] = []
        cursor: Cursor | None = None
        while oldest is not None:
            page = await core.storage.scan_conversations(core.key, NEWEST_FIRST, PAGE, cursor)
            found += page.items
            cursor = page.next
            if cursor is None or page.items[-1].id < oldest:
                break
        return _owners(reversed(found))

    def _mount(self, core: SessionCore, value: JsonObject) -> None:
        self._value = value
        if self._dispose is None:
            self._dispose = core.subscribe(self._published, self._ended, moved=self._moved)
            _engine(core).on_blocked = self._blocked

    def _leave(self, token: object) -> None:
        self._watches.pop(token, None)
        if not self._watches and self._dispose is not None:
            self._dispose()
            self._dispose = self._value = None
            if self._core is not None:
                _engine(self._core).on_blocked = None

    def _published(self, publication: Publication) -> None:
        self._push(graph_ops(self._value or {}, publication, _engine(self._awake()).blocked))

    def _blocked(self, task: int, blocked: Blocked) -> None:
        self._push(blocked_ops(self._value or {}, task, blocked))

    def _push(self, ops: list[Any]) -> None:
        if ops:
            self._value = apply_immutable(self._value, ops)
            for watch in list(self._watches.values()):
                watch.push(self._value, ops)

    def _moved(self, core: SessionCore | None) -> None:
        """Keep nothing of an incarnation that leaves memory; be the next one's part."""
        self._core = core
        if core is not None:
            core.part(TaskGraph, lambda _: self)
            _engine(core).on_blocked = self._blocked

    def _ended(self) -> None:
        for watch in list(self._watches.values()):
            watch.end("closed")


def _engine(core: SessionCore) -> Engine:
    return cast("Engine", core.scheduler)
