"""The future of an ask: awaitable on any event loop, and a true ``pykka.Future`` for threads.

Responsible for handing one value or exception from whoever answers to whoever waits, across threads and loops.
Invariants: it is answered once, a second answer is told so; waiting never blocks a thread that runs a loop; a wait that
could never end is refused. Proved by tests/actors/runtime/test_future.py and test_ask_cycles.py.
"""

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pykka

from . import events
from .errors import AskCycle, AskTimeout, WouldBlock

if TYPE_CHECKING:
    from .incarnation import Incarnation
    from .steps import StepRunner

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

# Held for a few bytecodes at a time. One for all futures: a lock each would cost more than the future itself. Re-entrant,
# since a finalizer may run between any two of those bytecodes and answer another future.
_lock = threading.RLock()


def refuse_to_block(instead: str) -> None:
    """Raise if the calling thread runs an event loop.

    Raises:
        WouldBlock: naming the call to make instead.
    """
    if asyncio._get_running_loop() is not None:
        raise WouldBlock(f"this would block the thread's event loop; use `{instead}`")


class ActorFuture(pykka.Future[T]):
    """A value that an actor gives now or later.

    ``await future`` works on any loop of any thread and may be repeated and cancelled; cancelling a wait does not cancel
    the work. ``future.get(timeout=seconds)`` is for threads without a loop. Answers come from any thread, once.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_target", "_traceback", "_value")

    _hook: Any = None  # hardly any future has one, so it takes no slot

    def __init__(self, target: "Incarnation | None" = None) -> None:
        self._done = False
        self._callbacks: list[Callable[[ActorFuture[T]], None]] | None = None
        self._target = target

    def __repr__(self) -> str:
        state = "pending" if not self._done else "failed" if self._error is not None else "done"
        return f"<ActorFuture {state}>"

    # -- answering: any thread --------------------------------------------------------------------------------------

    def set(self, value: T | None = None) -> None:
        """Answer with a value. Any thread.

        Raises:
            asyncio.InvalidStateError: it was answered already, or has a get hook.
        """
        if self._hook is not None or not self.settle(cast("T", value)):
            raise asyncio.InvalidStateError(f"{self!r} was answered already")

    def set_exception(self, exc_info: ExcInfo | BaseException | None = None) -> None:
        """Answer with an exception: an instance, a ``sys.exc_info()`` tuple, or by default the one being handled.

        Raises:
            asyncio.InvalidStateError: it was answered already, or has a get hook.
        """
        if self._hook is not None or not self.fail(_as_exception(exc_info)):
            raise asyncio.InvalidStateError(f"{self!r} was answered already")

    def settle(self, value: T) -> bool:
        """Answer with a value unless it was answered already. Any thread. Returns whether this answer counts."""
        return self._answer(value, None)

    def fail(self, error: BaseException) -> bool:
        """Answer with an exception unless it was answered already. Any thread. Returns whether this answer counts."""
        return self._answer(None, error)

    def _answer(self, value: T | None, error: BaseException | None) -> bool:
        with _lock:
            if self._done:
                return False
            self._value = value
            self._error = error
            self._traceback = None if error is None else error.__traceback__
            self._done = True
            callbacks = self._callbacks
            self._callbacks = None
        self._target = None
        if callbacks is not None:
            for callback in callbacks:
                self._tell(callback)
        return True

    def _tell(self, callback: "Callable[[ActorFuture[T]], None]") -> None:
        try:
            callback(self)
        except BaseException as exc:  # noqa: BLE001 - whoever answers must not suffer from who listens
            events.error(events.CALLBACK_FAILED, exc_info=exc)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether it was answered, so that neither ``get`` nor ``await`` would wait."""
        return self._done

    def on_done(self, callback: "Callable[[ActorFuture[T]], None]") -> None:
        """Call ``callback(future)`` when it is answered, in the thread that answers; at once if it is.

        An exception of the callback is logged as ``callback_failed``.
        """
        fresh = [callback]  # made outside the lock: allocating may run the garbage collector, and that anything
        with _lock:
            done = self._done
            if not done:
                if self._callbacks is None:
                    self._callbacks = fresh
                else:
                    self._callbacks.append(callback)
        if done:
            self._tell(callback)

    def get(self, *, timeout: float | None = None) -> T:
        """Wait for the answer, at most ``timeout`` seconds of real time. Not on a thread that runs an event loop.

        Raises:
            WouldBlock: it is pending and the thread runs a loop.
            AskTimeout: no answer came in time.
            BaseException: the answer, if it is an exception.
        """
        if not self._done:
            self._block(timeout)
        return self._outcome()

    def _block(self, timeout: float | None) -> None:
        if self._target is not None:
            self._target.refuse_to_block("await future")
        refuse_to_block("await future")
        if self._hook is not None:
            self.settle(self._hook(timeout))
            return
        answered = threading.Event()
        callback = lambda _future: answered.set()  # noqa: E731 - the same object is needed to take it back
        self.on_done(callback)
        if not answered.wait(timeout):
            self._forget(callback)
            raise AskTimeout(cast("float", timeout))

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            if self._hook is not None:
                return (yield from adopt(self).__await__())
            loop = asyncio.get_running_loop()
            asker = self._note_asker(loop)
            if self._target is not None:
                self._target.scheduler.help_out(self, loop, asker)
            if not self._done:
                yield from self._wait(loop, asker)
        return self._outcome()

    __iter__ = __await__

    def _wait(self, loop: asyncio.AbstractEventLoop, asker: "StepRunner | None") -> Generator[Any, None, None]:
        waiter = loop.create_future()
        callback = _waker(loop, waiter)
        if asker is not None:
            asker.awaiting = self
        self.on_done(callback)
        try:
            yield from waiter
        except BaseException:
            self._forget(callback)
            raise
        finally:
            if asker is not None:
                asker.awaiting = None

    def _note_asker(self, loop: asyncio.AbstractEventLoop) -> "StepRunner | None":
        """Find whose handler is about to wait here, and refuse if that closes a ring of waiting handlers.

        Only what a handler awaits itself counts: its helper tasks may well wait for the actor, which does not wait for
        them.
        """
        target = self._target
        if target is None:
            return None
        task = asyncio.current_task(loop)
        asker = None if task is None else target.scheduler.handlers.get(task)
        if asker is not None:
            _refuse_cycle(asker, self)
        return asker

    def expect_from(self, target: "Incarnation | None") -> None:
        """Change who was asked; None: the answer comes from elsewhere, and does not wait for anybody's handler."""
        self._target = target

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)
        return cast("T", self._value)

    def _forget(self, callback: "Callable[[ActorFuture[T]], None]") -> None:
        with _lock:
            if self._callbacks is not None and callback in self._callbacks:
                self._callbacks.remove(callback)

    # -- Pykka's combinators: native, so that awaiting them takes no thread -----------------------------------------

    def map(self, func: Callable[[T], M]) -> "ActorFuture[M]":
        """The future of ``func(value)``. ``func`` runs once, in the thread that answers, and must not block."""
        if self._hook is not None:
            return cast("ActorFuture[M]", super().map(func))
        mapped: ActorFuture[M] = ActorFuture()
        self.on_done(lambda future: _answer_with(mapped, lambda: func(future._outcome())))
        return mapped

    def filter(self: "ActorFuture[Iterable[J]]", func: Callable[[J], bool]) -> "ActorFuture[Iterable[J]]":
        """The future of the items of the value that ``func`` holds true, as a list."""
        return self.map(lambda items: [item for item in items if func(item)])

    def reduce(self: "ActorFuture[Iterable[J]]", func: Callable[[R, J], R], *args: R) -> "ActorFuture[R]":
        """The future of the items of the value, folded from left to right; ``args`` is an optional first operand."""
        return self.map(lambda items: cast("R", functools.reduce(cast("Any", func), items, *args)))

    def join(self: "ActorFuture[Any]", *futures: pykka.Future[Any]) -> "ActorFuture[Iterable[Any]]":
        """The future of the list of all values, this one's first. It fails as the first in order that failed."""
        parts = [adopt(future) for future in (self, *futures)]
        joined: ActorFuture[Iterable[Any]] = ActorFuture()
        missing = iter(range(len(parts) - 1, -1, -1))  # advancing an iterator is atomic; a counter would need the lock

        def count_down(_future: ActorFuture[Any]) -> None:
            if next(missing) == 0:
                _answer_with(joined, lambda: [part._outcome() for part in parts])

        for part in parts:
            part.on_done(count_down)
        return joined

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Let ``func(timeout)``, which may block, make the value when it is first asked for. Awaiting it takes a thread.

        Raises:
            asyncio.InvalidStateError: it was answered already.
        """
        if self._done:
            raise asyncio.InvalidStateError(f"{self!r} was answered already")
        self._hook = func


def adopt(future: pykka.Future[T]) -> ActorFuture[T]:
    """An awaitable future for one that blocks, such as the ``ThreadingFuture`` that a host's ThreadingActor answers with.

    Awaiting a foreign future itself would freeze the loop. A daemon thread waits for it instead, until it is answered.
    """
    if isinstance(future, ActorFuture) and future._hook is None:
        return future
    adopted: ActorFuture[T] = ActorFuture()
    threading.Thread(target=_answer_with, args=(adopted, future.get), name="perdure-adopt", daemon=True).start()
    return adopted


def _answer_with(future: ActorFuture[T], make: Callable[[], T]) -> None:
    try:
        value = make()
    except BaseException as exc:  # noqa: BLE001 - whatever it is, it is for who waits
        future.fail(exc)
    else:
        future.settle(value)


def _as_exception(exc_info: ExcInfo | BaseException | None) -> BaseException:
    if isinstance(exc_info, BaseException):
        return exc_info
    kind, error, traceback = exc_info or sys.exc_info()
    if error is None:
        if kind is None:
            raise TypeError("expected an exception, got none, and none is being handled")
        error = kind()
    return error.with_traceback(traceback) if traceback is not None else error


def _waker(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> Callable[[ActorFuture[Any]], None]:
    """What wakes one awaiting task: directly from the loop's own thread, through the loop from any other."""
    thread = threading.get_ident()

    def wake(_future: ActorFuture[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # that loop has closed, and its waiter with it
            if threading.get_ident() == thread:
                release()
            else:
                loop.call_soon_threadsafe(release)

    def release() -> None:
        if not waiter.done():
            waiter.set_result(None)

    return wake


def _refuse_cycle(asker: "StepRunner", future: ActorFuture[Any]) -> None:
    path = [asker.id]
    wanted: ActorFuture[Any] | None = future
    while wanted is not None and (target := wanted._target) is not None:
        path.append(target.id)
        if target is asker:
            raise AskCycle(tuple(path))
        wanted = target.awaiting
    # A ring that does not contain the asker would have been refused when it closed, so this loop ends.
