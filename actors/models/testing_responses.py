"""The OpenAI Responses protocol for tests: streams to play, and the rules that the real service checks requests by."""

from collections.abc import Iterable, Iterator
from itertools import count, pairwise
from typing import Any

from .testing import pieces, sse
from .testing_rules import (
    arguments_problems,
    call_problems,
    data_url_problems,
    declaration_problems,
    json_problems,
    text_problems,
)

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
    return [
        *json_problems(body),
        *(text_problems("the instructions", body["instructions"]) if "instructions" in body else ()),
        *_call_problems(items),
        *_reasoning_problems(items),
        *_content_problems(items),
        *_tool_problems(items, body.get("tools", [])),
        *([] if body.get("max_output_tokens", 16) >= 16 else ["max_output_tokens below 16"]),
    ]


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
    """Calls of a turn, then their outputs in the same order, and nothing in between; each id once."""
    waiting: list[str] = []
    seen: set[str] = set()
    answering = False
    for item in [*items, {"role": "the end"}]:
        kind, call_id = item.get("type"), item.get("call_id")
        if kind == "function_call_output":
            if waiting[:1] != [call_id]:
                yield f"output of {call_id} where that of {waiting[:1]} was expected"
            waiting, answering = waiting[1:], True
            continue
        if waiting and (answering or item.get("role") not in (None, "assistant")):
            yield f"calls {waiting} are not answered"
            waiting = []
        answering = False
        if kind == "function_call":
            yield from call_problems(call_id, item["name"], length=64)
            yield from arguments_problems(item["name"], item["arguments"])
            if call_id in seen:
                yield f"call id {call_id} twice"
            seen.add(call_id or "")
            waiting.append(call_id or "")


def _reasoning_problems(items: list[Item]) -> Iterator[str]:
    named = False
    for item, following in pairwise([*items, {}]):
        if item.get("type") == "reasoning":
            if not item.get("encrypted_content"):
                yield f"item {item.get('id')} is not stored here"
            if following.get("role", "assistant") != "assistant" or "output" in following or not following:
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
        content = item.get("output", item.get("content", "x"))
        if isinstance(content, str):
            yield from text_problems(str(item.get("role") or item.get("type")), content)
        elif item.get("role") == "user" or "output" in item:
            yield from _part_problems(content)


def _part_problems(parts: Any) -> Iterator[str]:
    if not parts:
        yield "no content"
    for part in parts or ():
        match part["type"]:
            case "input_text" | "output_text":
                yield from text_problems("a part", part["text"])
            case "input_image":
                yield from data_url_problems(part["image_url"])
            case other:
                yield f"a part of type {other!r}"


def _tool_problems(items: list[Item], tools: list[Item]) -> Iterator[str]:
    """Tools at the top and those added later are declared once."""
    added = (tool for item in items if item.get("type") == "additional_tools" for tool in item["tools"])
    yield from declaration_problems((tool.get("name"), tool.get("parameters")) for tool in (*tools, *added))
