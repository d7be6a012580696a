"""What can go wrong with conversations, and what state each leaves behind."""

from ...chord.errors import PerdureError


class ConversationBusy(PerdureError):
    """A run is active and the submission asked to be refused then. Nothing was stored."""


class SubmissionTooLarge(PerdureError):
    """The content exceeds ``Settings.max_submission_bytes``. Nothing was stored."""


class InboxFull(PerdureError):
    """As much waits in a conversation's inbox as ``Settings`` allow. Nothing was stored: send it again when some of it is done.

    ``count`` submissions wait there; with this one, ``size`` bytes would.
    """

    def __init__(self, conversation_id: int, count: int, size: int) -> None:
        super().__init__(
            f"the inbox of conversation {conversation_id} is full: {count:,} wait, {size:,} bytes with this one"
        )
        self.conversation_id = conversation_id
        self.count = count
        self.size = size


class RequestIdReused(PerdureError):
    """A request id names an earlier submission of another kind. Nothing was stored."""


class Unanswered(PerdureError):
    """An answer was asked for that there is none of. ``reason`` says why, as the submission's record does."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"the submission has no answer: {reason}")
        self.reason = reason
