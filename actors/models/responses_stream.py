"""From the events of an OpenAI Responses stream to neutral events and the final message. No I/O.

An output item becomes a block: a message its text, reasoning its summary, a call a call, anything else an opaque
block. What counts is the finished item (`output_item.done`): the deltas are for the eye, and some servers leave out
the events that close them.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from .accumulate import GrowingAnswer, OpenBlock, count, plain
from .errors import ProviderFailure, classify, error_info
from .events import Event
from .messages import AssistantMessage, Block, DeferredHandle, ErrorInfo, Opaque, Text, Thinking, ToolCall, Usage
from .repair import canonical_arguments, valid_json

_PIECES: dict[str, type[Text | Thinking | ToolCall]] = {
    "response.output_text.delta": Text,
    "response.refusal.delta": Text,
    "response.reasoning_summary_text.delta": Thinking,
    "response.reasoning_text.delta": Thinking,
    "response.function_call_arguments.delta": ToolCall,
}
"""Events that carry a piece of a block, and the kind of block that it must be."""

PENDING = ("queued", "in_progress")
"""States of a response that is computed in the background."""

POLL_AFTER_MS = 2_000
KEPT_MS = 24 * 3_600_000
"""How long a background response is waited for."""

_ENDINGS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesAnswer(GrowingAnswer):
    """An answer as it streams in. `prompt_tokens` is the estimate until usage comes, which is only at the end."""

    def __init__(self, blank: AssistantMessage, *, prompt_tokens: int) -> None:
        super().__init__(blank)
        self._items: dict[Any, _Item] = {}
        self._response: dict[str, Any] = {}
        self._prompt_tokens = prompt_tokens

    def feed(self, raw: Any) -> Iterator[Event]:
        """Take in one raw event of the SDK; yields what it means. Events of unknown type mean nothing."""
        kind = getattr(raw, "type", None)
        if kind in _PIECES:
            yield from self._take_piece(raw, _PIECES[kind])
        elif kind == "response.created":
            response = plain(raw.response)
            yield from self._start(response.get("id"), response.get("model"))
        elif kind == "response.output_item.added":
            yield from self._start_item(raw, plain(raw.item))
        elif kind == "response.reasoning_summary_part.added":
            yield from self._next_part(raw)
        elif kind == "response.output_item.done":
            yield from self._end_item(raw, plain(raw.item))
        elif kind in _ENDINGS:
            yield from self._finish(plain(raw.response))
        elif kind == "error":
            wire = plain(raw)
            raise ProviderFailure(classify(str(wire.get("message") or ""), codes=[wire.get("code")], status=200))

    def take_response(self, wire: dict[str, Any]) -> Iterator[Event]:
        """Take in a response that did not come as a stream: all of it, or that it is not there yet."""
        yield from self._start(wire.get("id"), wire.get("model"))
        if wire.get("status") in PENDING:
            self._response, self.stop, self.complete = wire, wire.get("status"), True
            return
        for index, item in enumerate(wire.get("output") or ()):
            yield from self._end_item(SimpleNamespace(output_index=index), item)
        yield from self._finish(wire)

    def message(self) -> AssistantMessage:
        """The message after the stream's end, by the response's status. Everything but `completed` has a reason."""
        if self._response.get("status") in PENDING:
            return replace(self._so_far("deferred"), usage=Usage(), deferred=self._handle())
        error = _response_error(self._response)
        if error is not None:
            return self.failed(error)
        return self._ended("length" if self._response.get("status") == "incomplete" else "stop")

    def _handle(self) -> DeferredHandle:
        message = self._message
        return DeferredHandle(
            provider=message.provider,
            api=message.api,
            model_id=message.model,
            id=str(self._response.get("id")),
            expires_at=message.timestamp + KEPT_MS,
            poll_after_ms=POLL_AFTER_MS,
        )

    def _usage(self) -> Usage:
        wire = self._response.get("usage")
        if not isinstance(wire, dict):
            return Usage(input=self._prompt_tokens, total_tokens=self._prompt_tokens, estimated=True)
        return _usage(wire)

    def _start_item(self, raw: Any, wire: dict[str, Any]) -> Iterator[Event]:
        item, started = self._begin(_Item(wire, self._message))
        self._items[_place(raw, wire)] = item
        yield started

    def _take_piece(self, raw: Any, kind: type[Text | Thinking | ToolCall]) -> Iterator[Event]:
        item = self._items.get(_place(raw))
        if item is None or not isinstance(item.block, kind):
            raise ProviderFailure(error_info("malformed", f"{raw.type} for an item that is not open"))
        yield from self._grow(item, raw.delta)

    def _next_part(self, raw: Any) -> Iterator[Event]:
        item = self._items.get(_place(raw))
        if item is not None and isinstance(item.block, Thinking) and item.block.thinking:
            yield from self._grow(item, "\n\n")

    def _end_item(self, raw: Any, wire: dict[str, Any]) -> Iterator[Event]:
        if _place(raw, wire) not in self._items:
            yield from self._start_item(raw, wire)
        item = self._items[_place(raw, wire)]
        item.take(wire)
        yield from self._end(item)

    def _finish(self, response: dict[str, Any]) -> Iterator[Event]:
        yield from self._start(response.get("id"), response.get("model"))
        self._backfill(response)
        if response.get("status") != "completed":
            for item in self._items.values():
                yield from self._end(item)
        self._response = response
        self.stop = (response.get("incomplete_details") or {}).get("reason") or response.get("status")
        self._check_all_ended()
        self.complete = True

    def _backfill(self, response: dict[str, Any]) -> None:
        """Encrypted reasoning that only the response as a whole shows, as one vendor's servers do."""
        wires = {wire.get("id"): wire for wire in response.get("output") or () if isinstance(wire, dict)}
        for item in self._items.values():
            item.backfill(wires)

    def _check_all_ended(self) -> None:
        if any(not item.ended for item in self._items.values()):
            raise ProviderFailure(error_info("malformed", "The response was completed with an unfinished item"))


class _Item(OpenBlock):
    """One output item."""

    def __init__(self, wire: dict[str, Any], message: AssistantMessage) -> None:
        self._wire: dict[str, Any] = valid_json(wire)
        super().__init__(_neutral(self._wire, message))

    def take(self, wire: dict[str, Any]) -> None:
        """The finished item: it wins over what the deltas added up to."""
        self._wire = valid_json(wire)
        if isinstance(self.block, ToolCall) and isinstance(text := self._wire.get("arguments"), str):
            self.json = text

    def backfill(self, wires: dict[Any, dict[str, Any]]) -> None:
        if not isinstance(self.block, Thinking) or self._wire.get("encrypted_content"):
            return
        whole = wires.get(self._wire.get("id"))
        if whole is not None and whole.get("encrypted_content"):
            self._wire = valid_json(whole)
            self.block = self.complete()

    def complete(self) -> Block:
        match self.block:
            case Text():
                text = _message_text(self._wire) or self.block.text
                return replace(self.block, text=text, provider_data=_message_data(self._wire))
            case Thinking():
                return replace(
                    self.block, thinking=_thought(self._wire) or self.block.thinking, provider_data=self._wire
                )
            case ToolCall():
                added = _without(self._wire, "type", "call_id", "name", "arguments", "status")
                return canonical_arguments(replace(super().complete(), provider_data=added), self.json)
        return replace(self.block, data=self._wire)


def _place(raw: Any, wire: dict[str, Any] | None = None) -> Any:
    """What tells items apart: their place in the output, or their id with servers that leave the place out."""
    place = getattr(raw, "output_index", None)
    return place if place is not None else (wire or {}).get("id") or getattr(raw, "item_id", None)


def _neutral(wire: dict[str, Any], message: AssistantMessage) -> Block:
    match wire.get("type"):
        case "message":
            return Text(text="")
        case "reasoning":
            return Thinking(thinking="")
        case "function_call":
            return ToolCall(id=wire.get("call_id") or "", name=wire.get("name") or "", arguments={})
    return Opaque(provider=message.provider, api=message.api, data=wire)


def _message_text(wire: dict[str, Any]) -> str:
    return "".join(part.get("text") or part.get("refusal") or "" for part in wire.get("content") or ())


def _message_data(wire: dict[str, Any]) -> dict[str, Any] | None:
    """What a message has beside its text; its parts too, where they are more than one plain text."""
    parts = wire.get("content") or []
    simple = len(parts) == 1 and parts[0].get("type") == "output_text" and not parts[0].get("annotations")
    return _without(wire, "type", "role", *(("content", "status") if simple or not parts else ()))


def _thought(wire: dict[str, Any]) -> str:
    summary = "\n\n".join(part.get("text") or "" for part in wire.get("summary") or ())
    return summary or "".join(part.get("text") or "" for part in wire.get("content") or ())


def _without(wire: dict[str, Any], *keys: str) -> dict[str, Any] | None:
    return {key: value for key, value in wire.items() if key not in keys and value is not None} or None


def _usage(wire: dict[str, Any]) -> Usage:
    details = wire.get("input_tokens_details")
    prompt, output = count(wire, "input_tokens"), count(wire, "output_tokens")
    read, written = count(details, "cached_tokens"), count(details, "cache_write_tokens")
    return Usage(
        input=max(0, prompt - read - written),
        output=output,
        cache_read=read,
        cache_write=written,
        reasoning=count(wire.get("output_tokens_details"), "reasoning_tokens") or None,
        total_tokens=prompt + output,
        raw=wire,
    )


def _response_error(response: dict[str, Any]) -> ErrorInfo | None:
    status = response.get("status")
    reason = (response.get("incomplete_details") or {}).get("reason")
    if status == "completed" or (status, reason) == ("incomplete", "max_output_tokens"):
        return None
    if reason == "content_filter":
        return error_info("refusal", "The provider's filter ended the answer", code=reason)
    if error := response.get("error"):
        return classify(str(error.get("message") or ""), codes=[error.get("code")], status=200)
    return error_info(
        "unknown", f"The response ended with the unknown status {reason or status}", code=reason or status
    )
