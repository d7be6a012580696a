"""One life of an actor, from its start to its end: the runtime's side of it.

An incarnation passes through four states, each left once:

``starting``  ``on_start`` runs or waits to; mail waits. Ends in ``running``, or as a crash.
``running``   one message at a time; between messages nothing of the actor exists but memory.
``ending``    it takes no more messages; its children end, then ``on_stop`` or ``on_failure`` runs.
``ended``     the actor object is let go, whoever waited is answered, the parent is told.

Invariants: every ask that it took is answered exactly once; whatever a handler raises ends at most this one actor;
nothing here runs on another thread than the loop's, except ``put``, ``bury`` and ``when_ended``. Proved by
tests/actors/runtime/test_actor.py, test_crash.py and test_stop.py.
"""

from collections.abc import Callable, Iterable
from contextvars import Context
from threading import Event, RLock, get_ident
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pykka.messages import _ActorStop

from ...chord.errors import PerdureError
from ...supervisors.restart import Exit
from . import events
from .errors import ActorCrashed, ActorDead, Killed, RestartIntensityExceeded, WouldBlock
from .future import ActorFuture
from .mailbox import Letter
from .ref import ActorRef
from .steps import StepRunner, Then, close

if TYPE_CHECKING:
    from .actor import Actor
    from .system import ActorSystem

State = Literal["starting", "running", "ending", "ended"]

BATCH = 64
"""Messages that one actor handles before the next ready one has its turn."""

_lazy = RLock()  # two threads must not make the same thing twice


class Parent(Protocol):
    """Whoever started an actor. Called on the loop's thread, in the middle of the child's steps."""

    def child_started(self, child: "Incarnation") -> None:
        """``on_start`` has run."""

    def child_ended(self, child: "Incarnation", ended: Exit) -> None:
        """It has ended for good: nothing of it runs any more. The mail of a start that failed may be taken from it."""


class Incarnation(StepRunner):
    """The life of one actor object; ``ref`` is how the world sees it.

    ``current`` is the message in hand; ``deferred`` says that its answer was taken over; ``owed`` are the answers taken
    over and not given yet; ``stopped`` is true once no message is taken any more.
    """

    __slots__ = (
        "_ended_future",
        "_stop_futures",
        "_stopped_event",
        "actor",
        "current",
        "deferred",
        "owed",
        "parent",
        "ref",
        "state",
        "stopped",
    )

    def __init__(
        self,
        actor_id: str,
        actor_class: "type[Actor]",
        system: "ActorSystem",
        parent: Parent,
        context: Context,
    ) -> None:
        super().__init__(actor_id, actor_class, system, context)
        self.parent = parent
        self.actor: Actor | None = None
        self.state: State = "starting"
        self.stopped = False
        self.current: Letter | None = None
        self.deferred = False
        self.owed: set[ActorFuture[Any]] | None = None
        self._stop_futures: list[ActorFuture[bool]] | None = None
        self._ended_future: ActorFuture[Exit] | None = None
        self._stopped_event: Event | None = None
        self.ref: ActorRef[Any] = ActorRef(self)

    # -- what others ask of it --------------------------------------------------------------------------------------

    def refuse_to_block(self, instead: str) -> None:
        """Refuse to wait on the thread of this actor's own loop, also while that loop does not run."""
        if get_ident() == self.scheduler.thread:
            raise WouldBlock(f"this would block the thread that {self.id} runs on; use `{instead}`")

    def start(self) -> None:
        """Have ``on_start`` run, then the mail. The actor object is complete."""
        self.scheduled = True
        self.scheduler.wake(self)

    def take_over_mail(self, letters: Iterable[Letter]) -> None:
        """Begin with the mail of an incarnation that failed to start. Before ``on_start`` has run."""
        for letter in letters:
            if letter.reply_to is not None:
                letter.reply_to.expect_from(self)
            self.queue.append(letter)

    def take_mail(self) -> list[Letter]:
        """Take what waits out of the queue. Requests to stop are kept: the end answers them."""
        taken = []
        while self.queue:
            letter = self.queue.popleft()
            if type(letter.message) is _ActorStop:
                self._note_stop(letter)
            else:
                taken.append(letter)
        return taken

    def fail_start(self, exc: BaseException) -> None:
        """End without a life: the actor object could not be made."""
        self._begin_end(Exit("crashed", exc))
        self._finish()

    def crash(self, exc: BaseException) -> None:
        """Crash as if a handler had raised ``exc``; a running one is cancelled. Loop thread, inside the context."""
        if not self.stopped:
            self.interrupt(lambda: self._crash(exc))

    def kill(self, why: str) -> None:
        """Drop the actor as if its thread had died: no hook runs, a running handler is cancelled. Loop thread.

        The end is reported when the cancelled handler is through, or has gone on for a second: two incarnations of one
        actor never run at a time, unless the first cannot be ended.
        """
        if self.state == "ended" or (self.exit is not None and self.exit.kind == "killed"):
            return
        self._begin_end(Exit("killed", Killed(self.id, why)))
        self._answer_queue()
        events.warning(events.ACTOR_KILLED, actor=self.id, actor_class=self.actor_class.__name__, why=why)
        self.interrupt(self._kill_children)

    def reply_later(self) -> ActorFuture[Any]:
        """Take over the answer to the message in hand."""
        if self.current is None:
            raise RuntimeError("reply_later() belongs in a handler, while it handles a message")
        self.deferred = True
        future = self.current.reply_to or ActorFuture()
        if self.owed is None:
            self.owed = set()
        self.owed.add(future)
        future.expect_from(None)  # no ring of waits can go through this answer
        future.on_done(self.owed.discard)
        return future

    def when_ended(self) -> ActorFuture[Exit]:
        """The future of how this life ends. Any thread."""
        with _lazy:
            if self._ended_future is None:
                self._ended_future = ActorFuture()
        if self.state == "ended" and self.exit is not None:  # looked at after making it: one of both sides settles it
            self._ended_future.settle(self.exit)
        return self._ended_future

    def stopped_event(self) -> Event:
        """Pykka's ``actor_stopped``, made when somebody first looks at it."""
        with _lazy:
            if self._stopped_event is None:
                self._stopped_event = Event()
        if self.stopped:
            self._stopped_event.set()
        return self._stopped_event

    def bury(self) -> None:
        """The loop is gone: end as if killed, without another step, or answer what came after the end. Any thread."""
        if self.state != "ended":
            self._begin_end(Exit("killed", Killed(self.id, "its event loop has ended")))
            self._let_waiters_go()
        self._answer_queue()

    # -- running ----------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Start, handle mail, or answer mail that came too late. Loop thread, inside the context."""
        if self._then is not None:  # an asynchronous step runs, and its end comes back to the mail
            return
        if self.state == "running":
            self._drain()
        elif self.state == "starting":
            self.call(self._started, self._living()._start_life)
        else:
            self._answer_queue()

    def _drain(self) -> None:
        queue, actor, deadline = self.queue, self._living(), self.scheduler.deadline
        for _ in range(BATCH):
            if not queue:
                break
            self.current = letter = queue.popleft()
            message, result = letter.message, None
            try:
                if not isinstance(message, tuple):
                    result = actor.on_receive(message)
                elif type(message) is _ActorStop:
                    self._stop(letter)
                    return
                else:  # Pykka's own messages are tuples, and so are some users'
                    result = actor._handle_receive(message)
            except BaseException as exc:  # noqa: BLE001 - whatever it is, it ends at most this actor
                self._failed(exc)
            else:
                if type(result) is CoroutineType and self.state == "running":
                    self.run(self._handled, result)
                    return
                if self.deferred:
                    self.deferred = False
                elif letter.reply_to is not None:
                    letter.reply_to.settle(result)
            if self.state != "running":  # crashed, or killed from inside the handler
                close(result)
                return
            if self.scheduler.processor_time() >= deadline:
                break
        self.current = None
        self.go_on()

    def _handled(self, result: Any, exc: BaseException | None) -> None:
        """Take the end of an asynchronous handler."""
        letter = self.current
        if exc is not None:
            self._failed(exc)
        elif letter is not None and letter.reply_to is not None and not self.deferred:
            letter.reply_to.settle(result)
        if self.state == "running":
            self.deferred = False
            self.current = None
            self.go_on()

    def _failed(self, exc: BaseException) -> None:
        """Apply the one rule, for tell and ask: an expected error is an answer, everything else is a crash."""
        letter = self.current
        if letter is None:  # killed from inside the handler: the end has been told
            return
        self.deferred = False
        if not isinstance(exc, PerdureError):
            self._crash(exc)
        elif letter.reply_to is not None:
            letter.reply_to.fail(exc)
        else:
            kind = type(letter.message).__name__
            events.warning(events.MESSAGE_REFUSED, actor=self.id, message_type=kind, error=repr(exc))

    def _started(self, _result: Any, exc: BaseException | None) -> None:
        if exc is not None:
            self._crash(exc, doing="start")
            return
        self.state = "running"
        if events.debug_enabled():
            events.debug(events.ACTOR_STARTED, actor=self.id, actor_class=self.actor_class.__name__)
        self.parent.child_started(self)
        self.go_on()

    # -- the end ----------------------------------------------------------------------------------------------------

    def _stop(self, letter: Letter) -> None:
        self._note_stop(letter)
        self.current = None
        self._begin_end(Exit("normal"))
        self._answer_queue()
        self._end_children_then(self._stop_hook_done, lambda: self._living().on_stop())

    def _crash(self, exc: BaseException, *, doing: str = "message") -> None:
        self._begin_end(Exit("crashed", exc))
        if doing != "start":  # mail of a failed start was touched by nobody, and may be kept for the next try
            self._answer_queue()
        self.report_crash(exc, doing)
        self._end_children_then(
            self._failure_hook_done, lambda: self._living().on_failure(type(exc), exc, exc.__traceback__)
        )

    def _begin_end(self, ended: Exit) -> None:
        """Take no more messages, and answer those in hand."""
        self.exit = ended
        self.state = "ending"
        self.stopped = True
        if self._stopped_event is not None:
            self._stopped_event.set()
        cause = ended.cause
        letter, self.current = self.current, None
        if letter is not None and letter.reply_to is not None and cause is not None:
            letter.reply_to.fail(ActorCrashed(self.id, cause))
        for future in list(self.owed or ()):
            future.fail(ActorDead(self.id, "it stopped first") if cause is None else ActorCrashed(self.id, cause))

    def _answer_queue(self) -> None:
        """Answer what waits and will not be handled."""
        self.scheduled = False  # before the last look: whoever queues after it wakes the mailbox again
        if self.queue:
            self.system.answer_unhandled(self.id, self.take_mail())

    def _end_children_then(self, then: Then, hook: Callable[[], Any]) -> None:
        children = self._living()._end_children(kill=False)
        if children is None:
            self.call(then, hook)
        else:
            self.run(lambda _result, _exc: self.call(then, hook), children)

    def _kill_children(self) -> None:
        children = None if self.actor is None else self.actor._end_children(kill=True)
        if children is None:
            self._finish()
        else:
            self.run(lambda _result, _exc: self._finish(), children)

    def _stop_hook_done(self, _result: Any, exc: BaseException | None) -> None:
        if exc is not None:
            self.exit = Exit("crashed", exc)
            self.report_crash(exc, "stop")
        self._finish()

    def _failure_hook_done(self, _result: Any, exc: BaseException | None) -> None:
        if exc is not None:
            name = self.actor_class.__name__
            events.error(events.HOOK_FAILED, actor=self.id, actor_class=name, hook="on_failure", exc_info=exc)
        self._finish()

    def _finish(self) -> None:
        self._let_waiters_go()
        if events.debug_enabled():
            events.debug(events.ACTOR_STOPPED, actor=self.id, actor_class=self.actor_class.__name__)

    def _let_waiters_go(self) -> None:
        """Let the actor object go and tell everybody who waits."""
        ended = self.exit
        assert ended is not None
        self.state = "ended"
        self.actor = None
        self.context = self.scheduler.context  # the actor's own may hold anything
        self.ref.forget_proxy()
        self.system.forget(self)
        self.parent.child_ended(self, ended)
        self.parent = self.system  # whoever keeps the ref need not keep the supervisor in memory
        self._answer_queue()
        stop_futures, self._stop_futures = self._stop_futures, None
        for stop in stop_futures or ():
            stop.settle(value=True)
        if self._ended_future is not None:
            self._ended_future.settle(ended)

    def _note_stop(self, letter: Letter) -> None:
        if letter.reply_to is None:
            return
        if self.state == "ended" and self._stop_futures is None:
            letter.reply_to.settle(value=True)
        elif self._stop_futures is None:
            self._stop_futures = [letter.reply_to]
        else:
            self._stop_futures.append(letter.reply_to)

    def report_crash(self, exc: BaseException, doing: str) -> None:
        """Log a crash; one by ``RestartIntensityExceeded`` has been logged as an escalation."""
        if not isinstance(exc, RestartIntensityExceeded):
            name = self.actor_class.__name__
            events.error(events.ACTOR_CRASHED, actor=self.id, actor_class=name, doing=doing, exc_info=exc)

    def _living(self) -> "Actor":
        assert self.actor is not None, f"{self.id} has ended"
        return self.actor


def describe(incarnation: Incarnation) -> dict[str, Any]:
    """One actor and what is below it, as plain data."""
    actor = incarnation.actor
    return {
        "id": incarnation.id,
        "class": incarnation.actor_class.__name__,
        "state": incarnation.state,
        "restarts": 0,
        "mailbox": len(incarnation.queue),
        "children": [] if actor is None else actor.describe_children(),
    }
