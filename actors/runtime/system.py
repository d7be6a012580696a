"""The actor system: the table of live actors of one event loop, and the top of their tree.

Responsible for ids (unique among live actors), for starting and ending everything, and for leaving nobody waiting when
the loop ends first. It restarts nothing: that is what supervisors are for. Proved by tests/actors/runtime/test_system.py.
"""

import asyncio
import contextvars
import itertools
import random as random_module
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeVar

from ...supervisors.restart import Exit
from . import events
from .actor import Actor, bear
from .background import BackgroundThread
from .child import ChildSpec
from .clock import Clock, SystemClock
from .errors import ActorDead, ActorExists, SystemStopped, WrongThread
from .incarnation import Incarnation, Parent, describe
from .mailbox import Letter
from .ref import ActorRef
from .scheduler import Scheduler
from .supervisor import Supervisor
from .virtual_clock import VirtualClock

A = TypeVar("A", bound=Actor)
T = TypeVar("T")

EXIT_GRACE_S = 2.0
"""How long a system that nobody stopped may take when its loop ends, in real seconds."""


class ActorSystem:
    """The actors of the running loop.

    ``async with ActorSystem() as system`` stops everything at the end; so does the end of the loop itself, as
    ``asyncio.run`` ends it. Methods are for the loop's thread, refs are for any. ``clock`` is the time of all its actors;
    ``random`` gives the numbers in [0, 1) that jitter restarts; ``dead_letters`` counts told messages that nobody
    handled.
    """

    def __init__(self, *, clock: Clock | None = None, random: Callable[[], float] = random_module.random) -> None:
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.random = random
        self.dead_letters = 0
        self.scheduler = Scheduler(asyncio.get_running_loop())
        self._context = contextvars.copy_context()
        self._table: dict[str, ActorRef[Any]] = {}
        self._top: dict[str, Incarnation] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closing = False
        self._stopping: asyncio.Task[None] | None = None
        self._release_clock: Callable[[], None] | None = None
        if isinstance(self.clock, VirtualClock):
            self._release_clock = self.clock.hold(lambda: self.scheduler.io_in_flight > 0)
        self._loop_guard = self._stop_with_loop()
        _take_first_step(self._loop_guard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    @property
    def live_actors(self) -> int:
        """How many actors there are, those that are starting or ending included."""
        return len(self._table)

    # -- actors -----------------------------------------------------------------------------------------------------

    def spawn(
        self,
        actor_class: type[A],
        *args: Any,
        id: str | None = None,
        supervisor: ActorRef[Any] | None = None,
        **kwargs: Any,
    ) -> ActorRef[A]:
        """Make an actor and start it; ``on_start`` runs soon, before its first message.

        Without a supervisor the actor is at the top of the tree and ends for good at its first crash; what its
        constructor raises is raised here. With one it is a permanent child (``start_child`` takes the other kinds), and
        a failing constructor counts as a crash. Without an ``id`` it gets one that is good for this process only.

        Raises:
            ActorExists: the id belongs to a live actor, or to a child of the supervisor.
            SystemStopped: the system has been stopped.
            WrongThread: this is not the loop's thread.
        """
        actor_id = id if id is not None else f"{actor_class.__name__}-{next(self._numbers)}"
        if supervisor is not None:
            return self._supervisor(supervisor).start_child(ChildSpec(actor_id, actor_class, args, kwargs))
        incarnation = self._conceive(actor_id, actor_class, self)
        try:
            actor = bear(incarnation, actor_class, args, kwargs)
        except BaseException as exc:
            incarnation.fail_start(exc)
            raise
        self._top[actor_id] = incarnation
        actor._start_actor_loop()
        return incarnation.ref

    def start_child_of(self, parent: Parent, spec: ChildSpec) -> Incarnation:
        """Make and start one incarnation of a supervisor's child. A failing constructor is a crash of the child.

        Raises:
            ActorExists: the id belongs to a live actor.
            SystemStopped: the system has been stopped.
        """
        actor_class = spec.actor if isinstance(spec.actor, type) else Actor
        incarnation = self._conceive(spec.id, actor_class, parent)
        try:
            actor = bear(incarnation, spec.actor, spec.args, spec.kwargs)
        except BaseException as exc:  # noqa: BLE001 - a child's failure is not its supervisor's
            incarnation.report_crash(exc, "start")
            incarnation.fail_start(exc)
        else:
            actor._start_actor_loop()
        return incarnation

    def ref(self, actor_id: str) -> ActorRef[Any] | None:
        """The ref of the live actor of this id, or None. Any thread."""
        return self._table.get(actor_id)

    def kill(self, ref: ActorRef[Any]) -> None:
        """Drop an actor as a crash of its thread would: no hook runs, its running handler is cancelled, its memory is gone.

        Whoever asked it gets ``ActorCrashed`` with a ``Killed`` as the cause; its supervisor is told ``killed``, an abnormal
        end. Its children die with it. Harmless on a dead actor.

        Raises:
            WrongThread: this is not the loop's thread.
        """
        self._check_thread()
        ref._incarnation.kill("system.kill was called")

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Stop every actor, the last started first, and refuse new ones. After ``grace_s`` seconds the rest is killed.

        Every pending ask is answered when it returns. Calling it again waits for the same end. A handler that waits for
        it is among those that are killed.
        """
        if self._stopping is None or self._stopping.cancelled():
            self._closing = True
            self._stopping = self.scheduler.loop.create_task(self._stop_all(grace_s))
        await asyncio.shield(self._stopping)
        await self._loop_guard.aclose()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called, or the loop has ended. Any thread."""
        return self._closing or self.scheduler.closed

    def tree(self) -> list[dict[str, Any]]:
        """The live actors as plain data: ``id, class, state, restarts, mailbox, children`` of each, in start order."""
        return [describe(incarnation) for incarnation in self._top.values()]

    @staticmethod
    def in_background_thread(factory: Callable[[], AbstractAsyncContextManager[T]]) -> BackgroundThread[T]:
        """Run a loop in a thread of its own, for hosts that are not asynchronous; see ``BackgroundThread``.

        ``factory`` makes what lives there, on that loop: ``ActorSystem`` itself, or anything with ``async with``.
        """
        return BackgroundThread(factory)

    # -- what incarnations call -------------------------------------------------------------------------------------

    def forget(self, incarnation: Incarnation) -> None:
        """Free the id of an incarnation that has ended."""
        self._table.pop(incarnation.id, None)

    def answer_unhandled(self, actor_id: str, letters: Iterable[Letter]) -> None:
        """Answer asks that nobody will handle; count and log what was only told. Any thread."""
        told = []
        for letter in letters:
            if letter.reply_to is not None:
                letter.reply_to.fail(ActorDead(actor_id, "it ended before it came to it"))
            else:
                told.append(letter.message)
        if told:
            with self._lock:
                self.dead_letters += len(told)
            kind = type(told[0]).__name__
            events.warning(events.DEAD_LETTER, actor=actor_id, message_type=kind, count=len(told))

    def child_started(self, child: Incarnation) -> None:
        """Nobody waits for actors at the top."""

    def child_ended(self, child: Incarnation, ended: Exit) -> None:
        """An actor at the top ends for good."""
        self._top.pop(child.id, None)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _conceive(self, actor_id: str, actor_class: type[Actor], parent: Parent) -> Incarnation:
        self._check_thread()
        if self.stopped:
            raise SystemStopped(f"cannot start {actor_id}: the system has been stopped")
        if actor_id in self._table:
            raise ActorExists(actor_id)
        incarnation = Incarnation(actor_id, actor_class, self, parent, self._context.copy())
        self._table[actor_id] = incarnation.ref
        return incarnation

    def _check_thread(self) -> None:
        if threading.get_ident() != self.scheduler.thread:
            raise WrongThread("actors are started and killed on the loop's thread; use loop.call_soon_threadsafe(...)")

    def _supervisor(self, ref: ActorRef[Any]) -> Supervisor:
        actor = ref._incarnation.actor
        if not isinstance(actor, Supervisor):
            raise TypeError(f"expected the ref of a live supervisor, got: {ref!r}")
        return actor

    async def _stop_all(self, grace_s: float) -> None:
        timer = self.clock.call_later(grace_s, self._kill_all)
        while self._top:
            last = next(reversed(self._top.values()))
            last.ref.stop(block=False)
            await last.when_ended()
        timer.cancel()
        self.scheduler.close()
        if self._release_clock is not None:
            self._release_clock()
            self._release_clock = None

    def _kill_all(self) -> None:
        for incarnation in reversed(list(self._top.values())):
            incarnation.kill("the system stopped and its grace was over")

    async def _stop_with_loop(self) -> AsyncGenerator[None, None]:
        """Lives as long as the loop: ``asyncio.run`` closes asynchronous generators before it closes the loop."""
        try:
            yield
        finally:
            if not self.scheduler.closed:  # nobody stopped the system, or the task that was about to was cancelled
                self._closing = True
                overdue = self.scheduler.loop.call_later(EXIT_GRACE_S, self._kill_all)  # real time, whatever the clock
                await self._stop_all(EXIT_GRACE_S)
                overdue.cancel()


def _take_first_step(generator: AsyncGenerator[None, None]) -> None:
    """Run an asynchronous generator up to its first ``yield``, which is when the running loop starts to look after it."""
    try:
        generator.__anext__().send(None)
    except StopIteration:
        return
