"""What must hold of external effects: intent before the effect, unsafe ones once. P4, P6.

Proved by tests/actors/chaos/test_invariants.py.
"""

from collections import defaultdict
from collections.abc import Iterator

from ...storage.records import ConversationScope, JsonObject, Running, TaskRecord
from ..agent.calls import KIND as TOOL
from .stored import Stored
from .trace import Began, Committed, Ended, Trace
from .views import Documents
from .violations import Violation, rows_of


def intent_comes_first(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P4: at the moment an effect began, a durable record said so: a call's arguments, a conversation's request."""
    tasks: dict[str, dict[int, TaskRecord]] = defaultdict(dict)
    identities: dict[str, tuple[str, int]] = {}
    documents: dict[str, Documents] = defaultdict(Documents)
    for event in trace.events:
        if isinstance(event, Committed):
            key = event.batch.session
            tasks[key].update((row.id, row) for row in rows_of(event.batch) if isinstance(row, TaskRecord))
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
