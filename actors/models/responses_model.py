"""The OpenAI Responses API through the official SDK.

Nothing is stored at the vendor, but for a response that is computed in the background: it is kept until it is fetched.
"""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, cast

from msgspec.structs import replace

from .accumulate import plain
from .adapter import SdkModel, timeouts, within
from .clients import Clients
from .errors import from_exception
from .events import Event
from .messages import AssistantMessage, DeferredHandle
from .openai_profile import OpenAIProfile
from .request import ModelRequest
from .responses_render import render_responses_request
from .responses_stream import ResponsesAnswer
from .tokens import context_tokens


class ResponsesModel(SdkModel):
    """One model over the Responses API; see `Model`. Made by `openai()`."""

    api = "openai-responses"

    def __init__(self, model_id: str, clients: Clients, profile: OpenAIProfile, **options: Any) -> None:
        super().__init__(
            model_id, clients, context_window=profile.context_window, max_tokens=profile.max_tokens, **options
        )
        self._profile = profile

    def _accumulator(self, blank: AssistantMessage, request: ModelRequest) -> ResponsesAnswer:
        return ResponsesAnswer(blank, prompt_tokens=context_tokens(request.messages))

    async def _play(
        self, answer: ResponsesAnswer, request: ModelRequest, deadline: float | None
    ) -> AsyncGenerator[Event, None]:
        body = render_responses_request(request, self, self._profile)
        if request.deferred:
            client = await self._clients.get()
            body = {**body, "background": True, "store": True, "timeout": timeouts(self._idle_timeout_s)}
            response = await within(deadline, client.responses.create(**body))
            for event in answer.take_response(plain(response)):
                yield event
            return
        async with aclosing(self._feed(answer, body, request, deadline)) as events:
            async for event in events:
                yield event

    def _open(self, client: Any, body: dict[str, Any]) -> Awaitable[Any]:
        return cast("Awaitable[Any]", client.responses.create(**body))

    async def fetch(self, handle: DeferredHandle) -> AssistantMessage:
        """Look for a background response; see `DeferringModel`."""
        request = ModelRequest(messages=[])
        blank = self._blank(request)
        answer = self._accumulator(blank, request)
        try:
            client = await self._clients.get()
            response = await client.responses.retrieve(handle.id, timeout=timeouts(self._idle_timeout_s))
            for _ in answer.take_response(plain(response)):
                pass
            message = answer.message()
        except Exception as error:  # noqa: BLE001  (whatever goes wrong is what became of it, or will pass)
            info = from_exception(error, now=self._clock.now())
            if info.retryable:
                return replace(blank, stop_reason="deferred", deferred=handle)
            message = answer.failed(info)
        if message.deferred is not None:
            return replace(message, deferred=replace(message.deferred, expires_at=handle.expires_at))
        return self._final(message, {})

    async def cancel(self, handle: DeferredHandle) -> None:
        """Have the vendor stop computing a background response; see `DeferringModel`."""
        client = await self._clients.get()
        try:
            await client.responses.cancel(handle.id, timeout=timeouts(self._idle_timeout_s))
        except Exception as error:  # noqa: BLE001  (what the SDK raises carries what the server said, keys included)
            info = from_exception(error, now=self._clock.now())
            raise RuntimeError(self._clients.hide(info.message)) from None
