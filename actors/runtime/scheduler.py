"""One ready queue for all actors of one event loop.

Responsible for running what is ready in few loop turns: a turn costs more than a message, so one callback runs ready
mailboxes until none is left or its time is up, and then lets the loop look at its sockets. Invariants: a mailbox woken
on any thread is activated or buried, never forgotten; handlers run on the loop's thread only. Proved by
tests/actors/runtime/test_scheduler.py.
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .future import ActorFuture
    from .steps import StepRunner

BUDGET_S = 0.002
"""How long one callback may keep the loop before sockets, timers and tasks get their turn."""

GIL_GAP_S = 0.0002
"""How long the loop's thread steps aside, once a budget, while ``io_in_flight``."""


class Ready(Protocol):
    """What the ready queue holds."""

    @property
    def context(self) -> contextvars.Context:
        """The context in which to activate it."""

    def activate(self) -> None:
        """Run on the loop's thread."""

    def bury(self) -> None:
        """Give up, on any thread: the loop is gone."""


class Signal:
    """A callback of the runtime itself, queued behind the mailboxes that are ready."""

    __slots__ = ("activate", "context")

    def __init__(self, context: contextvars.Context, callback: Callable[[], None]) -> None:
        self.context = context
        self.activate = callback

    def bury(self) -> None:
        """Drop it: signals concern only the loop that is gone."""


class Scheduler:
    """The ready queue of the loop that runs in the calling thread.

    ``io_in_flight`` is an opt-in counter of batches that helper threads work on: whoever hands one over adds 1 and takes
    it back when it is done. While it is above 0, a loop that is busy all the time steps aside for 0.2 ms in every 2 ms
    of its own processor time. Otherwise a thread that calls into SQLite, which drops the interpreter lock at every
    call, may wait 5 ms each time that it wants it back.

    ``handlers`` are the running asynchronous steps and whose they are; ``context`` is for what is no actor's own.
    A loop that simulates may bring its own ``ready_queue()``, which decides whose turn it is, and ``processor_time()``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = get_ident()
        self.context = contextvars.copy_context()
        self._own_context = contextvars.copy_context()  # a context cannot be entered inside of itself
        self.handlers: dict[asyncio.Task[Any], StepRunner] = {}
        self.io_in_flight = 0
        self.deadline = 0.0
        self.closed = False
        self.processor_time: Callable[[], float] = getattr(loop, "processor_time", time.perf_counter)
        self._ready: deque[Ready] = getattr(loop, "ready_queue", deque)()
        self._armed = False
        self._running = False
        self._busy_mark_s = 0.0

    def wake(self, item: Ready) -> None:
        """Have ``item`` activated. Any thread. On a loop that is gone it is buried at once."""
        if get_ident() == self.thread:
            self._ready.append(item)
            if not self._armed:
                self._arm()
        else:
            self._wake_from_afar(item)

    def post(self, context: contextvars.Context, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called soon on the loop's thread, in ``context``, outside of any handler. Any thread."""
        self.wake(Signal(context, callback))

    def help_out(self, wanted: "ActorFuture[Any]", loop: asyncio.AbstractEventLoop, asker: "StepRunner | None") -> None:
        """Run ready actors right here, in front of an ``await`` of ``wanted``, in the hope that one answers it.

        An answer that comes at once costs the awaiting task no loop turn. The budget is that of the loop turn, so a task
        that asks and asks lets sockets and timers have theirs.
        """
        ready = self._ready
        if not ready or self._running or loop is not self.loop:
            return
        own = None if asker is None else asker.context  # it is entered already, and cannot be a second time
        put_back: list[Ready] = []
        self._running = True
        try:
            while ready and not wanted.done() and self.processor_time() < self.deadline:
                item = ready.popleft()
                if item.context is own:
                    put_back.append(item)
                else:
                    item.context.run(item.activate)
        finally:
            self._running = False
            ready.extendleft(reversed(put_back))

    def close(self) -> None:
        """Bury whatever is woken from now on. Loop thread, once nothing is left to run."""
        self.closed = True
        self._armed = False
        while self._ready:
            self._ready.popleft().bury()

    def _arm(self) -> None:
        if self.closed:
            self.close()
            return
        try:
            self.loop.call_soon(self._run, context=self._own_context)
        except RuntimeError:  # the loop was closed and nobody told us
            self.close()
        else:
            self._armed = True
            self.deadline = self.processor_time() + BUDGET_S  # for help_out; _run gives itself a new one

    def _wake_from_afar(self, item: Ready) -> None:
        try:
            self.loop.call_soon_threadsafe(self._take, item, context=self._own_context)
        except RuntimeError:
            self.closed = True
        if self.closed:  # looked at after queueing, so a close in between cannot strand the item
            item.bury()

    def _take(self, item: Ready) -> None:
        if self.closed:  # between queueing and now; if its sender saw that too, it is buried twice, which is harmless
            item.bury()
            return
        self._ready.append(item)
        if not self._armed:
            self._armed = True
            self._run()

    def _run(self) -> None:
        self._running = True
        try:
            self._run_ready()
        finally:  # also when the runtime itself fails: one bug must not freeze every actor
            self._running = False
            if self._ready:
                self.loop.call_soon(self._run, context=self._own_context)
            else:
                self._armed = False

    def _run_ready(self) -> None:
        ready, now = self._ready, self.processor_time
        self.deadline = deadline = now() + BUDGET_S
        while ready:
            item = ready.popleft()
            item.context.run(item.activate)
            if now() >= deadline:
                break
        if self.io_in_flight > 0 and now is time.perf_counter:  # threads wait for the lock only where time is real
            self._step_aside()

    def _step_aside(self) -> None:
        # Processor time, not wall time: a loop that blocks in its selector lets go of the lock by itself.
        if time.thread_time() - self._busy_mark_s >= BUDGET_S:
            time.sleep(GIL_GAP_S)
            self._busy_mark_s = time.thread_time()
