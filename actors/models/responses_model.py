"""The OpenAI Responses API through the official SDK, without anything stored at the vendor."""

from collections.abc import AsyncGenerator, Awaitable
from typing import Any, cast

from .adapter import SdkModel
from .clients import Clients
from .events import Event
from .messages import AssistantMessage
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

    def _play(
        self, answer: ResponsesAnswer, request: ModelRequest, deadline: float | None
    ) -> AsyncGenerator[Event, None]:
        return self._feed(answer, render_responses_request(request, self, self._profile), request, deadline)

    def _open(self, client: Any, body: dict[str, Any]) -> Awaitable[Any]:
        return cast("Awaitable[Any]", client.responses.create(**body))
