"""Replicated state: a value that follows a document which somebody else changes.

A *feed* is the producer's side: it holds the newest value and hands every published frame to whoever is attached. To
attach is atomic: the snapshot holds everything published before, and every frame after it is kept until the follower
is ready. `ReplicatedState` is such a follower for code that runs on the spot; for slow consumers there is `Watch`.

    feed = Feed(tracker.value)                     there, for a replica across a stream:
    state = ReplicatedState(feed)                      ops = decoder.decode(json.loads(line))
    feed.publish(prepared.value, prepared.ops)         feed.publish(apply_immutable(feed.value, ops), ops)

All of it is synchronous and belongs to one thread. Proved by tests/chord/test_replica.py.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from .apply import Op
from .errors import WatchTaken
from .values import Json
from .watch import EndReason, Frame, Watch, keep

Subscriber: TypeAlias = Callable[[Json, list[Op]], object]


class Attachment(Protocol):
    """One follower's hold on a source."""

    @property
    def snapshot(self) -> Json:
        """The value at the moment of attachment."""

    def activate(self, listener: Subscriber) -> None:
        """Hand over all frames kept since then, and from now on each one as it is published. Once only."""

    def dispose(self) -> None:
        """Let go; no frame is handed over any more. Idempotent."""


class Source(Protocol):
    """What a `ReplicatedState` can follow: a `Feed`, or anything that can attach atomically."""

    def attach(self) -> Attachment:
        """Take a snapshot and begin to keep every later frame, with nothing in between."""


class Feed:
    """Holds the newest value of a document and hands each published frame to all followers, in order of attachment."""

    def __init__(self, value: Json) -> None:
        self._value = value
        self._followers: dict[_Buffer | Watch, None] = {}  # in order of attachment

    @property
    def value(self) -> Json:
        """The newest value. Shared: not to be changed."""
        return self._value

    @property
    def followed(self) -> bool:
        """Whether anybody is attached. If nobody is, a producer may spare itself the value, see `Tracker.adopt`."""
        return bool(self._followers)

    def publish(self, value: Json, ops: list[Op]) -> None:
        """Make `value` the newest one; `ops` are what led to it from the one before."""
        self._value = value
        for follower in tuple(self._followers):
            follower.push(value, ops)

    def attach(self) -> Attachment:
        """See `Source.attach`. Before activation no more frames are kept than a `Watch` keeps, and in the same way."""
        follower = _Buffer(self._value, lambda: self._followers.pop(follower, None))
        self._followers[follower] = None
        return follower

    def watch(self, *, report: Callable[[BaseException], object] | None = None) -> Watch:
        """A watch that begins with the newest value; `report` as in `Watch`."""
        follower = Watch(self._value, lambda: self._followers.pop(follower, None), report=report)
        self._followers[follower] = None
        return follower

    def end(self, reason: EndReason) -> None:
        """Let go of all followers. Watches end for `reason`, a replicated state keeps its last value."""
        for follower in tuple(self._followers):
            follower.end(reason)


class _Buffer:
    """An attachment to a feed. Frames wait in it until there is a listener."""

    def __init__(self, snapshot: Json, unregister: Callable[[], object]) -> None:
        self.snapshot = snapshot
        self._unregister = unregister
        self._frames: deque[Frame] = deque()
        self._listener: Subscriber | None = None

    def push(self, value: Json, ops: list[Op]) -> None:
        if self._listener is not None:
            self._listener(value, ops)
        else:
            keep(self._frames, value, ops)

    def activate(self, listener: Subscriber) -> None:
        if self._listener is not None:
            raise WatchTaken("expected one listener of an attachment, got a second one")
        while self._frames:  # what is published meanwhile queues up behind
            listener(*self._frames.popleft())
        self._listener = listener

    def dispose(self) -> None:
        self._frames.clear()
        self._unregister()

    def end(self, _reason: EndReason) -> None:
        self._unregister()


def _log(error: Exception) -> None:
    logging.getLogger(__name__).error("a subscriber of a replicated state raised", exc_info=error)


class ReplicatedState:
    """A value that follows a source, without another copy of it.

    Attaches at once, so `value` is there from the start. An error of a subscriber goes to `on_error` (by default to
    the log) and disturbs neither the source nor the other subscribers.
    """

    def __init__(self, source: Source, *, on_error: Callable[[Exception], object] = _log) -> None:
        self._on_error = on_error
        self._subscribers: dict[object, Subscriber] = {}
        self._frames: deque[Frame] = deque()
        self._delivering = False
        self._attachment = source.attach()
        self._value = self._attachment.snapshot
        self._attachment.activate(self._receive)

    @property
    def value(self) -> Json:
        """The newest value delivered; the last one after `dispose`. Shared: not to be changed."""
        return self._value

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have `subscriber(value, ops)` called for every later frame; returns the function that ends it.

        `state.value` is the frame's value during the call. A frame published by a subscriber comes after the one that
        is being delivered, for everybody.
        """
        token = object()
        self._subscribers[token] = subscriber
        return lambda: self._forget(token)

    def dispose(self) -> None:
        """Stop following and drop all subscribers. Idempotent."""
        self._attachment.dispose()
        self._frames.clear()
        self._subscribers.clear()

    def _forget(self, token: object) -> None:
        self._subscribers.pop(token, None)

    def _receive(self, value: Json, ops: list[Op]) -> None:
        self._frames.append((value, ops))
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._frames:
                self._deliver(*self._frames.popleft())
        finally:
            self._delivering = False

    def _deliver(self, value: Json, ops: list[Op]) -> None:
        self._value = value
        for token in tuple(self._subscribers):
            subscriber = self._subscribers.get(token)  # an earlier one may have ended it
            if subscriber is not None:
                try:
                    subscriber(value, ops)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the subscriber's own affair
                    self._on_error(error)
