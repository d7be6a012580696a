"""Where a transcript may be cut for a compaction: what is summarized, what is kept word for word. Pure.

A cut never comes between a call and its result, wherever the result stands, and never right before a result or a change
of the prompt. Proved by tests/actors/conversation/test_cutting.py.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ...storage.records import EntryRecord
from ..models import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    estimate_tokens,
    tool_calls,
)
from .context import ContextView
from .rounds import Rounds


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary replaces: ``entries``, the head marker first, and what they say; ``first_kept`` comes next."""

    first_kept: int
    entries: Sequence[EntryRecord]
    contributions: Sequence[Sequence[Message]]

    @property
    def messages(self) -> list[Message]:
        """What the entries say, each call followed by its result."""
        rounds = Rounds()
        for contribution in self.contributions:
            for message in contribution:
                rounds.add(message)
        return [*rounds.settled.items, *rounds.tail()]

    def new_tokens(self) -> int:
        """Estimate what a summary would take the place of for the first time: not the prompt, which is written anew."""
        said = zip(self.entries, self.contributions, strict=True)
        return sum(estimate_tokens(without_prompt(contribution)) for entry, contribution in said if entry.head is None)


def without_prompt(messages: Iterable[Message]) -> list[Message]:
    """Leave out what changes the prompt."""
    return [message for message in messages if not isinstance(message, SystemMessage)]


def select_range(view: ContextView, keep_tokens: int) -> Range | None:
    """Choose what to summarize so that at least the newest ``keep_tokens`` (estimated) stay; None when nothing is left.

    The cut is the first place that allows one from the entry on with which that many are reached, or else the last one.
    """
    reached = _reached(view, keep_tokens)
    places = _places(view)
    if reached is None or not places:
        return None
    cut = next((place for place in places if place >= reached), places[-1])
    says = any(without_prompt(said) for said in view.contributions[_begin(view) : cut])
    return range_before(view, view.entries[cut].id) if says else None


def range_before(view: ContextView, first_kept: int) -> Range:
    """Give the range that a summary replaces whose first kept entry is known."""
    begin = _begin(view)
    cut = sum(entry.id < first_kept for entry in view.entries[begin:]) + begin
    return Range(first_kept=first_kept, entries=view.entries[:cut], contributions=view.contributions[:cut])


def _begin(view: ContextView) -> int:
    """Where the entries behind the head marker begin."""
    return 0 if view.head is None else 1


def _reached(view: ContextView, keep_tokens: int) -> int | None:
    tokens = 0
    for index in range(len(view.entries) - 1, _begin(view) - 1, -1):
        tokens += estimate_tokens(view.contributions[index])
        if tokens >= keep_tokens:
            return index
    return None


def _places(view: ContextView) -> list[int]:
    """Where a cut may be, in transcript order."""
    begin = _begin(view)
    barred = _between_calls_and_results(view.contributions)
    return [
        index
        for index in range(begin, len(view.entries))
        if isinstance(next(iter(view.contributions[index]), None), UserMessage | AssistantMessage) and not barred[index]
    ]


def _between_calls_and_results(contributions: Sequence[Sequence[Message]]) -> list[bool]:
    """Tell of each place whether a result that comes from there on answers a call before it."""
    opened: dict[str, int] = {}
    change = [0] * (len(contributions) + 1)
    for index, contribution in enumerate(contributions):
        for message in contribution:
            if isinstance(message, AssistantMessage):
                opened.update((call.id, index) for call in tool_calls(message))
            elif isinstance(message, ToolResultMessage) and message.tool_call_id in opened:
                change[opened[message.tool_call_id] + 1] += 1
                change[index + 1] -= 1
    barred, depth = [], 0
    for index in range(len(contributions)):
        depth += change[index]
        barred.append(depth > 0)
    return barred
