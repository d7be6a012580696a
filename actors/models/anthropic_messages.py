"""The Anthropic Messages API, and servers that speak it, through the official SDK."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from types import ModuleType
from typing import Any, cast

from .adapter import SdkModel
from .anthropic_profile import Profile
from .anthropic_render import Wire, render_blocks, render_request
from .anthropic_stream import PAUSED, Answer
from .clients import Clients
from .errors import ProviderFailure, error_info
from .events import Event
from .messages import AssistantMessage
from .request import ModelRequest

MAX_PAUSES = 10
"""How often a paused turn is continued within one answer."""


def anthropic_clients(*, base_url: str | None, api_key: str | None, headers: dict[str, str]) -> Clients:
    """Clients of one server; None leaves a value to the SDK, which reads it from the environment."""

    def make(sdk: ModuleType) -> Any:
        return sdk.AsyncAnthropic(base_url=base_url, api_key=api_key, default_headers=headers, max_retries=0)

    return Clients("anthropic", make, secrets=[api_key, *headers.values()])


class AnthropicModel(SdkModel):
    """One model over the Messages API; see `Model`. Made by `anthropic()`.

    A paused turn is continued here, up to `MAX_PAUSES` times, and arrives as one answer.
    """

    api = "anthropic-messages"

    def __init__(
        self, model_id: str, clients: Clients, profile: Profile, *, cache_ttl: str | None, **options: Any
    ) -> None:
        super().__init__(
            model_id, clients, context_window=profile.context_window, max_tokens=profile.max_tokens, **options
        )
        self._profile = profile
        self._cache_ttl = cache_ttl

    def _accumulator(self, blank: AssistantMessage, request: ModelRequest) -> Answer:
        return Answer(blank)

    async def _play(self, answer: Answer, request: ModelRequest, deadline: float | None) -> AsyncGenerator[Event, None]:
        """One stream, and one more for each pause: the same request, with what was said so far behind it."""
        body = render_request(request, self, self._profile, cache_ttl=self._cache_ttl)
        said: list[Wire] = []
        for _ in range(MAX_PAUSES + 1):
            round_body = {**body, "messages": body["messages"] + said}
            async with aclosing(self._feed(answer, round_body, request, deadline)) as events:
                async for event in events:
                    yield event
            if answer.stop != PAUSED:
                return
            said = [{"role": "assistant", "content": render_blocks(answer.content, own=True, paused=True)}]
            answer.resume()
        raise ProviderFailure(error_info("unknown", f"The model paused more than {MAX_PAUSES} times", code=PAUSED))

    def _open(self, client: Any, body: Wire) -> Awaitable[Any]:
        return cast("Awaitable[Any]", client.messages.create(**body))
