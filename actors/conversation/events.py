"""What happens in a conversation, as typed events; ``derivation`` makes them of commits, ``view`` delivers them.

Every event names the commit that it comes from (``seq``), its conversation, its run (by the id of the first submission that
the run answers) and its turn (by the id of the generation's task). As JSON, events are objects with a ``type`` and camelCase
fields. A reader ignores fields and types that it does not know. Proved by tests/actors/conversation/test_events.py.
"""

from typing import Any, TypeAlias

import msgspec

from ...storage.records import EntryRecord, Json, JsonObject, SubmissionRecord


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="type"):
    """Base of all events."""

    seq: int
    conversation_id: int
    run: int | None = None
    turn: int | None = None


class Snapshot(Event, frozen=True, kw_only=True, tag="snapshot"):
    """The whole view. First of a stream, and in the place of everything that a slow consumer has missed."""

    view: JsonObject


# --- tools


class ToolStart(Event, frozen=True, kw_only=True, tag="tool_start"):
    """A call begins to execute. Calls that are answered without that have an end and no start."""

    call_id: str
    name: str
    task_id: int | None = None


class ToolUpdate(Event, frozen=True, kw_only=True, tag="tool_update"):
    """A call shows something, running or waiting for it: ``ops`` are chord operations on its slot of ``pi.live.tools``."""

    call_id: str
    ops: list[Any]


class ToolEnd(Event, frozen=True, kw_only=True, tag="tool_end"):
    """A call has its answer, in ``entry``; None when it failed so badly that the context has to answer it."""

    call_id: str
    name: str
    task_id: int | None = None
    entry: int | None = None


# --- messages and entries


class MessageStart(Event, frozen=True, kw_only=True, tag="message_start"):
    """A message begins: the first that is shown of an answer, or a message as a whole, whose end follows at once."""

    message: JsonObject


class MessageUpdate(Event, frozen=True, kw_only=True, tag="message_update"):
    """More of the answer that streams: ``ops`` are chord operations on the message that has started."""

    ops: list[Any]

    @property
    def text(self) -> str:
        """The text that these operations append to text blocks."""
        return "".join(op[2] for op in self.ops if op[0] == "a" and op[1][-1:] == ["text"])


class MessageEnd(Event, frozen=True, kw_only=True, tag="message_end"):
    """The message that has started is over and stored as ``entry``; None when what was shown of it could not be kept."""

    entry: EntryRecord | None = None


class EntryAppended(Event, frozen=True, kw_only=True, tag="entry_appended"):
    """An entry that says nothing to the model."""

    entry: EntryRecord


class Retry(Event, frozen=True, kw_only=True, tag="retry"):
    """Attempt number ``attempt`` (from 1) of a request has failed; the next one is made at ``at`` (ms since the epoch)."""

    attempt: int
    at: int
    error: str


class Deferred(Event, frozen=True, kw_only=True, tag="deferred"):
    """The provider works on the answer by itself and is asked for it at ``poll_at`` (ms since the epoch)."""

    poll_at: int


# --- work


class CompactionStart(Event, frozen=True, kw_only=True, tag="compaction_start"):
    """A compaction begins; ``status`` is what ``pi.live.compactions`` says of it."""

    task_id: int
    status: JsonObject


class CompactionUpdate(Event, frozen=True, kw_only=True, tag="compaction_update"):
    """A compaction's status has changed: it is tried again, say."""

    task_id: int
    status: JsonObject


class CompactionEnd(Event, frozen=True, kw_only=True, tag="compaction_end"):
    """A compaction is over, whatever became of it."""

    task_id: int
    status: JsonObject


class TaskFailed(Event, frozen=True, kw_only=True, tag="task_failed"):
    """A task of the conversation ended ``failed``, ``faulted`` or ``orphaned``."""

    task_id: int
    kind: str
    status: str
    message: str


class TurnStart(Event, frozen=True, kw_only=True, tag="turn_start"):
    """The generation ``turn`` begins to answer."""


class TurnEnd(Event, frozen=True, kw_only=True, tag="turn_end"):
    """The generation ``turn`` has its outcome. What it owns may go on for a while."""


class RunStart(Event, frozen=True, kw_only=True, tag="run_start"):
    """A run begins, which is to answer ``inputs``; steers may join it."""

    inputs: list[int]


class RunEnd(Event, frozen=True, kw_only=True, tag="run_end"):
    """A run is over; the submissions say how."""

    inputs: list[int]


# --- records and documents


class SubmissionChanged(Event, frozen=True, kw_only=True, tag="submission"):
    """A submission as it is now."""

    submission: SubmissionRecord


class InboxChanged(Event, frozen=True, kw_only=True, tag="inbox"):
    """What waits in the inbox now."""

    items: list[JsonObject]


class AgentChanged(Event, frozen=True, kw_only=True, tag="agent"):
    """What the conversation runs on from now on: ``pi.agent``."""

    agent: JsonObject


class UsageChanged(Event, frozen=True, kw_only=True, tag="usage"):
    """What the conversation has spent until now: ``pi.usage``."""

    usage: JsonObject


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of a type that this version does not know, as it came."""

    value: Json

    @property
    def type(self) -> str | None:
        """What it calls itself."""
        named = self.value.get("type") if isinstance(self.value, dict) else None
        return named if isinstance(named, str) else None


AgentEvent: TypeAlias = (
    Snapshot
    | ToolStart
    | ToolUpdate
    | ToolEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | EntryAppended
    | Retry
    | Deferred
    | CompactionStart
    | CompactionUpdate
    | CompactionEnd
    | TaskFailed
    | TurnStart
    | TurnEnd
    | RunStart
    | RunEnd
    | SubmissionChanged
    | InboxChanged
    | AgentChanged
    | UsageChanged
)


def event_to_json(event: AgentEvent) -> JsonObject:
    """Give an event as plain JSON values."""
    value: JsonObject = msgspec.to_builtins(event)
    return value


def event_from_json(value: Json) -> AgentEvent | UnknownEvent:
    """Read an event, of a newer version too: what is not known is given as it came."""
    try:
        return msgspec.convert(value, AgentEvent)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        return UnknownEvent(value)
