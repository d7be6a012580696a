"""From the chunks of a Chat Completions stream to neutral events and the final message. No I/O.

The protocol has no blocks: text, reasoning and fragments of calls come in one stream of deltas, and compatible servers
differ in where they put what. Text and reasoning become a block each time they change over; calls stay open until the
end, since their fragments may interleave.
"""

import json
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from .accumulate import GrowingAnswer, OpenBlock, count, plain
from .errors import ProviderFailure, classify, error_info
from .events import Event
from .messages import AssistantMessage, Block, ErrorInfo, StopReason, Text, Thinking, ToolCall, Usage
from .repair import canonical_arguments, valid_json

_STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "end": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}

_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
"""Where servers put reasoning; the first that is not empty counts, and is where it goes back."""


class ChatAnswer(GrowingAnswer):
    """An answer as it streams in: feed chunks, read the message. `prompt_tokens` is the estimate until usage comes."""

    def __init__(self, blank: AssistantMessage, *, prompt_tokens: int) -> None:
        super().__init__(blank)
        self._speaking: _Speech | None = None
        self._calls: list[_Call] = []
        self._counts: dict[str, Any] | None = None
        self._prompt_tokens = prompt_tokens

    def feed(self, raw: Any) -> Iterator[Event]:
        """Take in one chunk; yields what it means."""
        choices = getattr(raw, "choices", None)
        if choices is None:
            _raise_error(plain(raw))
            return
        yield from self._start(getattr(raw, "id", None), getattr(raw, "model", None))
        self._take_usage(raw)
        for choice in choices[:1]:
            self._take_usage(choice)
            if choice.delta is not None:
                yield from self._take(choice.delta)
            if choice.finish_reason:
                self.stop = choice.finish_reason
                yield from self._end_all()
                self.complete = True

    def message(self) -> AssistantMessage:
        """The message after the stream's end, by its finish reason. Every reason that is not a success is an error."""
        error = _stop_error(self.stop)
        return self._ended(_STOPS[self.stop or ""]) if error is None else self.failed(error)

    def _usage(self) -> Usage:
        if self._counts is None:
            return Usage(input=self._prompt_tokens, total_tokens=self._prompt_tokens, estimated=True)
        return _usage(self._counts)

    def _take_usage(self, holder: Any) -> None:
        usage = getattr(holder, "usage", None)
        if usage is not None:
            self._counts = usage if isinstance(usage, dict) else plain(usage)

    def _take(self, delta: Any) -> Iterator[Event]:
        extra = delta.model_extra or {}
        for field in _REASONING_FIELDS:
            if isinstance(thought := extra.get(field), str) and thought:
                yield from self._speak(Thinking(thinking=""), thought, {"field": field})
                break
        if details := extra.get("reasoning_details"):
            yield from self._speak(Thinking(thinking=""), "", {"reasoning_details": valid_json(details)})
        if delta.content:
            yield from self._speak(Text(text=""), delta.content, {})
        if refusal := getattr(delta, "refusal", None):
            yield from self._speak(Text(text=""), refusal, {"refusal": True})
        for fragment in delta.tool_calls or ():
            yield from self._take_call(fragment)

    def _speak(self, kind: Block, piece: str, added: dict[str, Any]) -> Iterator[Event]:
        if self._speaking is None or type(self._speaking.block) is not type(kind):
            yield from self._stop_speaking()
            self._speaking, started = self._begin(_Speech(kind))
            yield started
        self._speaking.add(added)
        yield from self._grow(self._speaking, piece)

    def _stop_speaking(self) -> Iterator[Event]:
        if self._speaking is not None:
            yield from self._end(self._speaking)
            self._speaking = None

    def _take_call(self, fragment: Any) -> Iterator[Event]:
        function = fragment.function
        call = self._call_of(fragment)
        if call is None:
            yield from self._stop_speaking()
            name = (function.name if function else None) or ""
            call, started = self._begin(_Call(fragment.index, fragment.id or "", name))
            self._calls.append(call)
            yield started
        yield from self._grow(call, _argument_text(function))

    def _call_of(self, fragment: Any) -> "_Call | None":
        """The call that a fragment belongs to; None when it begins a new one.

        Servers break the rules in turn: some leave out the index, some give it to all calls alike, some repeat the id
        with every fragment. An id that is known at this index decides, then a new id, then the index alone.
        """
        at_index = [call for call in self._calls if fragment.index is None or call.at == fragment.index]
        if fragment.id:
            return next((call for call in reversed(at_index) if call.call_id == fragment.id), None)
        return at_index[-1] if at_index else None

    def _end_all(self) -> Iterator[Event]:
        yield from self._stop_speaking()
        for call in self._calls:
            yield from self._end(call)


class _Speech(OpenBlock):
    """Text or reasoning, with where it came from."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._added: dict[str, Any] = {}

    def add(self, added: dict[str, Any]) -> None:
        for key, value in added.items():
            self._added[key] = [*self._added.get(key, []), *value] if isinstance(value, list) else value

    def complete(self) -> Block:
        return replace(self.block, provider_data=self._added or None)


class _Call(OpenBlock):
    """A call, with the place at which its fragments come."""

    def __init__(self, at: int | None, call_id: str, name: str) -> None:
        super().__init__(ToolCall(id=call_id, name=name, arguments={}))
        self.at = at
        self.call_id = call_id

    def complete(self) -> Block:
        return canonical_arguments(super().complete(), self.json)


def _argument_text(function: Any) -> str:
    arguments = function.arguments if function else None
    if arguments is None:
        return ""
    # Some servers send the arguments as an object, whole.
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _usage(wire: dict[str, Any]) -> Usage:
    details = wire.get("prompt_tokens_details")
    prompt, output = count(wire, "prompt_tokens"), count(wire, "completion_tokens")
    read = count(details, "cached_tokens") or count(wire, "prompt_cache_hit_tokens") or count(wire, "cached_tokens")
    written = count(details, "cache_write_tokens")
    return Usage(
        input=max(0, prompt - read - written),
        output=output,
        cache_read=read,
        cache_write=written,
        reasoning=count(wire.get("completion_tokens_details"), "reasoning_tokens") or None,
        total_tokens=prompt + output,
        raw=wire,
    )


def _raise_error(chunk: dict[str, Any]) -> None:
    """A chunk without choices may be an error that the SDK did not recognise as one; anything else means nothing."""
    if "message" in chunk and ("code" in chunk or "type" in chunk):
        codes = [str(chunk[key]) for key in ("code", "type") if chunk.get(key)]
        raise ProviderFailure(classify(str(chunk["message"]), codes=codes, status=200))


def _stop_error(stop: str | None) -> ErrorInfo | None:
    if stop in _STOPS:
        return None
    if stop in ("content_filter", "sensitive"):
        return error_info("refusal", "The provider's filter ended the answer", code=stop)
    if stop == "network_error":
        return error_info("transport", "The server lost its connection to the model", code=stop)
    if stop == "model_context_window_exceeded":
        return error_info("overflow", "The context window was full before the answer was complete", code=stop)
    return error_info("unknown", f"The answer ended with the unknown finish reason {stop}", code=stop)
