"""The log events of the actor runtime, by structlog, and the one switch that keeps them cheap.

=========================  =======  ==================================================================================
event                      level    fields
=========================  =======  ==================================================================================
``actor_started``          debug    actor, actor_class
``actor_stopped``          debug    actor, actor_class
``actor_crashed``          error    actor, actor_class, doing (what it was doing), exc_info
``actor_killed``           warning  actor, actor_class, why
``actor_abandoned``        error    actor, actor_class, grace_s: a killed handler swallowed its cancellation
``hook_failed``            error    actor, actor_class, hook, exc_info: a hook at the end of a life raised
``message_refused``        warning  actor, message_type, error: a told message met an expected error
``dead_letter``            warning  actor, message_type (of the first), count: told messages that nobody handles
``child_restarting``       warning  supervisor, child, attempt, delay_s, reason
``supervisor_escalated``   error    supervisor, child, restarts, period_s, exc_info: more restarts than it may make
``callback_failed``        error    exc_info: a callback on a future, or a map on it, raised
=========================  =======  ==================================================================================

``actor`` and ``supervisor`` are actor ids, durations are float seconds. An escalation is one ``supervisor_escalated`` for
each supervisor that gave up, and no ``actor_crashed`` beside it. Debug events are only built when the application has
configured structlog and its level lets debug through. A logger that raises takes no actor down.
"""

import contextlib
import logging
from typing import Any

import structlog

ACTOR_STARTED = "actor_started"
ACTOR_STOPPED = "actor_stopped"
ACTOR_CRASHED = "actor_crashed"
ACTOR_KILLED = "actor_killed"
ACTOR_ABANDONED = "actor_abandoned"
HOOK_FAILED = "hook_failed"
MESSAGE_REFUSED = "message_refused"
DEAD_LETTER = "dead_letter"
CHILD_RESTARTING = "child_restarting"
SUPERVISOR_ESCALATED = "supervisor_escalated"
CALLBACK_FAILED = "callback_failed"

_log: Any = structlog.get_logger("perdure")


def debug_enabled() -> bool:
    """Whether debug events would be seen. False, at the cost of one call, while structlog is not configured."""
    try:
        return structlog.is_configured() and bool(_log.is_enabled_for(logging.DEBUG))
    except Exception:  # noqa: BLE001 - a broken log is no reason to break anything else
        return False


def debug(event: str, **fields: Any) -> None:
    """Emit at debug level. Ask ``debug_enabled()`` first: building the fields is what costs."""
    with contextlib.suppress(Exception):
        _log.debug(event, **fields)


def warning(event: str, **fields: Any) -> None:
    """Emit at warning level."""
    with contextlib.suppress(Exception):
        _log.warning(event, **fields)


def error(event: str, **fields: Any) -> None:
    """Emit at error level."""
    with contextlib.suppress(Exception):
        _log.error(event, **fields)
