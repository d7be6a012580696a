"""What all connections of one gateway share. Proved by tests/actors/gateway/test_sockets.py."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any, TypeVar

from ... import Agent, Clock, System
from .commands import Desk
from .guard import Guard, Limits, Rates
from .presence import Presence
from .refusals import Refused

T = TypeVar("T")


class House:
    """One gateway: the system behind it, its rules, and who is inside."""

    def __init__(self, system: System, guard: Guard, limits: Limits, clock: Clock, agent: Agent | None) -> None:
        self.system = system
        self.guard = guard
        self.limits = limits
        self.clock = clock
        self.desk = Desk(system, clock, agent)
        self.presence = Presence()
        self.rates = Rates(limits)
        self.inside = 0
        """Sockets, event streams and requests that are being served."""
        self.left_at = clock.monotonic()
        """When the last of them went away, in monotonic seconds."""
        self._strangers = 0
        self._streams = 0
        self._numbers = count(1)

    def next_person(self) -> str:
        """Name somebody who comes in; names are not used again."""
        return f"p{next(self._numbers)}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count something that is being served."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self.left_at = self.clock.monotonic()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Count a socket, or a stream of events. Raises Refused when there are as many as may be."""
        if self._streams >= self.limits.sockets:
            raise too_many()
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @asynccontextmanager
    async def stranger(self) -> AsyncIterator[None]:
        """Count somebody who has not shown the token yet. Raises Refused when there are as many as may be."""
        if self._strangers >= self.limits.strangers or self._streams >= self.limits.sockets:
            raise too_many()
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    def admit(self, headers: Mapping[str, str], token: str | None) -> None:
        """Let somebody in who knows the token, from the first frame or from a header. Raises Refused."""
        if token is None:
            self.guard.check_bearer(headers)
        elif not self.guard.knows(token):
            raise Refused("wrong_token", "this is not the token", 401)

    async def within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something, but not longer than that, by the gateway's clock. Raises TimeoutError."""
        task = asyncio.ensure_future(work)
        timer = self.clock.call_later(seconds, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise TimeoutError from None
        finally:
            timer.cancel()


def too_many() -> Refused:
    """Give the refusal for one connection more than may be."""
    return Refused("too_many", "too many connections; try again later", 429, retry_after_s=1.0)
