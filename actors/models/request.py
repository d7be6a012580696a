"""What a model is asked, and what a transcript says about prompt and tools at its end.

Prompt and tools live in the transcript as system messages: no field of a request carries them, so a request can never
disagree with the stored history. All functions are pure.
"""

from collections.abc import Iterable

import msgspec

from .messages import Message, SystemMessage, ThinkingLevel, ToolSpec


class ModelRequest(msgspec.Struct, kw_only=True, frozen=True):
    """One request: the derived context and how to answer it.

    `session_id` is the conversation's stored identity at providers (cache affinity), never shown to the model.
    `max_tokens` bounds the answer (None: what the model allows). `timeout_s` bounds the whole request (None: no
    bound), `idle_timeout_s` the silence between two signs of life from the server (None: the model's default).
    `metadata["user_id"]` names the end user to the provider by an opaque id; `headers` are sent along. Neither may hold
    secrets, since requests are recorded. `deferred` lets a provider that can compute the answer in the background.
    """

    messages: list[Message]
    thinking_level: ThinkingLevel = "off"
    session_id: str | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    metadata: dict[str, str] = {}
    headers: dict[str, str] = {}
    deferred: bool = False


def current_tools(messages: Iterable[Message]) -> list[ToolSpec]:
    """The tools offered at the end of `messages`: removals first, then additions, per system message.

    A tool added under a name that is still offered replaces it in place.
    """
    tools: dict[str, ToolSpec] = {}
    for message in _system(messages):
        for removed in message.tools_removed or ():
            tools.pop(removed.name, None)
        tools.update((tool.name, tool) for tool in message.tools_added or ())
    return list(tools.values())


def current_system(messages: Iterable[Message]) -> str:
    """The prompt at the end of `messages`: every `content`, then the sections in the order of their first setting.

    Parts are separated by one empty line; blank parts are left out.
    """
    contents: list[str] = []
    sections: dict[str, str] = {}
    for message in _system(messages):
        contents.append(message.content)
        for name, value in (message.sections or {}).items():
            if value is None:
                sections.pop(name, None)
            else:
                sections[name] = value
    return _paragraphs([*contents, *sections.values()])


def system_update(message: SystemMessage) -> str:
    """What one system message says when it is shown at its own place, after the model has begun to talk.

    New sections are shown as they are; a withdrawn one is named, since its earlier text stays in the model's view.
    """
    sections = (message.sections or {}).items()
    shown = [f'The section "{name}" no longer applies.' if value is None else value for name, value in sections]
    return _paragraphs([message.content, *shown])


def _system(messages: Iterable[Message]) -> Iterable[SystemMessage]:
    return (message for message in messages if isinstance(message, SystemMessage))


def _paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part.strip())
