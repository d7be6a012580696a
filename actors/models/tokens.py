"""How many tokens something is, when no provider has said so.

An estimate, not a tokenizer: characters by 3.5, which errs on the high side for English and code with the vocabularies
in use, so thresholds built on it trip early rather than late.
"""

import json
import math
from collections.abc import Iterable
from copy import copy
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from .growing import folded
from .messages import (
    AssistantMessage,
    Block,
    Image,
    Message,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from .request import ModelRequest, system_update

CHARS_PER_TOKEN = 3.5
_MARGIN = 4_096
_SMALL_ANSWER = 32_768
IMAGE_CHARS = 4_800
"""A picture weighs as much as this many characters (about 1,370 tokens), whatever its size."""


class Weight:
    """How much the messages that were added weigh: a fold."""

    def __init__(self) -> None:
        self._chars = 0
        self._reported = 0
        self._since = 0
        """Characters since the message whose usage was reported."""
        self._newest = -math.inf

    def add(self, message: Message) -> None:
        """Take in a message."""
        chars = _message_chars(message)
        self._chars += chars
        self._since += chars
        if isinstance(message, AssistantMessage) and _counts(message) and self._newest <= message.timestamp:
            self._reported, self._since = _reported(message.usage), 0
        self._newest = max(self._newest, message.timestamp)

    def fork(self) -> Self:
        """Make a copy that goes on by itself."""
        return copy(self)

    @property
    def estimate(self) -> int:
        """Estimated tokens of all messages."""
        return _tokens(self._chars)

    @property
    def context(self) -> int:
        """The newest usage that counts, plus estimates of what follows it."""
        return self._reported + _tokens(self._since)


def estimate_tokens(messages: Iterable[Message]) -> int:
    """Estimated tokens of `messages` (at least 0)."""
    return folded(messages, Weight, Weight).estimate


def estimate_output(message: AssistantMessage) -> int:
    """Estimated tokens of what a model produced."""
    return _tokens(_content_chars(message.content))


def context_tokens(messages: Iterable[Message]) -> int:
    """Tokens of a context: the newest usage that a provider reported in it, plus estimates of what follows.

    A usage counts when its message ended well and is not older than what stands before it; a compaction summary is
    younger than the messages behind it, whose usage therefore still counts what the summary replaced.
    """
    return folded(messages, Weight, Weight).context


def answer_room(request: ModelRequest, *, window: int, limit: int) -> int:
    """Tokens to allow an answer: what the request asks for or `limit`, less where the context leaves less.

    The estimate may be wrong by a few per cent, so a margin stays free: 15 % of it and at least 4,096 tokens (an eighth
    of a small window). Where that would leave little, an answer of up to 32,768 tokens is risked with the fixed margin
    only.
    """
    wanted = min(request.max_tokens or limit, limit)
    if window <= 0:
        return wanted
    used = context_tokens(request.messages)
    margin = min(_MARGIN, window // 8)
    room = window - used - max(margin, math.ceil(used * 0.15))
    if room < _SMALL_ANSWER:
        room = min(_SMALL_ANSWER, window - used - margin)
    return max(1, min(wanted, room))


def with_estimated_output(message: AssistantMessage) -> AssistantMessage:
    """A message whose stream broke off, its output tokens estimated (at least what the provider counted)."""
    usage = message.usage
    output = max(usage.output, estimate_output(message))
    total = usage.total_tokens - usage.output + output
    return replace(message, usage=replace(usage, output=output, total_tokens=total, estimated=True))


def _counts(message: AssistantMessage) -> bool:
    return message.stop_reason not in ("error", "aborted", "pending") and _reported(message.usage) > 0


def _reported(usage: Usage) -> int:
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def _tokens(chars: int) -> int:
    return math.ceil(chars / CHARS_PER_TOKEN)


def _message_chars(message: Message) -> int:
    if isinstance(message, SystemMessage):
        return len(system_update(message)) + _json_chars(msgspec.to_builtins(message.tools_added or []))
    if isinstance(message.content, str):
        return len(message.content)
    return _content_chars(message.content)


def _content_chars(content: Iterable[Block]) -> int:
    return sum(map(_block_chars, content))


def _block_chars(block: Block) -> int:
    match block:
        case Text():
            return len(block.text)
        case Thinking():
            return len(block.thinking)
        case Image():
            return IMAGE_CHARS
        case ToolCall():
            return len(block.name) + _json_chars(block.arguments)
        case Opaque():
            return _json_chars(block.data)


def _json_chars(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False)) if value else 0
