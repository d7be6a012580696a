"""What all adapters share: one answer over an SDK's raw event stream, ending in `Done` whatever happens.

An adapter names its protocol, renders the request and gives an accumulator that turns raw events into neutral ones.
Raw streams are used, not the SDKs' helpers, which lose the message where a stream ends badly. The SDKs' retries are
off, since whoever asks keeps them durably.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from .clients import Clients
from .clock import Clock
from .errors import ProviderFailure, error_info, from_exception
from .events import Done, Event
from .messages import AssistantMessage, ErrorInfo
from .pricing import priced
from .repair import fit
from .request import ModelRequest

_T = TypeVar("_T")

_CONNECT_S = 10.0
_GRACE_S = 2.0
"""How long a server may take to end a stream whose answer is complete."""


class Accumulator(Protocol):
    """Turns the raw events of one answer into neutral ones, and into the message."""

    @property
    def complete(self) -> bool:
        """Whether the event has come without which an answer is not one."""

    def feed(self, raw: Any) -> Iterator[Event]:
        """Take in a raw event; yields what it means."""

    def message(self) -> AssistantMessage:
        """The message of a complete answer."""

    def failed(self, error: ErrorInfo) -> AssistantMessage:
        """The message of an answer that broke off."""


class SdkModel(ABC):
    """A model over an SDK; see `Model`."""

    api: str

    def __init__(
        self,
        model_id: str,
        clients: Clients,
        *,
        provider: str,
        context_window: int,
        max_tokens: int,
        idle_timeout_s: float,
        clock: Clock,
    ) -> None:
        self.id = model_id
        self.provider = provider
        self.name = f"{provider}/{model_id}"
        self.context_window = context_window
        self.max_tokens = max_tokens
        self._clients = clients
        self._idle_timeout_s = idle_timeout_s
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """Answer over the network; see `Model.stream`."""
        blank = self._blank(request)
        answer = self._accumulator(blank, request)
        try:
            async with aclosing(self._play(answer, request, _deadline(request.timeout_s))) as events:
                async for event in events:
                    yield event
            message = answer.message()
        except Exception as error:  # noqa: BLE001  (no failure may leave the stream in any other way than as its end)
            message = answer.failed(from_exception(error, now=self._clock.now()))
        yield Done(self._final(replace(message, duration_ms=self._clock.now() - blank.timestamp), request.headers))

    def _final(self, message: AssistantMessage, headers: Mapping[str, str]) -> AssistantMessage:
        """Price a message, and make it fit to be stored: valid, and without credentials in what is said of a failure."""
        if message.error is not None:
            said = self._clients.hide(message.error.message, headers.values())
            message = replace(message, error=replace(message.error, message=said))
        return fit(priced(message))

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        await self._clients.aclose()

    @abstractmethod
    def _accumulator(self, blank: AssistantMessage, request: ModelRequest) -> Any:
        """An accumulator for one answer."""

    @abstractmethod
    def _play(self, answer: Any, request: ModelRequest, deadline: float | None) -> AsyncGenerator[Event, None]:
        """Make the request, or several, and feed the answer; returns when it is complete, raises when it cannot be."""

    @abstractmethod
    def _open(self, client: Any, body: dict[str, Any]) -> Awaitable[Any]:
        """The SDK's call that opens a raw stream."""

    async def _feed(
        self, answer: Accumulator, body: dict[str, Any], request: ModelRequest, deadline: float | None
    ) -> AsyncGenerator[Event, None]:
        """One HTTP request: its raw events go to the answer. Leaving early closes the connection."""
        client = await self._clients.get()
        timeout = timeouts(request.idle_timeout_s or self._idle_timeout_s)
        stream = await within(deadline, self._open(client, {**body, "stream": True, "timeout": timeout}))
        async with stream:
            raw_events = aiter(stream)
            while not answer.complete and (raw := await within(deadline, anext(raw_events, None))) is not None:
                for event in _fed(answer, raw):
                    yield event
            if not answer.complete:
                raise ProviderFailure(error_info("transport", "The stream ended before the answer was complete"))
            async for event in _rest(answer, raw_events):
                yield event

    def _blank(self, request: ModelRequest) -> AssistantMessage:
        return AssistantMessage(
            content=[],
            api=self.api,
            provider=self.provider,
            model=self.id,
            stop_reason="pending",
            thinking_level=None if request.thinking_level == "off" else request.thinking_level,
            timestamp=self._clock.now(),
        )


def _fed(answer: Accumulator, raw: Any) -> Iterator[Event]:
    """Feed a raw event. What does not have the shape of the protocol is the server's failure, not ours."""
    try:
        yield from answer.feed(raw)
    except (AttributeError, KeyError, TypeError) as error:
        raise ProviderFailure(error_info("malformed", f"The server sent an event of odd shape: {error!r}")) from error


async def _rest(answer: Accumulator, raw_events: AsyncIterator[Any]) -> AsyncGenerator[Event, None]:
    """What follows a complete answer: the usage with some servers, else just the end, read to free the connection.

    Nothing that goes wrong here can spoil the answer.
    """
    until = asyncio.get_running_loop().time() + _GRACE_S
    with suppress(Exception):
        while True:
            async with asyncio.timeout_at(until):
                raw = await anext(raw_events, None)
            if raw is None:
                return
            for event in answer.feed(raw):
                yield event


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


async def within(deadline: float | None, step: Awaitable[_T]) -> _T:
    """Wait for a step until a deadline on the loop's clock. Raises ProviderFailure."""
    try:
        async with asyncio.timeout_at(deadline):
            return await step
    except TimeoutError as error:
        raise ProviderFailure(error_info("timeout", "The answer was not complete within its time limit")) from error


def timeouts(idle_s: float) -> Any:
    """Limits on silence, not on the whole: a server that sends anything at all, a ping too, is alive."""
    from httpx2 import Timeout  # loaded by now; at the top it would slow down every import of perdure

    return Timeout(idle_s, connect=min(idle_s, _CONNECT_S))
