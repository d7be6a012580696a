"""The requests that a transcript makes, as every protocol would send them, and what is wrong with them.

Proved by tests/actors/chaos/test_requests.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...storage.records import EntryRecord
from ..conversation.context import derive
from ..models import ModelRequest, UserMessage
from ..models.anthropic_profile import profile_of
from ..models.anthropic_render import render_request
from ..models.chat_render import render_chat_request
from ..models.openai_profile import OpenAIProfile
from ..models.responses_render import render_responses_request
from ..models.testing_requests import request_problems


class Asked(msgspec.Struct, frozen=True):
    """A model that a transcript is rendered for."""

    api: str
    provider: str
    id: str


def bodies(request: ModelRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the body of a request in each protocol, by the name of its API."""
    claude = Asked("anthropic-messages", "anthropic", "claude-opus-5-5")
    yield claude.api, render_request(request, claude, profile_of(claude.id), cache_ttl="5m")
    gpt = Asked("openai-responses", "openai", "gpt-6-sol")
    yield gpt.api, render_responses_request(request, gpt, OpenAIProfile(vendor=True))
    chat = Asked("openai-completions", "local", "llama")
    yield chat.api, render_chat_request(request, chat, OpenAIProfile())


def transcript_problems(entries: Sequence[EntryRecord]) -> Iterator[str]:
    """Say what a provider would refuse the next request of a transcript for; nothing for one that nobody has begun."""
    try:
        messages = derive(entries).messages
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is the transcript's problem
        yield f"no context can be derived: {error!r}"
        return
    if any(isinstance(message, UserMessage) for message in messages):
        for api, body in bodies(ModelRequest(messages=messages)):
            yield from (f"{api}: {problem}" for problem in request_problems(api, body))
