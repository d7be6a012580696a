"""A conversation's compaction as its holder sees it: how one is asked for, and what became of it.

Who summarizes is the agent room's business. Proved by tests/actors/conversation/test_compaction.py.
"""

from typing import Any, Literal, Protocol

import msgspec

from ...storage.records import Aborted, Completed, EntryRecord, Json, SubmissionRecord, TaskRecord, Terminal
from ..session.tx import Entry
from ..task.errors import reason_of
from ..task.ref import TaskRef

CompactionEntry: Entry[Json] = Entry("pi.compaction")
"""A summary that takes the place of what came before its ``head``; data ``{reason, instruction?, running?}``."""

Became = Literal["placed", "queued", "nothing", "declined", "stale", "withdrawn", "failed", "aborted"]


class Compactor(Protocol):
    """What summarizes: the agent room's way to start a compaction that somebody asks for."""

    async def start(self, tx: Any, conversation_id: int, instructions: str | None) -> TaskRef[Any]:
        """Create the task that compacts."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a compaction.

    "placed": ``entry`` is the summary. "queued": it is ready and takes its place after the current tool round or run;
    ``submission_id`` names what waits. "stale": a newer head has cut further. "nothing": there was nothing to compact;
    "declined": a hook would not have it. "failed", "aborted", "withdrawn": ``reason`` says why; the context is as it was.
    """

    status: Became
    task_id: int
    entry: EntryRecord | None = None
    submission_id: int | None = None
    reason: str | None = None


def compacted(task: TaskRecord, write: SubmissionRecord | None, entry: EntryRecord | None) -> Compacted:
    """Say what became of an ended task that compacts, whose summary was submitted as ``write`` and became ``entry``."""
    assert isinstance(task.state, Terminal)
    outcome = task.state.outcome
    if not isinstance(outcome, Completed):
        status: Became = "aborted" if isinstance(outcome, Aborted) else "failed"
        return Compacted(status=status, task_id=task.id, reason=reason_of(outcome))
    if write is None:
        declined = bool(outcome.result.get("declined"))
        return Compacted(status="declined" if declined else "nothing", task_id=task.id)
    return Compacted(status=_of_write(write), task_id=task.id, entry=entry, submission_id=write.id, reason=write.reason)


def _of_write(write: SubmissionRecord) -> Became:
    if write.status == "done":
        return "placed"
    if not write.settled:
        return "queued"
    return "stale" if write.reason == "stale" else "withdrawn"
