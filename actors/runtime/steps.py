"""One step at a time: runs a hook to its end, be it a plain method or ``async def``.

Responsible for what lies between an actor's hooks and asyncio: a hook that returns a coroutine becomes a real task, so
that timeouts and task groups work in it, and nothing that it raises reaches the loop. Invariants: at most one step of
an actor runs; its end is handed on exactly once, inside the actor's context. Proved by
tests/actors/runtime/test_actor.py and test_kill.py.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ...supervisors.restart import Exit
from . import events
from .mailbox import Mailbox

if TYPE_CHECKING:
    from .actor import Actor
    from .future import ActorFuture
    from .system import ActorSystem

Then = Callable[[Any, BaseException | None], None]
"""Takes the end of a step: its result, or what it raised."""

CANCEL_GRACE_S = 1.0
"""How long a cancelled step may go on before the life goes on without it."""


class StepRunner(Mailbox):
    """A mailbox whose owner runs steps. While an asynchronous one runs, ``task`` is its task and ``_then`` gets its end.

    ``awaiting`` is the ask that this step waits for, if any: an edge of the graph in which rings of waits are found.
    ``exit`` is how the life ends, once that is decided.
    """

    __slots__ = ("_step", "_then", "actor_class", "awaiting", "exit", "system", "task")

    def __init__(self, actor_id: str, actor_class: "type[Actor]", system: "ActorSystem", context: Context) -> None:
        super().__init__(actor_id, system.scheduler, context)
        self.actor_class = actor_class
        self.system = system
        self.task: asyncio.Task[None] | None = None
        self.awaiting: ActorFuture[Any] | None = None
        self.exit: Exit | None = None
        self._then: Then | None = None
        self._step = 0

    def call(self, then: Then, hook: Callable[[], Any]) -> None:
        """Run one hook to its end and hand that end to ``then``. Loop thread, inside the context."""
        ending, result, error = self.exit, None, None
        try:
            result = hook()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, it ends at most this actor
            error = exc
        if self.exit is not ending:  # the hook killed its own actor: another end is under way
            close(result)
        elif type(result) is CoroutineType:
            self.run(then, result)
        else:
            then(result, error)

    def run(self, then: Then, coro: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine as this actor's step and hand its end to ``then``."""
        self._then = then
        self._step = step = self._step + 1
        name = f"{self.actor_class.__name__} {self.id}"
        task = self.scheduler.loop.create_task(self._complete(coro, step), name=name, context=self.context)
        if self._then is not None:  # an eager task factory may have run it to its end already
            self.task = task
            self.scheduler.handlers[task] = self
            task.add_done_callback(partial(self._check_out, coro, step), context=self.context)

    def interrupt(self, then: Callable[[], None]) -> None:
        """Cancel the running step, if any; go on with ``then`` when it is through, or when its grace is over."""
        task = self.task
        if task is None:
            then()
            return

        def through(_result: Any, _exc: BaseException | None) -> None:
            grace.cancel()
            then()

        def abandon() -> None:
            if self._then is through:
                self._report_abandoned()
                self.task = self._then = None
                then()

        self._then = through
        grace = self.system.clock.call_later(CANCEL_GRACE_S, lambda: self.scheduler.post(self.context, abandon))
        task.cancel()

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
        if task.cancelled():  # before its first step, so that _complete never ran: nobody else will end it
            coro.close()
            self._complete_step(step, None, asyncio.CancelledError())

    def _report_abandoned(self) -> None:
        name = self.actor_class.__name__
        events.error(events.ACTOR_ABANDONED, actor=self.id, actor_class=name, grace_s=CANCEL_GRACE_S)


def close(result: Any) -> None:
    """End a coroutine that will not be run, if it is one."""
    if type(result) is CoroutineType:
        result.close()
