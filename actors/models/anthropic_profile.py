"""What the Anthropic models take: windows, ways of thinking, and what may change in mid-conversation.

Names, windows and capabilities are those of the vendor's model list as of November 2026. A model that is not listed,
such as any at a compatible server, gets the plain profile, which asks for nothing a server could refuse.
"""

from typing import Literal, TypeAlias

import msgspec

from .messages import ThinkingLevel

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one model takes.

    `thinking`: `adaptive` models choose how long they think within an effort, `budget` models get a number of tokens,
    `none` are never asked to. `changes`: system messages and tool changes may stand between turns, so that the prompt
    never has to be rewritten. `binds`: thinking is only valid after the exact messages it was thought after.
    `context_window` and `max_tokens` are in tokens; 0 is an unknown window.
    """

    context_window: int = 0
    max_tokens: int = 8_192
    thinking: Literal["adaptive", "budget", "none"] = "none"
    efforts: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
    changes: bool = False
    binds: bool = False
    images: bool = True


_NO_XHIGH: tuple[Effort, ...] = ("low", "medium", "high", "max")

_BOUND = Profile(context_window=1_000_000, max_tokens=128_000, thinking="adaptive", changes=True, binds=True)
_FIFTH = Profile(context_window=1_000_000, max_tokens=128_000, thinking="adaptive", changes=True)
_SEVENTH = Profile(context_window=1_000_000, max_tokens=128_000, thinking="adaptive")
_OPUS_4_6 = Profile(context_window=1_000_000, max_tokens=128_000, thinking="adaptive", efforts=_NO_XHIGH)
_SONNET_4_6 = Profile(context_window=1_000_000, max_tokens=64_000, thinking="adaptive", efforts=_NO_XHIGH)
_BUDGET = Profile(context_window=200_000, max_tokens=64_000, thinking="budget")

_PROFILES = {
    "claude-fable-5-2": _BOUND,
    "claude-fable-5-1": _BOUND,
    "claude-mythos-5-2": _BOUND,
    "claude-mythos-5-1": _BOUND,
    "claude-opus-5-5": _BOUND,
    "claude-sonnet-5-5": _BOUND,
    "claude-haiku-5-5": _BOUND,
    "claude-fable-5": _FIFTH,
    "claude-mythos-5": _FIFTH,
    "claude-opus-5": _FIFTH,
    "claude-opus-4-8": _FIFTH,
    "claude-sonnet-5": _SEVENTH,
    "claude-opus-4-7": _SEVENTH,
    "claude-mythos-preview": _SEVENTH,
    "claude-opus-4-6": _OPUS_4_6,
    "claude-sonnet-4-6": _SONNET_4_6,
    "claude-opus-4-5": _BUDGET,
    "claude-sonnet-4-5": _BUDGET,
    "claude-haiku-4-5": _BUDGET,
}

_LEVELS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")

# Tokens of thinking per level for models that take a budget; the vendor's least is 1,024.
_BUDGETS: dict[ThinkingLevel, int] = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 49_152,
}
LEAST_BUDGET = 1_024


def profile_of(model_id: str) -> Profile:
    """The profile of a model, dated ids (`claude-haiku-4-5-20251001`) included; the plain one when it is not known."""
    undated = model_id[:-9] if model_id[-9:-8] == "-" and model_id[-8:].isdigit() else model_id
    return _PROFILES.get(undated) or Profile()


def effort_of(level: ThinkingLevel, efforts: tuple[Effort, ...]) -> Effort:
    """The effort for a level: itself, else the next higher one that the model has, else its highest."""
    wanted = 0 if level in ("off", "minimal") else _LEVELS.index(level)
    return next((effort for effort in _LEVELS[wanted:] if effort in efforts), efforts[-1])


def budget_of(level: ThinkingLevel, max_tokens: int) -> int | None:
    """Tokens of thinking for a level within an answer of `max_tokens`; None when too little would be left to say."""
    budget = min(_BUDGETS.get(level, 0), max_tokens - LEAST_BUDGET)
    return budget if budget >= LEAST_BUDGET else None
