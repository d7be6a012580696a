"""The actor that users write: a true ``pykka.Actor`` that runs on an event loop instead of a thread.

This class holds hooks and Pykka's attributes only; its life is run by its ``Incarnation``. Proved by
tests/actors/runtime/test_actor.py.
"""

import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import pykka

from .clock import Clock
from .future import ActorFuture
from .ref import ActorRef

if TYPE_CHECKING:
    from pykka._actor import ActorInbox

    from .incarnation import Incarnation
    from .system import ActorSystem

    class _PykkaActor:
        """What this module uses of ``pykka.Actor``, which at run time it is.

        Pykka annotates hooks as plain methods, and a type checker holds a subclass to what every base says: it would
        refuse each ``async def on_start`` of a user.
        """

        actor_urn: str
        actor_inbox: ActorInbox
        _actor_ref: ActorRef[Any]

        def _handle_receive(self, message: Any) -> Any: ...
        def on_receive(self, message: Any) -> Any: ...
else:
    _PykkaActor = pykka.Actor

_birth = threading.local()


class Actor(_PykkaActor):
    """State behind a mailbox: handles one message at a time, on the loop of its system. A true ``pykka.Actor``.

    Subclass it, override hooks, and start it with ``system.spawn(MyActor, *args, id=...)`` or as a supervisor's child.
    Each hook is a plain method or ``async def``; an asynchronous one runs as a real asyncio task, and the next message
    waits for its end. All run on the loop's thread, in a context (``contextvars``) of this actor's own.

    A handler that raises a ``PerdureError`` answers with it and the actor lives on. Anything else that it raises is a
    crash, also ``SystemExit`` or ``CancelledError``. A crash ends this actor, never another one.
    """

    mailbox_limit: ClassVar[int | None] = None
    """How many messages may wait before ``tell`` and ``ask`` answer ``MailboxFull``. None: no limit."""

    _incarnation: "Incarnation"

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Give the actor what Pykka's ``__init__`` would: a subclass need not call it.

        Raises:
            TypeError: outside of a system's ``spawn``.
        """
        actor = super().__new__(cls)
        incarnation = cls._create_actor_inbox()
        actor._incarnation = incarnation
        actor.actor_inbox = incarnation
        actor.actor_urn = incarnation.id
        actor._actor_ref = incarnation.ref
        incarnation.actor = actor
        incarnation.actor_class = incarnation.ref.actor_class = cls
        incarnation.limit = cls.mailbox_limit
        return actor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # instead of Pykka's, whose work __new__ did

    @staticmethod
    def _create_actor_inbox() -> "Incarnation":
        incarnation = cast("Incarnation | None", getattr(_birth, "incarnation", None))
        if incarnation is None:
            raise TypeError(
                "an actor is made by a system: use `system.spawn(MyActor, ...)`, not MyActor(...) or .start()"
            )
        _birth.incarnation = None
        return incarnation

    @staticmethod
    def _create_future() -> ActorFuture[Any]:
        return ActorFuture()

    def _start_actor_loop(self) -> None:
        self._incarnation.start()

    @property
    def id(self) -> str:
        """The id that the spawner gave; the same in every incarnation. Pykka's ``actor_urn``."""
        return self.actor_urn

    @property
    def actor_ref(self) -> ActorRef[Self]:
        """The ref of this incarnation."""
        return self._incarnation.ref

    @property
    def actor_stopped(self) -> threading.Event:
        """Set once the actor takes no more messages."""
        return self._incarnation.stopped_event()

    @property
    def system(self) -> "ActorSystem":
        """The system that runs this actor."""
        return self._incarnation.system

    @property
    def clock(self) -> Clock:
        """The system's clock."""
        return self._incarnation.system.clock

    def stop(self) -> None:
        """End after the messages that wait now. As ``self.actor_ref.stop(block=False)``; again is harmless."""
        self.actor_ref.stop(block=False)

    def reply_later(self) -> ActorFuture[Any]:
        """Take over the answer to the current message: the handler's result is not sent, ``settle`` the future instead.

        For a handler that can take the next messages while this one's answer is not ready. Any thread may answer. If
        the actor ends first, the asker gets ``ActorCrashed`` or ``ActorDead``; if this handler raises, the asker gets that.
        For a message that was told the future is one that nobody waits for.

        Raises:
            RuntimeError: no message is being handled.
        """
        return self._incarnation.reply_later()

    # -- hooks ------------------------------------------------------------------------------------------------------

    def on_start(self) -> Awaitable[None] | None:
        """Run before the first message. Whatever it raises is a failed start: a crash."""

    def on_receive(self, message: Any) -> Any:
        """Handle one message; the result answers an ask. The default logs a warning through Pykka's logger."""
        return super().on_receive(message)

    def on_stop(self) -> Awaitable[None] | None:
        """Run after the last message when the actor was asked to stop. The actor takes no messages any more."""

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Awaitable[None] | None:
        """Run after a crash, instead of ``on_stop``, also after a failed ``on_start``. A killed actor runs no hook."""

    def describe_children(self) -> list[dict[str, Any]]:
        """What ``system.tree()`` says below this actor: nothing, unless it is a supervisor."""
        return []

    # -- what the runtime calls around the hooks --------------------------------------------------------------------

    def _start_life(self) -> Any:
        return self.on_start()

    def _end_children(self, *, kill: bool) -> Coroutine[Any, Any, None] | None:
        """What must end before this actor may: nothing, or a coroutine that ends it."""
        return None


def bear(
    incarnation: "Incarnation", factory: Callable[..., Actor], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Actor:
    """Make the actor object of an incarnation, in its context. Loop thread. Raises what the constructor raises."""
    _birth.incarnation = incarnation
    try:
        actor = incarnation.context.run(factory, *args, **kwargs)
    finally:
        _birth.incarnation = None
    if actor is not incarnation.actor:
        raise TypeError(f"expected {factory!r} to make one new actor and return it, got: {actor!r}")
    return actor
