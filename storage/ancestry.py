"""Which part of which conversation's entries a fork shows: pure arithmetic over the chain of its ancestors."""

from collections.abc import Iterable

import msgspec

from .records import MAX_ID


class Segment(msgspec.Struct, frozen=True):
    """The entries of one conversation between two inclusive ids."""

    conversation_id: int
    low: int
    high: int


def segments(chain: Iterable[tuple[int, int | None]], low: int = 1, high: int = MAX_ID) -> list[Segment]:
    """List what is visible between two inclusive ids, newest segment first; segments that would be empty are left out.

    ``chain`` gives a conversation and then its ancestors, each with the entry at which it left its parent (None: no
    parent). Every ancestor is capped by all forks below it, and a fork's own entries lie above its fork point, so the
    segments never overlap.
    """
    found = []
    for conversation_id, at in chain:
        start = max(low, 1 if at is None else at + 1)
        if start <= high:
            found.append(Segment(conversation_id, start, high))
        if at is None or at < low:
            break
        high = min(high, at)
    return found
