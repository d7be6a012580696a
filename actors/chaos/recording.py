"""Recorders: what writes the trace of a run while it runs. They see, and change nothing.

Proved by tests/actors/chaos/test_recording.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Literal, Protocol, Self

from msgspec.structs import replace

from ...storage.contract import Storage
from ...storage.faulty import FaultyStorage
from ...storage.records import Batch, JsonObject
from ..agent.registry import Extension
from ..agent.tool import Tool
from ..agent.toolcontext import ToolContext
from ..models import Event, Model, ModelRequest
from ..session.core import SessionCore
from ..session.publication import Publication
from ..system import System
from .trace import Began, Committed, Deleted, Ended, Failed, Published, Trace

Side = Literal["before", "after"]


class Door(Protocol):
    """Stands at every effect of a run, and may let it wait, or fail."""

    async def __call__(self, side: Side, effect: Began) -> None:
        """Called before an effect begins, which is then written down, and after it has ended."""


async def open_door(side: Side, effect: Began) -> None:
    """Let every effect pass."""


class RecordingStorage(FaultyStorage):
    """Any storage; what becomes durable in it is written down in ``trace``. Faults can be planted as in FaultyStorage."""

    def __init__(self, inner: Storage, trace: Trace) -> None:
        super().__init__(inner)
        self.trace = trace

    async def _store(self, batches: Sequence[Batch]) -> None:
        """Store a group, and write it down even if the caller is gone when it is durable."""
        writing = asyncio.ensure_future(self.inner.write(batches))
        writing.add_done_callback(lambda done: self._written(done, batches))
        await asyncio.shield(writing)

    async def delete_session(self, key: str) -> bool:
        """Let the inner storage delete a session, and write that down."""
        deleted = await super().delete_session(key)
        self.trace.add(Deleted(session=key))
        return deleted

    def _written(self, done: "asyncio.Future[None]", batches: Sequence[Batch]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.groups.append(list(batches))
            for batch in batches:
                self.trace.add(Committed(batch=batch))


class EffectRecorder:
    """Writes down every execution of a tool and every request to a model, and has ``door`` stand at them."""

    def __init__(self, trace: Trace, door: Door = open_door) -> None:
        self.trace = trace
        self.door = door
        self._count = 0

    def extensions(self, extensions: Iterable[Extension]) -> list[Extension]:
        """Give extensions whose tools are recorded."""
        return [replace(one, tools=[self.tool(tool) for tool in one.tools]) for one in extensions]

    def tool(self, tool: Tool) -> Tool:
        """Give a tool whose executions are recorded."""

        async def around(
            context: ToolContext, arguments: JsonObject, *, run: Callable[[JsonObject], Awaitable[Any]]
        ) -> Any:
            effect = Began(
                number=self._next(),
                kind="tool",
                name=tool.name,
                session=context.session,
                task=context.task_id,
                call=context.call_id,
                arguments=arguments,
                replay=tool.replay,
            )
            async with self._recorded(effect):
                return await run(arguments)

        return tool.around(around)

    def models(self, models: Iterable[Model]) -> list[Model]:
        """Give models whose requests are recorded."""
        return [RecordedModel(model, self) for model in models]

    def request(self, name: str, provider_session: str | None) -> "AbstractAsyncContextManager[None]":
        """Record a request to a model, which lasts as long as the block."""
        return self._recorded(Began(number=self._next(), kind="model", name=name, provider_session=provider_session))

    def _next(self) -> int:
        self._count += 1
        return self._count

    @asynccontextmanager
    async def _recorded(self, effect: Began) -> AsyncGenerator[None, None]:
        await self.door("before", effect)
        self.trace.add(effect)
        try:
            yield
        except BaseException as error:
            self.trace.add(Ended(number=effect.number, raised=type(error).__name__))
            raise
        self.trace.add(Ended(number=effect.number))
        await self.door("after", effect)


class RecordedModel:
    """A model whose requests are recorded; everything else is the model's own."""

    def __init__(self, model: Model, recorder: EffectRecorder) -> None:
        self._model = model
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """Answer as the model does."""
        async with self._recorder.request(self._model.name, request.session_id):
            async for event in self._model.stream(request):
                yield event


class ObservedSystem(System):
    """A system whose publications are written down: every session's commits are heard of from the first one on."""

    trace: Trace
    _heard: set[str]

    @classmethod
    def observe(cls, trace: Trace, store: Storage, **options: Any) -> Self:
        """Make a system as ``System.open`` does, which writes into ``trace``."""
        system = cls.open(store, **options)
        system.trace = trace
        system._heard = set()
        return system

    def _write(self, core: SessionCore, batch: Batch) -> None:
        if core.key not in self._heard:
            self._heard.add(core.key)
            core.subscribe(partial(self._published, core.key), partial(self._ended_life, core.key), moved=_go_on)
        super()._write(core, batch)

    def _published(self, key: str, publication: Publication) -> None:
        rows, deleted = list(publication.rows), list(publication.deleted)
        self.trace.add(Published(session=key, seq=publication.seq, rows=rows, deleted=deleted))

    def _ended_life(self, key: str) -> None:
        self._heard.discard(key)
        self.trace.add(Failed(session=key))


def _go_on(core: SessionCore | None) -> None:
    """Hear on when a session leaves memory and comes back."""
