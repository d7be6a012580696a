"""Watches: every change delivered in order to one consumer, who may be slow without holding up the producer.

    watch = Watch(value, unregister)
    async for value, ops in watch: ...          or          watch.start(async_listener)

At most `MAX_PENDING` frames wait, of at most `MAX_PENDING_BYTES`; one more, and a single replacement by the newest value
takes the place of them all. So a watch keeps its consumer up to date, it is not a log. It lives on one event loop, not
on threads, and holds no task while there is nothing to deliver. Proved by tests/chord/test_watch.py.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from .apply import Op
from .errors import WatchTaken
from .values import Json

MAX_PENDING = 100
"""Frames that a watch keeps for its consumer, not counting the one being delivered."""

MAX_PENDING_BYTES = 8 * 2**20
"""The size of those frames, as far as their producer states it."""

EndReason: TypeAlias = Literal["stopped", "cancelled", "closed", "retired", "listener_error"]

Frame: TypeAlias = tuple[Json, list[Op]]
"""A value and the operations that led to it."""

Listener: TypeAlias = Callable[[Json, list[Op]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """Why a watch ended.

    `stopped`: by its consumer. `cancelled`: with the scope that it was acquired in, or its delivery was cancelled.
    `closed`: with its producer. `retired`: what it watched is gone, and all frames up to that were delivered.
    `listener_error`: the listener raised `error`.
    """

    reason: EndReason
    error: BaseException | None = None


Collapse: TypeAlias = Callable[[Json, list[Op]], list[Any]]


def replace_by_newest(value: Json, _ops: list[Op]) -> list[Op]:
    """The operations that stand for all undelivered ones: one replacement."""
    return [["r", value]]


def keep(
    frames: deque[Frame], value: Json, ops: list[Op], collapse: Collapse = replace_by_newest, *, full: bool = False
) -> bool:
    """Add a frame to those that wait; if that is one too many, it takes the place of them all. Tells whether it did."""
    full = full or len(frames) == MAX_PENDING
    if full:
        frames.clear()
        ops = collapse(value, ops)
    frames.append((value, ops))
    return full


class Watch:
    """A serialized, bounded stream of `(value, ops)` frames to one consumer, who iterates or installs a listener.

    `unregister` is called once, when no more frames are wanted. `collapse(value, ops)` makes the operations of the
    frame that replaces all undelivered ones, from the newest. `report` is told of a listener's error, also of one that
    comes after the end. As an async context manager, the watch stops at the end of the block.
    """

    def __init__(
        self,
        value: Json,
        unregister: Callable[[], object] | None = None,
        *,
        collapse: Collapse = replace_by_newest,
        report: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._value = value
        self._frames: deque[Frame] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._unregister = unregister
        self._collapse = collapse
        self._report = report
        self._retiring = False
        self._end: WatchEnd | None = None
        self._closed: asyncio.Future[WatchEnd] | None = None
        self._listener: Listener | None = None
        self._delivery: asyncio.Task[None] | None = None
        self._arrival: asyncio.Future[None] | None = None

    @property
    def value(self) -> Json:
        """The value at acquisition, then that of the latest frame delivered. Shared: not to be changed."""
        return self._value

    @property
    def ended(self) -> WatchEnd | None:
        """How the watch ended, None while it has not."""
        return self._end

    @property
    def closed(self) -> Awaitable[WatchEnd]:
        """Resolves to how the watch ended. A listener that is running then is not waited for, nor cancelled."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            if self._end is not None:
                self._closed.set_result(self._end)
        return asyncio.shield(self._closed)  # cancelling one who waits must not cancel the end for the others

    # The producer's side.

    def push(self, value: Json, ops: list[Op], size: int = 0) -> None:
        """Hand in a frame of ``size`` bytes; never waits and never runs the consumer's code. Ignored after the end."""
        if self._end is not None or self._retiring:
            return
        if keep(self._frames, value, ops, self._collapse, full=self._bytes + size > MAX_PENDING_BYTES):
            self._forget_sizes()
            size = 0  # a replacement is the value, which is kept anyway
        self._sizes.append(size)
        self._bytes += size
        self._stir()

    def end(self, reason: EndReason, error: BaseException | None = None) -> None:
        """End the watch; the first end counts. `retired` takes effect when all frames are delivered, others at once."""
        if reason == "retired" and (self._frames or self._delivery is not None):
            self._retiring = True
            self._release()
        else:
            self._finish(WatchEnd(reason, error))

    # The consumer's side.

    def start(self, listener: Listener) -> None:
        """Install the one listener. It is awaited for one frame after the other, in this call's context.

        Raises:
            WatchTaken: there is a listener already, or somebody iterates.
        """
        if self._listener is not None or self._arrival is not None:
            raise WatchTaken("expected one consumer of a watch, got a second one")
        self._listener = listener
        self._context = copy_context()  # not that of whoever happens to push
        self._stir()

    def stop(self) -> WatchEnd:
        """End the watch, drop what was not delivered, and return how it ended; idempotent, and not to be awaited."""
        self._finish(WatchEnd("stopped"))
        assert self._end is not None
        return self._end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        if self._listener is not None or self._arrival is not None:
            raise WatchTaken("expected one consumer of a watch, got a second one")
        while not self._frames and self._end is None:
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        if self._end is not None:
            raise StopAsyncIteration
        frame = self._take()
        if self._retiring and not self._frames:
            self._finish(WatchEnd("retired"))
        return frame

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Delivery.

    def _take(self) -> Frame:
        frame = self._frames.popleft()
        self._bytes -= self._sizes.popleft()
        self._value = frame[0]
        return frame

    def _forget_sizes(self) -> None:
        self._sizes.clear()
        self._bytes = 0

    def _stir(self) -> None:
        """Wake who waits for a frame, or see to it that the listener gets it."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        if self._listener is not None and self._delivery is None and self._frames:
            self._delivery = asyncio.get_running_loop().create_task(self._deliver(), context=self._context)

    async def _deliver(self) -> None:
        assert self._listener is not None
        try:
            await asyncio.sleep(0)  # also where tasks start eagerly, a push runs no listener
            while self._frames and self._end is None:
                await self._listener(*self._take())
        except asyncio.CancelledError:
            self._finish(WatchEnd("cancelled"))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the consumer's and must not reach the producer
            self._finish(WatchEnd("listener_error", error))
            if self._report is not None:
                self._report(error)
        finally:
            self._delivery = None
        if self._retiring:
            self._finish(WatchEnd("retired"))

    def _finish(self, end: WatchEnd) -> None:
        if self._end is not None:
            return
        self._end = end
        self._frames.clear()
        self._forget_sizes()
        self._release()
        self._stir()
        if self._closed is not None:
            self._closed.set_result(end)

    def _release(self) -> None:
        unregister, self._unregister = self._unregister, None
        if unregister is not None:
            unregister()
