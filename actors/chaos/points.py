"""The points of a run, at which it can be crashed: both sides of every commit, and of every external effect.

A point is named by what happens there, not by a count of all that came before: so it is found again in another run of the
same scenario whose threads took their turns otherwise. Commits that become durable together have one point, named after
the first of them. The arrival of a message at its receiver is a commit, too.
Proved by tests/actors/chaos/test_points.py.
"""

from collections.abc import Sequence
from typing import Literal, Self

import msgspec

from ...storage.records import Batch, MessageRecord
from .trace import Began

Side = Literal["before", "after"]
Kind = Literal["commit", "hand-over", "tool", "model", "task"]
SIDES: tuple[Side, ...] = ("before", "after")


class Point(msgspec.Struct, frozen=True, order=True):
    """One side of one thing that happens: "before commit a/7" is before commit 7 of session a is durable."""

    side: Side
    what: str

    def __str__(self) -> str:
        return f"{self.side} {self.what}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` has given. Raises ValueError."""
        side, _, what = text.partition(" ")
        if side not in SIDES or not what:
            raise ValueError(f"expected a point such as 'before commit a/7', got: {text!r}")
        return msgspec.convert({"side": side, "what": what}, cls)


class Crash(msgspec.Struct, frozen=True):
    """What dies at a point: the whole process, or one actor, by its id."""

    point: Point
    actor: str | None = None

    def __str__(self) -> str:
        return str(self.point) if self.actor is None else f"{self.point}: {self.actor}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` has given. Raises ValueError."""
        point, _, actor = text.partition(": ")
        return cls(Point.parse(point), actor or None)


class Reached(msgspec.Struct, frozen=True):
    """A point that a run has come to, in which of its lives, and the actors that could be killed there."""

    point: Point
    kind: Kind
    life: int
    actors: list[str]


def commits(batches: Sequence[Batch]) -> list[str]:
    """Name the commits of a group: its sides are the same for all of them."""
    return [f"commit {batch.session}/{batch.seq}" for batch in batches]


def commit_kind(batches: Sequence[Batch]) -> Kind:
    """Tell whether a group brings a message from another session to its receiver."""
    rows = (write for batch in batches for write in batch.writes if isinstance(write, MessageRecord))
    brought = any(row.status == "queued" and row.sender is not None and row.sender.session for row in rows)
    return "hand-over" if brought else "commit"


class Counter:
    """Names effects by tool or model, and by how often that was called before in this run."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def name(self, effect: Began) -> str:
        """Give an effect its name, the same one again for both of its sides."""
        if effect.number not in self._names:
            what = _what(effect)
            self._counts[what] = self._counts.get(what, 0) + 1
            self._names[effect.number] = f"{what} #{self._counts[what]}"
        return self._names[effect.number]


def _what(effect: Began) -> str:
    return f"request to {effect.name}" if effect.kind == "model" else f"call of {effect.name}"
