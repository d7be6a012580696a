"""A model that answers by script: for tests, demos and offline work.

It is deterministic: ids come from the request, time from the clock that it is given. A script is an ordinary function
of the request, so it can decide by what is really in the transcript.
"""

import asyncio
import hashlib
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from .clock import Clock, WallClock
from .errors import from_exception
from .events import BlockEnd, BlockStart, Delta, Done, Event, Start
from .messages import (
    AssistantMessage,
    Block,
    DeferredHandle,
    ErrorInfo,
    Text,
    Thinking,
    ToolCall,
    Usage,
    text,
    tool_calls,
)
from .request import ModelRequest
from .tokens import estimate_output, estimate_tokens


class Pause(msgspec.Struct, frozen=True):
    """In a script's answer: the stream is silent for `ms` milliseconds of the model's clock."""

    ms: int


Failure: TypeAlias = ErrorInfo | Exception
Part: TypeAlias = str | Block | Pause | Failure
Answer: TypeAlias = Part | AssistantMessage | list[Part]
"""What a script may return: text, blocks, pauses, or a whole message. A failure ends the stream where it stands."""

Script: TypeAlias = Callable[[ModelRequest], "Answer | Awaitable[Answer]"]
Fetch: TypeAlias = Callable[[DeferredHandle], "Answer | Awaitable[Answer]"]


class ScriptedModel:
    """A model whose answers are `script(request)`.

    The answer streams in pieces of `token_chars` characters; with `tokens_per_second` they are paced on `clock`,
    otherwise the loop runs once between two of them. Usage is estimated. Calls without an id get one that follows from
    the request, so a request repeated after a crash asks for the same calls. A script that raises fails the request.
    A script defers by answering with a message of stop reason `deferred` and a handle; `fetch(handle)` then gives what
    the response is each time it is looked for.
    """

    api = "scripted"

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted/model",
        tokens_per_second: float | None = None,
        clock: Clock | None = None,
        context_window: int = 200_000,
        max_tokens: int = 32_000,
        token_chars: int = 4,
        fetch: "Fetch | None" = None,
    ) -> None:
        self.name = name
        self.provider, _, self.id = name.partition("/")
        self.context_window = context_window
        self.max_tokens = max_tokens
        self.calls: list[ModelRequest] = []
        """Every request so far, oldest first."""
        self.fetched: list[DeferredHandle] = []
        self.cancelled: list[DeferredHandle] = []
        self._fetch = fetch
        self._script = script
        self._clock = clock or WallClock()
        self._token_ms = 1000 / tokens_per_second if tokens_per_second else None
        self._token_chars = token_chars

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """Answer by script; see `Model.stream`."""
        self.calls.append(request)
        playing = _Playing(self._blank(request), self._clock, self._token_ms, self._token_chars)
        async for event in playing.play(await self._answer(request), request):
            yield event

    async def fetch(self, handle: DeferredHandle) -> AssistantMessage:
        """Answer by the script for deferred responses; see `DeferringModel`."""
        self.fetched.append(handle)
        answer: Answer = RuntimeError("no deferred response is scripted")
        if self._fetch is not None:
            given = self._fetch(handle)
            answer = await given if inspect.isawaitable(given) else given
        playing = _Playing(self._blank(ModelRequest(messages=[])), self._clock, self._token_ms, self._token_chars)
        events = [event async for event in playing.play(answer, ModelRequest(messages=[]))]
        assert isinstance(events[-1], Done)
        return events[-1].message

    async def cancel(self, handle: DeferredHandle) -> None:
        """Take note of it."""
        self.cancelled.append(handle)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def _answer(self, request: ModelRequest) -> Answer:
        try:
            answer = self._script(request)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001  (whatever a script raises is how its model fails)
            return error

    def _blank(self, request: ModelRequest) -> AssistantMessage:
        tokens = estimate_tokens(request.messages)
        return AssistantMessage(
            content=[],
            api=self.api,
            provider=self.provider,
            model=self.id,
            stop_reason="pending",
            response_id=f"resp_{_digest(request, 0)}",
            usage=Usage(input=tokens, total_tokens=tokens),
            thinking_level=None if request.thinking_level == "off" else request.thinking_level,
            timestamp=self._clock.now(),
        )


class _Playing:
    """One answer being played: the message so far, and the pace."""

    def __init__(self, message: AssistantMessage, clock: Clock, token_ms: float | None, token_chars: int) -> None:
        self._message = message
        self._clock = clock
        self._token_ms = token_ms
        self._token_chars = token_chars
        self._due = 0.0

    async def play(self, answer: Answer, request: ModelRequest) -> AsyncGenerator[Event, None]:
        self._due = float(self._clock.now())
        parts = _parts(answer)
        if not isinstance(parts[0] if parts else None, Failure):
            yield Start(self._message)
        for part in parts:
            if isinstance(part, Failure):
                yield Done(self._failed(part))
                return
            if isinstance(part, Pause):
                await self._wait(part.ms)
            else:
                async for event in self._play_block(_block(part, request, len(self._message.content))):
                    yield event
        yield Done(self._finished(answer if isinstance(answer, AssistantMessage) else None))

    async def _play_block(self, block: Block) -> AsyncGenerator[Event, None]:
        index = len(self._message.content)
        yield BlockStart(index, _emptied(block))
        for piece in _pieces(_streamed(block), self._token_chars):
            await self._wait(self._token_ms)
            yield Delta(index, piece)
        self._message = replace(self._message, content=[*self._message.content, block])
        yield BlockEnd(index, block)

    async def _wait(self, ms: float | None) -> None:
        if ms is None:
            await asyncio.sleep(0)
            return
        self._due += ms
        await self._clock.sleep_until(round(self._due))

    def _failed(self, failure: Failure) -> AssistantMessage:
        error = failure if isinstance(failure, ErrorInfo) else from_exception(failure, now=self._clock.now())
        return replace(self._counted(), stop_reason="error", error=error)

    def _finished(self, given: AssistantMessage | None) -> AssistantMessage:
        """The message as played; where the script gave a whole one, its own endings and usage."""
        message = self._counted()
        if given is not None:
            message = replace(
                message,
                stop_reason=given.stop_reason,
                raw_stop_reason=given.raw_stop_reason,
                error=given.error,
                deferred=given.deferred,
                response_model=given.response_model,
                response_id=given.response_id or message.response_id,
                usage=given.usage if given.usage.total_tokens else message.usage,
            )
        return replace(message, stop_reason="toolUse") if _asks(message) else message

    def _counted(self) -> AssistantMessage:
        usage, output = self._message.usage, estimate_output(self._message)
        return replace(
            self._message,
            stop_reason="stop",
            usage=replace(usage, output=output, total_tokens=usage.input + output),
            duration_ms=self._clock.now() - self._message.timestamp,
        )


def _asks(message: AssistantMessage) -> bool:
    return message.stop_reason == "stop" and bool(tool_calls(message))


def _parts(answer: Answer) -> list[Part]:
    if isinstance(answer, AssistantMessage):
        return list(answer.content)
    return answer if isinstance(answer, list) else [answer]


def _block(part: str | Block, request: ModelRequest, index: int) -> Block:
    if isinstance(part, str):
        return text(part)
    if isinstance(part, ToolCall) and not part.id:
        return replace(part, id=f"call_{_digest(request, index)}")
    return part


def _digest(request: ModelRequest, index: int) -> str:
    """Twelve hex digits of a request's place in its conversation: the same each time it is asked there."""
    last = msgspec.json.encode(request.messages[-1]) if request.messages else b""
    place = f"{request.session_id}:{len(request.messages)}:{index}:".encode()
    return hashlib.blake2s(place + last, digest_size=6).hexdigest()


def _emptied(block: Block) -> Block:
    """The block as its stream begins."""
    match block:
        case Text():
            return replace(block, text="")
        case Thinking():
            return replace(block, thinking="")
        case ToolCall():
            return replace(block, arguments={})
    return block


def _streamed(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case Thinking():
            return block.thinking
        case ToolCall():
            return json.dumps(block.arguments, ensure_ascii=False)
    return ""


def _pieces(value: str, size: int) -> Iterator[str]:
    return (value[at : at + size] for at in range(0, len(value), size))
