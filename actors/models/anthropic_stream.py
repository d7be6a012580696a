"""From the events of an Anthropic Messages stream to neutral events and the final message. No I/O.

One `Answer` covers a whole neutral answer, also when the server paused in between and a second stream goes on with it.
Blocks are kept whole: what has a neutral field goes there, everything else of the block is its provider data, and a
block of unknown type is kept as it came.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from .accumulate import GrowingAnswer, OpenBlock, count, plain
from .errors import ProviderFailure, error_info
from .events import Event
from .messages import AssistantMessage, Block, ErrorInfo, Opaque, StopReason, Text, Thinking, ToolCall, Usage
from .repair import read_arguments, valid_json

_STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "toolUse",
    "max_tokens": "length",
}
PAUSED = "pause_turn"

_NEUTRAL_FIELDS = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking"),
    "redacted_thinking": ("type",),
    "tool_use": ("type", "id", "name", "input"),
}


class Answer(GrowingAnswer):
    """An answer as it streams in: feed events, read the message."""

    def __init__(self, blank: AssistantMessage) -> None:
        super().__init__(blank)
        self._open: dict[int, _AnthropicBlock] = {}
        self._counts = _UsageCount()
        self._stop_details: dict[str, Any] = {}

    def feed(self, raw: Any) -> Iterator[Event]:
        """Take in one raw event of the SDK; yields what it means. Events of unknown type mean nothing."""
        match raw.type:
            case "content_block_delta":
                block = self._block(raw.index)
                yield from self._grow(block, block.take(raw.delta))
            case "content_block_start":
                yield from self._start_block(raw.index, plain(raw.content_block))
            case "content_block_stop":
                yield from self._end_block(raw.index)
            case "message_start":
                message = plain(raw.message)
                self._counts.update(message.get("usage"))
                yield from self._start(message.get("id"), message.get("model"))
            case "message_delta":
                self._take_end(plain(raw))
            case "message_stop":
                for index in list(self._open):
                    yield from self._end_block(index)
                self.complete = True

    def resume(self) -> None:
        """Go on with the stream that follows a pause."""
        self._counts.next_request()
        self._open.clear()
        self.stop, self.complete = None, False

    def message(self) -> AssistantMessage:
        """The message after the stream's end, by its stop reason. Every reason that is not a success is an error."""
        error = _stop_error(self.stop, self._stop_details)
        return self._ended(_STOPS[self.stop or ""]) if error is None else self.failed(error)

    def _usage(self) -> Usage:
        return self._counts.total()

    def _block(self, index: int) -> "_AnthropicBlock":
        block = self._open.get(index)
        if block is None:
            raise ProviderFailure(error_info("malformed", f"Content for block {index}, which is not open"))
        return block

    def _start_block(self, index: int, wire: dict[str, Any]) -> Iterator[Event]:
        yield from self._end_block(index)
        self._open[index], started = self._begin(_AnthropicBlock(wire, self._message))
        yield started

    def _end_block(self, index: int) -> Iterator[Event]:
        block = self._open.pop(index, None)
        if block is not None:
            yield from self._end(block)

    def _take_end(self, event: dict[str, Any]) -> None:
        self._counts.update(event.get("usage"))
        delta = event.get("delta") or {}
        self.stop = delta.get("stop_reason") or self.stop
        self._stop_details = delta.get("stop_details") or self._stop_details


class _AnthropicBlock(OpenBlock):
    """One block, with the parts of it that have no neutral meaning."""

    def __init__(self, wire: dict[str, Any], message: AssistantMessage) -> None:
        self._wire: dict[str, Any] = valid_json(wire)
        super().__init__(_neutral(self._wire, message))

    def take(self, delta: Any) -> str:
        """Take in a delta; returns the text that the block grows by."""
        match delta.type:
            case "text_delta" if isinstance(self.block, Text):
                return str(delta.text)
            case "thinking_delta" if isinstance(self.block, Thinking):
                return str(delta.thinking)
            case "input_json_delta":
                return str(delta.partial_json)
        self._merge(plain(delta))
        return ""

    def complete(self) -> Block:
        match self.block:
            case ToolCall() if not self.json and isinstance(given := self._wire.get("input"), dict):
                # Some servers send the arguments with the block's start; empty ones stand there otherwise.
                return replace(self.block, arguments=given, provider_data=self._added())
            case Opaque():
                data = {**self._wire, "input": read_arguments(self.json)[0]} if self.json else self._wire
                return replace(self.block, data=data)
        return replace(super().complete(), provider_data=self._added())

    def _merge(self, delta: dict[str, Any]) -> None:
        """Deltas without neutral meaning: signatures, citations, whatever comes later. Text adds up, items collect."""
        if delta.pop("type", None) == "citations_delta":
            self._wire["citations"] = [*(self._wire.get("citations") or []), valid_json(delta.get("citation"))]
            return
        for key, value in valid_json(delta).items():
            old = self._wire.get(key)
            self._wire[key] = old + value if isinstance(old, str) and isinstance(value, str) else value

    def _added(self) -> dict[str, Any] | None:
        """What the block has beside its neutral fields, in the order it came."""
        neutral = _NEUTRAL_FIELDS[self._wire["type"]]
        return {key: value for key, value in self._wire.items() if key not in neutral and value is not None} or None


class _UsageCount:
    """Counts tokens over the requests of one answer. Each event's counts are cumulative; absent ones change nothing."""

    def __init__(self) -> None:
        self._requests: list[dict[str, Any]] = [{}]

    def update(self, wire: dict[str, Any] | None) -> None:
        self._requests[-1].update((key, value) for key, value in (wire or {}).items() if value is not None)

    def next_request(self) -> None:
        self._requests.append({})

    def total(self) -> Usage:
        """The sum of all requests; `total_tokens` is what the last one leaves in the context."""
        usages = [_usage(wire) for wire in self._requests]
        if len(usages) == 1:
            return usages[0]
        return Usage(
            input=sum(usage.input for usage in usages),
            output=sum(usage.output for usage in usages),
            cache_read=sum(usage.cache_read for usage in usages),
            cache_write=sum(usage.cache_write for usage in usages),
            cache_write_1h=sum(usage.cache_write_1h or 0 for usage in usages) or None,
            reasoning=sum(usage.reasoning or 0 for usage in usages) or None,
            total_tokens=usages[-1].total_tokens,
            raw={"requests": self._requests},
        )


def _usage(wire: dict[str, Any]) -> Usage:
    fresh, output = count(wire, "input_tokens"), count(wire, "output_tokens")
    read, written = count(wire, "cache_read_input_tokens"), count(wire, "cache_creation_input_tokens")
    return Usage(
        input=fresh,
        output=output,
        cache_read=read,
        cache_write=written,
        cache_write_1h=count(wire.get("cache_creation"), "ephemeral_1h_input_tokens") or None,
        reasoning=count(wire.get("output_tokens_details"), "thinking_tokens") or None,
        total_tokens=fresh + read + written + output,
        raw=dict(wire) or None,
    )


def _stop_error(stop: str | None, details: dict[str, Any]) -> ErrorInfo | None:
    if stop in _STOPS:
        return None
    if stop == "refusal":
        why = details.get("explanation")
        said = "The model refused to answer" + (f": {why}" if why else "")
        return error_info("refusal", said, code=details.get("category"))
    if stop == "model_context_window_exceeded":
        return error_info("overflow", "The context window was full before the answer was complete", code=stop)
    if stop is None:
        return error_info("malformed", "The answer ended without a stop reason")
    return error_info("unknown", f"The answer ended with the unknown stop reason {stop}", code=stop)


def _neutral(wire: dict[str, Any], message: AssistantMessage) -> Block:
    match wire.get("type"):
        case "text":
            return Text(text=wire.get("text") or "")
        case "thinking":
            return Thinking(thinking=wire.get("thinking") or "")
        case "redacted_thinking":
            return Thinking(thinking="", redacted=True)
        case "tool_use":
            return ToolCall(id=wire.get("id") or "", name=wire.get("name") or "", arguments={})
    return Opaque(provider=message.provider, api=message.api, data=wire)
