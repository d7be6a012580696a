"""What can go wrong with a session, and what state each leaves behind."""

from ...chord.errors import PerdureError


class SessionFailed(PerdureError):
    """The session's actors died because storage could not say what became of a commit, or because they crashed.

    What was published stays true; what was admitted and not acknowledged may be stored or not. The supervisor opens the
    session again from what is stored: call again, with the same ``request_id`` where the call has one.
    """

    def __init__(self, session: str, cause: BaseException | None = None) -> None:
        super().__init__(f"session {session!r} failed: {cause!r}; it is reopened from what is stored")
        self.session = session
        self.__cause__ = cause


class SessionClosed(PerdureError):
    """The system is closing or closed. Nothing was changed."""


class LineReentry(PerdureError):
    """A commit block of a session was entered from inside another one of the same session. The inner did nothing."""


class WaitCycle(PerdureError):
    """A task's code waited in memory for something that cannot end before that task does. Nothing was changed."""


class ReadAfterWrite(PerdureError):
    """A scan was asked for after the commit block had written records, which the scan could not see."""


class TransactionOver(PerdureError):
    """A transaction was used after its block had ended. Nothing was changed."""


class UnknownRecord(PerdureError):
    """There is no such record in the session. Nothing was changed. ``kind`` and ``id`` say which."""

    def __init__(self, kind: str, id: object) -> None:
        super().__init__(f"{kind} {id} does not exist in this session")
        self.kind = kind
        self.id = id


class OwnershipRefused(PerdureError):
    """New work named an owner that cannot own it: missing, elsewhere, marked or finished. Nothing was changed."""


class DocumentMismatch(PerdureError):
    """A document definition does not fit what is stored: scope, policies, or a newer version. Nothing was changed."""


class InboxFull(PerdureError):
    """A task has as many messages waiting as may be queued for it. The message was not taken: send it again later."""

    def __init__(self, session: str, task: int, limit: int) -> None:
        super().__init__(
            f"task {task} of session {session!r} has {limit:,} messages waiting; send this one again later"
        )
        self.session = session
        self.task = task
        self.limit = limit


class Undeliverable(PerdureError):
    """Nobody will receive a message that was sent from outside; ``reason`` is ended, unknown_task or unknown_session.

    It is kept as a dead letter of its session, unless there is no such session: then nothing was changed.
    """

    def __init__(self, session: str, task: int, reason: str) -> None:
        super().__init__(f"task {task} of session {session!r} does not receive messages: {reason}")
        self.session = session
        self.task = task
        self.reason = reason


class InvalidValue(PerdureError, ValueError):
    """An argument is not what the call asks for. Nothing was changed."""
