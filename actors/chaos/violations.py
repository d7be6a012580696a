"""What an invariant finds, and what invariants share: the commits of a trace by session, and the records in them."""

from collections.abc import Callable, Iterator

import msgspec

from ...storage.records import Batch, ConversationRecord, EntryRecord, MessageRecord, SubmissionRecord, TaskRecord
from .stored import Stored
from .trace import Committed, Deleted, Row, Trace

ROWS = (ConversationRecord, EntryRecord, TaskRecord, SubmissionRecord, MessageRecord)


class Violation(msgspec.Struct, frozen=True):
    """A promise that was broken ("P1" to "P11"), and how."""

    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


Invariant = Callable[[Stored, Trace], Iterator[Violation]]


def rows_of(batch: Batch) -> list[Row]:
    """Give the records that a commit has written."""
    return [write for write in batch.writes if isinstance(write, ROWS)]


# --- the lives of sessions: one that is deleted and begun anew is another


def lives(trace: Trace) -> list[tuple[str, list[Batch]]]:
    """Every life of every session between deletions, with its commits."""
    return [*_told(trace)[0], *_told(trace)[1].items()]


def current_lives(trace: Trace) -> list[tuple[str, list[Batch]]]:
    """Those that were not deleted."""
    return list(_told(trace)[1].items())


def _told(trace: Trace) -> tuple[list[tuple[str, list[Batch]]], dict[str, list[Batch]]]:
    over: list[tuple[str, list[Batch]]] = []
    current: dict[str, list[Batch]] = {}
    for event in trace.events:
        if isinstance(event, Deleted) and event.session in current:
            over.append((event.session, current.pop(event.session)))
        elif isinstance(event, Committed):
            current.setdefault(event.batch.session, []).append(event.batch)
    return over, current
