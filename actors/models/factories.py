"""The short way to a model: `models.anthropic("claude-opus-5-5")`, `models.openai("gpt-6-sol")`, `models.from_env()`."""

from __future__ import annotations  # the adapters, a tenth of the package's import, load when one is asked for

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from .clock import Clock, WallClock
from .model import Models
from .scripting import Script, ScriptedModel

if TYPE_CHECKING:
    from .anthropic_messages import AnthropicModel
    from .chat_model import ChatModel
    from .clients import Clients
    from .openai_profile import OpenAIProfile
    from .responses_model import ResponsesModel

IDLE_TIMEOUT_S = 300.0
"""Silence after which a server counts as gone. Local servers say nothing while they read a long prompt."""

_ANTHROPIC_HOST = ".anthropic.com"
_OPENAI_HOST = ".openai.com"
_NO_KEY = "none"
_ANTHROPIC_ENV = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")


def anthropic(
    model_id: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    provider: str = "anthropic",
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    max_tokens: int | None = None,
    thinking: Literal["adaptive", "budget", "none"] | None = None,
    cache_ttl: Literal["5m", "1h"] | None = "5m",
    idle_timeout_s: float = IDLE_TIMEOUT_S,
    clock: Clock | None = None,
) -> AnthropicModel:
    """A model over the Anthropic Messages API, at the vendor or at any server that speaks it (`base_url`).

    Key and server default to what the SDK finds in the environment; a server that needs no key gets a dummy. Give a
    compatible server a `provider` name of its own: it is part of the model's name, and keeps one server's signatures
    away from another. `context_window`, `max_tokens` and `thinking` override what is known of the model.
    """
    from .anthropic_messages import AnthropicModel
    from .anthropic_profile import profile_of

    known = {"context_window": context_window, "max_tokens": max_tokens, "thinking": thinking}
    profile = replace(profile_of(model_id), **{key: value for key, value in known.items() if value is not None})
    return AnthropicModel(
        model_id,
        _anthropic_clients(base_url, api_key, headers or {}),
        profile,
        provider=provider,
        cache_ttl=cache_ttl,
        idle_timeout_s=idle_timeout_s,
        clock=clock or WallClock(),
    )


def openai(
    model_id: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    provider: str = "openai",
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    max_tokens: int | None = None,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
    clock: Clock | None = None,
) -> ResponsesModel:
    """A model over the OpenAI Responses API. Nothing is stored at the server; see `anthropic` for the arguments."""
    from .responses_model import ResponsesModel

    return ResponsesModel(
        model_id,
        _openai_clients(base_url, api_key, headers or {}),
        _openai_profile(model_id, base_url, context_window=context_window, max_tokens=max_tokens),
        provider=provider,
        idle_timeout_s=idle_timeout_s,
        clock=clock or WallClock(),
    )


def openai_chat(
    model_id: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    provider: str = "openai",
    headers: Mapping[str, str] | None = None,
    context_window: int | None = None,
    max_tokens: int | None = None,
    reasons: bool | None = None,
    reasoning_field: str | None = None,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
    clock: Clock | None = None,
) -> ChatModel:
    """A model over Chat Completions, as vLLM, Ollama, llama.cpp and most others serve it (`base_url` ends in `/v1`).

    `reasons` says that the model takes an effort; `reasoning_field` names the field in which a server demands the
    reasoning of each call back (`reasoning_content` with some). For the rest see `anthropic`.
    """
    from .chat_model import ChatModel

    options = {"context_window": context_window, "max_tokens": max_tokens, "reasons": reasons}
    return ChatModel(
        model_id,
        _openai_clients(base_url, api_key, headers or {}),
        _openai_profile(model_id, base_url, **options, reasoning_field=reasoning_field),
        provider=provider,
        idle_timeout_s=idle_timeout_s,
        clock=clock or WallClock(),
    )


def scripted(script: Script, **options: Any) -> ScriptedModel:
    """A model that answers by script; the options are those of `ScriptedModel`."""
    return ScriptedModel(script, **options)


def from_env() -> Models:
    """A register with every provider that the environment has credentials or a server for.

    `ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN` or `ANTHROPIC_BASE_URL` give `anthropic/<any model id>`.
    `OPENAI_API_KEY` gives `openai/<any model id>` over the Responses API; with `OPENAI_BASE_URL`, a compatible server,
    over Chat Completions. Nothing is imported or connected until a model is asked.
    """
    models = Models()
    if any(os.environ.get(name) for name in _ANTHROPIC_ENV):
        models.provide("anthropic", anthropic)
    if os.environ.get("OPENAI_BASE_URL"):
        models.provide("openai", openai_chat)
    elif os.environ.get("OPENAI_API_KEY"):
        models.provide("openai", openai)
    return models


def _openai_profile(model_id: str, base_url: str | None, **options: Any) -> OpenAIProfile:
    from .openai_profile import openai_profile_of

    vendor = _is_vendor(base_url or os.environ.get("OPENAI_BASE_URL"), _OPENAI_HOST)
    known = {key: value for key, value in options.items() if value is not None}
    return replace(openai_profile_of(model_id), vendor=vendor, **known)


def _openai_clients(base_url: str | None, api_key: str | None, headers: Mapping[str, str]) -> Clients:
    """Clients for the vendor, or for a compatible server, for which the SDK wants some key too."""
    from .chat_model import openai_clients

    key = api_key or os.environ.get("OPENAI_API_KEY")
    if not _is_vendor(base_url or os.environ.get("OPENAI_BASE_URL"), _OPENAI_HOST):
        key = key or _NO_KEY
    return openai_clients(base_url=base_url, api_key=key, headers=dict(headers))


def _is_vendor(server: str | None, host: str) -> bool:
    return server is None or (urlsplit(server).hostname or "").endswith(host)


def _anthropic_clients(base_url: str | None, api_key: str | None, headers: Mapping[str, str]) -> Clients:
    """Clients for the vendor, or for a compatible server, which may want the key in the header of older versions."""
    from .anthropic_messages import anthropic_clients

    server = base_url or os.environ.get("ANTHROPIC_BASE_URL")
    if _is_vendor(server, _ANTHROPIC_HOST):
        return anthropic_clients(base_url=base_url, api_key=api_key, headers=dict(headers))
    key = api_key or os.environ.get("ANTHROPIC_API_KEY") or _NO_KEY
    return anthropic_clients(base_url=base_url, api_key=key, headers={"x-api-key": key, **headers})
