"""An observed trace: everything that one run has shown to the outside, in order, over all lives of its process.

Plain data that can be compared and hashed: two runs that show the same have the same digest.
Proved by tests/actors/chaos/test_trace.py.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from ...storage.records import (
    Batch,
    ConversationRecord,
    EntryRecord,
    Json,
    MessageRecord,
    SubmissionRecord,
    TaskRecord,
)

Row = ConversationRecord | EntryRecord | TaskRecord | SubmissionRecord | MessageRecord
NAMES = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?:resp|call)_[0-9a-f]{12}\b")
"""Names that are new in every run, UUIDs and what scripted models make of them: each means the same by its first place."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """Base of everything that can be observed."""


class Opened(Seen, frozen=True, kw_only=True, tag="opened"):
    """A system was opened over the store: a life of the process begins."""

    life: int


class Crashed(Seen, frozen=True, kw_only=True, tag="crashed"):
    """The process died, or one actor of it (its id) was dropped."""

    actor: str | None = None


class Failed(Seen, frozen=True, kw_only=True, tag="failed"):
    """What was heard of a session's life ends with it: it crashed, or the system closed. Actors come back from what is stored."""

    session: str


class Committed(Seen, frozen=True, kw_only=True, tag="committed"):
    """A commit became durable."""

    batch: Batch


class Deleted(Seen, frozen=True, kw_only=True, tag="deleted"):
    """A session was deleted, durably; one that follows under its key is another."""

    session: str


class Published(Seen, frozen=True, kw_only=True, tag="published"):
    """A session told its watchers of a commit: of the records in it, and of messages that it deleted."""

    session: str
    seq: int
    rows: list[Row]
    deleted: list[int] = []


class Shown(Seen, frozen=True, kw_only=True, tag="shown"):
    """A watcher of a conversation's view got its first value, or the operations of a commit.

    ``watch`` numbers the watchers of a run; every one begins with a ``value``.
    """

    watch: int
    session: str
    conversation: int
    value: Json = None
    ops: list[Any] | None = None


class Unwatched(Seen, frozen=True, kw_only=True, tag="unwatched"):
    """A watcher was told that nothing more will come."""

    watch: int


class Began(Seen, frozen=True, kw_only=True, tag="began"):
    """An external effect began. ``number`` is its place among all effects of the run, which its end repeats.

    Of a task's own code: its ``session`` and ``task``. Of a tool, beside these: ``call`` id, ``arguments``, ``replay``. Of a
    model: ``provider_session``, the stored identity of the conversation that asks.
    """

    number: int
    kind: Literal["tool", "model", "task"]
    name: str
    session: str | None = None
    task: int | None = None
    call: str | None = None
    arguments: Json = None
    replay: str | None = None
    provider_session: str | None = None


class Ended(Seen, frozen=True, kw_only=True, tag="ended"):
    """An external effect came to its end; one that a crash interrupted never does."""

    number: int
    raised: str | None = None


class Answered(Seen, frozen=True, kw_only=True, tag="answered"):
    """A caller from outside was told something: of a ``record``, or any other ``value``; ``about`` says what was asked."""

    session: str
    about: str
    record: Row | None = None
    value: Json = None


Event = Opened | Crashed | Failed | Committed | Deleted | Published | Shown | Unwatched | Began | Ended | Answered

E = TypeVar("E", bound=Seen)


class Sink(Protocol):
    """Where events go."""

    def add(self, event: Event) -> None:
        """Take note of what has just happened."""


class Trace:
    """The events of one run, oldest first."""

    def __init__(self, events: list[Event] | None = None) -> None:
        self.events: list[Event] = events if events is not None else []

    def add(self, event: Event) -> None:
        """Take note of what has just happened."""
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Give the events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def batches(self, session: str) -> list[Batch]:
        """Give a session's commits, in the order in which they became durable."""
        return [one.batch for one in self.of(Committed) if one.batch.session == session]

    def sessions(self) -> list[str]:
        """Name the sessions that have committed, in the order of their first commits."""
        return list(dict.fromkeys(one.batch.session for one in self.of(Committed)))

    def lines(self) -> Iterator[str]:
        """Give each event as a line of JSON, with every name that is new in each run replaced by a number."""
        numbers: dict[str, str] = {}
        for event in self.events:
            yield NAMES.sub(lambda found: numbers.setdefault(found[0], f"name-{len(numbers) + 1}"), _json(event))

    def digest(self) -> str:
        """Hash the trace: equal for runs that have shown the same, on any process."""
        found = hashlib.blake2b(digest_size=16)
        for line in self.lines():
            found.update(line.encode() + b"\n")
        return found.hexdigest()


def _json(event: Event) -> str:
    return msgspec.json.encode(event, order="deterministic").decode()
