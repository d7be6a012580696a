"""What must hold of every run, however it was interrupted: pure functions over what is stored and what was observed.

Each names the promise of the design that a violation breaks. They are for a store at rest: the work is done, or waits for
somebody. Proved by tests/actors/chaos/test_invariants.py, where each catches what was planted for it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from ...chord import apply_immutable
from ...storage.contract import Reading
from ...storage.records import (
    Batch,
    Completing,
    ConversationRecord,
    ConversationScope,
    DocumentChange,
    EntryRecord,
    JsonObject,
    MessageDelete,
    MessageRecord,
    Running,
    SubmissionRecord,
    TaskRecord,
    Waiting,
)
from ..agent.calls import KIND as TOOL
from ..conversation.ledger import add
from .requests import transcript_problems
from .stored import Stored, StoredSession, read_store
from .trace import (
    Answered,
    Began,
    Committed,
    Deleted,
    Ended,
    Failed,
    Opened,
    Published,
    Row,
    Shown,
    Trace,
    Unwatched,
)
from .views import Documents, stored_view, view_states

ROWS = (ConversationRecord, EntryRecord, TaskRecord, SubmissionRecord, MessageRecord)


class Violation(msgspec.Struct, frozen=True):
    """A promise that was broken ("P1" to "P11"), and how."""

    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


Invariant = Callable[[Stored, Trace], Iterator[Violation]]


async def check(storage: Reading, trace: Trace) -> list[Violation]:
    """Read a store at rest and hold all invariants over it and the trace of what has led to it."""
    return check_stored(await read_store(storage), trace)


def check_stored(stored: Stored, trace: Trace) -> list[Violation]:
    """Hold all invariants."""
    return [violation for invariant in INVARIANTS for violation in invariant(stored, trace)]


# --- P1, P2, P3: storage, order, visibility


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
    return _same(event.rows, _rows(batch)) and sorted(event.deleted) == sorted(deleted)


def _same(some: list[Row], others: list[Row]) -> bool:
    return sorted(map(repr, some)) == sorted(map(repr, others))


def _rows(batch: Batch) -> list[Row]:
    return [write for write in batch.writes if isinstance(write, ROWS)]


def commits_are_in_order(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P2: a session's commits are numbered without a gap, and become durable in that order."""
    for session, batches in _lives(trace):
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
    for session, batches in _current_lives(trace):
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
    for session, batches in _lives(trace):
        rows: dict[int, Row] = {}
        for batch in batches:
            for row in _rows(batch):
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


# --- P4, P6: effects


def intent_comes_first(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P4: at the moment an effect began, a durable record said so: a call's arguments, a conversation's request."""
    tasks: dict[str, dict[int, TaskRecord]] = defaultdict(dict)
    identities: dict[str, tuple[str, int]] = {}
    documents: dict[str, Documents] = defaultdict(Documents)
    for event in trace.events:
        if isinstance(event, Committed):
            key = event.batch.session
            tasks[key].update((row.id, row) for row in _rows(event.batch) if isinstance(row, TaskRecord))
            documents[key].apply(event.batch)
            identities.update(_identities(key, documents[key]))
        elif isinstance(event, Began) and not _intended(event, tasks, identities):
            yield Violation("P4", f"{event.kind} {event.name} was begun without a stored intent: {event}")


def _identities(session: str, documents: Documents) -> Iterator[tuple[str, tuple[str, int]]]:
    for document, value in documents.values.items():
        record = documents.records[document]
        if record.kind == "pi.provider" and isinstance(record.scope, ConversationScope):
            yield value["sessionId"], (session, record.scope.conversation_id)


def _intended(event: Began, tasks: dict[str, dict[int, TaskRecord]], identities: dict[str, tuple[str, int]]) -> bool:
    task = tasks[event.session or ""].get(event.task or 0)
    if event.kind == "task":
        return task is not None and isinstance(task.state, Running)
    if event.kind == "tool":
        return task is not None and _phase(task) == "execute" and _checkpoint(task)["arguments"] == event.arguments
    session, conversation = identities.get(event.provider_session or "", ("", 0))
    asking = [task for task in tasks[session].values() if task.conversation_id == conversation]
    return any(_phase(task) in ("request", "summarize") for task in asking)


def _phase(task: TaskRecord) -> str | None:
    return _checkpoint(task).get("phase") if isinstance(task.state, Running) else None


def _checkpoint(task: TaskRecord) -> JsonObject:
    checkpoint: JsonObject = getattr(task.state, "checkpoint", {})
    return checkpoint


def unsafe_effects_happen_once(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P6: a tool call is executed again only if it was declared safe each time."""
    executions: dict[tuple[str | None, int | None], list[Began]] = defaultdict(list)
    for event in trace.of(Began):
        if event.kind == "tool":
            executions[event.session, event.task].append(event)
    for (session, task), some in executions.items():
        if len(some) > 1 and any(one.replay != "safe" for one in some):
            yield Violation(
                "P6", f"{session}: unsafe call {some[0].name} of task {task} was executed {len(some)} times"
            )


def results_tell_what_happened(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P6: a call with a good result has an execution that came to its end."""
    ended = {event.number for event in trace.of(Ended) if event.raised is None}
    done = {(one.session, one.task) for one in trace.of(Began) if one.number in ended}
    begun = {(one.session, one.task) for one in trace.of(Began)}
    for key, session in stored.items():
        for entry in session.own_entries().values():
            if entry.kind == "pi.tool-result" and entry.model and not entry.model[0].get("isError"):
                task = session.tasks.get(entry.by_task_id or 0)
                if task is not None and task.kind == TOOL and (key, task.id) in begun - done:
                    yield Violation("P6", f"{key}: call of task {task.id} has a result, but no execution has ended")


def calls_are_answered_once(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P9: a tool call has one result entry, however often it was tried."""
    for key, session in stored.items():
        entries = session.own_entries().values()
        results = Counter(
            one.by_task_id for one in entries if one.kind == "pi.tool-result" and _of_a_call(session, one)
        )
        for task, count in results.items():
            if count > 1:
                yield Violation("P9", f"{key}: the call of task {task} has {count} results")


def _of_a_call(session: StoredSession, entry: EntryRecord) -> bool:
    """Whether a result was written by its call's own task: a generation answers several calls that never ran."""
    task = session.tasks.get(entry.by_task_id or 0)
    return task is not None and task.kind == TOOL


# --- P7: ownership


def no_work_is_orphaned(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P7: no foreground task is alive below an owner that has ended, at any depth."""
    for key, session in stored.items():
        for task in session.tasks.values():
            owner = _owner(session, task)
            if task.live and not task.background and owner is not None and not owner.live:
                yield Violation(
                    "P7", f"{key}: task {task.id} ({task.kind}) lives below task {owner.id}, which has ended"
                )


def _owner(session: StoredSession, task: TaskRecord) -> TaskRecord | None:
    if task.owner is not None:
        return session.tasks[task.owner]
    above = session.conversations[task.conversation_id].owner
    return None if above is None else session.tasks[above.task_id]


def owners_outlive_their_work(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P7: no commit ends an owner, or begins work below one that has ended, while foreground work below it is alive."""
    for key, batches in _lives(trace):
        rows: dict[int, Row] = {}
        for batch in batches:
            rows.update((row.id, row) for row in _rows(batch))
            yield from _left_alive(key, batch.seq, rows)


def _left_alive(key: str, seq: int, rows: dict[int, Row]) -> Iterator[Violation]:
    for task in [row for row in rows.values() if isinstance(row, TaskRecord) and row.live and not row.background]:
        conversation: Any = rows[task.conversation_id]
        above = task.owner if task.owner is not None else conversation.owner and conversation.owner.task_id
        owner = None if above is None else rows[above]
        if isinstance(owner, TaskRecord) and not owner.live:
            yield Violation(
                "P7", f"{key}: after commit {seq} task {task.id} is alive below {owner.id}, which has ended"
            )


def nothing_is_forgotten(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P8: at rest nothing waits for what has happened already: no runnable task, ended wait, drained finish, queued mail."""
    for key, session in stored.items():
        for task in session.tasks.values():
            if task.live and not _waits_for_something(session, task):
                yield Violation(
                    "P8", f"{key}: task {task.id} ({task.kind}) is {task.state}, and nobody goes on with it"
                )
        for message in session.messages.values():
            if message.status == "outgoing":
                yield Violation("P9", f"{key}: message {message.id} was never brought to its receiver")


def _waits_for_something(session: StoredSession, task: TaskRecord) -> bool:
    state = task.state
    if isinstance(state, Waiting):
        mail = any(one.task_id == task.id and one.status == "queued" for one in session.messages.values())
        others = any(session.tasks[one].live for one in state.on)
        return others or (not mail and state.mail) or (state.until is not None and not (mail and state.mail))
    return isinstance(state, Completing) and any(
        one.live and not one.background and _owner(session, one) == task for one in session.tasks.values()
    )


# --- P9: once


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
    for key, batches in _lives(trace):
        arrived: set[int] = set()
        for row in (row for batch in batches for row in _rows(batch) if isinstance(row, MessageRecord)):
            if row.status == "outgoing" and row.session is not None:
                sent[key, row.session, row.task_id].append(row.body)
            elif row.id not in arrived and row.sender is not None and row.sender.session is not None:
                arrived.add(row.id)
                received[row.sender.session, key, row.task_id].append(row.body)
    for sender, receiver, task in sorted(sent.keys() | received.keys(), key=repr):
        there, here = sent[sender, receiver, task], received[sender, receiver, task]
        if there != here:
            yield Violation("P9", f"{sender} sent to task {task} of {receiver}: {there}; arrived: {here}")


def usage_is_counted_once(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P2: the commit that stores a model's answer counts it, and no other commit counts anything but summaries and tools."""
    for key, batches in _lives(trace):
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


# --- transcripts and replicas


def transcripts_are_valid(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """Design section 9: no provider would refuse the request that a transcript makes, in any protocol."""
    for key, session in stored.items():
        for conversation, entries in session.entries.items():
            for problem in transcript_problems(entries):
                yield Violation("P11", f"{key}: conversation {conversation}: {problem}")


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
        elif watch in open_watches and shown[-1] != stored_view(stored[session], conversation):
            yield Violation("P1", f"{session}: who watches conversation {conversation} was not shown its last state")


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


# --- the lives of sessions: one that is deleted and begun anew is another


def _lives(trace: Trace) -> list[tuple[str, list[Batch]]]:
    """Every life of every session between deletions, with its commits."""
    return [*_told(trace)[0], *_told(trace)[1].items()]


def _current_lives(trace: Trace) -> list[tuple[str, list[Batch]]]:
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


INVARIANTS: tuple[Invariant, ...] = (
    only_durable_was_shown,
    commits_are_in_order,
    publications_are_in_order,
    nothing_durable_is_lost,
    final_records_stay,
    intent_comes_first,
    unsafe_effects_happen_once,
    results_tell_what_happened,
    calls_are_answered_once,
    no_work_is_orphaned,
    owners_outlive_their_work,
    nothing_is_forgotten,
    requests_are_admitted_once,
    messages_arrive_once,
    usage_is_counted_once,
    transcripts_are_valid,
    replicas_equal_the_store,
)
