"""Noticing a model that goes in circles. Pure. Proved by tests/actors/agent/test_repetition.py."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from ..models import AssistantMessage, Message, ToolCall, ToolResultMessage, UserMessage, plain_text, tool_calls

PERIODS = (1, 2)
"""A model is in a circle that makes one round again and again, or two in turn."""

Round = tuple[Any, ...]


def repeated_rounds(messages: Sequence[Message], at_most: int) -> int:
    """Count the newest rounds since a user spoke that only repeat earlier ones: the same calls with the same results.

    A call whose result changes, as one that looks whether something is ready, repeats nothing. Counts ``at_most``.
    """
    rounds = _newest_rounds(messages, at_most + max(PERIODS))
    return max(_repeating(rounds, period) for period in PERIODS)


def _repeating(rounds: list[Round], period: int) -> int:
    """``rounds`` are newest first."""
    pairs = zip(rounds, rounds[period:], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _newest_rounds(messages: Sequence[Message], limit: int) -> list[Round]:
    rounds: list[Round] = []
    results: dict[str, Any] = {}
    for message in reversed(messages):
        if isinstance(message, UserMessage) or len(rounds) == limit:
            break
        if isinstance(message, ToolResultMessage):
            results[message.tool_call_id] = (message.is_error, plain_text(message.content))
        elif isinstance(message, AssistantMessage) and (calls := tool_calls(message)):
            rounds.append(tuple(_said(call, results) for call in calls))
            results = {}
    return rounds


def _said(call: ToolCall, results: dict[str, Any]) -> Any:
    return call.name, call.arguments, call.arguments_error, results.get(call.id)
