"""What the gateway refuses, as answers that programs can tell apart. Proved by tests/actors/gateway/test_refusals.py."""

import re
from typing import Any

import structlog

from ... import (
    ApprovalMismatch,
    CallNotWaiting,
    ConversationBusy,
    ConversationKept,
    EntryNotVisible,
    InboxFull,
    OwnershipRefused,
    PerdureError,
    RequestIdReused,
    SessionClosed,
    SessionFailed,
    StorageError,
    StorageRejected,
    SubmissionTooLarge,
    UnknownCall,
    UnknownRecord,
)

log = structlog.get_logger("perdure.gateway")


class Refused(PerdureError):
    """The gateway did not do what a client asked for. Nothing was changed. ``code`` names why, ``status`` is HTTP's."""

    def __init__(self, code: str, message: str, status: int = 400, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s


STATUS: dict[type[PerdureError], int] = {
    UnknownRecord: 404,
    EntryNotVisible: 404,
    UnknownCall: 404,
    ConversationBusy: 409,
    ConversationKept: 409,
    CallNotWaiting: 409,
    ApprovalMismatch: 409,
    RequestIdReused: 409,
    OwnershipRefused: 409,
    SubmissionTooLarge: 413,
    InboxFull: 429,
}
"""Anything else that perdure raises on purpose means that the input was not what was asked for: 400."""
AGAIN: tuple[type[PerdureError], ...] = (SessionClosed, SessionFailed, StorageError)
"""Nobody can say what became of it, or nothing can be done now: to be sent again with the same request id."""
SAID = "this could not be done now, and may or may not have been stored; send it again with the same request id"


def refusal(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Give HTTP's status and the answer for an error. What is not said on purpose is logged and not told."""
    if isinstance(error, Refused):
        again = {} if error.retry_after_s is None else {"retryAfter": error.retry_after_s}
        return error.status, {"code": error.code, "message": str(error), **again}
    if isinstance(error, AGAIN) and not isinstance(error, StorageRejected):
        log.warning("command_uncertain", error=repr(error))
        return 503, {"code": _code(error), "message": SAID, "retryAfter": 1.0}
    if isinstance(error, PerdureError):
        return STATUS.get(type(error), 400), {"code": _code(error), "message": str(error)}
    log.error("gateway_failed", exc_info=error)
    return 500, {"code": "internal", "message": "something went wrong; the log of the daemon says what"}


def _code(error: PerdureError) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
