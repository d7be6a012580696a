"""One life of an actor, from its start to its end: the runtime's side of it.

An incarnation passes through four states, each left once:

``starting``  ``on_start`` runs or waits to; mail waits. Ends in ``running``, or as a crash.
``running``   one message at a time; between messages nothing of the actor exists but memory.
``ending``    it takes no more messages; children end, then ``on_stop`` or ``on_failure`` runs.
``ended``     the actor object is let go, whoever waited is answered, the parent is told.

Invariants: every taken ask is answered exactly once; whatever a handler raises ends at most this one actor; nothing here
runs on a thread other than the loop's, except ``put`` and ``bury``. Proved by tests/actors/runtime/test_actor_life.py and
test_actor_crash.py.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from threading import Event, get_ident
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pykka.messages import _ActorStop

from ...chord.errors import PerdureError
from ...supervisors.restart import Exit
from . import events
from .errors import ActorCrashed, ActorDead, Killed, RestartIntensityExceeded, WouldBlock
from .future import ActorFuture, Waitable
from .mailbox import Letter, Mailbox
from .ref import ActorRef

if TYPE_CHECKING:
    from .actor import Actor
    from .system import ActorSystem

State = Literal["starting", "running", "ending", "ended"]
Then = Callable[[Any, BaseException | None], None]

BATCH = 64
"""Messages that one actor handles before the next ready one has its turn."""

KILL_GRACE_S = 1.0
"""How long a killed handler may swallow its cancellation before it is abandoned."""


class Parent(Protocol):
    """Whoever started an actor. Called on the loop's thread, in the middle of the child's steps."""

    def child_started(self, child: "Incarnation") -> None:
        """``on_start`` has run."""

    def child_ended(self, child: "Incarnation", ended: Exit) -> None:
        """It has ended for good: nothing of it runs any more."""


class Incarnation(Mailbox):
    """The life of one actor object; ``ref`` is how the world sees it."""

    __slots__ = (
        "_ended_futures",
        "_step",
        "_stop_futures",
        "_stopped_event",
        "_then",
        "actor",
        "actor_class",
        "awaiting",
        "current",
        "deferred",
        "exit",
        "owed",
        "parent",
        "ref",
        "state",
        "stopped",
        "system",
        "task",
    )

    def __init__(
        self,
        actor_id: str,
        actor_class: "type[Actor]",
        system: "ActorSystem",
        parent: "Parent",
        context: Context,
    ) -> None:
        super().__init__(actor_id, system.scheduler, context, actor_class.mailbox_limit)
        self.actor_class = actor_class
        self.system = system
        self.parent = parent
        self.actor: Actor | None = None
        self.state: State = "starting"
        self.stopped = False
        self.exit: Exit | None = None
        self.current: Letter | None = None
        self.deferred = False
        self.owed: set[ActorFuture[Any]] | None = None
        self.task: asyncio.Task[None] | None = None
        self.awaiting: ActorFuture[Any] | None = None
        self._then: Then | None = None
        self._step = 0
        self._stop_futures: list[ActorFuture[Any]] | None = None
        self._ended_futures: list[ActorFuture[Exit]] | None = None
        self._stopped_event: Event | None = None
        self.ref: ActorRef[Any] = ActorRef(self)

    # -- what others ask of it ------------------------------------------------------------------------------------------

    @property
    def handlers(self) -> dict[asyncio.Task[Any], Waitable]:
        """The running asynchronous handlers of this loop."""
        return self.scheduler.handlers

    def refuse_to_block(self, instead: str) -> None:
        """Refuse to wait on the thread of this actor's own loop, also while that loop is not running."""
        if get_ident() == self.scheduler.thread:
            raise WouldBlock(f"this would block the thread that {self.id} runs on; use `{instead}`")

    def start(self) -> None:
        """Have ``on_start`` run, then the mail. The actor object is complete."""
        self.scheduled = True
        self.scheduler.wake(self)

    def fail_start(self, exc: BaseException) -> None:
        """End without a life: the actor object could not be made."""
        self._begin_end(Exit("crashed", exc))
        self._report_crash(exc, "start")
        self._finish()

    def crash(self, exc: BaseException) -> None:
        """Crash as if a handler had raised ``exc``. Loop thread, inside the context; a running handler is cancelled."""
        if not self.stopped:
            self._interrupt(lambda: self._crash(exc))

    def kill(self, why: str) -> None:
        """Drop the actor as if its thread had died: no hook runs, a running handler is cancelled. Loop thread.

        The end is reported when the cancelled handler is through, or has swallowed its cancellation for a second: two
        incarnations of one actor never run at a time, unless the first cannot be ended.
        """
        if self.exit is not None and (self.state == "ended" or self.exit.kind == "killed"):
            return
        self._begin_end(Exit("killed", Killed(self.id, why)))
        events.warning(events.ACTOR_KILLED, actor=self.id, actor_class=self.actor_class.__name__, why=why)
        self._interrupt(self._kill_children)

    def reply_later(self) -> ActorFuture[Any]:
        """Take over the answer to the current message."""
        if self.current is None:
            raise RuntimeError("reply_later() belongs in a handler, while it handles a message")
        self.deferred = True
        future: ActorFuture[Any] = self.current.reply_to or ActorFuture()
        if self.owed is None:
            self.owed = set()
        self.owed.add(future)
        future._target = None  # from here on the answer does not wait for a handler: no ring of waits can go through it
        future.on_done(self.owed.discard)
        return future

    def when_ended(self) -> ActorFuture[Exit]:
        """The future of how this life ends. Any thread."""
        future: ActorFuture[Exit] = ActorFuture()
        watchers = self._ended_futures
        if watchers is None:
            watchers = self._ended_futures = []
        watchers.append(future)
        if self.state == "ended" and self.exit is not None:
            future.settle(self.exit)
        return future

    def stopped_event(self) -> Event:
        """Pykka's ``actor_stopped``, made when somebody first looks at it."""
        event = self._stopped_event
        if event is None:
            event = self._stopped_event = Event()
            if self.stopped:
                event.set()
        return event

    # -- activation -----------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Start, handle mail, or answer mail that came too late. Loop thread, inside the context."""
        if self._then is not None:
            return  # an asynchronous step runs; its end comes back to the mail
        if self.state == "running":
            self._drain()
        elif self.state == "starting":
            self._call(self._started, self._living()._start_life)
        else:
            self.bury()

    def bury(self) -> None:
        """Answer what waits in the queue of a dead actor, and count what was only told. Any thread."""
        self.scheduled = False
        letters: list[Any] = []
        while self.queue:
            envelope = self.queue.popleft()
            if type(envelope.message) is _ActorStop:
                self._note_stop(envelope)
            elif envelope.reply_to is None:
                letters.append(envelope.message)
            else:
                envelope.reply_to.fail(ActorDead(self.id, "it ended before it came to it"))
        if letters:
            self.system.note_dead_letters(self.id, letters)

    def lose_loop(self) -> None:
        """End without any step: the loop is gone. Any thread."""
        if self.state != "ended":
            self._begin_end(Exit("killed", Killed(self.id, "its event loop was closed")))
            self._let_waiters_go()

    def _drain(self) -> None:
        queue, actor, deadline = self.queue, self._living(), self.scheduler.deadline
        for _ in range(BATCH):
            if not queue:
                break
            envelope = queue.popleft()
            self.current = envelope
            message = envelope.message
            try:
                if not isinstance(message, tuple):
                    result = actor.on_receive(message)
                elif type(message) is _ActorStop:
                    self._stop(envelope)
                    return
                else:  # Pykka's own messages are tuples, and so are some users'
                    result = actor._handle_receive(message)
            except BaseException as exc:  # noqa: BLE001 - whatever it is, it ends at most this actor
                self._failed(exc)
            else:
                if type(result) is CoroutineType:
                    self._run(self._handled, result)
                    return
                if self.deferred:
                    self.deferred = False
                elif envelope.reply_to is not None:
                    envelope.reply_to.settle(result)
            if self.state != "running":
                return
            if perf_counter() >= deadline:
                break
        self.current = None
        self.go_on()

    def _started(self, _result: Any, exc: BaseException | None) -> None:
        if exc is not None:
            self._crash(exc, "start")
            return
        self.state = "running"
        if events.debug_enabled():
            events.debug(events.ACTOR_STARTED, actor=self.id, actor_class=self.actor_class.__name__)
        self.parent.child_started(self)
        self.go_on()

    def _handled(self, result: Any, exc: BaseException | None) -> None:
        """The end of an asynchronous handler."""
        envelope = self.current
        if exc is not None:
            self._failed(exc)
        elif envelope is not None and envelope.reply_to is not None and not self.deferred:
            envelope.reply_to.settle(result)
        if self.state == "running":
            self.deferred = False
            self.current = None
            self.go_on()

    def _failed(self, exc: BaseException) -> None:
        """The one rule, for tell and ask: an expected error is an answer, everything else is a crash."""
        envelope = self.current
        if envelope is None:  # it was killed from inside the handler: its end has been told
            return
        self.deferred = False
        if not isinstance(exc, PerdureError):
            self._crash(exc)
        elif envelope.reply_to is not None:
            envelope.reply_to.fail(exc)
        else:
            kind = type(envelope.message).__name__
            events.warning(events.MESSAGE_REFUSED, actor=self.id, message_type=kind, error=repr(exc))

    # -- steps: sync or async, one at a time ------------------------------------------------------------------------------

    def _call(self, then: Then, hook: Callable[..., Any], *args: Any) -> None:
        """Run one hook to its end and hand that end to ``then(result, exception)``."""
        ending = self.exit
        try:
            result, error = hook(*args), None
        except BaseException as exc:  # noqa: BLE001 - as in _drain
            result, error = None, exc
        if self.exit is not ending:  # the hook killed its own actor, and the end is under way
            _close(result)
        elif type(result) is CoroutineType:
            self._run(then, result)
        else:
            then(result, error)

    def _run(self, then: Then, coro: Coroutine[Any, Any, Any]) -> None:
        """Run the rest of a step as a real task, so that timeouts and task groups work in it."""
        if self.state == "ended":  # killed by the very call that made the coroutine
            coro.close()
            return
        self._then = then
        self._step = step = self._step + 1
        name = f"{self.actor_class.__name__} {self.id}"
        task = self.scheduler.loop.create_task(self._complete(coro, step), name=name, context=self.context)
        if self._then is not None:  # an eager task factory may have run it to its end already
            self.task = task
            self.scheduler.handlers[task] = self
            task.add_done_callback(partial(self._check_out, coro, step), context=self.context)

    async def _complete(self, coro: Coroutine[Any, Any, Any], step: int) -> None:
        # Nothing may escape from here: asyncio lets SystemExit and KeyboardInterrupt of a task end the whole loop.
        try:
            result = await coro
        except BaseException as exc:  # noqa: BLE001
            self._complete_step(step, None, exc)
        else:
            self._complete_step(step, result, None)

    def _complete_step(self, step: int, result: Any, exc: BaseException | None) -> None:
        then = self._then
        if step == self._step and then is not None:  # else it was abandoned, and the life went on without it
            self.task = self._then = None
            then(result, exc)

    def _check_out(self, coro: Coroutine[Any, Any, Any], step: int, task: "asyncio.Task[None]") -> None:
        self.scheduler.handlers.pop(task, None)
        coro.close()  # cancelled before its first step, the wrapper never ran: nobody else will end it
        self._complete_step(step, None, asyncio.CancelledError())

    def _interrupt(self, then: Callable[[], None]) -> None:
        """Cancel the running step, if any, and go on with ``then`` when it is through or its grace is over."""
        task = self.task
        if task is None:
            then()
            return

        def through(_result: Any, _exc: BaseException | None) -> None:
            grace.cancel()
            then()

        def abandon() -> None:
            if self._then is through:
                name = self.actor_class.__name__
                events.error(events.ACTOR_ABANDONED, actor=self.id, actor_class=name, grace_s=KILL_GRACE_S)
                self.task = self._then = None
                then()

        self._then = through
        grace = self.system.clock.call_later(KILL_GRACE_S, lambda: self.scheduler.post(self.context, abandon))
        task.cancel()

    # -- the end --------------------------------------------------------------------------------------------------------

    def _stop(self, envelope: Letter) -> None:
        self._note_stop(envelope)
        self.current = None
        self._begin_end(Exit("normal"))
        self._end_children_then(self._stop_hook_done, lambda: self._living().on_stop())

    def _crash(self, exc: BaseException, doing: str = "message") -> None:
        self._begin_end(Exit("crashed", exc))
        self._report_crash(exc, doing)
        self._end_children_then(
            self._failure_hook_done, lambda: self._living().on_failure(type(exc), exc, exc.__traceback__)
        )

    def _begin_end(self, ended: Exit) -> None:
        """Take no more messages. The current and the deferred askers learn why, the queued ones that nobody will handle them."""
        self.exit = ended
        self.state = "ending"
        self.stopped = True
        if self._stopped_event is not None:
            self._stopped_event.set()
        cause = ended.cause
        current, self.current = self.current, None
        if current is not None and current.reply_to is not None and cause is not None:
            current.reply_to.fail(ActorCrashed(self.id, cause))
        for future in list(self.owed or ()):
            future.fail(
                ActorDead(self.id, "it stopped before it answered") if cause is None else ActorCrashed(self.id, cause)
            )
        self.bury()

    def _end_children_then(self, then: Then, hook: Callable[[], Any]) -> None:
        children = self._living()._end_children(kill=False)
        if children is None:
            self._call(then, hook)
        else:
            self._run(lambda _result, _exc: self._call(then, hook), children)

    def _stop_hook_done(self, _result: Any, exc: BaseException | None) -> None:
        if exc is not None:
            self.exit = Exit("crashed", exc)
            self._report_crash(exc, "stop")
        self._finish()

    def _failure_hook_done(self, _result: Any, exc: BaseException | None) -> None:
        if exc is not None:
            name = self.actor_class.__name__
            events.error(events.HOOK_FAILED, actor=self.id, actor_class=name, hook="on_failure", exc_info=exc)
        self._finish()

    def _kill_children(self) -> None:
        children = None if self.actor is None else self.actor._end_children(kill=True)
        if children is None:
            self._finish()
        else:
            self._run(lambda _result, _exc: self._finish(), children)

    def _finish(self) -> None:
        """Let the actor object go and tell everybody who waits."""
        self._let_waiters_go()
        if events.debug_enabled():
            events.debug(events.ACTOR_STOPPED, actor=self.id, actor_class=self.actor_class.__name__)

    def _let_waiters_go(self) -> None:
        ended = self.exit
        assert ended is not None
        self.state = "ended"
        self.actor = None
        self.context = self.scheduler.context
        self.ref.forget_proxy()
        self.bury()
        self.system.forget(self)
        self.parent.child_ended(self, ended)
        for stop in self._stop_futures or ():
            stop.settle(True)
        for future in self._ended_futures or ():
            future.settle(ended)
        self._stop_futures = None

    def _note_stop(self, envelope: Letter) -> None:
        if envelope.reply_to is None:
            return
        if self.state == "ended":
            envelope.reply_to.settle(True)
        elif self._stop_futures is None:
            self._stop_futures = [envelope.reply_to]
        else:
            self._stop_futures.append(envelope.reply_to)

    def _report_crash(self, exc: BaseException, doing: str) -> None:
        if not isinstance(exc, RestartIntensityExceeded):  # that one was reported as an escalation
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


def _close(result: Any) -> None:
    if type(result) is CoroutineType:
        result.close()
