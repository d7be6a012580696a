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


class EntryNotVisible(UnknownRecord):
    """A conversation does not show this entry: it does not exist, or lies behind a fork point or in another conversation.

    Nothing was changed. ``id`` is the entry's, ``conversation_id`` the conversation's.
    """

    def __init__(self, id: int, conversation_id: int) -> None:
        PerdureError.__init__(self, f"entry {id} is not visible in conversation {conversation_id}")
        self.kind = "entry"
        self.id = id
        self.conversation_id = conversation_id


class OwnershipRefused(PerdureError):
    """New work named an owner that cannot own it: missing, elsewhere, marked or finished. Nothing was changed."""


class DocumentMismatch(PerdureError):
    """A document definition does not fit what is stored: scope, policies, or a newer version. Nothing was changed."""


class InboxFull(PerdureError):
    """As much waits for a task, or in a conversation, as may. Nothing was stored: send it again when some of it is done.

    ``receiver`` is the id of the task or conversation; ``count`` wait there. Where bytes are limited too, ``size`` is what
    would wait with this one.
    """

    def __init__(self, session: str, kind: str, receiver: int, count: int, size: int | None = None) -> None:
        bytes_ = "" if size is None else f", {size:,} bytes with this one"
        super().__init__(
            f"the inbox of {kind} {receiver} of session {session!r} is full: {count:,} messages waiting{bytes_}; "
            "send this one again later"
        )
        self.session = session
        self.receiver = receiver
        self.count = count
        self.size = size


class OutboxFull(PerdureError):
    """A message was not sent: ``count`` of the session's earlier ones to ``receiver``, a session's key, have not arrived yet.

    Its tasks do not receive them, or it cannot be opened. Nothing was staged: a commit that goes on stores the rest, one
    that this error ends stores nothing. Send again later, from a task best after a wait (``tx.wait(until=...)``).
    """

    def __init__(self, session: str, receiver: str, count: int) -> None:
        super().__init__(
            f"{count:,} messages of session {session!r} to session {receiver!r} have not arrived yet; "
            "send this one again later"
        )
        self.session = session
        self.receiver = receiver
        self.count = count


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
