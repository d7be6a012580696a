"""The Anthropic Messages protocol for tests: streams to play, and the rules the real service checks requests by."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from .testing import Reply, Step, pieces, sse
from .testing_rules import call_problems, declaration_problems, json_problems, text_problems

Wire = dict[str, Any]


def message_start(model: str = "claude-opus-5-5", **usage: Any) -> bytes:
    """The first event. Usage defaults to 10 input tokens and 1 of output."""
    counts = {"input_tokens": 10, "output_tokens": 1, **usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": model}
    return _event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": counts})


def block_events(index: int, block: Wire, *, size: int = 5) -> list[bytes]:
    """A block of the final message as the events that stream it, in pieces of `size` characters.

    `input` may be given as text, to send JSON that is broken or cut.
    """
    deltas = [_event("content_block_delta", index=index, delta=delta) for delta in _deltas(block, size)]
    start = _event("content_block_start", index=index, content_block=_started(block))
    return [start, *deltas, _event("content_block_stop", index=index)]


def message_end(stop_reason: str | None = "end_turn", *, details: Wire | None = None, **usage: Any) -> list[bytes]:
    """The last two events. Usage defaults to 20 output tokens."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None, **({"stop_details": details} if details else {})}
    ending = _event("message_delta", delta=delta, usage={"output_tokens": 20, **usage})
    return [ending, _event("message_stop")]


def stream_reply(*blocks: Wire, stop_reason: str = "end_turn", details: Wire | None = None, size: int = 5) -> Reply:
    """A whole, undisturbed answer made of these blocks."""
    body = [event for index, block in enumerate(blocks) for event in block_events(index, block, size=size)]
    return reply([message_start(), *body, *message_end(stop_reason, details=details)])


def reply(steps: Sequence[Step]) -> Reply:
    """A stream of these steps, with a request id."""
    return Reply(steps=steps, headers={"request-id": "req_1"})


def stream_error(kind: str, message: str) -> bytes:
    """An error inside a stream."""
    return _event("error", error={"type": kind, "message": message})


def problems(body: Wire, *, signatures: Iterable[str] = ()) -> list[str]:
    """What the real service would refuse a request for; empty when nothing.

    `signatures` are those that the asked model made; any other is refused.
    """
    known = set(signatures)
    messages = body["messages"]
    return [
        *json_problems(body),
        *(text_problems("the prompt", body["system"]) if "system" in body else ()),
        *(problem for message in messages for problem in _message_problems(message, known)),
        *_order_problems(messages),
        *_call_problems(messages),
        *declaration_problems((tool.get("name"), tool.get("input_schema")) for tool in body.get("tools", ())),
        *_tool_problems(messages, body.get("tools", [])),
        *_thinking_problems(body),
    ]


def _event(name: str, **data: Any) -> bytes:
    return sse(name, {"type": name, **data})


def _started(block: Wire) -> Wire:
    empty: dict[str, Wire] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
        "server_tool_use": {"input": {}},
    }
    return {**block, **empty.get(block["type"], {})}


def _deltas(block: Wire, size: int) -> Iterator[Wire]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"], size))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"], size))
            if "signature" in block:
                yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            given = block["input"]
            text = given if isinstance(given, str) else json.dumps(given)
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(text, size))


def _message_problems(message: Wire, signatures: set[str]) -> Iterator[str]:
    if not message["content"]:
        yield f"empty {message['role']} message"
    for block in message["content"]:
        yield from _block_problems(block, message["role"], signatures)
    answered = {block.get("tool_use_id") for block in message["content"]}
    if any(block["type"] == "server_tool_use" and block["id"] not in answered for block in message["content"]):
        yield "a server's tool call without its result"
    if message["role"] == "assistant" and message["content"][-1:] and "thinking" in message["content"][-1]["type"]:
        yield "an assistant message ends in thinking"


def _block_problems(block: Wire, role: str, signatures: set[str]) -> Iterator[str]:
    kind = block["type"]
    speaker = {
        "tool_use": "assistant",
        "thinking": "assistant",
        "redacted_thinking": "assistant",
        "tool_result": "user",
    }
    speaker |= {"image": "user", "tool_addition": "system", "tool_removal": "system"}
    if speaker.get(kind, role) != role:
        yield f"{kind} said by the {role}"
    match kind:
        case "text":
            yield from text_problems(role, block["text"])
        case "image":
            yield from _image_problems(block)
        case "tool_use":
            yield from call_problems(block["id"], block["name"], length=64)
            if not isinstance(block["input"], dict):
                yield f"input of {block['name']!r} is no object"
        case "tool_result":
            yield from _result_problems(block)
        case "thinking" if not isinstance(block.get("thinking"), str) or block.get("signature") not in signatures:
            yield f"invalid signature {block.get('signature')!r}"
        case "redacted_thinking" if not block.get("data"):
            yield "redacted thinking without its data"


def _image_problems(block: Wire) -> Iterator[str]:
    source = block["source"]
    if source["media_type"] not in ("image/jpeg", "image/png", "image/gif", "image/webp") or not source["data"]:
        yield f"a picture of type {source['media_type']!r} or without data"


def _result_problems(block: Wire) -> Iterator[str]:
    if not block["content"]:
        yield "empty result"
    for part in block["content"]:
        yield from _image_problems(part) if part["type"] == "image" else text_problems("a result", part["text"])
    if block.get("is_error") and any(part["type"] != "text" for part in block["content"]):
        yield "an error result holds more than text"


def _order_problems(messages: list[Wire]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    if roles[:1] != ["user"]:
        yield "the first message is not the user's"
    if roles[-1:] == ["assistant"]:
        yield "the last message is the assistant's"
    for before, after in pairwise([*roles, "assistant"]):
        if before == "system" and after != "assistant":
            yield f"role 'system' before {after!r}"
    talking = [role for role in roles if role != "system"]
    if any(a == b for a, b in pairwise(talking)):
        yield "roles do not alternate"


def _call_problems(messages: list[Wire]) -> Iterator[str]:
    calls = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    if len(calls) != len(set(calls)):
        yield "call ids are not unique"
    nobody: Wire = {"role": "", "content": []}
    for message, following in pairwise([nobody, *messages, nobody]):
        asked = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        kinds = [block["type"] for block in following["content"]]
        given = [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"]
        if message["role"] == "assistant" and asked != given:
            yield f"calls {asked} are answered by {given}"
        if kinds[: len(given)] != ["tool_result"] * len(given):
            yield "results do not come first"
        if message["role"] != "assistant" and given:
            yield "results without a call"


def _tool_problems(messages: list[Wire], tools: list[Wire]) -> Iterator[str]:
    offered = {tool["name"] for tool in tools}
    for block in (block for message in messages for block in message["content"]):
        if block["type"] == "tool_removal":
            name = block["tool"]["name"]
            if name not in offered:
                yield f"{name!r} is withdrawn but not offered"
            offered.discard(name)
        if block["type"] == "tool_addition":
            name = block["tool"]["definition"]["name"]
            if name in offered:
                yield f"{name!r} is added but offered already"
            offered.add(name)


def _thinking_problems(body: Wire) -> Iterator[str]:
    """A budget leaves room for the answer, and a round of calls that goes on with thinking has begun with it."""
    if body.get("max_tokens", 1) < 1:
        yield "no room for an answer"
    thinking = body.get("thinking", {})
    if thinking.get("type") != "enabled":
        return
    if not 1_024 <= thinking["budget_tokens"] < body["max_tokens"]:
        yield f"a budget of {thinking['budget_tokens']} within {body['max_tokens']}"
    talking = [message for message in body["messages"] if message["role"] != "system"]
    in_round = all(block["type"] == "tool_result" for block in talking[-1]["content"])
    if in_round and "thinking" not in talking[-2]["content"][0]["type"]:
        yield "a round of calls that did not begin with thinking"
