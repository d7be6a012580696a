"""What a client follows, as frames: a replacement first, then the wire form of each commit's operations, or events.

Whoever is slow has a bounded backlog, and one replacement in the place of too much. A frame is made when the one before has
left. A watch holds no session in memory; one that ends because the
session's actors were restarted is taken again. Proved by tests/actors/gateway/test_following.py.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

import msgspec

from ... import Clock, EventStream, PerdureError, SessionFailed, System, Watch
from ...chord import Encoder
from ...events import event_to_json
from .backlog import Backlog, filled
from .commands import Id, Key, known_session
from .presence import Presence
from .refusals import Refused, refusal

RETRY_S = (0.1, 0.5, 2.0, 5.0)
"""Pauses before a session that cannot be opened is asked for again; then it is given up, as its supervisor has done."""

What = Literal["conversation", "events", "conversations", "tasks", "presence"]
Make = Callable[[], dict[str, Any]]
"""Makes a frame at the moment when it can be sent."""
Send = Callable[[Make], Awaitable[None]]
"""Returns when the frame has left, and not before there is room for the next."""


class Subject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to follow: a ``conversation`` (operations on its view, or events), or its session's lists."""

    session: Key
    what: What
    conversation: Id | None = None

    def check(self) -> None:
        """Raises Refused for a conversation that is missing or too much."""
        if (self.conversation is None) == (self.what in ("conversation", "events")):
            raise Refused("invalid_frame", f"{self.what!r} is of a {_OWNER[self.what]}: name exactly that")


_OWNER = {"conversation": "conversation", "events": "conversation"} | dict.fromkeys(
    ("conversations", "tasks", "presence"), "session"
)


class Follower:
    """One thing followed by one client."""

    def __init__(self, system: System, clock: Clock, presence: Presence, subject: Subject) -> None:
        self._system = system
        self._clock = clock
        self._presence = presence
        self.subject = subject

    async def run(self, send: Send) -> None:
        """Send every frame, until it is over: the last is ``ended``, with the reason. Raises SessionClosed with the system."""
        failures = 0
        while True:
            try:
                await self._one_life(send)
                failures = 0
            except SessionFailed as error:
                if failures == len(RETRY_S):
                    await _end(send, error)
                    return
                await self._clock.sleep(RETRY_S[failures])
                failures += 1
            except PerdureError as error:
                if refusal(error)[0] != 404:
                    raise
                await _end(send, error)
                return

    async def _one_life(self, send: Send) -> None:
        if self.subject.what == "events":
            await self._events(send)
            return
        encoder = Encoder()
        async with await self._watch() as watch, filled(lambda backlog: _gather(backlog, watch)) as backlog:
            while (ops := await backlog.take()) is not None:
                await send(lambda ops=ops: {"type": "ops", "ops": encoder.encode(ops)})  # type: ignore[misc]

    async def _events(self, send: Send) -> None:
        assert self.subject.conversation is not None
        session = await known_session(self._system, self.subject.session)
        conversation = await session.conversation(self.subject.conversation)
        stream = await conversation.watch_events()
        async with stream, filled(lambda backlog: _gather_events(backlog, stream)) as backlog:
            while (events := await backlog.take()) is not None:
                for event in events:
                    await send(lambda event=event: {"type": "event", "event": event})  # type: ignore[misc]

    async def _watch(self) -> Watch:
        subject = self.subject
        session = await known_session(self._system, subject.session)
        if subject.what == "presence":
            return self._presence.watch(subject.session)
        watched: Watch
        if subject.conversation is not None:
            watched = await (await session.conversation(subject.conversation)).watch()
        elif subject.what == "tasks":
            watched = await session.watch_tasks()
        else:
            watched = await session.watch_conversations()
        return watched


async def _end(send: Send, error: PerdureError) -> None:
    reason = refusal(error)[1]["code"]
    await send(lambda: {"type": "ended", "reason": reason})


async def _gather(backlog: Backlog, watch: Watch) -> None:
    backlog.put([["r", watch.value]], list)
    async for value, ops in watch:
        backlog.put(ops, lambda value=value: [["r", value]])  # type: ignore[misc]


async def _gather_events(backlog: Backlog, stream: EventStream) -> None:
    """Gather until there are too many: what follows then is another stream, which begins with a snapshot."""
    async for event in stream:
        backlog.put([event_to_json(event)], lambda: _stop(stream))


def _stop(stream: EventStream) -> list[Any]:
    stream.stop()
    return []


def pieces(frame: dict[str, Any], limit: int) -> Iterator[str]:
    """Write a frame as text of at most ``limit`` bytes; a larger one becomes ``part`` frames, to be joined and read again.

    A character of JSON takes four bytes at most, or two when it is escaped once more.
    """
    encoded = msgspec.json.encode(frame)
    text = encoded.decode()
    if len(encoded) <= limit:
        yield text
        return
    step = max(1, limit // 4 - 32)
    for start in range(0, len(text), step):
        part = {"type": "part", "text": text[start : start + step], "last": start + step >= len(text)}
        yield msgspec.json.encode(part).decode()
