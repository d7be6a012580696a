"""An event loop in a thread of its own, for hosts that are not asynchronous.

Invariant: the process ends soon after its main thread, at most ``EXIT_GRACE_S`` later, closed or not. Proved by
tests/actors/runtime/test_background.py.
"""

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from .errors import AskTimeout, SystemStopped
from .future import refuse_to_block

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

EXIT_GRACE_S = 3.0
"""How long all of them together may take to close after the main thread has ended."""


class BackgroundThread(Generic[T]):
    """``with BackgroundThread(factory) as background``: what ``factory`` makes lives on a loop in another thread.

    ``factory()`` makes an asynchronous context manager. It is entered on that loop before the constructor returns,
    which makes ``value``, and left by ``close``. ``call`` is the bridge to it.

    A host that forgets to close loses nothing but time: when the main thread ends, a watcher closes what is open; and
    the thread is a daemon, as are those that are started on it, so none of them can hold the process up.

    Raises:
        BaseException: what making or entering the value raised; the thread has ended then.
        WouldBlock: the calling thread runs a loop itself.
    """

    value: T
    """What the factory's context manager gave. It belongs to the loop: use it inside ``call``."""

    def __init__(self, factory: Callable[[], AbstractAsyncContextManager[T]], *, name: str = "perdure") -> None:
        refuse_to_block("async with factory() as value")
        self._factory = factory
        self._opened: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.value = self._opened.result()
        _watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def call(self, function: Callable[Concatenate[T, P], Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def call(self, function: Callable[Concatenate[T, P], R], *args: P.args, **kwargs: P.kwargs) -> R: ...

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``function(value, *args, **kwargs)`` on the loop and wait for its result. Any thread without a loop.

        The function is ``async def`` or plain; a plain one must not block. Interrupting the wait (Ctrl-C) cancels it.

        Raises:
            WouldBlock: the calling thread runs a loop.
            SystemStopped: the thread was closed, before or meanwhile.
            BaseException: what the function raised.
        """
        refuse_to_block("await function(value, ...)")

        async def invoke() -> Any:
            result = function(self.value, *args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        coro = invoke()
        try:
            future = asyncio.run_coroutine_threadsafe(coro, self._loop)
        except RuntimeError:
            coro.close()
            raise SystemStopped("the background thread has been closed") from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise SystemStopped("the background thread was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def close(self, timeout_s: float | None = None) -> None:
        """Leave the value and end the thread. Waits at most ``timeout_s`` seconds; None: as long as it takes. Idempotent.

        Raises:
            AskTimeout: it takes longer, and goes on.
            BaseException: what leaving the value raised.
        """
        refuse_to_block("async with factory() as value")
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop is just being closed
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise AskTimeout(cast("float", timeout_s))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close_within(self, seconds: float) -> None:
        """Close at the end of the process: with patience for half of the time, then by cancelling what still runs."""
        with contextlib.suppress(BaseException):  # nobody is left to tell
            self.close(seconds / 2)
        if self._thread.is_alive() and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(seconds / 2)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as exc:  # noqa: BLE001 - handed to whoever opened, or closes
            if self._opened.done():
                self._failure = exc
            else:
                self._opened.set_exception(exc)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._closing = asyncio.Event()
        async with self._factory() as value:
            self._opened.set_result(value)
            await self._closing.wait()


_open: "weakref.WeakSet[BackgroundThread[Any]]" = weakref.WeakSet()
_watcher: threading.Thread | None = None
_watcher_lock = threading.Lock()


def _watch(background: BackgroundThread[Any]) -> None:
    """Have ``background`` closed when the main thread ends.

    Not by ``atexit``: its hooks run only after all other threads have ended, and what is open may keep one alive. A
    thread that waits for the main thread is woken before that.
    """
    global _watcher  # noqa: PLW0603 - one main thread, one watcher
    with _watcher_lock:
        _open.add(background)
        if _watcher is None:
            _watcher = threading.Thread(target=_close_at_exit, name="perdure-exit", daemon=False)
            _watcher.start()


def _close_at_exit() -> None:
    threading.main_thread().join()
    until = time.monotonic() + EXIT_GRACE_S
    for background in list(_open):
        background.close_within(max(0.0, until - time.monotonic()))
