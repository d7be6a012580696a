"""The neutral message model: what a transcript is made of, whichever provider answered.

Field names and tags follow pi (`role`, `type`, camelCase), so stored JSON reads the same in both systems. Whatever a
provider sent that has no neutral field stays beside its block in `provider_data`, as the JSON it was, and goes back to
the same provider, API and model only.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from ...chord import PerdureError

StopReason: TypeAlias = Literal["pending", "stop", "length", "toolUse", "error", "aborted", "deferred"]
"""Why a message ended. `pending` marks the streamed part of a message that has not ended yet."""

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How deep a model should think; each adapter maps it to the nearest level that its model has."""

ErrorKind: TypeAlias = Literal[
    "auth",
    "billing",
    "rate_limit",
    "overloaded",
    "server",
    "transport",
    "timeout",
    "overflow",
    "invalid_request",
    "refusal",
    "malformed",
    "aborted",
    "unknown",
]
"""What kind of failure a request met (see errors.py for what each one covers)."""


class MessageInvalid(PerdureError):
    """JSON that should be a message is not one. `str()` names the field and what was expected there."""


def _kept(value: Any) -> Any:
    """A default that is written to JSON all the same: pi always writes the field, and its readers expect it."""
    return msgspec.field(default_factory=lambda: value)


class _Record(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Immutable, camelCase in JSON, absent when optional and unset."""


class Text(_Record, frozen=True, tag="text", tag_field="type"):
    """Plain text."""

    text: str
    provider_data: Any = None


class Thinking(_Record, frozen=True, tag="thinking", tag_field="type"):
    """What the model thought; `redacted` when the provider shows nothing of it (then `thinking` is empty)."""

    thinking: str
    redacted: bool = False
    provider_data: Any = None


class Image(_Record, frozen=True, tag="image", tag_field="type"):
    """A picture: `data` in base64, without line breaks or a `data:` prefix."""

    data: str
    mime_type: str
    provider_data: Any = None


class ToolCall(_Record, frozen=True, tag="toolCall", tag_field="type"):
    """A call that the model asks for.

    `arguments_error` says why the arguments could not be read, with the text that the model sent. Such a call must
    never be executed: it is answered with an error result.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    arguments_error: str | None = None
    provider_data: Any = None


class Opaque(_Record, frozen=True, tag="opaque", tag_field="type"):
    """A provider's block without neutral meaning (server tools, compaction, unknown types), kept as it came."""

    provider: str
    api: str
    data: Any
    provider_data: Any = None


Block: TypeAlias = Text | Thinking | Image | ToolCall | Opaque
Content: TypeAlias = Text | Image


class ToolSpec(_Record, frozen=True):
    """What a model is told about a tool; `parameters` is the JSON Schema of its arguments (an object)."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolRef(_Record, frozen=True):
    """Names a tool that is withdrawn."""

    name: str


class SystemMessage(_Record, frozen=True, tag="system", tag_field="role"):
    """A change of the prompt or of the offered tools, at its place in the transcript.

    `content` adds to the prompt; `sections` sets named parts of it (None takes one away). Replaying every system
    message gives the current prompt and tools (request.py).
    """

    content: str = _kept("")
    sections: dict[str, str | None] | None = None
    tools_added: list[ToolSpec] | None = None
    tools_removed: list[ToolRef] | None = None
    timestamp: int = _kept(0)


class UserMessage(_Record, frozen=True, tag="user", tag_field="role"):
    """What a person, or code in their place, says to the model. `timestamp` is in milliseconds since 1970."""

    content: str | list[Content]
    timestamp: int = _kept(0)


class Cost(_Record, frozen=True):
    """Price of a request in US dollars. `priced` is False when no price was known; the zeros then mean nothing."""

    input: float = _kept(0.0)
    output: float = _kept(0.0)
    cache_read: float = _kept(0.0)
    cache_write: float = _kept(0.0)
    total: float = _kept(0.0)
    priced: bool = False


class Usage(_Record, frozen=True):
    """Tokens of one request.

    As in pi, `input` leaves out what the cache read or wrote, and `reasoning` is part of `output`. `cache_write_1h` is
    the part of `cache_write` kept for an hour. `estimated` marks counts that the provider did not send (an interrupted
    stream); `raw` is the provider's own object.
    """

    input: int = _kept(0)
    output: int = _kept(0)
    cache_read: int = _kept(0)
    cache_write: int = _kept(0)
    cache_write_1h: int | None = msgspec.field(default=None, name="cacheWrite1h")
    reasoning: int | None = None
    total_tokens: int = _kept(0)
    cost: Cost = _kept(Cost())
    estimated: bool = False
    raw: dict[str, Any] | None = None


class ErrorInfo(_Record, frozen=True):
    """A classified failure. `retry_after_ms` is the wait that the provider asked for; `message` is bounded."""

    kind: ErrorKind
    message: str
    retryable: bool = _kept(value=False)
    retry_after_ms: int | None = None
    status: int | None = None
    code: str | None = None
    request_id: str | None = None


class DeferredHandle(_Record, frozen=True):
    """A response that the provider computes in the background: what is needed to poll or cancel it.

    Times are milliseconds, `expires_at` since 1970.
    """

    provider: str
    api: str
    model_id: str
    id: str
    expires_at: int | None = None
    poll_after_ms: int | None = None
    data: Any = None


class AssistantMessage(_Record, frozen=True, tag="assistant", tag_field="role"):
    """What a model answered, and how the answer ended.

    `model` is the id that was asked, `response_model` the one that the provider says answered, when they differ.
    `raw_stop_reason` is the provider's own word; `error` is set exactly when `stop_reason` is `error`, and on an
    aborted message that has a cause.
    """

    content: list[Block]
    api: str = _kept("")
    provider: str = _kept("")
    model: str = _kept("")
    response_model: str | None = None
    response_id: str | None = None
    usage: Usage = _kept(Usage())
    stop_reason: StopReason = _kept("stop")
    raw_stop_reason: str | None = None
    error: ErrorInfo | None = None
    deferred: DeferredHandle | None = None
    thinking_level: ThinkingLevel | None = None
    timestamp: int = _kept(0)
    duration_ms: int | None = None


class ToolResultMessage(_Record, frozen=True, tag="toolResult", tag_field="role"):
    """The answer to one call. `details` is for people and programs; the model sees `content` only."""

    tool_call_id: str
    tool_name: str
    content: list[Content]
    details: Any = None
    is_error: bool = _kept(value=False)
    usage: Usage | None = None
    timestamp: int = _kept(0)
    duration_ms: int | None = None


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage


def to_json(message: Message) -> dict[str, Any]:
    """The message as plain JSON values, as it is stored and published."""
    value: dict[str, Any] = msgspec.to_builtins(message)
    return value


def from_json(value: Any) -> Message:
    """The message that `to_json` wrote; fields that this version does not know are dropped.

    Raises `MessageInvalid` when the value is not a message.
    """
    try:
        return msgspec.convert(value, Message)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise MessageInvalid(str(error)) from error


def text(value: str) -> Text:
    """A text block."""
    return Text(text=value)


def call(name: str, id: str | None = None, /, **arguments: Any) -> ToolCall:
    """A tool call block; without an id, whoever sends it gives it one (the scripted model does)."""
    return ToolCall(id=id or "", name=name, arguments=arguments)


def tool_calls(message: AssistantMessage) -> list[ToolCall]:
    """The calls of a message, in order."""
    return [block for block in message.content if isinstance(block, ToolCall)]


def plain_text(content: str | Iterable[Block]) -> str:
    """The text blocks of a content, joined; everything else is left out."""
    if isinstance(content, str):
        return content
    return "".join(block.text for block in content if isinstance(block, Text))


def answer_text(message: AssistantMessage) -> str:
    """What the model said, without its thinking and calls."""
    return plain_text(message.content)
