"""From commits to events: a pure function of the view before, the view after, and what was published in between.

The events of one commit come in a fixed order: what calls and the streaming answer show; the entries, each with the end that
it stands for; ends without an entry; submissions, inbox, agent and usage; beginnings. Proved by
tests/actors/conversation/test_events.py.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ...storage.records import Completing, EntryRecord, Failed, Faulted, JsonObject, Orphaned, TaskRecord, Terminal
from ..session.publication import Publication
from . import events as e

TOLD_OTHERWISE = {"callId", "name", "status", "taskId", "entry"}
"""Fields of a slot that starts and ends tell of. All others are progress."""


class Seen(msgspec.Struct, frozen=True):
    """What has been told so far: the view, as of commit ``seq``, and the turn that has begun and not ended."""

    view: JsonObject
    seq: int
    turn: int | None

    @property
    def conversation_id(self) -> int:
        """Whose view it is."""
        return int(self.view["conversation"]["id"])

    def snapshot(self) -> e.Snapshot:
        """Give all of it as an event."""
        run = _live(self.view).get("run")
        return e.Snapshot(
            seq=self.seq, conversation_id=self.conversation_id, run=_run_id(run), turn=self.turn, view=self.view
        )


def begin(view: JsonObject, seq: int, *, held: bool) -> Seen:
    """Begin with a view; ``held`` says that its generation has ended its turn and waits for what it owns."""
    run = _live(view).get("run")
    return Seen(view, seq, None if run is None or held else run["taskId"])


def derive(seen: Seen, view: JsonObject, publication: Publication) -> tuple[Seen, list[e.AgentEvent]]:
    """Say what one commit means, which led to ``view``, and what has been told with it."""
    step = _Step(seen, view, publication)
    found = list(step.events())
    return Seen(view, publication.seq, step.turn), found


def follow(seen: Seen, view: JsonObject, publication: Publication) -> Seen:
    """Give what ``derive`` would have told, when nobody listens."""
    step = _Step(seen, view, publication)
    return Seen(view, publication.seq, step.next_turn())


class _Step:
    """One commit: ``was`` and ``now`` are ``pi.live`` before and after it."""

    def __init__(self, seen: Seen, view: JsonObject, publication: Publication) -> None:
        self._id = seen.conversation_id
        self._before, self._after = seen.view, view
        self._publication = publication
        self._was, self._now = _live(seen.view), _live(view)
        self._entries = [one for one in publication.entries if one.conversation_id == self._id]
        self._tasks = [one for one in publication.tasks if one.conversation_id == self._id]
        self.turn = seen.turn

    def next_turn(self) -> int | None:
        """Say which turn goes on after the commit."""
        run, before = self._now.get("run"), self._was.get("run", {})
        if run is not None and run["taskId"] != before.get("taskId"):
            return int(run["taskId"])
        return None if self.turn is not None and self._turn_is_over() else self.turn

    def events(self) -> Iterator[e.AgentEvent]:
        self._slots = {slot["callId"]: slot for slot in self._was.get("tools", ())}
        self._later = {slot["callId"]: slot for slot in self._now.get("tools", ())}
        self._ended: set[str] = set()
        """Calls whose end has been told."""
        yield from self._tool_starts()
        yield from self._progress()
        yield from self._waits()
        yield from self._told_entries()
        yield from self._tool_ends()
        yield from self._ends()
        yield from self._records()
        yield from self._beginnings()

    def _about(self, run: JsonObject | None = None) -> dict[str, Any]:
        """What every event names. Unless a run that begins is given it is that of before, or the first."""
        turn = None if run is None else run["taskId"]
        run = run or self._was.get("run") or self._now.get("run")
        if turn is None:
            turn = self.turn if self.turn is not None else (run or {}).get("taskId")
        return {"seq": self._publication.seq, "conversation_id": self._id, "run": _run_id(run), "turn": turn}

    # --- what is shown

    def _tool_starts(self) -> Iterator[e.AgentEvent]:
        for call, slot in self._later.items():
            if slot["status"] == "running" and self._slots.get(call, {}).get("status", "pending") == "pending":
                yield e.ToolStart(call_id=call, name=slot["name"], task_id=slot.get("taskId"), **self._about())

    def _progress(self) -> Iterator[e.AgentEvent]:
        was, now = (live.get("generation", {}).get("message") for live in (self._was, self._now))
        if was is None and now is not None:
            yield e.MessageStart(message=now, **self._about())
        elif now is not None and (ops := self._live_ops(["generation", "message"], now)):
            yield e.MessageUpdate(ops=ops, **self._about())
        for index, slot in enumerate(self._now.get("tools", ())):
            if slot["status"] != "done" and (ops := self._slot_ops(index, slot)):
                yield e.ToolUpdate(call_id=slot["callId"], ops=ops, **self._about())

    def _slot_ops(self, index: int, slot: JsonObject) -> list[Any]:
        if slot["callId"] not in self._slots and not slot.keys() - TOLD_OTHERWISE:
            return []  # it has just come, with nothing to show yet
        ops = self._live_ops(["tools", index], slot)
        return [op for op in ops if op[0] == "r" or (op[1] and op[1][0] not in TOLD_OTHERWISE)]

    def _live_ops(self, path: list[Any], value: Any) -> list[Any]:
        """Give this commit's operations on a part of ``pi.live``, seen from there."""
        changes = (one for one in self._publication.documents if one.record.kind == "pi.live")
        mine = (one for one in changes if getattr(one.record.scope, "conversation_id", None) == self._id)
        return _below([op for one in mine for op in one.ops], path, value)

    def _waits(self) -> Iterator[e.AgentEvent]:
        was, now = self._was.get("generation", {}), self._now.get("generation", {})
        retry, deferred = now.get("retry"), now.get("deferred")
        if retry is not None and retry != was.get("retry"):
            yield e.Retry(attempt=now["attempt"], at=retry["at"], error=retry["error"], **self._about())
        if deferred is not None and deferred != was.get("deferred"):
            yield e.Deferred(poll_at=deferred["pollAt"], **self._about())
        before = _compactions(self._was)
        for task, status in _compactions(self._now).items():
            if before.get(task, status) != status:
                yield e.CompactionUpdate(task_id=task, status=status, **self._about())

    # --- entries, and what ends with them

    def _told_entries(self) -> Iterator[e.AgentEvent]:
        open_message = "message" in self._was.get("generation", {})
        for entry in self._entries:
            about = self._about(self._now.get("run") if self._begins_with(entry) else None)
            yield from self._ends_with(entry)
            if entry.model is None:
                yield e.EntryAppended(entry=entry, **about)
                continue
            if not (open_message and _role(entry) == "assistant"):
                yield e.MessageStart(message=entry.model[0], **about)
            else:
                open_message = False
            yield e.MessageEnd(entry=entry, **about)
        if open_message and "message" not in self._now.get("generation", {}):
            yield e.MessageEnd(**self._about())

    def _begins_with(self, entry: EntryRecord) -> bool:
        """Whether an entry is an input of the run that begins with this commit."""
        inputs = self._now.get("run", {}).get("inputs", ())
        return any(one.entry == entry.id and one.id in inputs for one in self._publication.submissions)

    def _ends_with(self, entry: EntryRecord) -> Iterator[e.AgentEvent]:
        call = (entry.model or [{}])[0].get("toolCallId") if _role(entry) == "toolResult" else None
        slot = self._slots.get(call) or self._later.get(call) if call is not None else None
        if slot is not None and call not in self._ended and self._slots.get(call, {}).get("status") != "done":
            yield self._tool_end(slot, entry.id)

    def _tool_ends(self) -> Iterator[e.AgentEvent]:
        for call, slot in self._slots.items():
            later = self._later.get(call, {"status": "done"})
            if slot["status"] != "done" and later["status"] == "done" and call not in self._ended:
                yield self._tool_end(slot, later.get("entry"))

    def _tool_end(self, slot: JsonObject, entry: int | None) -> e.ToolEnd:
        self._ended.add(slot["callId"])
        return e.ToolEnd(
            call_id=slot["callId"], name=slot["name"], task_id=slot.get("taskId"), entry=entry, **self._about()
        )

    def _ends(self) -> Iterator[e.AgentEvent]:
        for task, status in _compactions(self._was).items():
            if task not in _compactions(self._now):
                yield e.CompactionEnd(task_id=task, status=status, **self._about())
        for record in self._tasks:
            yield from self._failure(record)
        run = self._was.get("run")
        if self.turn is not None and self._turn_is_over():
            yield e.TurnEnd(**self._about())
            self.turn = None
        if run is not None and _run_id(self._now.get("run")) != _run_id(run):
            yield e.RunEnd(inputs=run["inputs"], **self._about())

    def _failure(self, record: TaskRecord) -> Iterator[e.AgentEvent]:
        outcome = record.state.outcome if isinstance(record.state, Terminal) else None
        if isinstance(outcome, Failed | Faulted | Orphaned):
            status = str(outcome.__struct_config__.tag)
            message = outcome.reason if isinstance(outcome, Orphaned) else outcome.error.message
            yield e.TaskFailed(task_id=record.id, kind=record.kind, status=status, message=message, **self._about())

    def _turn_is_over(self) -> bool:
        decided = any(one.id == self.turn and isinstance(one.state, Completing | Terminal) for one in self._tasks)
        return decided or self._now.get("run", {}).get("taskId") != self.turn

    # --- records, and what begins

    def _records(self) -> Iterator[e.AgentEvent]:
        for record in sorted(self._publication.submissions, key=lambda one: one.id):
            if record.conversation_id == self._id:
                run = self._now.get("run")
                joins = run is not None and record.id in run["inputs"]
                yield e.SubmissionChanged(submission=record, **self._about(run if joins else None))
        docs = self._after["docs"]
        changed = {kind for kind, value in docs.items() if value is not self._before["docs"].get(kind)}
        if "pi.inbox" in changed:
            yield e.InboxChanged(items=docs["pi.inbox"]["items"], **self._about())
        if "pi.agent" in changed:
            yield e.AgentChanged(agent=docs["pi.agent"], **self._about())
        if "pi.usage" in changed:
            yield e.UsageChanged(usage=docs["pi.usage"], **self._about())

    def _beginnings(self) -> Iterator[e.AgentEvent]:
        run = self._now.get("run")
        for task, status in _compactions(self._now).items():
            if task not in _compactions(self._was):
                yield e.CompactionStart(task_id=task, status=status, **self._about(run))
        if run is None:
            return
        if _run_id(run) != _run_id(self._was.get("run")):
            yield e.RunStart(inputs=run["inputs"], **self._about(run))
        if run["taskId"] != self._was.get("run", {}).get("taskId"):
            self.turn = run["taskId"]
            yield e.TurnStart(**self._about(run))


# --- reading a view


def _live(view: JsonObject) -> JsonObject:
    live: JsonObject = view["docs"].get("pi.live", {})
    return live


def _run_id(run: JsonObject | None) -> int | None:
    if run is None:
        return None
    return int(run["inputs"][0] if run["inputs"] else run["taskId"])


def _compactions(live: JsonObject) -> dict[int, JsonObject]:
    return {one["taskId"]: one for one in live.get("compactions", ())}


def _role(entry: EntryRecord) -> str | None:
    return entry.model[0].get("role") if entry.model else None


def _below(ops: list[Any], path: list[Any], value: Any) -> list[Any]:
    """Give operations on a document as operations on the part of it at ``path``, which is ``value`` afterwards."""
    found: list[Any] = []
    for op in ops:
        place = [] if op[0] == "r" else op[1]
        above = len(place) < len(path) and place == path[: len(place)]
        if above or (place == path and op[0] in ("s", "d")):
            return [["r", value]]
        if place[: len(path)] == path:
            found.append([op[0], place[len(path) :], *op[2:]])
    return found
