"""What must hold of order, durability and visibility: P1, P2, P3, and P7 for records that are final.

Proved by tests/actors/chaos/test_invariants.py.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ...chord import apply_immutable
from ...storage.records import Batch, JsonObject, MessageDelete, MessageRecord, SubmissionRecord, TaskRecord
from .stored import Stored, StoredSession
from .trace import Answered, Committed, Deleted, Failed, Opened, Published, Row, Shown, Trace, Unwatched
from .views import stored_view, view_states
from .violations import ROWS, Violation, current_lives, lives, rows_of


def only_durable_was_shown(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P1: what was published, and what a caller was told, was durable before, record by record."""
    durable: dict[tuple[str, int], Batch] = {}
    for event in trace.events:
        if isinstance(event, Committed):
            durable[event.batch.session, event.batch.seq] = event.batch
        elif isinstance(event, Published):
            batch = durable.get((event.session, event.seq))
            if batch is None or not _tells(event, batch):
                yield Violation("P1", f"{event.session}: commit {event.seq} was published otherwise than it is stored")
        elif isinstance(event, Answered) and event.record is not None:
            known = (batch.writes for (session, _), batch in durable.items() if session == event.session)
            if not any(event.record in writes for writes in known):
                yield Violation("P1", f"{event.session}: a caller was told what is not stored: {event.record}")


def _tells(event: Published, batch: Batch) -> bool:
    deleted = [write.id for write in batch.writes if isinstance(write, MessageDelete)]
    return _same(event.rows, rows_of(batch)) and sorted(event.deleted) == sorted(deleted)


def _same(some: list[Row], others: list[Row]) -> bool:
    return sorted(map(repr, some)) == sorted(map(repr, others))


def commits_are_in_order(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P2: a session's commits are numbered without a gap, and become durable in that order."""
    for session, batches in lives(trace):
        for before, after in pairwise([0, *(batch.seq for batch in batches)]):
            if after != before + 1:
                yield Violation("P2", f"{session}: commit {after} was stored behind commit {before}")


def publications_are_in_order(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P2: watchers hear of every commit of a session's life, once, in order."""
    last: dict[str, int] = {}
    for event in trace.events:
        if isinstance(event, Opened):
            last.clear()
        elif isinstance(event, Failed | Deleted):
            last.pop(event.session, None)
        elif isinstance(event, Published):
            if event.seq != last.get(event.session, event.seq - 1) + 1:
                yield Violation("P2", f"{event.session}: {event.seq} was published after {last[event.session]}")
            last[event.session] = event.seq


def nothing_durable_is_lost(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P3, P8: what became durable is what is stored in the end, record by record, and nothing else."""
    for session, batches in current_lives(trace):
        held = stored.get(session)
        if held is None:
            yield Violation("P3", f"{session}: nothing is stored of {len(batches)} commits")
            continue
        if held.record.seq != batches[-1].seq:
            yield Violation("P3", f"{session}: {batches[-1].seq} commits became durable, {held.record.seq} are stored")
        expected = _folded(batches)
        for one in sorted(expected.keys() ^ _held(held).keys()):
            yield Violation("P3", f"{session}: record {one} is {'missing' if one in expected else 'new'}")
        for one, row in _held(held).items():
            if one in expected and expected[one] != row:
                yield Violation("P3", f"{session}: record {one} is not what became durable: {row}")


def _folded(batches: list[Batch]) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for batch in batches:
        for write in batch.writes:
            if isinstance(write, MessageDelete):
                rows.pop(write.id, None)
            elif isinstance(write, ROWS):
                rows[write.id] = write
    return rows


def _held(session: StoredSession) -> dict[int, Row]:
    held: dict[int, Row] = {}
    for some in (session.conversations, session.own_entries(), session.tasks, session.submissions, session.messages):
        held.update(some)
    return held


def final_records_stay(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P2, P7: entries, conversations, terminal tasks and settled submissions are never written again; no id is used twice."""
    for session, batches in lives(trace):
        rows: dict[int, Row] = {}
        for batch in batches:
            for row in rows_of(batch):
                before = rows.get(row.id)
                if before is not None and _final(before):
                    yield Violation("P7", f"{session}: commit {batch.seq} changes what is final: {before}")
                if before is not None and type(before) is not type(row):
                    yield Violation("P2", f"{session}: commit {batch.seq} uses id {row.id} again")
                rows[row.id] = row


def _final(row: Row) -> bool:
    if isinstance(row, TaskRecord):
        return not row.live
    return row.settled if isinstance(row, SubmissionRecord) else not isinstance(row, MessageRecord)


# --- replicas


def replicas_equal_the_store(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P1: who follows a conversation by its operations holds stored states only, in order, and the last one in the end."""
    replicas: dict[int, Shown] = {}
    values: dict[int, list[JsonObject]] = defaultdict(list)
    for event in trace.events:
        if isinstance(event, Shown):
            replicas[event.watch] = event
            ops = [["r", event.value]] if event.ops is None else event.ops
            values[event.watch].append(apply_immutable(values[event.watch][-1] if values[event.watch] else None, ops))
    open_watches = _open_watches(trace)
    for watch, shown in values.items():
        session, conversation = replicas[watch].session, replicas[watch].conversation
        if not _in_this_order(shown, view_states(trace.batches(session), conversation)):
            yield Violation("P1", f"{session}: conversation {conversation} was shown in a state that was never stored")
        elif watch in open_watches and shown[-1] != _view(stored, session, conversation):
            yield Violation("P1", f"{session}: who watches conversation {conversation} was not shown its last state")


def _view(stored: Stored, session: str, conversation: int) -> JsonObject | None:
    held = stored.get(session)
    return None if held is None or conversation not in held.conversations else stored_view(held, conversation)


def _open_watches(trace: Trace) -> set[int]:
    """Watches end with their session's life, or with the process."""
    watches: set[int] = set()
    for event in trace.events:
        if isinstance(event, Opened):
            watches.clear()
        elif isinstance(event, Shown):
            watches.add(event.watch)
        elif isinstance(event, Unwatched):
            watches.discard(event.watch)
    return watches


def _in_this_order(shown: list[JsonObject], states: Iterator[JsonObject]) -> bool:
    """Whether all that was shown is found among the states, none before an earlier one."""
    state: Any = object()
    for view in shown:
        while state != view:
            state = next(states, None)
            if state is None:
                return False
    return True
