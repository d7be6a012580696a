"""The address of one incarnation of an actor: a true ``pykka.ActorRef``.

Sending is its only power, from any thread. Unlike Pykka's, it refuses to block a thread that runs a loop, before anything is
sent; and it does not keep a dead actor in memory. A restarted actor has a new ref under the old id: keep ids, or ask
``system.ref(id)``. Proved by tests/actors/runtime/test_ref.py.
"""

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import pykka
from pykka.messages import _ActorStop

from ...supervisors.restart import Exit
from .errors import ActorDead, AskTimeout, MailboxFull
from .future import ActorFuture, refuse_to_block
from .mailbox import Letter

if TYPE_CHECKING:
    from .actor import Actor
    from .incarnation import Incarnation

A = TypeVar("A", bound="Actor")


class ActorRef(pykka.ActorRef[Any], Generic[A]):  # Any: see actor.py on Pykka's types
    """Where to send messages for one incarnation. Safe to pass around between threads and to keep."""

    __slots__ = ("_incarnation", "_proxy", "actor_class", "actor_inbox", "actor_urn")

    def __init__(self, incarnation: "Incarnation") -> None:
        self._incarnation = incarnation
        self._proxy: pykka.ActorProxy[Any] | None = None
        self.actor_class = incarnation.actor_class
        self.actor_urn = incarnation.id
        self.actor_inbox = incarnation

    @property
    def id(self) -> str:
        """The actor's id: the same in every incarnation, unique among live actors. Pykka's ``actor_urn``."""
        return self.actor_urn

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]  # an event per actor would cost more than the actor
        """A ``threading.Event`` that is set once the actor takes no more messages. For Pykka's sake."""
        return self._incarnation.stopped_event()

    def is_alive(self) -> bool:
        """Whether the actor takes messages. True is no promise: it may end before it comes to yours."""
        return not self._incarnation.stopped

    def tell(self, message: Any) -> None:
        """Send without an answer. Any thread, never waits; what is sent from one thread arrives in order.

        Raises:
            ActorDead: it has ended; the message is counted and logged as a dead letter.
            MailboxFull: its mailbox is at its limit.
        """
        incarnation = self._incarnation
        if incarnation.stopped:
            incarnation.system.answer_unhandled(self.actor_urn, [Letter(message)])
            raise ActorDead(self.actor_urn)
        incarnation.put(Letter(message))

    @overload
    def ask(self, message: Any, *, block: Literal[False], timeout: float | None = None) -> ActorFuture[Any]: ...

    @overload
    def ask(self, message: Any, *, block: Literal[True], timeout: float | None = None) -> Any: ...

    @overload
    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any | ActorFuture[Any]: ...

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any | ActorFuture[Any]:
        """Send and get the answer: ``await ref.ask(message, block=False)`` on a loop, ``ref.ask(message)`` in a thread.

        ``timeout`` is in seconds: of real time when blocking, of the system's clock else. The message may be handled
        after a timeout all the same. A dead actor or a full mailbox is an answer, too: nothing but ``WouldBlock`` is raised
        at once without blocking.

        Raises:
            WouldBlock: ``block=True`` (Pykka's default) on a thread that runs a loop; nothing was sent.
            ActorDead: the actor certainly did not take the message.
            MailboxFull: nor here; its mailbox is at its limit.
            ActorCrashed: the actor crashed over it, or before it had answered.
            AskTimeout: no answer came in time.
            PerdureError: the expected error that the handler answered with.
        """
        if block:
            self._refuse_to_block("await ref.ask(message, block=False)")
        incarnation = self._incarnation
        future: ActorFuture[Any] = ActorFuture(incarnation)
        if incarnation.stopped:
            future.fail(ActorDead(self.actor_urn))
        else:
            try:
                incarnation.put(Letter(message, future))
            except MailboxFull as exc:
                future.fail(exc)
        if block:
            return future.get(timeout=timeout)
        if timeout is not None:
            self._limit(future, timeout)
        return future

    @overload
    def stop(self, *, block: Literal[True], timeout: float | None = None) -> bool: ...

    @overload
    def stop(self, *, block: Literal[False], timeout: float | None = None) -> ActorFuture[bool]: ...

    @overload
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | ActorFuture[bool]: ...

    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | ActorFuture[bool]:
        """Ask the actor to end after the messages sent before. The answer comes when it has ended: its hook has run.

        The answer is True, or False if it had ended already. A supervisor that did not ask for the end restarts a permanent
        child; ``supervisor.stop_child(id)`` ends it for good. ``timeout`` as in ``ask``.

        Raises:
            WouldBlock: ``block=True`` (Pykka's default) on a thread that runs a loop; nothing was sent.
            AskTimeout: it has not ended in time, and goes on ending.
        """
        if block:
            self._refuse_to_block("await ref.stop(block=False)")
        incarnation = self._incarnation
        future: ActorFuture[bool] = ActorFuture(incarnation)
        if incarnation.stopped:
            future.settle(value=False)
        else:
            incarnation.put(Letter(_ActorStop(), future))
        if block:
            return future.get(timeout=timeout)
        if timeout is not None:
            self._limit(future, timeout)
        return future

    def when_ended(self) -> ActorFuture[Exit]:
        """The future of how this incarnation ends, answered once its hooks have run. Any thread."""
        return self._incarnation.when_ended()

    def proxy(self) -> pykka.ActorProxy[Any]:
        """Pykka's proxy: attributes and methods of the actor as asks. Made once per ref, since making one takes 0.2 ms.

        Raises:
            ActorDead: it has ended.
        """
        if self._incarnation.stopped:
            raise ActorDead(self.actor_urn)
        proxy = self._proxy
        if proxy is None:
            proxy = self._proxy = super().proxy()
        return proxy

    def forget_proxy(self) -> None:
        """Let go of the proxy, and with it of the actor object."""
        self._proxy = None

    def _actor_weakref(self) -> A | None:  # type: ignore[override]
        # Pykka keeps a weakref and calls it; going through the incarnation saves one object per actor.
        return self._incarnation.actor  # type: ignore[return-value]

    def _refuse_to_block(self, instead: str) -> None:
        self._incarnation.refuse_to_block(instead)
        refuse_to_block(instead)

    def _limit(self, future: ActorFuture[Any], timeout_s: float) -> None:
        """Answer with a timeout by the system's clock, whose timers belong to the loop's thread."""
        incarnation = self._incarnation

        def arm() -> None:
            timer = incarnation.system.clock.call_later(timeout_s, lambda: future.fail(AskTimeout(timeout_s)))
            future.on_done(lambda _future: incarnation.scheduler.post(incarnation.scheduler.context, timer.cancel))

        incarnation.scheduler.post(incarnation.scheduler.context, arm)
