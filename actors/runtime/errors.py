"""What can go wrong between actors, told apart by what the caller may still believe.

*Certainly not handled*: ``ActorDead``, ``MailboxFull``, ``WouldBlock``, ``AskCycle``, ``WrongThread``, ``ActorExists``,
``UnknownChild``, ``SystemStopped``. *Perhaps handled, perhaps in part*: ``ActorCrashed``, ``AskTimeout``.
All of them can be pickled as long as their cause can.
"""

import pykka

from ...chord.errors import PerdureError


class ActorError(PerdureError):
    """Base of the errors of the actor runtime."""


class ActorDead(ActorError, pykka.ActorDeadError):
    """The actor ended before it took the message; it was certainly not handled.

    ``actor`` is the id. Unlike ``ActorCrashed``, sending again to the next incarnation cannot do anything twice.
    """

    def __init__(self, actor: str, why: str = "it is not alive") -> None:
        super().__init__(actor, why)
        self.actor = actor
        self.why = why

    def __str__(self) -> str:
        return f"{self.actor} did not take the message: {self.why}"


class ActorCrashed(ActorError):
    """The actor took the message and crashed over it, or before it had answered; it may have been handled in part.

    ``actor`` is the id; ``cause`` (also ``__cause__``) is what the handler raised, or a ``Killed``.
    """

    def __init__(self, actor: str, cause: BaseException) -> None:
        super().__init__(actor, cause)
        self.actor = actor
        self.cause = cause
        self.__cause__ = cause

    def __str__(self) -> str:
        return f"{self.actor} crashed before it answered: {self.cause!r}"


class Killed(ActorError):
    """The cause of an end that came from outside: ``system.kill(ref)``, or a shutdown time that ran out."""

    def __init__(self, actor: str, why: str = "kill was called") -> None:
        super().__init__(actor, why)
        self.actor = actor
        self.why = why

    def __str__(self) -> str:
        return f"{self.actor} was killed: {self.why}"


class WouldBlock(ActorError, RuntimeError):
    """A blocking call on a thread that runs an event loop. Nothing was sent; the message shows the call to use."""


class WrongThread(ActorError, RuntimeError):
    """A call that only the loop's own thread may make. Nothing happened."""


class AskTimeout(ActorError, pykka.Timeout):
    """No answer came in time. The message may still be handled; ``timeout_s`` is the limit in seconds."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"no answer within {self.timeout_s:g} s"


class AskCycle(ActorError, RuntimeError):
    """Awaiting the answer would wait for ever: every actor on ``path`` waits for the next, and the last for the first.

    The message stays queued and is handled once the handler that got this error has ended.
    """

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{' -> '.join(self.path)}: each waits for the next; tell instead of ask, or answer before asking"


class MailboxFull(ActorError):
    """The mailbox is at its limit. The message was not taken; ``limit`` counts messages."""

    def __init__(self, actor: str, limit: int) -> None:
        super().__init__(actor, limit)
        self.actor = actor
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.actor} has {self.limit} messages waiting and takes no more; try again later"


class ActorExists(ActorError):
    """The id belongs to a live actor. Nothing was started."""

    def __init__(self, actor: str) -> None:
        super().__init__(actor)
        self.actor = actor

    def __str__(self) -> str:
        return f"expected an unused actor id, got: {self.actor!r}, which is alive"


class UnknownChild(ActorError):
    """The supervisor has no child of this id. Nothing happened."""

    def __init__(self, supervisor: str, child: str) -> None:
        super().__init__(supervisor, child)
        self.supervisor = supervisor
        self.child = child

    def __str__(self) -> str:
        return f"{self.supervisor} has no child {self.child!r}"


class SystemStopped(ActorError):
    """The actor system, or the loop that it ran on, has ended. Nothing was started."""


class RestartIntensityExceeded(ActorError):
    """A supervisor gave up on ``child``: more than ``restarts`` restarts within ``period_s`` seconds.

    It is what the supervisor crashes with, so that its own supervisor decides; ``cause`` (also ``__cause__``) is what
    ended the child the last time.
    """

    def __init__(
        self, supervisor: str, child: str, restarts: int, period_s: float, cause: BaseException | None = None
    ) -> None:
        super().__init__(supervisor, child, restarts, period_s, cause)
        self.supervisor = supervisor
        self.child = child
        self.restarts = restarts
        self.period_s = period_s
        self.cause = cause
        self.__cause__ = cause

    def __str__(self) -> str:
        last = "a normal end" if self.cause is None else repr(self.cause)
        return (
            f"{self.supervisor} gave up on {self.child}: more than {self.restarts} restarts within "
            f"{self.period_s:g} s, the last after {last}"
        )
