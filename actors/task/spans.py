"""The spans of tasks: where each has its place, and what it says when the task has ended.

Proved by tests/actors/agent/test_tracing.py.
"""

from typing import Any

from ...storage.records import Aborted, Completed, Failed, Faulted, Orphaned, Outcome, TaskRecord, Terminal
from ..session.tracing import EndedSpan, below
from .definition import Definitions, Task

ERRORS: dict[type[Outcome], str] = {Failed: "failed", Faulted: "faulted", Orphaned: "orphaned", Aborted: "aborted"}


def place(session: str, record: TaskRecord) -> str | None:
    """Give a task's own place in its trace, if it has one."""
    return None if record.trace is None else below(record.trace, session, "task", record.id)


def span_of(definitions: Definitions, session: str, record: TaskRecord) -> EndedSpan | None:
    """Give the span of a traced task that has ended, as its definition describes it."""
    own = place(session, record)
    if own is None or record.trace is None or not isinstance(record.state, Terminal) or record.ended_at is None:
        return None
    definition = definitions.get(record.kind)
    name, said = (definition or Task).describe_span(record)
    outcome = record.state.outcome
    return EndedSpan(
        name=name,
        above=record.trace,
        place=own,
        started_at=record.ended_at if record.started_at is None else record.started_at,
        ended_at=record.ended_at,
        attributes={**conversation(session, record.conversation_id), "perdure.task": record.id, **said},
        error=None if isinstance(outcome, Completed) else ERRORS[type(outcome)],
    )


def conversation(session: str, conversation_id: int) -> dict[str, Any]:
    """Name a conversation as spans do."""
    return {"gen_ai.conversation.id": f"{session}/{conversation_id}"}
