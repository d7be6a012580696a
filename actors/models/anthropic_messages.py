"""The Anthropic Messages API, and servers that speak it, through the official SDK.

The raw event stream is used, not the SDK's helpers: they lose the message where a stream ends badly. Retries are off,
since whoever asks keeps them durably. The stream must end with its last event; one that just stops is a failure.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from .anthropic_profile import Profile
from .anthropic_render import Wire, render_blocks, render_request
from .anthropic_stream import PAUSED, Answer
from .clients import Clients
from .clock import Clock
from .errors import ProviderFailure, error_info, from_exception
from .events import Done, Event
from .messages import AssistantMessage
from .pricing import priced
from .request import ModelRequest

MAX_PAUSES = 10
"""How often a paused turn is continued within one answer."""

_CONNECT_S = 10.0
_DRAIN_S = 0.25


def anthropic_clients(*, base_url: str | None, api_key: str | None, headers: dict[str, str]) -> Clients:
    """Clients of one server; None leaves a value to the SDK, which reads it from the environment."""

    def make(sdk: ModuleType) -> Any:
        return sdk.AsyncAnthropic(base_url=base_url, api_key=api_key, default_headers=headers, max_retries=0)

    return Clients("anthropic", make)


class AnthropicModel:
    """One model over the Messages API; see `Model`. Made by `anthropic()`.

    A paused turn is continued here, up to `MAX_PAUSES` times, and arrives as one answer.
    """

    api = "anthropic-messages"

    def __init__(
        self,
        model_id: str,
        clients: Clients,
        profile: Profile,
        *,
        provider: str,
        cache_ttl: str | None,
        idle_timeout_s: float,
        clock: Clock,
    ) -> None:
        self.id = model_id
        self.provider = provider
        self.name = f"{provider}/{model_id}"
        self.context_window = profile.context_window
        self.max_tokens = profile.max_tokens
        self._clients = clients
        self._profile = profile
        self._cache_ttl = cache_ttl
        self._idle_timeout_s = idle_timeout_s
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """Answer over the network; see `Model.stream`."""
        answer = Answer(self._blank(request))
        try:
            async with aclosing(self._rounds(request, answer)) as events:
                async for event in events:
                    yield event
            message = answer.message()
        except Exception as error:  # noqa: BLE001  (no failure may leave the stream in any other way than as its end)
            message = answer.failed(from_exception(error, now=self._clock.now()))
        yield Done(priced(replace(message, duration_ms=self._clock.now() - message.timestamp)))

    async def aclose(self) -> None:
        """Close the running loop's connections to the server, which other models at it may share."""
        await self._clients.aclose()

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

    async def _rounds(self, request: ModelRequest, answer: Answer) -> AsyncGenerator[Event, None]:
        """One stream, and one more for each pause: the same request, with what was said so far behind it."""
        body = render_request(request, self, self._profile, cache_ttl=self._cache_ttl)
        deadline = _deadline(request.timeout_s)
        said: list[Wire] = []
        for _ in range(MAX_PAUSES + 1):
            async with aclosing(self._round({**body, "messages": body["messages"] + said}, request, deadline)) as raw:
                async for wire in raw:
                    for event in answer.feed(wire):
                        yield event
            if not answer.ended:
                raise ProviderFailure(error_info("transport", "The stream ended before message_stop"))
            if answer.stop != PAUSED:
                return
            said = [{"role": "assistant", "content": render_blocks(answer.content, own=True, paused=True)}]
            answer.resume()
        raise ProviderFailure(error_info("unknown", f"The model paused more than {MAX_PAUSES} times", code=PAUSED))

    async def _round(self, body: Wire, request: ModelRequest, deadline: float | None) -> AsyncGenerator[Any, None]:
        """The raw events of one HTTP request. Leaving early closes its connection."""
        client = await self._clients.get()
        timeout = _timeouts(request.idle_timeout_s or self._idle_timeout_s)
        stream = await _within(deadline, client.messages.create(**body, stream=True, timeout=timeout))
        async with stream:
            events = aiter(stream)
            while (event := await _within(deadline, anext(events, None))) is not None:
                yield event
                if event.type == "message_stop":
                    await _drain(events)
                    return


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


async def _within(deadline: float | None, step: Any) -> Any:
    try:
        async with asyncio.timeout_at(deadline):
            return await step
    except TimeoutError as error:
        raise ProviderFailure(error_info("timeout", "The answer was not complete within its time limit")) from error


async def _drain(events: AsyncIterator[Any]) -> None:
    """Read to the end of a response that has nothing more to say, so that its connection can be used again."""
    with suppress(Exception):
        async with asyncio.timeout(_DRAIN_S):
            await anext(events, None)


def _timeouts(idle_s: float) -> Any:
    """Limits on silence, not on the whole: a server that sends anything at all, a ping too, is alive."""
    from anthropic import Timeout  # noqa: PLC0415  (loaded by now; at the top it would cost every import of perdure)

    return Timeout(idle_s, connect=min(idle_s, _CONNECT_S))
