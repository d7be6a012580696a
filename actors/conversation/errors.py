"""What can go wrong with conversations, and what state each leaves behind."""

from ...chord.errors import PerdureError
from ..session.errors import InboxFull

__all__ = ["ConversationBusy", "ConversationKept", "InboxFull", "RequestIdReused", "SubmissionTooLarge", "Unanswered"]


class ConversationBusy(PerdureError):
    """A run is active and the submission asked to be refused then. Nothing was stored."""


class ConversationKept(PerdureError):
    """A conversation cannot be deleted: it is the root, or the task that owns it lives. Nothing was changed."""


class SubmissionTooLarge(PerdureError):
    """The content exceeds ``Settings.max_submission_bytes``. Nothing was stored."""


class RequestIdReused(PerdureError):
    """A request id names an earlier submission of another kind. Nothing was stored."""


class Unanswered(PerdureError):
    """An answer was asked for that there is none of. ``reason`` says why, as the submission's record does."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"the submission has no answer: {reason}")
        self.reason = reason
