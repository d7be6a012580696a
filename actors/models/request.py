"""What a model is asked, and what a transcript says about prompt and tools at its end.

Prompt and tools live in the transcript as system messages: no field of a request carries them, so a request can never
disagree with the stored history. All functions are pure.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from .growing import folded
from .messages import Message, SystemMessage, ThinkingLevel, ToolSpec


class ModelRequest(msgspec.Struct, kw_only=True, frozen=True):
    """One request: the derived context and how to answer it.

    `session_id` is the conversation's stored identity at providers (cache affinity), never shown to the model.
    `max_tokens` bounds the answer (None: what the model allows). `timeout_s` bounds the whole request (None: no
    bound), `idle_timeout_s` the silence between two signs of life from the server (None: the model's default).
    `metadata["user_id"]` names the end user to the provider by an opaque id; `headers` are sent along. Neither may hold
    secrets, since requests are recorded. `deferred` lets a provider that can compute the answer in the background.
    """

    messages: Sequence[Message]
    thinking_level: ThinkingLevel = "off"
    session_id: str | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    metadata: dict[str, str] = {}
    headers: dict[str, str] = {}
    deferred: bool = False


class Prompt:
    """The prompt and the tools at the end of the messages that were added: a fold."""

    def __init__(self) -> None:
        self.contents: list[str] = []
        self.sections: dict[str, str] = {}
        self.tools: dict[str, ToolSpec] = {}

    def add(self, message: Message) -> None:
        """Take in a message; only those of the system matter. Its removals count before its additions."""
        if not isinstance(message, SystemMessage):
            return
        if message.content:
            self.contents.append(message.content)
        for name, value in (message.sections or {}).items():
            if value is None:
                self.sections.pop(name, None)
            else:
                self.sections[name] = value
        for removed in message.tools_removed or ():
            self.tools.pop(removed.name, None)
        self.tools.update((tool.name, tool) for tool in message.tools_added or ())

    def fork(self) -> Self:
        """Make a copy that goes on by itself."""
        copy = type(self)()
        copy.contents, copy.sections, copy.tools = list(self.contents), dict(self.sections), dict(self.tools)
        return copy

    @property
    def text(self) -> str:
        """The prompt as one text."""
        return _paragraphs([*self.contents, *self.sections.values()])


def current_prompt(messages: Iterable[Message]) -> Prompt:
    """The prompt and the tools at the end of `messages`."""
    return folded(messages, Prompt, Prompt)


def current_tools(messages: Iterable[Message]) -> list[ToolSpec]:
    """The tools offered at the end of `messages`: removals first, then additions, per system message.

    A tool added under a name that is still offered replaces it in place.
    """
    return list(current_prompt(messages).tools.values())


def current_sections(messages: Iterable[Message]) -> dict[str, str]:
    """The sections of the prompt in effect at the end of `messages`, in the order of their first setting."""
    return current_prompt(messages).sections


def current_system(messages: Iterable[Message]) -> str:
    """The prompt at the end of `messages`: every `content`, then the sections in the order of their first setting.

    Parts are separated by one empty line; blank parts are left out.
    """
    return current_prompt(messages).text


def system_update(message: SystemMessage) -> str:
    """What one system message says when it is shown at its own place, after the model has begun to talk.

    New sections are shown as they are; a withdrawn one is named, since its earlier text stays in the model's view.
    """
    sections = (message.sections or {}).items()
    shown = [f'The section "{name}" no longer applies.' if value is None else value for name, value in sections]
    return _paragraphs([message.content, *shown])


def _paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part.strip())
