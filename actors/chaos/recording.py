"""Recorders: what writes the trace of a run while it runs. They see, and change nothing.

Proved by tests/actors/chaos/test_recording.py.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from typing import Any, Literal, Protocol, Self

from msgspec.structs import replace

from ...chord.errors import PerdureError
from ...storage.contract import Storage
from ...storage.faulty import FaultyStorage
from ...storage.records import Batch, ConversationRecord, JsonObject
from ..agent.registry import Extension
from ..agent.tool import Tool
from ..agent.toolcontext import ToolContext
from ..models import Event, Model, ModelRequest
from ..session.core import SessionCore
from ..session.publication import Publication
from ..system import System
from .trace import Began, Committed, Deleted, Ended, Failed, Published, Shown, Sink, Unwatched

Side = Literal["before", "after"]


class Door(Protocol):
    """Stands at every effect of a run, and may let it wait, or fail."""

    async def __call__(self, side: Side, effect: Began) -> None:
        """Called before an effect begins, which is then written down, and after it has ended."""


async def open_door(side: Side, effect: Began) -> None:
    """Let every effect pass."""


class RecordingStorage(FaultyStorage):
    """Any storage; what becomes durable in it is written down in ``trace``. Faults can be planted as in FaultyStorage."""

    def __init__(self, inner: Storage, trace: Sink) -> None:
        super().__init__(inner)
        self.trace = trace
        self._writing: set[asyncio.Future[None]] = set()

    async def drained(self) -> None:
        """Return when no write is under way any more."""
        while self._writing:
            await asyncio.wait(self._writing)

    async def _store(self, batches: Sequence[Batch]) -> None:
        """Store a group, and write it down even if the caller is gone when it is durable."""
        writing = asyncio.ensure_future(self.inner.write(batches))
        self._writing.add(writing)
        writing.add_done_callback(lambda done: self._written(done, batches))
        await asyncio.shield(writing)

    async def delete_session(self, key: str) -> bool:
        """Let the inner storage delete a session, and write that down."""
        deleted = await super().delete_session(key)
        self.trace.add(Deleted(session=key))
        return deleted

    def _written(self, done: "asyncio.Future[None]", batches: Sequence[Batch]) -> None:
        self._writing.discard(done)
        if not done.cancelled() and done.exception() is None:
            self.groups.append(list(batches))
            for batch in batches:
                self.trace.add(Committed(batch=batch))


class EffectRecorder:
    """Writes down every execution of a tool and every request to a model, and has ``door`` stand at them.

    ``numbers`` go on counting where another recorder of the same run has ended.
    """

    def __init__(self, trace: Sink, door: Door = open_door, numbers: Iterator[int] | None = None) -> None:
        self.trace = trace
        self.door = door
        self.in_threads = 0
        """How many executions are under way in threads, which a virtual clock cannot see."""
        self._numbers = numbers or count(1)

    def extensions(self, extensions: Iterable[Extension]) -> list[Extension]:
        """Give extensions whose tools are recorded."""
        return [replace(one, tools=[self.tool(tool) for tool in one.tools]) for one in extensions]

    def tool(self, tool: Tool) -> Tool:
        """Give a tool whose executions are recorded."""

        async def around(
            context: ToolContext, arguments: JsonObject, *, run: Callable[[JsonObject], Awaitable[Any]]
        ) -> Any:
            effect = Began(
                number=next(self._numbers),
                kind="tool",
                name=tool.name,
                session=context.session,
                task=context.task_id,
                call=context.call_id,
                arguments=arguments,
                replay=tool.replay,
            )
            async with self._recorded(effect):
                with self._blocking(tool):
                    return await run(arguments)

        return tool.around(around)

    @contextmanager
    def _blocking(self, tool: Tool) -> Iterator[None]:
        in_thread = not inspect.iscoroutinefunction(tool.function)
        self.in_threads += in_thread
        try:
            yield
        finally:
            self.in_threads -= in_thread

    def models(self, models: Iterable[Model]) -> list[Model]:
        """Give models whose requests are recorded."""
        return [RecordedModel(model, self) for model in models]

    def request(self, name: str, provider_session: str | None) -> "AbstractAsyncContextManager[None]":
        """Record a request to a model, which lasts as long as the block."""
        return self._recorded(
            Began(number=next(self._numbers), kind="model", name=name, provider_session=provider_session)
        )

    def outside(self, name: str, session: str, task: int) -> "AbstractAsyncContextManager[None]":
        """Record what a task's own code does in the world, which lasts as long as the block."""
        return self._recorded(Began(number=next(self._numbers), kind="task", name=name, session=session, task=task))

    @asynccontextmanager
    async def _recorded(self, effect: Began) -> AsyncGenerator[None, None]:
        await self.door("before", effect)
        self.trace.add(effect)
        try:
            yield
        except BaseException as error:
            self.trace.add(Ended(number=effect.number, raised=type(error).__name__))
            if isinstance(error, Exception):
                await self.door("after", effect)
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
    """A system whose publications are written down: every session's commits are heard of from the first one on.

    Every conversation that a commit is about is watched, too.
    """

    trace: Sink
    _heard: set[str]
    _watched: dict[tuple[str, int], asyncio.Task[None]]
    _watches: Iterator[int]

    @classmethod
    def observe(cls, trace: Sink, store: Storage, *, watches: Iterator[int] | None = None, **options: Any) -> Self:
        """Make a system as ``System.open`` does, which writes into ``trace``; ``watches`` gives numbers to its watchers."""
        system = cls.open(store, **options)
        system.trace = trace
        system._heard, system._watched, system._watches = set(), {}, watches or count(1)
        return system

    def _write(self, core: SessionCore, batch: Batch) -> None:
        if core.key not in self._heard:
            self._heard.add(core.key)
            core.subscribe(partial(self._published, core.key), partial(self._ended_life, core.key), moved=_go_on)
        super()._write(core, batch)

    def _published(self, key: str, publication: Publication) -> None:
        rows, deleted = list(publication.rows), list(publication.deleted)
        self.trace.add(Published(session=key, seq=publication.seq, rows=rows, deleted=deleted))
        for row in rows:
            conversation = row.id if isinstance(row, ConversationRecord) else getattr(row, "conversation_id", None)
            if conversation is not None and (key, conversation) not in self._watched:
                self._watched[key, conversation] = asyncio.ensure_future(self._follow(key, conversation))

    def _ended_life(self, key: str) -> None:
        self._heard.discard(key)
        self.trace.add(Failed(session=key))

    async def _follow(self, key: str, conversation: int) -> None:
        """Watch a conversation to the end of its session's life; its next commit begins another watch."""
        number = next(self._watches)
        try:
            handle = await (await self.session(key)).conversation(conversation)
            async with await handle.watch() as watch:
                self.trace.add(Shown(watch=number, session=key, conversation=conversation, value=watch.value))
                async for _, ops in watch:
                    self.trace.add(Shown(watch=number, session=key, conversation=conversation, ops=ops))
        except PerdureError:
            pass  # the session has failed, or the system is closed
        finally:
            self.trace.add(Unwatched(watch=number))
            del self._watched[key, conversation]

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Close, and watch no more."""
        await super().close(grace_s=grace_s)
        for watching in list(self._watched.values()):
            watching.cancel()
        await asyncio.gather(*self._watched.values(), return_exceptions=True)


def _go_on(core: SessionCore | None) -> None:
    """Hear on when a session leaves memory and comes back."""
