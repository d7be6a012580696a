"""The Chat Completions protocol for tests: streams to play, and the rules that strict servers check requests by."""

from collections.abc import Iterator
from itertools import pairwise
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

Wire = dict[str, Any]

USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
DONE = b"data: [DONE]\n\n"


def chunk(delta: Wire | None = None, *, finish: str | None = None, **more: Any) -> bytes:
    """One chunk; without a delta and a finish reason it has no choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt", "choices": choices}
    return sse(None, {**base, **more})


def text_chunks(text: str, *, field: str = "content", size: int = 5) -> list[bytes]:
    """Text in pieces, in this field of the delta."""
    return [chunk({field: piece}) for piece in pieces(text, size)]


def call_chunks(index: int | None, call_id: str | None, name: str, arguments: str, *, size: int = 5) -> list[bytes]:
    """A call: its head, then its arguments in pieces. A missing index is left out."""
    place = {} if index is None else {"index": index}
    head = {**place, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    tail = ({**place, "function": {"arguments": piece}} for piece in pieces(arguments, size) if piece)
    return [chunk({"tool_calls": [fragment]}) for fragment in (head, *tail)]


def chat_end(finish: str = "stop", *, usage: Wire | None = None) -> list[bytes]:
    """The finish reason, the usage, the end mark."""
    return [chunk({}, finish=finish), chunk(usage=USAGE if usage is None else usage), DONE]


def chat_problems(body: Wire) -> list[str]:
    """What a strict server would refuse a request for; empty when nothing."""
    messages = body["messages"]
    tools = [tool["function"] for tool in body.get("tools", ())]
    return [
        *json_problems(body),
        *_order_problems(messages),
        *_call_problems(messages),
        *_content_problems(messages),
        *declaration_problems((tool.get("name"), tool.get("parameters")) for tool in tools),
    ]


def _order_problems(messages: list[Wire]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    talking = [role for role in roles if role != "system"]
    if talking[-1:] == ["assistant"] or not talking:
        yield "nothing is said to the model"
    if talking[:1] == ["assistant"]:
        yield "the model begins"
    if any(before == after and before not in ("tool", "system") for before, after in pairwise(roles)):
        yield "roles do not alternate"


def _call_problems(messages: list[Wire]) -> Iterator[str]:
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    if len({call["id"] for call in calls}) < len(calls):
        yield "call ids are not unique"
    for call in calls:
        yield from call_problems(call["id"], call["function"]["name"], length=40)
        yield from arguments_problems(call["function"]["name"], call["function"]["arguments"])
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if waiting[:1] != [message["tool_call_id"]]:
                yield f"result {message['tool_call_id']} where {waiting[:1]} was expected"
            waiting = waiting[1:]
        elif waiting:
            yield f"calls {waiting} are not answered"
            waiting = []
        waiting += [call["id"] for call in message.get("tool_calls", ())]
    if waiting:
        yield f"calls {waiting} are not answered"


def _content_problems(messages: list[Wire]) -> Iterator[str]:
    for message in messages:
        role, content = message["role"], message["content"]
        if content is None and message.get("tool_calls"):
            continue
        if not isinstance(content, list):
            yield from text_problems(role, content)
            continue
        if not content or role != "user":
            yield f"parts said by the {role}, or none"
        for part in content:
            if part["type"] == "text":
                yield from text_problems(role, part["text"])
            else:
                yield from data_url_problems(part["image_url"]["url"])
