"""Join policies: when a wait ends, what counts as a failure, and whom one condemns.

``allSettled``      when all have ended
``failFast``        when all have ended; the first that fails has the others aborted
``firstCompleted``  when one has completed, or all have ended
``Quorum(n)``       when n have completed, or too many have ended otherwise for n to be reached

The last two mark nobody: those that go on may still be wanted, and whoever waited decides. What is left when it
finishes holds it, or is cancelled by its failure, as any work that it owns. A task counts when it is terminal, not while
it holds its outcome; only ``failFast`` answers a failure that is held.

Pure functions over records. Proved by tests/supervisors/test_joins.py and test_settlement.py.
"""

from collections.abc import Iterator

from ..storage.records import Completed, Completing, JoinPolicy, Outcome, Quorum, TaskRecord, Terminal, Waiting


def outcome_of(record: TaskRecord) -> Outcome | None:
    """Give the outcome that a task holds or has ended with."""
    state = record.state
    return state.outcome if isinstance(state, Completing | Terminal) else None


def has_failed(record: TaskRecord) -> bool:
    """Whether the task holds, or has ended with, anything but completed."""
    state = record.state
    return isinstance(state, (Completing, Terminal)) and not isinstance(state.outcome, Completed)


def has_completed(record: TaskRecord) -> bool:
    """Whether the task has ended as completed."""
    return isinstance(record.state, Terminal) and isinstance(record.state.outcome, Completed)


def has_intent(record: TaskRecord) -> bool:
    """Whether a live task's own record says that the work below it is to be cancelled."""
    state = record.state
    if isinstance(state, Completing):
        return record.abort_requested or not isinstance(state.outcome, Completed)
    return record.abort_requested and not isinstance(state, Terminal)


def wanted(policy: JoinPolicy) -> int | None:
    """How many completed tasks end a wait early; None when none do."""
    if isinstance(policy, Quorum):
        return policy.quorum
    return 1 if policy == "firstCompleted" else None


def is_joined(wait: Waiting, live: int, completed: int) -> bool:
    """Whether the tasks of a wait end it, given how many of them are live and how many have ended as completed.

    A wait for no tasks is over at once, unless it is for something else.
    """
    if not wait.on:
        return wait.until is None and not wait.mail
    enough = wanted(wait.policy)
    if live == 0 or enough is None:
        return live == 0
    return completed >= enough or completed + live < enough


def condemned(wait: Waiting, failed: int) -> Iterator[int]:
    """Name the tasks that are to be marked when ``failed``, one of ``wait.on``, has failed."""
    if wait.policy == "failFast":
        yield from (task for task in wait.on if task != failed)
