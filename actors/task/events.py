"""The log events of tasks, by structlog. The table of all events is docs/events.md, which a test compares with these.

They go the way of the runtime's events: debug ones are built only for somebody, and a logger that raises ends nothing.
"""

from typing import Any

from ..runtime import events

TASK_STARTED = "task_started"
TASK_STOPPED = "task_stopped"
TASK_CRASHED = "task_crashed"
TASK_RESTARTING = "task_restarting"
TASK_ESCALATED = "task_escalated"
TASK_FAULTED = "task_faulted"
FAULT_NOT_STORED = "fault_not_stored"
CODE_IGNORES_CANCEL = "code_ignores_cancel"
MIGRATION_FAILED = "migration_failed"
SCHEDULING_FAILED = "scheduling_failed"

warning, error = events.warning, events.error


def invocation(event: str, session: str, task: int, **fields: Any) -> None:
    """Tell, at debug level, that an invocation has begun or ended."""
    if events.debug_enabled():
        events.debug(event, session=session, task=task, **fields)
