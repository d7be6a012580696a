"""From the events of an Anthropic Messages stream to neutral events and the final message. No I/O.

One `Answer` covers a whole neutral answer, also when the server paused in between and a second stream goes on with it.
Blocks are kept whole: what has a neutral field goes there, everything else of the block is its provider data, and a
block of unknown type is kept as it came.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from .errors import ProviderFailure, error_info
from .events import BlockEnd, BlockStart, Delta, Event, Start
from .messages import (
    AssistantMessage,
    Block,
    ErrorInfo,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    tool_calls,
)
from .repair import TextJoiner, cut_arguments, read_arguments, unusable, valid_json
from .tokens import with_estimated_output

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


class Answer:
    """An answer as it streams in: feed events, read the message."""

    def __init__(self, blank: AssistantMessage) -> None:
        self._message = blank
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        self._usage = _UsageCount()
        self._started = False
        self._stop_details: dict[str, Any] | None = None
        self.stop: str | None = None
        """The provider's stop reason; None until it has come."""
        self.ended = False
        """Whether the stream's last event has come."""

    def feed(self, event: Any) -> Iterator[Event]:
        """Take in one raw event of the SDK; yields what it means. Events of unknown type mean nothing."""
        match event.type:
            case "content_block_delta":
                yield from self._delta(event.index, event.delta)
            case "content_block_start":
                yield from self._start_block(event.index, _plain(event.content_block))
            case "content_block_stop":
                yield from self._end_block(event.index)
            case "message_start":
                yield from self._start(_plain(event.message))
            case "message_delta":
                self._end(_plain(event))
            case "message_stop":
                for index in list(self._open):
                    yield from self._end_block(index)
                self.ended = True

    def resume(self) -> None:
        """Go on with the stream that follows a pause."""
        self._usage.next_request()
        self._open.clear()
        self.stop, self.ended = None, False

    @property
    def content(self) -> list[Block]:
        """The blocks so far; an unfinished call has no arguments, and says so."""
        return [block.final() for block in self._blocks]

    def failed(self, error: ErrorInfo) -> AssistantMessage:
        """The message when the stream broke off: what had come, and the error."""
        message = self._so_far("error")
        message = replace(message, error=error)
        return message if self.stop or not self._started else with_estimated_output(message)

    def message(self) -> AssistantMessage:
        """The message after the stream's end, by its stop reason. Every reason that is not a success is an error."""
        error = _stop_error(self.stop, self._stop_details)
        if error is not None:
            return self.failed(error)
        message = self._so_far(_STOPS[self.stop or ""])
        if message.stop_reason == "length":
            return replace(message, content=self._without_cut_call())
        return replace(message, stop_reason="toolUse" if tool_calls(message) else "stop")

    def _so_far(self, reason: StopReason) -> AssistantMessage:
        return replace(
            self._message,
            content=self.content,
            usage=self._usage.total(),
            stop_reason=reason,
            raw_stop_reason=self.stop,
        )

    def _without_cut_call(self) -> list[Block]:
        """The token limit cuts the last block; a call there is complete only if its JSON is, and was written out."""
        content = self.content
        last = self._blocks[-1] if self._blocks else None
        if last is not None and isinstance(call := content[-1], ToolCall) and (not last.json or call.arguments_error):
            content[-1] = replace(call, arguments={}, arguments_error=cut_arguments(last.json))
        return content

    def _start(self, message: dict[str, Any]) -> Iterator[Event]:
        self._usage.update(message.get("usage"))
        if self._started:
            return
        self._started = True
        served = message.get("model")
        self._message = replace(
            self._message,
            response_id=message.get("id"),
            response_model=served if served != self._message.model else None,
            usage=self._usage.total(),
        )
        yield Start(self._message)

    def _start_block(self, index: int, wire: dict[str, Any]) -> Iterator[Event]:
        yield from self._end_block(index)
        block = _Block(len(self._blocks), wire, self._message)
        self._blocks.append(block)
        self._open[index] = block
        yield BlockStart(block.index, block.block)

    def _delta(self, index: int, delta: Any) -> Iterator[Event]:
        block = self._open.get(index)
        if block is None:
            raise ProviderFailure(error_info("malformed", f"Content for block {index}, which is not open"))
        if piece := block.add(delta):
            yield Delta(block.index, piece)

    def _end_block(self, index: int) -> Iterator[Event]:
        block = self._open.pop(index, None)
        if block is None:
            return
        if rest := block.end():
            yield Delta(block.index, rest)
        yield BlockEnd(block.index, block.block)

    def _end(self, event: dict[str, Any]) -> None:
        self._usage.update(event.get("usage"))
        delta = event.get("delta") or {}
        self.stop = delta.get("stop_reason") or self.stop
        self._stop_details = delta.get("stop_details") or self._stop_details


class _Block:
    """One block as it streams in."""

    def __init__(self, index: int, wire: dict[str, Any], message: AssistantMessage) -> None:
        self.index = index
        self.json = ""
        self._joiner = TextJoiner()
        self._wire = valid_json(wire)
        self._ended = False
        self.block = _neutral(self._wire, message)

    def add(self, delta: Any) -> str:
        """Take in a delta; returns the text to show for it."""
        match delta.type:
            case "text_delta" if isinstance(self.block, Text):
                return self._grow(self._joiner.feed(delta.text))
            case "thinking_delta" if isinstance(self.block, Thinking):
                return self._grow(self._joiner.feed(delta.thinking))
            case "input_json_delta":
                return self._grow(self._joiner.feed(delta.partial_json))
            case _:
                self._merge(_plain(delta))
                return ""

    def end(self) -> str:
        """The block is complete; returns the text that was still held back."""
        self._ended = True
        rest = self._grow(self._joiner.end())
        self.block = self._complete()
        return rest

    def final(self) -> Block:
        """The block if the stream ends here."""
        if self._ended or not isinstance(self.block, ToolCall):
            return self.block
        return replace(self.block, arguments_error=unusable("The call was cut off", self.json))

    def _grow(self, piece: str) -> str:
        match self.block:
            case Text(text=text):
                self.block = replace(self.block, text=text + piece)
            case Thinking(thinking=thinking):
                self.block = replace(self.block, thinking=thinking + piece)
            case _:
                self.json += piece
        return "" if isinstance(self.block, Opaque) else piece

    def _merge(self, delta: dict[str, Any]) -> None:
        """Deltas without neutral meaning: signatures, citations, whatever comes later. Text adds up, items collect."""
        if delta.pop("type", None) == "citations_delta":
            self._wire["citations"] = [*(self._wire.get("citations") or []), valid_json(delta.get("citation"))]
            return
        for key, value in valid_json(delta).items():
            old = self._wire.get(key)
            self._wire[key] = old + value if isinstance(old, str) and isinstance(value, str) else value

    def _complete(self) -> Block:
        match self.block:
            case ToolCall():
                arguments, error = read_arguments(self.json) if self.json else (self._given_input(), None)
                return replace(self.block, arguments=arguments, arguments_error=error, provider_data=_added(self._wire))
            case Opaque():
                if self.json:
                    self._wire["input"] = read_arguments(self.json)[0]
                return replace(self.block, data=self._wire)
        return replace(self.block, provider_data=_added(self._wire))

    def _given_input(self) -> dict[str, Any]:
        """Arguments that came with the block's start, as some servers send them; none otherwise."""
        given = self._wire.get("input")
        return given if isinstance(given, dict) else {}


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
    fresh, output = _count(wire, "input_tokens"), _count(wire, "output_tokens")
    read, written = _count(wire, "cache_read_input_tokens"), _count(wire, "cache_creation_input_tokens")
    return Usage(
        input=fresh,
        output=output,
        cache_read=read,
        cache_write=written,
        cache_write_1h=_count(wire.get("cache_creation"), "ephemeral_1h_input_tokens") or None,
        reasoning=_count(wire.get("output_tokens_details"), "thinking_tokens") or None,
        total_tokens=fresh + read + written + output,
        raw=dict(wire) or None,
    )


def _count(wire: Any, key: str) -> int:
    value = wire.get(key) if isinstance(wire, dict) else None
    return value if isinstance(value, int) else 0


def _stop_error(stop: str | None, details: dict[str, Any] | None) -> ErrorInfo | None:
    if stop in _STOPS:
        return None
    if stop == "refusal":
        return error_info("refusal", _refusal(details or {}), code=(details or {}).get("category"))
    if stop == "model_context_window_exceeded":
        return error_info("overflow", "The context window was full before the answer was complete", code=stop)
    if stop is None:
        return error_info("malformed", "The answer ended without a stop reason")
    return error_info("unknown", f"The answer ended with the unknown stop reason {stop}", code=stop)


def _refusal(details: dict[str, Any]) -> str:
    return "The model refused to answer" + (f": {why}" if (why := details.get("explanation")) else "")


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


def _added(wire: dict[str, Any]) -> dict[str, Any] | None:
    """What the block has beside its neutral fields, in the order it came."""
    neutral = _NEUTRAL_FIELDS.get(wire["type"], ())
    return {key: value for key, value in wire.items() if key not in neutral and value is not None} or None


def _plain(model: Any) -> dict[str, Any]:
    """An SDK object as the JSON it was: unset fields stay out, names are the wire's."""
    plain: dict[str, Any] = model.to_dict(mode="json")
    return plain
