"""Whether anybody is inside of a session's incarnation, and when it was last used.

Whoever waits for something of an incarnation is counted until it has gone on, so that "nobody" means that no code at all
is about to use it. Proved by tests/actors/session/test_passivation.py.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, runtime_checkable

from ..runtime import Clock


class Use:
    """``with use:`` while something of the incarnation is waited for."""

    __slots__ = ("_clock", "_ended", "inside", "last")

    def __init__(self, clock: Clock, ended: Callable[[], object]) -> None:
        self._clock = clock
        self._ended = ended
        self.inside = 0
        self.last = clock.monotonic()
        """When it was used last, in monotonic seconds."""

    def __enter__(self) -> None:
        self.inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.inside -= 1
        if not self.inside:
            self.note()

    def note(self) -> None:
        """Take note that it is used at this moment: from now on it may have become idle."""
        self.last = self._clock.monotonic()
        self._ended()


@runtime_checkable
class Resting(Protocol):
    """A part that keeps things which it can read again."""

    def rest(self, before: float) -> bool:
        """Let go of what was not used since ``before`` (monotonic seconds); tell whether anything is left to let go."""
