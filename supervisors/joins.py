"""Join policies: what counts as a failure, and whom one condemns.

Pure functions over records. Proved by tests/supervisors/test_settlement.py.
"""

from collections.abc import Iterator

from ..storage.records import Completed, Completing, Outcome, TaskRecord, Terminal, Waiting


def outcome_of(record: TaskRecord) -> Outcome | None:
    """Give the outcome that a task holds or has ended with."""
    state = record.state
    return state.outcome if isinstance(state, Completing | Terminal) else None


def has_failed(record: TaskRecord) -> bool:
    """Whether the task holds, or has ended with, anything but completed."""
    outcome = outcome_of(record)
    return outcome is not None and not isinstance(outcome, Completed)


def has_intent(record: TaskRecord) -> bool:
    """Whether a live task's own record says that the work below it is to be cancelled."""
    return record.live and (record.abort_requested or has_failed(record))


def condemned(wait: Waiting, failed: int) -> Iterator[int]:
    """Name the tasks that are to be marked when ``failed``, one of ``wait.on``, has failed."""
    if wait.policy == "failFast":
        yield from (task for task in wait.on if task != failed)
