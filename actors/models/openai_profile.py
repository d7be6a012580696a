"""What the OpenAI models take: windows, reasoning, and what their servers understand.

Windows are as of November 2026; the `gpt-6` and `gpt-5` families accept more, at twice the price, so the window here
is where the price changes. A model that is not listed, such as any at a compatible server, gets the plain profile.
"""

import msgspec

from .messages import ThinkingLevel


class OpenAIProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What one model at one server takes.

    `reasons`: the model may be asked for an effort. `vendor`: the server is the vendor's own, so newer parameters and
    system messages between turns are understood; other servers get the oldest form of everything. `reasoning_field`
    names the field in which a server demands the reasoning of every call back, if it does (chat only). Tokens; 0 is an
    unknown window.
    """

    context_window: int = 0
    max_tokens: int = 8_192
    reasons: bool = False
    vendor: bool = False
    images: bool = True
    reasoning_field: str | None = None


IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""Pictures that the vendor's models take; one of another type would have the whole request refused."""

# By prefix, the first that fits.
_PROFILES = (
    ("gpt-6", OpenAIProfile(context_window=272_000, max_tokens=128_000, reasons=True)),
    ("gpt-5.3-chat", OpenAIProfile(context_window=128_000, max_tokens=16_384)),
    ("gpt-5", OpenAIProfile(context_window=272_000, max_tokens=128_000, reasons=True)),
    ("gpt-4.1", OpenAIProfile(context_window=1_047_576, max_tokens=32_768)),
    ("gpt-4o", OpenAIProfile(context_window=128_000, max_tokens=16_384)),
    ("o3", OpenAIProfile(context_window=200_000, max_tokens=100_000, reasons=True)),
    ("o4", OpenAIProfile(context_window=200_000, max_tokens=100_000, reasons=True)),
)


def openai_profile_of(model_id: str) -> OpenAIProfile:
    """The profile of a model, by the family its name begins with; the plain one when it is not known."""
    return next((profile for prefix, profile in _PROFILES if model_id.startswith(prefix)), OpenAIProfile())


def reasoning_effort(level: ThinkingLevel) -> str | None:
    """The effort for a level: the same word; nothing for `off`, which leaves the model its default."""
    return None if level == "off" else level
