"""What goes wrong in a simulated run, as the seed says: storage, models, actors, and the process itself.

Proved by tests/actors/chaos/test_faults.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Any, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from ...storage.contract import Storage
from ...storage.faulty import InjectedFailure, When
from ...storage.records import Batch
from ..models import AssistantMessage, Event, Model, ModelRequest, error_info
from ..models.events import Done, Start
from ..models.messages import ErrorKind
from ..runtime import Clock
from .recording import RecordingStorage
from .trace import Committed, Sink

P = ParamSpec("P")
R = TypeVar("R")


MOST_TURNS = 8
"""The most turns of the loop that a read takes."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often what goes wrong: chances, from 0.0 to 1.0.

    ``storage_error``: a write fails, before or after it is stored, and its outcome is unknown to whoever asked.
    ``slow_write``: a write takes up to ``slow_ms``; ``slow_read``: a read takes a turn or a few of the loop.
    ``model_error``: an answer fails, before its beginning or in its middle; ``fatal`` of those are not to be retried.
    ``process_deaths`` and ``actor_deaths`` are the most that one run has of each.
    """

    storage_error: float = 0.02
    slow_write: float = 0.3
    slow_ms: int = 200
    slow_read: float = 0.1
    model_error: float = 0.1
    fatal: float = 0.2
    process_deaths: int = 2
    actor_deaths: int = 2


class SimStorage(RecordingStorage):
    """A storage that is slow, and fails, as the seed says, until it is told to be ``calm``."""

    def __init__(self, inner: Storage, trace: Sink, dice: Random, faults: Faults, clock: Clock) -> None:
        super().__init__(inner, trace)
        self.calm = False
        self._dice = dice
        self._chances = faults
        self._clock = clock

    async def _meet(self, number: int, when: When) -> None:
        await super()._meet(number, when)
        if self._strikes(self._chances.slow_write):
            await self._clock.sleep(self._dice.random() * self._chances.slow_ms / 1_000)
        if self._strikes(self._chances.storage_error):
            self._failed = True
            raise InjectedFailure(f"write {number} failed {when} it was stored, as the seed says")

    async def _store(self, batches: Sequence[Batch]) -> None:
        await self.inner.write(batches)  # in memory, so nothing comes in between
        self.groups.append(list(batches))
        for batch in batches:
            self.trace.add(Committed(batch=batch))

    async def _read(self, query: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(MOST_TURNS):
            if not self._strikes(self._chances.slow_read):
                break
            await asyncio.sleep(0)
        return await super()._read(query, *args, **kwargs)

    def _strikes(self, chance: float) -> bool:
        return not self.calm and self._dice.random() < chance


class FlakyModel:
    """A model whose answers fail as the seed says; everything else is the model's own."""

    def __init__(self, model: Model, dice: Random, faults: Faults, clock: Clock) -> None:
        self._model = model
        self._dice = dice
        self._chances = faults
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """Answer as the model does, or fail: at once, or after a few events."""
        left = self._dice.randrange(8) if self._dice.random() < self._chances.model_error else -1
        message = self._blank()
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                if left == 0:
                    yield Done(self._failed(message))
                    return
                left -= 1
                message = event.message if isinstance(event, Start) else message
                yield event

    def _blank(self) -> AssistantMessage:
        model = self._model
        return AssistantMessage(
            content=[], api=model.api, provider=model.provider, model=model.id, timestamp=self._clock.now()
        )

    def _failed(self, message: AssistantMessage) -> AssistantMessage:
        kind: ErrorKind = "auth" if self._dice.random() < self._chances.fatal else "overloaded"
        return replace(message, stop_reason="error", error=error_info(kind, "as the seed says"))
