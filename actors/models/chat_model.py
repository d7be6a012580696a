"""The Chat Completions API, and the many servers that speak it, through the official OpenAI SDK."""

from collections.abc import AsyncGenerator, Awaitable
from types import ModuleType
from typing import Any, cast

from .adapter import SdkModel
from .chat_render import render_chat_request
from .chat_stream import ChatAnswer
from .clients import Clients
from .events import Event
from .messages import AssistantMessage
from .openai_profile import OpenAIProfile
from .request import ModelRequest
from .tokens import context_tokens


def openai_clients(*, base_url: str | None, api_key: str | None, headers: dict[str, str]) -> Clients:
    """Clients of one server; None leaves a value to the SDK, which reads it from the environment."""

    def make(sdk: ModuleType) -> Any:
        return sdk.AsyncOpenAI(base_url=base_url, api_key=api_key, default_headers=headers, max_retries=0)

    return Clients("openai", make, secrets=[api_key, *headers.values()])


class ChatModel(SdkModel):
    """One model over Chat Completions; see `Model`. Made by `openai_chat()`."""

    api = "openai-completions"

    def __init__(self, model_id: str, clients: Clients, profile: OpenAIProfile, **options: Any) -> None:
        super().__init__(
            model_id, clients, context_window=profile.context_window, max_tokens=profile.max_tokens, **options
        )
        self._profile = profile

    def _accumulator(self, blank: AssistantMessage, request: ModelRequest) -> ChatAnswer:
        return ChatAnswer(blank, prompt_tokens=context_tokens(request.messages))

    def _play(self, answer: ChatAnswer, request: ModelRequest, deadline: float | None) -> AsyncGenerator[Event, None]:
        return self._feed(answer, render_chat_request(request, self, self._profile), request, deadline)

    def _open(self, client: Any, body: dict[str, Any]) -> Awaitable[Any]:
        return cast("Awaitable[Any]", client.chat.completions.create(**body))
