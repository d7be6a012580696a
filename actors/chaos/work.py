"""What must hold of work: nobody outlives its owner, and nobody is forgotten. P7, P8.

Proved by tests/actors/chaos/test_invariants.py.
"""

from collections.abc import Iterator, Mapping

from ...storage.records import Completing, ConversationRecord, TaskRecord, Waiting
from .stored import Stored, StoredSession
from .trace import Row, Trace
from .violations import Violation, lives, rows_of


def no_work_is_orphaned(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P7: no foreground task is alive below an owner that has ended."""
    for key, session in stored.items():
        for task, owner in _left_alive(_rows(session)):
            yield Violation("P7", f"{key}: task {task.id} ({task.kind}) lives below task {owner.id}, which has ended")


def _rows(session: StoredSession) -> dict[int, Row]:
    return {**session.conversations, **session.tasks}


def _left_alive(rows: Mapping[int, Row]) -> Iterator[tuple[TaskRecord, TaskRecord]]:
    """Give every live foreground task with its owner that is not alive."""
    for task in [row for row in rows.values() if isinstance(row, TaskRecord) and row.live and not row.background]:
        owner = _owner(rows, task)
        if owner is not None and not owner.live:
            yield task, owner


def _owner(rows: Mapping[int, Row], task: TaskRecord) -> TaskRecord | None:
    conversation = rows.get(task.conversation_id)
    above = conversation.owner if isinstance(conversation, ConversationRecord) else None
    holder = 0 if above is None else above.task_id
    owner = rows.get(holder if task.owner is None else task.owner)
    return owner if isinstance(owner, TaskRecord) else None


def owners_outlive_their_work(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P7: no commit ends an owner, or begins work below one that has ended, while foreground work below it is alive."""
    for key, batches in lives(trace):
        rows: dict[int, Row] = {}
        for batch in batches:
            rows.update((row.id, row) for row in rows_of(batch))
            for task, owner in _left_alive(rows):
                said = f"after commit {batch.seq} task {task.id} is alive below {owner.id}, which has ended"
                yield Violation("P7", f"{key}: {said}")


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
        others = any(one in session.tasks and session.tasks[one].live for one in state.on)
        return others or (not mail and state.mail) or (state.until is not None and not (mail and state.mail))
    below = [one for one in session.tasks.values() if one.live and not one.background]
    return isinstance(state, Completing) and any(_owner(_rows(session), one) == task for one in below)


def deadlines_are_stored(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P8, P10: each commit says when its session must be awake next, so that nobody needs to hold a sleeping task in memory."""
    for key, batches in lives(trace):
        tasks: dict[int, TaskRecord] = {}
        for batch in batches:
            tasks.update((row.id, row) for row in rows_of(batch) if isinstance(row, TaskRecord))
            untils = [until for task in tasks.values() if (until := _until(task)) is not None]
            if untils and (batch.wake is None or batch.wake > min(untils)):
                yield Violation("P8", f"{key}: commit {batch.seq} wakes at {batch.wake}, a task at {min(untils)}")


def _until(task: TaskRecord) -> int | None:
    return task.state.until if isinstance(task.state, Waiting) and not task.abort_requested else None
