"""What can go wrong with tasks, and what state each leaves behind."""

from typing import Any

from ...chord.errors import PerdureError
from ...storage.records import Outcome


class DefinitionError(PerdureError, TypeError):
    """A task class does not say what it must. Nothing was defined."""


class InvocationEnded(PerdureError):
    """A run was used after its invocation had ended, or after the task was marked for abort. Nothing was changed."""


class InvalidTransition(PerdureError):
    """A task asked for a state that it cannot take: two in one commit, or a wait that could never end."""


class TaskUnsuccessful(PerdureError):
    """A task's result was asked for, and it ended otherwise. ``outcome`` says how; the task's record is unchanged."""

    def __init__(self, task_id: int, outcome: Outcome) -> None:
        super().__init__(f"task {task_id} ended {outcome.__struct_config__.tag}: {reason_of(outcome)}")
        self.task_id = task_id
        self.outcome = outcome


def reason_of(outcome: Any) -> str:
    """Say in words why an outcome is what it is."""
    error = getattr(outcome, "error", None)
    return error.message if error is not None else (getattr(outcome, "reason", None) or "no reason given")
