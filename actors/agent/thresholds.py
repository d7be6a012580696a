"""When a context is compacted and how far, for a model's window. Pure.

Set sizes hold as they are for windows that are large beside them; in a smaller one they shrink with it, so that one
compaction is enough there, too. Proved by tests/actors/agent/test_thresholds.py.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ..conversation.context import ContextView
from ..conversation.cutting import select_range, without_prompt
from ..conversation.settings import CompactionPolicy
from ..models import AssistantMessage, Message, SystemMessage, estimate_tokens

Need = Literal["blocking", "background"]
"""Whether a request waits for a compaction, or one goes on beside it."""

MIN_PIECE = 1_000
"""Tokens of history in the smallest piece that a summarizer is asked about."""
_UNKNOWN_PIECE = 60_000
_PROMPT = 1_024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in tokens. ``blocking`` and ``background`` are contexts above which is compacted (None: at no size)."""

    blocking: int | None
    background: int | None
    keep: int
    """How much of the newest context stays word for word."""
    summary: int
    """What a summary may have."""
    piece: int
    """How much one summarizing request holds: history, and notes on the history before it."""


def limits(policy: CompactionPolicy, window: int, max_tokens: int) -> Limits:
    """Give the sizes for a model with this window and this limit of an answer (not positive: unknown)."""
    summary = policy.reserve_tokens * 4 // 5
    if max_tokens > 0:
        summary = min(summary, max_tokens)
    if window <= 0:
        return Limits(
            blocking=None, background=None, keep=policy.keep_recent_tokens, summary=summary, piece=_UNKNOWN_PIECE
        )
    blocking = window - min(policy.reserve_tokens, window // 2)
    summary = min(summary, blocking // 4)
    background = min(policy.background_tokens, blocking // 4)
    return Limits(
        blocking=blocking,
        background=blocking - background if background > 0 else None,
        keep=min(policy.keep_recent_tokens, blocking // 3),
        summary=summary,
        piece=max(MIN_PIECE, window - summary - min(_PROMPT, window // 8)),
    )


def context_size(view: ContextView, planned: Iterable[Message] = ()) -> int:
    """Estimate the tokens of the next request: what a provider has reported since the head marker, and all that came later.

    A usage from before the marker still counts what the summary has replaced, so it says nothing.
    """
    since = 0 if view.head is None else view.head.id
    for index in range(len(view.entries) - 1, -1, -1):
        if view.entries[index].id > since:
            reported = _reported(view.contributions[index])
            if reported is not None:
                return reported + estimate_tokens(_said(view.contributions[index + 1 :])) + estimate_tokens(planned)
    return estimate_tokens(_said(view.contributions)) + estimate_tokens(planned)


def _said(contributions: Sequence[Sequence[Message]]) -> Iterable[Message]:
    return (message for contribution in contributions for message in contribution)


def _reported(contribution: Sequence[Message]) -> int | None:
    """Give the usage of an answer, with what its entry says after it."""
    for index in range(len(contribution) - 1, -1, -1):
        message = contribution[index]
        if isinstance(message, AssistantMessage):
            used = message.usage
            total = used.total_tokens or used.input + used.output + used.cache_read + used.cache_write
            return total + estimate_tokens(contribution[index + 1 :]) if total else None
    return None


def due(
    policy: CompactionPolicy,
    limits: Limits,
    view: ContextView,
    planned: Sequence[Message],
    *,
    gave_up_at: int | None = None,
) -> Need | None:
    """Decide whether a request should be preceded or accompanied by a compaction.

    One that would replace less than half of what it keeps, or leave the context above the threshold, is not worth its
    price: what fills the context is then nothing that a summary could make smaller, and it would be called for again and
    again. Nor is one soon after another of which nothing came when ``gave_up_at`` was the newest entry.
    """
    if not policy.enabled or limits.blocking is None:
        return None
    size = context_size(view, planned)
    threshold = limits.blocking if size > limits.blocking else limits.background
    if threshold is None or size <= threshold or not _has_grown(view, gave_up_at, limits.keep // 2):
        return None
    cut = select_range(view, limits.keep)
    if cut is None or cut.new_tokens() < max(1, limits.keep // 2):
        return None
    prompt = [*planned, *(message for message in view.messages if isinstance(message, SystemMessage))]
    kept = without_prompt(_said(view.contributions[len(cut.entries) :]))
    if estimate_tokens(kept) + estimate_tokens(prompt) > threshold:
        return None
    return "blocking" if threshold == limits.blocking else "background"


def _has_grown(view: ContextView, since: int | None, tokens: int) -> bool:
    if since is None:
        return True
    said = zip(view.entries, view.contributions, strict=True)
    return sum(estimate_tokens(contribution) for entry, contribution in said if entry.id > since) >= tokens


def keep_after_overflow(view: ContextView, limits: Limits) -> int:
    """How much to keep when a provider has found a context too long: at most half, since its estimate was wrong."""
    return min(limits.keep, estimate_tokens(_said(view.contributions)) // 2)


def largest(view: ContextView) -> tuple[int, int]:
    """Name the entry that says most, and its estimated tokens: what to look at when nothing else helps."""
    sizes = [estimate_tokens(contribution) for contribution in view.contributions]
    most = max(range(len(sizes)), key=sizes.__getitem__)
    return view.entries[most].id, sizes[most]
