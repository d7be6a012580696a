"""What must happen once: requests, messages, usage. P9, and P2 for what one commit must hold together.

Proved by tests/actors/chaos/test_invariants.py.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from ...storage.records import Batch, DocumentChange, EntryRecord, JsonObject, MessageRecord, TaskRecord
from ..agent.calls import KIND as TOOL
from ..conversation.ledger import add
from .stored import Stored, StoredSession
from .trace import Trace
from .views import Documents
from .violations import Violation, lives, rows_of


def requests_are_admitted_once(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P9: a request id has one submission in its conversation, however often it was sent, and an input one entry."""
    for key, session in stored.items():
        requests = Counter(
            (one.conversation_id, one.request_id) for one in session.submissions.values() if one.request_id
        )
        for (conversation, request), count in requests.items():
            if count > 1:
                yield Violation("P9", f"{key}: request {request!r} was admitted {count} times to {conversation}")
        entries = Counter(one.entry for one in session.submissions.values() if one.entry is not None)
        for entry, count in entries.items():
            if count > 1:
                yield Violation("P9", f"{key}: entry {entry} is the input of {count} submissions")


def messages_arrive_once(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P9: every message that was sent to another session was received there once, in order, or is a dead letter there."""
    sent: dict[tuple[str, str, int | None], list[Any]] = defaultdict(list)
    received: dict[tuple[str, str, int | None], list[Any]] = defaultdict(list)
    for key, batches in lives(trace):
        arrived: set[int] = set()
        for row in (row for batch in batches for row in rows_of(batch) if isinstance(row, MessageRecord)):
            if row.status == "outgoing" and row.session is not None:
                sent[key, row.session, row.task_id].append(row.body)
            elif row.id not in arrived and row.sender is not None and row.sender.session is not None:
                arrived.add(row.id)
                received[row.sender.session, key, row.task_id].append(row.body)
    for sender, receiver, task in sorted(sent.keys() | received.keys(), key=repr):
        there, here = sent[sender, receiver, task], received[sender, receiver, task]
        if there != here:
            yield Violation("P9", f"{sender} sent to task {task} of {receiver}: {there}; arrived: {here}")


def calls_are_answered_once(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P9: a tool call has one result entry, however often it was tried."""
    for key, session in stored.items():
        results = [one.by_task_id for one in session.own_entries().values() if _is_of_a_call(session, one)]
        for task, count in Counter(results).items():
            if count > 1:
                yield Violation("P9", f"{key}: the call of task {task} has {count} results")


def _is_of_a_call(session: StoredSession, entry: EntryRecord) -> bool:
    """Whether an entry is a result of its call's own task: a generation answers several calls that never ran."""
    task = session.tasks.get(entry.by_task_id or 0)
    return entry.kind == "pi.tool-result" and task is not None and task.kind == TOOL


def usage_is_counted_once(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P2: the commit that stores a model's answer counts it, and no other commit counts anything but summaries and tools."""
    for key, batches in lives(trace):
        documents = Documents()
        for batch in batches:
            before = dict(documents.values)
            documents.apply(batch)
            yield from _counted(key, batch, before, documents)


def _counted(key: str, batch: Batch, before: dict[int, JsonObject], documents: Documents) -> Iterator[Violation]:
    answers = _answers(batch)
    changed = {write.id for write in batch.writes if isinstance(write, DocumentChange)}
    for document in [one for one in changed if documents.records[one].kind == "pi.usage"]:
        conversation = getattr(documents.records[document].scope, "conversation_id", 0)
        asked = answers.pop(conversation, [])
        turns = documents.values[document].get("turns", 0) - before[document].get("turns", 0)
        if turns != len(asked):
            yield Violation("P2", f"{key}: commit {batch.seq} has {len(asked)} answers, and counts {turns}")
        elif not _summarizes(batch) and _tokens(before[document]) + sum(asked) != _tokens(documents.values[document]):
            yield Violation("P2", f"{key}: commit {batch.seq} counts other usage than its answers have")
    for conversation, asked in answers.items():
        yield Violation("P2", f"{key}: commit {batch.seq} does not count {len(asked)} answers in {conversation}")


def _answers(batch: Batch) -> dict[int, list[int]]:
    """The total tokens of each answer that a generation has stored, by conversation."""
    found: dict[int, list[int]] = defaultdict(list)
    for entry in [write for write in batch.writes if isinstance(write, EntryRecord)]:
        if entry.kind == "pi.assistant" and entry.by_task_id is not None and entry.model:
            found[entry.conversation_id].append(entry.model[0].get("usage", {}).get("totalTokens", 0))
    return found


def _tokens(usage: JsonObject) -> int:
    total: JsonObject = {}
    for spent in usage["models"].values():
        total = add(total, spent)
    return int(total.get("totalTokens", 0))


def _summarizes(batch: Batch) -> bool:
    return any(isinstance(write, TaskRecord) and write.kind == "pi.compaction" for write in batch.writes)
