"""The OpenAI Responses protocol for tests: streams to play, and the rules that the real service checks requests by."""

import json
from collections.abc import Iterable, Iterator
from itertools import count, pairwise
from typing import Any

from .testing import pieces, sse

Item = dict[str, Any]

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 30,
}

_numbers = count()


def event(kind: str, **data: Any) -> bytes:
    """One event, with the next sequence number."""
    return sse(kind, {"type": kind, "sequence_number": next(_numbers), **data})


def response_start() -> list[bytes]:
    """The first two events."""
    return [event(f"response.{word}", response=_response("in_progress", [])) for word in ("created", "in_progress")]


def item_events(index: int, item: Item, *, size: int = 5) -> list[bytes]:
    """An output item as the events that stream it, in pieces of `size` characters."""
    added = event("response.output_item.added", output_index=index, item=_unfilled(item))
    done = event("response.output_item.done", output_index=index, item=item)
    return [added, *_deltas(index, item, size), done]


def response_end(items: Iterable[Item], *, status: str = "completed", **more: Any) -> bytes:
    """The last event, named after the status. `more` goes into the response."""
    return event(f"response.{status}", response={**_response(status, list(items)), "usage": USAGE, **more})


def responses_problems(body: dict[str, Any]) -> list[str]:
    """What the real service would refuse a request for; empty when nothing."""
    items = body["input"]
    return [*_call_problems(items), *_reasoning_problems(items), *_content_problems(items)]


def _response(status: str, output: list[Item]) -> Item:
    return {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt", "status": status, "output": output}


def _unfilled(item: Item) -> Item:
    empty: dict[str, Item] = {
        "message": {"content": []},
        "reasoning": {"summary": [], "encrypted_content": "partial"},
        "function_call": {"arguments": ""},
    }
    return {**item, "status": "in_progress", **empty.get(item["type"], {})}


def _deltas(index: int, item: Item, size: int) -> Iterator[bytes]:
    match item["type"]:
        case "message":
            for place, part in enumerate(item["content"]):
                kind, text = ("output_text", part.get("text")) if "text" in part else ("refusal", part["refusal"])
                for piece in pieces(text or "", size):
                    yield event(f"response.{kind}.delta", output_index=index, content_index=place, delta=piece)
        case "reasoning":
            for place, part in enumerate(item["summary"]):
                yield event("response.reasoning_summary_part.added", output_index=index, summary_index=place)
                for piece in pieces(part["text"], size):
                    kind = "response.reasoning_summary_text.delta"
                    yield event(kind, output_index=index, summary_index=place, delta=piece)
        case "function_call":
            for piece in pieces(item["arguments"], size):
                yield event("response.function_call_arguments.delta", output_index=index, delta=piece)


def _call_problems(items: list[Item]) -> Iterator[str]:
    asked = [item["call_id"] for item in items if item.get("type") == "function_call"]
    given = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    if asked != given:
        yield f"calls {asked} are answered by {given}"
    if len(asked) != len(set(asked)) or any(not 0 < len(call_id) <= 64 for call_id in asked):
        yield "call ids are not unique or not valid"


def _reasoning_problems(items: list[Item]) -> Iterator[str]:
    named = False
    for item, following in pairwise([*items, {}]):
        if item.get("type") == "reasoning":
            if not item.get("encrypted_content"):
                yield f"item {item.get('id')} is not stored here"
            if following.get("role") == "user" or not following:
                yield f"reasoning {item.get('id')} without what follows it"
            named = True
        elif item.get("role") == "user":
            named = False
        elif item.get("type") in ("function_call", "message") and item.get("id") and not named:
            yield f"item {item['id']} without its required reasoning item"


def _content_problems(items: list[Item]) -> Iterator[str]:
    if not items or ("role" in items[-1] and items[-1]["role"] == "assistant"):
        yield "nothing is said to the model"
    for item in items:
        content = item.get("content", "x")
        texts = [content] if isinstance(content, str) else [part.get("text", "x") for part in content]
        if any(not text.strip() for text in texts):
            yield "blank text"
        if item.get("type") == "function_call":
            json.loads(item["arguments"])
