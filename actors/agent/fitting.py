"""Results of one round that are too long together are sent shortened; what is stored stays whole. Pure.

Each is bounded for itself when it is made, but how many come in a round is the model's to decide. What a round may take
depends on the model's window alone, so a longer transcript's request still begins with the shorter one's.
Proved by tests/actors/agent/test_fitting.py.
"""

from collections.abc import Iterator, Sequence
from typing import Self

import msgspec

from ..models import Message, Text, ToolResultMessage, plain_text, text
from ..models.growing import folded

SHARE = 0.5
"""Of the window, for the results of one round."""
CHARS_PER_TOKEN = 3.5
LEAST = 200
"""Characters that are left of a result in any case."""


class Longest:
    """The length of the longest round of results among the messages that were added: a fold."""

    def __init__(self) -> None:
        self.chars = 0
        self._round = 0

    def add(self, message: Message) -> None:
        """Take in the next message."""
        self._round = self._round + _length(message) if isinstance(message, ToolResultMessage) else 0
        self.chars = max(self.chars, self._round)

    def fork(self) -> Self:
        """Make a copy that goes on by itself."""
        copy = type(self)()
        copy.chars, copy._round = self.chars, self._round
        return copy


def fit_results(messages: Sequence[Message], window: int) -> Sequence[Message]:
    """Shorten the longest results of every round that takes more than its share of a window (tokens; 0: unknown).

    Where none does, as almost always, the messages themselves are given, and only those that are new are looked at.
    """
    limit = int(window * SHARE * CHARS_PER_TOKEN)
    if window <= 0 or folded(messages, Longest, Longest).chars <= limit:
        return messages
    fitted = list(messages)
    for start, end in _rounds(messages):
        lengths = [_length(messages[index]) for index in range(start, end)]
        if sum(lengths) > limit:
            level = max(LEAST, water_level(lengths, limit))
            fitted[start:end] = [_shortened(messages[index], level) for index in range(start, end)]
    return fitted


def water_level(lengths: Sequence[int], limit: int) -> int:
    """Give the length to which the longest are cut so that all together keep within a limit."""
    left, ordered = limit, sorted(lengths)
    for index, length in enumerate(ordered):
        share = left // (len(ordered) - index)
        if length > share:
            return share
        left -= length
    return ordered[-1] if ordered else limit


def _rounds(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for index, message in enumerate([*messages, None]):
        if isinstance(message, ToolResultMessage):
            start = index if start is None else start
        elif start is not None:
            yield start, index
            start = None


def _length(message: Message) -> int:
    assert isinstance(message, ToolResultMessage)
    return len(plain_text(message.content))


def _shortened(message: Message, level: int) -> Message:
    """Keep beginning and end of a result's text, and say what is missing between them."""
    assert isinstance(message, ToolResultMessage)
    said = plain_text(message.content)
    half = level // 2
    note = (
        f"\n[... {len(said) - 2 * half:,} characters left out: the results of this round are too long together ...]\n"
    )
    if len(said) <= 2 * half + len(note):
        return message
    others = [block for block in message.content if not isinstance(block, Text)]
    return msgspec.structs.replace(message, content=[text(said[:half] + note + said[len(said) - half :]), *others])
