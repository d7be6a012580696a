"""The records that a session stores, and the writes that a commit is made of.

Every record is frozen and has the reference's field names on disk (camelCase). Numeric ids are unique within their
session, shared by all record types, and never reused. Times are milliseconds since the Unix epoch.
Values of type ``Json`` are strict JSON: str, bool, int, finite float, None, list, dict with string keys.
"""

from typing import Annotated, Any, Literal

import msgspec

Json = Any
JsonObject = dict[str, Any]

ROOT_CONVERSATION_ID = 1
MAX_ID = 2**32 - 1
"""Ids and a store's session numbers share one 64-bit key, so both are bounded."""


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of everything stored."""


# --- conversations and entries ---------------------------------------------------------------------------------------


class Parent(Record, frozen=True, kw_only=True):
    """Where a fork left its parent: after entry ``at``, inclusive."""

    conversation_id: int
    at: int


class ConversationOwner(Record, frozen=True, kw_only=True):
    """The task that a conversation lives under, and that task's own conversation."""

    conversation_id: int
    task_id: int


class ConversationRecord(Record, frozen=True, kw_only=True):
    """A transcript scope. Immutable, until it is deleted: then it stays, ``deleted``, for as long as forks of it do."""

    id: int
    parent: Parent | None = None
    owner: ConversationOwner | None = None
    deleted: bool = False


class ContextEdit(Record, frozen=True, kw_only=True):
    """From this entry on, what ``target`` contributes to model context is left out, or replaced."""

    target: int
    action: Literal["omit", "replace"]
    messages: list[JsonObject] | None = None


class EntryRecord(Record, frozen=True, kw_only=True):
    """An immutable piece of a transcript.

    ``model`` is what it contributes to model context; ``head`` is the first entry that stays in context from here on
    (its own id: nothing before it does).
    """

    id: int
    conversation_id: int
    kind: str
    model: list[JsonObject] | None = None
    data: Json = None
    head: int | None = None
    edits: list[ContextEdit] | None = None
    by_task_id: int | None = None


# --- submissions -----------------------------------------------------------------------------------------------------


class SubmissionRecord(Record, frozen=True, kw_only=True):
    """What became of something that was submitted to a conversation.

    An input goes queued -> placed (``entry``) -> done (``answer``), a write goes queued -> done (``entry``); either may
    end unanswered (``reason``, ``detail``).
    """

    id: int
    conversation_id: int
    type: Literal["input", "write"]
    status: Literal["queued", "placed", "done", "unanswered"]
    request_id: str | None = None
    entry: int | None = None
    answer: int | None = None
    reason: str | None = None
    detail: Json = None

    @property
    def settled(self) -> bool:
        """Whether the record will never change again."""
        return self.status in ("done", "unanswered")


# --- messages --------------------------------------------------------------------------------------------------------


class MessageSender(Record, frozen=True, kw_only=True):
    """Who sent a message: a task, or code outside of any task (None), of a session (None: the one that has the record)."""

    session: str | None = None
    task_id: int | None = None


class MessageRecord(Record, frozen=True, kw_only=True):
    """A durable message to a task, where it is now: outgoing -> queued -> consumed, or dead.

    *Outgoing* is in its sender's session, addressed to a task of ``session`` (None: of its own). *Queued* is in its
    receiver's. What was consumed is deleted, unless it has a ``request_id``: then the receipt stays, without its body,
    for as long as the task lives. *Dead* is what nobody will receive, with the ``reason``; it stays until it is deleted.
    ``sender`` is None for a message from outside of all sessions.
    """

    id: int
    status: Literal["outgoing", "queued", "consumed", "dead"]
    task_id: int
    session: str | None = None
    sender: MessageSender | None = None
    body: Json = None
    request_id: str | None = None
    reason: str | None = None

    @property
    def live(self) -> bool:
        """Whether the message is still on its way to being received."""
        return self.status in ("outgoing", "queued")


# --- tasks -----------------------------------------------------------------------------------------------------------


class OutcomeError(Record, frozen=True, kw_only=True):
    """Why a task failed or faulted."""

    message: str
    detail: Json = None


class Completed(Record, frozen=True, kw_only=True, tag_field="status", tag="completed"):
    """The task did what it was made for."""

    result: Json = None


class Failed(Record, frozen=True, kw_only=True, tag_field="status", tag="failed"):
    """The task's own code decided that it failed."""

    error: OutcomeError
    result: Json = None


class Aborted(Record, frozen=True, kw_only=True, tag_field="status", tag="aborted"):
    """The task's abort handler ran and decided."""

    reason: str | None = None
    result: Json = None


class Orphaned(Record, frozen=True, kw_only=True, tag_field="status", tag="orphaned"):
    """Aborted while no code could take it: none ran, so outside effects may remain."""

    reason: str


class Faulted(Record, frozen=True, kw_only=True, tag_field="status", tag="faulted"):
    """The task's code broke its contract or raised."""

    error: OutcomeError


Outcome = Completed | Failed | Aborted | Orphaned | Faulted


class Quorum(Record, frozen=True, forbid_unknown_fields=True):
    """A join policy: the wait ends when ``quorum`` of the tasks have completed, or when that many no longer can."""

    quorum: Annotated[int, msgspec.Meta(ge=1)]


JoinPolicy = Literal["allSettled", "failFast", "firstCompleted"] | Quorum
"""When the tasks of a wait end it, and what becomes of the others; see ``supervisors.joins``."""


class Pending(Record, frozen=True, kw_only=True, tag_field="status", tag="pending"):
    """Has work to do and nobody doing it."""

    checkpoint: JsonObject


class Running(Record, frozen=True, kw_only=True, tag_field="status", tag="running"):
    """Reserved for an invocation."""

    checkpoint: JsonObject


class Waiting(Record, frozen=True, kw_only=True, tag_field="status", tag="waiting"):
    """Parked without memory until the tasks of ``on`` satisfy ``policy``, the time ``until`` has come, or a message is queued.

    Whichever is first; the last only with ``mail``. With none of them, the wait is over at once.
    """

    checkpoint: JsonObject
    on: list[int]
    policy: JoinPolicy
    until: int | None = None
    mail: bool = False


class Completing(Record, frozen=True, kw_only=True, tag_field="status", tag="completing"):
    """Outcome decided and final; terminal as soon as ordinary owned work has drained. Runs no more code."""

    outcome: Outcome


class Terminal(Record, frozen=True, kw_only=True, tag_field="status", tag="terminal"):
    """Over. The record is the receipt."""

    outcome: Outcome


TaskState = Pending | Running | Waiting | Completing | Terminal


class TaskRecord(Record, frozen=True, kw_only=True):
    """A durable state machine attached to one conversation.

    ``owner`` is the owning task (None: its conversation owns it). ``started_at`` is the first change to running,
    ``ended_at`` the change to terminal. ``restarts`` are the times of its latest restarts after crashes of its code, those
    that its definition's budget still counts. ``trace`` is the place in a trace that its span hangs below, as a W3C
    traceparent.
    """

    id: int
    conversation_id: int
    kind: str
    version: int
    state: TaskState
    input: Json = None
    background: bool
    abort_requested: bool
    owner: int | None = None
    memos: JsonObject | None = None
    started_at: int | None = None
    ended_at: int | None = None
    restarts: list[int] | None = None
    trace: str | None = None

    @property
    def live(self) -> bool:
        """Whether the task is anything but terminal."""
        return type(self.state) is not Terminal


# --- documents -------------------------------------------------------------------------------------------------------


class SessionScope(Record, frozen=True, kw_only=True, tag_field="kind", tag="session"):
    """Belongs to the session."""


class ConversationScope(Record, frozen=True, kw_only=True, tag_field="kind", tag="conversation"):
    """Belongs to one conversation."""

    conversation_id: int


class TaskScope(Record, frozen=True, kw_only=True, tag_field="kind", tag="task"):
    """Belongs to one task and retires with it."""

    task_id: int


Scope = SessionScope | ConversationScope | TaskScope
History = Literal["latest", "rewindable"]
ForkPolicy = Literal["asOf", "current", "initial"]


class DocumentRecord(Record, frozen=True, kw_only=True):
    """One incarnation of a document: alive at sequence ``at`` when ``created_at <= at < retired_at``.

    ``history`` and ``fork`` are set for conversation documents only, ``key`` for family members only. In a batch,
    ``created_at`` is left 0: the store stamps the batch's sequence.
    """

    id: int
    kind: str
    scope: Scope
    key: str | None = None
    history: History | None = None
    fork: ForkPolicy | None = None
    created_at: int
    retired_at: int | None = None


class Base(Record, frozen=True, kw_only=True, tag_field="kind", tag="base"):
    """A complete value."""

    version: int
    value: JsonObject


class Delta(Record, frozen=True, kw_only=True, tag_field="kind", tag="delta"):
    """Chord operations on the value before, in their wire form: the deltas after a base are one stream."""

    version: int
    ops: list[Any]


class StoredDocument(Record, frozen=True, kw_only=True):
    """A materialised value: the newest base with ``deltas_since_base`` deltas applied."""

    record: DocumentRecord
    version: int
    value: JsonObject
    deltas_since_base: int


# --- commits ---------------------------------------------------------------------------------------------------------


class DocumentCreate(Record, frozen=True, kw_only=True):
    """Begin an incarnation."""

    record: DocumentRecord
    content: Base


class DocumentCopy(Record, frozen=True, kw_only=True):
    """Begin an incarnation whose base is another's stored value and version, as they were before this batch.

    ``at`` is a commit sequence (rewindable sources), or None for the current value.
    """

    record: DocumentRecord
    source: int
    at: int | None = None


class DocumentChange(Record, frozen=True, kw_only=True):
    """Store the next base or delta of a live incarnation."""

    id: int
    content: Base | Delta


class DocumentRetire(Record, frozen=True, kw_only=True):
    """End an incarnation; content in the same batch is stored first."""

    id: int


class MessageDelete(Record, frozen=True, kw_only=True):
    """Delete a message. Its id is free again once its batch is written, though no session uses an id twice."""

    id: int


class ConversationDelete(Record, frozen=True, kw_only=True):
    """Delete a conversation: its submissions and tasks, their messages, its documents and entries, after all other writes.

    What its forks show of it stays: entries up to the last fork point, rewindable documents, and its record, ``deleted``.
    That goes with the last fork, a deleted one's own forks included. No task or document of it may be live any more. No
    session uses the ids again.
    """

    id: int


Write = (
    ConversationRecord
    | ConversationDelete
    | EntryRecord
    | TaskRecord
    | SubmissionRecord
    | MessageRecord
    | MessageDelete
    | DocumentCreate
    | DocumentCopy
    | DocumentChange
    | DocumentRetire
)


class Batch(Record, frozen=True, kw_only=True):
    """One session's commit number ``seq``: all of its writes, or none.

    ``last_id`` is the highest id that the session has handed out. ``wake`` is when the session must next be active
    without being asked: 0 for at once (it has runnable work), a time in ms for its earliest stored deadline, None for
    never.
    """

    session: str
    seq: int
    last_id: int
    writes: list[Write]
    wake: int | None = None


class SessionRecord(Record, frozen=True, kw_only=True):
    """A session's row: its key and where its counters stand."""

    key: str
    created_at: int
    seq: int
    last_id: int
    wake: int | None = None
