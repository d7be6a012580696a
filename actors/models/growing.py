"""Sequences that only grow, views of them that never change, and what can be said of a view without reading it anew.

A transcript is read by every request and grows by a few messages in between, so nothing here costs its length: a view
is made without copying, and a *fold* (the prompt, the weight, the wire form of messages) is kept with the sequence and
goes on where it stood. Proved by tests/actors/models/test_growing.py.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar, overload

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
F = TypeVar("F", bound="Fold[Any]")

MAX_FOLDS = 8
"""How many folds a sequence keeps: a few for each model that is asked about it by turns."""


class Fold(Protocol[T_contra]):
    """A state that items are added to, one after the other."""

    def add(self, item: T_contra, /) -> None:
        """Take in the next item."""

    def fork(self) -> Self:
        """Make a state that goes on from here without changing this one. It is used up before this one goes on."""


class Growing(Generic[T]):
    """A list that only grows."""

    __slots__ = ("_folds", "items")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.items: list[T] = list(items)
        """To be appended to, and read; never changed in any other way."""
        self._folds: dict[Hashable, tuple[Any, int]] = {}

    def view(self, tail: Iterable[T] = ()) -> "View[T]":
        """Make a view of all there is now, with a few items more."""
        return View(self, len(self.items), tuple(tail))

    def folded(self, count: int, key: Hashable, make: Callable[[], F]) -> F:
        """Give the fold of the first ``count`` items: what is kept under ``key`` goes on, or a new one is made."""
        fold, done = self._folds.pop(key, (None, 0))
        if done > count:  # a view of the past: the kept fold stays with the present
            self._folds[key] = (fold, done)
            return fold_up(self.items[:count], make())
        fold = fold_up(self.items[done:count], make() if fold is None else fold)
        while len(self._folds) >= MAX_FOLDS:
            del self._folds[next(iter(self._folds))]
        self._folds[key] = (fold, count)
        return fold


class View(Sequence[T]):
    """An immutable sequence: the first items of one that grows, and a few more. Equal to any sequence of equal items."""

    __slots__ = ("_count", "_growing", "_tail")

    def __init__(self, growing: Growing[T], count: int, tail: tuple[T, ...]) -> None:
        self._growing = growing
        self._count = count
        self._tail = tail

    def __len__(self) -> int:
        return self._count + len(self._tail)

    def __iter__(self) -> Iterator[T]:
        yield from islice(self._growing.items, self._count)
        yield from self._tail

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return self._growing.items[at] if at < self._count else self._tail[at - self._count]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal by content, which may not be hashable

    def __repr__(self) -> str:
        return repr(list(self))

    def folded(self, key: Hashable, make: Callable[[], F]) -> F:
        """Give the fold of the view's items, to be read at once; it costs what has been added since it was last asked."""
        return fold_up(self._tail, self._growing.folded(self._count, key, make).fork())


def folded(items: Iterable[T], key: Hashable, make: Callable[[], F]) -> F:
    """Give the fold of any items, to be read at once; of a `View`, what was folded before is not folded again."""
    return items.folded(key, make) if isinstance(items, View) else fold_up(items, make())


def fold_up(items: Iterable[T], fold: F) -> F:
    """Add all items to a fold and give it back."""
    for item in items:
        fold.add(item)
    return fold


class Branch(Generic[T]):
    """A list of a fold: it grows at its end, and a fork of it goes on without copying it."""

    __slots__ = ("_before", "_own")

    def __init__(self, before: "Branch[T] | None" = None) -> None:
        self._before = before
        self._own: list[T] = []

    def append(self, item: T) -> None:
        """Add an item."""
        self._own.append(item)

    def fork(self) -> "Branch[T]":
        """Make a list that begins with this one, as long as this one does not grow."""
        return Branch(self)

    def whole(self) -> list[T]:
        """Give all items in a list of the caller's own: the one step that costs the length, at a pointer an item."""
        whole = [] if self._before is None else self._before.whole()
        whole += self._own
        return whole
