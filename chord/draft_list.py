"""An array of a document while it is being changed, with the manners of a list.

The array is its base with *hunks* cut in: disjoint ranges of the base, in order, each replaced by slots of its own.
What lies between hunks is kept, and visited containers there are found by their index in the base, which never
changes. So an edit costs nothing for the length of the array, and the hunks are the splices to publish. After a sort,
or with too many hunks, one hunk covers everything (*dense*): from then on it is a plain Python list of slots, and
delta.py finds out by identity what became of the base's elements.

In hunks of an array that has a base, an assigned container is always wrapped in its draft; one that is not is an
element of the base. Proved by tests/chord/test_draft_list.py.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from typing import Any, Self, overload

from .draft import DraftBase, GrowingText, Lease, Slot, settle
from .values import Json, clone

_NO_BASE: list[Json] = []
_MAX_HUNKS = 32  # every access walks the hunks; beyond this a dense array is cheaper


class Hunk:
    """Elements `start` to `stop` (exclusive) of the base, replaced by `slots`."""

    __slots__ = ("slots", "start", "stop")

    def __init__(self, start: int, stop: int, slots: list[Slot]) -> None:
        self.start = start
        self.stop = stop
        self.slots = slots

    def growth(self) -> int:
        """By how much it lengthens the array."""
        return len(self.slots) - (self.stop - self.start)


class ListDraft(DraftBase, MutableSequence[Any], of=list):
    """An array being changed. Works as a list, plus `append_text`; see `DraftBase`.

    A slice of it is a plain list of what stands there; searching and comparing goes by value.
    """

    __slots__ = ("_base", "_hunks", "_size", "_visited", "dense")

    def __init__(self, base: list[Json], path: tuple[str | int, ...], lease: Lease) -> None:
        self._base = base
        self._hunks: list[Hunk] = []
        self._visited: dict[int, DraftBase] = {}  # kept containers, by index in the base
        self._size = len(base)
        self.dense = False
        self._path = path
        self._lease = lease

    @classmethod
    def _fresh(cls, container: list[Json], path: tuple[str | int, ...], lease: Lease) -> Self:
        draft = cls(_NO_BASE, path, lease)
        draft._hunks = [Hunk(0, 0, container)]
        draft._size = len(container)
        return draft

    # Where things stand.

    def _find(self, index: int) -> tuple[list[Slot] | None, int]:
        """The hunk's slots and the place in them, or None and the place in the base, of an index in range."""
        place = index
        for hunk in self._hunks:
            if place < hunk.start:
                break
            if place - hunk.start < len(hunk.slots):
                return hunk.slots, place - hunk.start
            place -= hunk.growth()
        return None, place

    def index_of_kept(self, place: int) -> int | None:
        """Where the element at `place` of the base stands now; None if a hunk replaced it. Not for a dense array."""
        shift = 0
        for hunk in self._hunks:
            if place < hunk.start:
                break
            if place < hunk.stop:
                return None
            shift += hunk.growth()
        return place + shift

    def _index(self, index: Any) -> int:
        if not self._lease.open:
            self._revoked()
        place = operator.index(index)
        if place < 0:
            place += self._size
        if not 0 <= place < self._size:
            raise IndexError(f"index {index} is out of range of {self._size} elements")
        return place

    def _range(self, part: slice) -> range:
        if not self._lease.open:
            self._revoked()
        return range(*part.indices(self._size))

    # Reading.

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in self._range(index)]
        slots, place = self._find(self._index(index))
        if slots is None:
            return self._visit(place)
        slot = slots[place]
        if type(slot) is dict or type(slot) is list:
            open_draft = DraftBase.over if self._base else DraftBase.fresh
            slot = slots[place] = open_draft(slot, (*self._path, place), self._lease)
        return slot.read() if type(slot) is GrowingText else slot

    def _visit(self, place: int) -> Any:
        element = self._base[place]
        if type(element) is not dict and type(element) is not list:
            return element
        draft = self._visited.get(place)
        if draft is None:
            draft = self._visited[place] = DraftBase.over(element, (*self._path, place), self._lease)
        return draft

    def __len__(self) -> int:
        if not self._lease.open:
            self._revoked()
        return self._size

    def __iter__(self) -> Iterator[Any]:
        index = 0
        while index < len(self):
            yield self[index]
            index += 1

    def __contains__(self, value: object) -> bool:
        return _plain(value) in self.current_json()

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """The first index whose element equals `value`. Raises `ValueError` where there is none."""
        elements: list[Json] = self.current_json()
        return elements.index(_plain(value), start, len(elements) if stop is None else stop)

    def count(self, value: object) -> int:
        """How many elements equal `value`."""
        return int(self.current_json().count(_plain(value)))

    def copy(self) -> list[Json]:
        """A detached plain copy, all the way down."""
        return self.to_json()  # type: ignore[no-any-return]

    def is_fresh(self) -> bool:
        """See `DraftBase.is_fresh`."""
        return self._base is _NO_BASE

    def settled(self) -> list[Json]:
        """See `DraftBase.settled`."""
        kept = self._base
        for place, draft in self._visited.items():
            element = draft.settled()
            if element is not self._base[place]:
                kept = kept.copy() if kept is self._base else kept
                kept[place] = element
        return kept if kept is not _NO_BASE and not self._hunks else self._cut(kept, settle)

    def _cut(self, kept: list[Slot], look: Callable[[Slot], Slot]) -> list[Slot]:
        """`kept`, which is as long as the base, with the hunks cut in."""
        slots: list[Slot] = []
        place = 0
        for hunk in self._hunks:
            slots += kept[place : hunk.start]
            slots += map(look, hunk.slots)
            place = hunk.stop
        return slots + kept[place:]

    # Writing.

    @overload
    def __setitem__(self, index: int, value: object) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[object]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._set_slice(self._range(index), list(value))
            return
        place = self._index(index)
        if isinstance(value, DraftBase) and value is self[place]:
            return  # what `draft[0] += [...]` ends with: the draft that stands there already
        self._put(place, self._wrap(self._admit(value, place), place))

    def _set_slice(self, places: range, values: list[object]) -> None:
        slots = self._admit_all(values, places.start)
        if places.step == 1:
            self._splice(places.start, len(places), slots)
            return
        if len(slots) != len(places):
            raise ValueError(f"expected {len(places)} values for an extended slice, got {len(slots)}")
        for place, slot in zip(places, slots, strict=True):
            self._put(place, slot)

    @overload
    def __delitem__(self, index: int) -> None: ...
    @overload
    def __delitem__(self, index: slice) -> None: ...
    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            places = self._range(index)
            if places.step == 1:
                self._splice(places.start, len(places), [])
            else:
                slots = self._become_dense()
                del slots[index]
                self._size = len(slots)
        else:
            self._splice(self._index(index), 1, [])

    def insert(self, index: int, value: object) -> None:
        """Insert `value` before `index`, which is clamped as in a list."""
        places = self._range(slice(index, None))
        self._splice(places.start, 0, [self._wrap(self._admit(value, places.start), places.start)])

    def append(self, value: object) -> None:
        """Add `value` at the end."""
        self._splice(len(self), 0, [self._wrap(self._admit(value, self._size), self._size)])

    def extend(self, values: Iterable[object]) -> None:
        """Add all `values` at the end. All are checked before the first one is added."""
        slots = self._admit_all(list(values), self._size)
        self._splice(self._size, 0, slots)

    def pop(self, index: int = -1) -> Any:
        """Remove an element and return a detached copy of it."""
        place = self._index(index)
        slots, at = self._find(place)
        slot = slots[at] if slots is not None else self._visited.get(at, self._base[at])
        self._splice(place, 1, [])
        return clone(settle(slot))

    def remove(self, value: object) -> None:
        """Remove the first element that equals `value`. Raises `ValueError` where there is none."""
        del self[self.index(value)]

    def clear(self) -> None:
        """Remove all elements."""
        del self[:]

    def reverse(self) -> None:
        """Turn the order round."""
        if len(self) > 1:
            self._become_dense().reverse()

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        """Sort in place, stable. `key` is given what reading gives: drafts of containers."""
        ranks = self.current_json() if key is None else [key(element) for element in self]
        order = sorted(range(len(ranks)), key=ranks.__getitem__, reverse=reverse)
        if order != list(range(len(ranks))):
            slots = self._become_dense()
            slots[:] = [slots[place] for place in order]

    def append_text(self, index: int, chunk: str) -> None:
        """Append `chunk` to the text at `index`, in O(chunk): for text that arrives in pieces.

        Raises:
            IndexError: there is nothing at `index`.
            InvalidJson: it is no text, or `chunk` is not valid text.
        """
        place = self._index(index)
        slots, at = self._find(place)
        old = self._base[at] if slots is None else slots[at]
        slot = self._grown(old, chunk, place)
        if slot is not old:
            self._put(place, slot)

    def __iadd__(self, values: Iterable[object]) -> Self:
        self.extend(values)
        return self

    def _admit_all(self, values: list[object], start: int) -> list[Slot]:
        """The slots for values that are to stand from `start` on; all are checked before the first is taken."""
        if not self._lease.open:
            self._revoked()
        return [self._wrap(self._admit(value, place), place) for place, value in enumerate(values, start)]

    def _wrap(self, item: Json, place: int) -> Slot:
        if type(item) is dict or type(item) is list:
            return DraftBase.fresh(item, (*self._path, place), self._lease)
        return item

    def _put(self, place: int, slot: Slot) -> None:
        slots, at = self._find(place)
        if slots is None:
            self._splice(place, 1, [slot])
        else:
            slots[at] = slot

    def _splice(self, index: int, count: int, slots: list[Slot]) -> None:
        """Put `slots` in the place of `count` elements from `index`."""
        if not count and not slots:
            return
        end = index + count
        hunks = self._hunks
        first, shift = 0, 0  # shift: place in the array minus place in the base, between hunks
        while first < len(hunks) and hunks[first].start + shift + len(hunks[first].slots) < index:
            shift += hunks[first].growth()
            first += 1
        start, head = index - shift, 0
        if first < len(hunks) and hunks[first].start <= start:  # touches the left end: the front of it stays
            start, head = hunks[first].start, start - hunks[first].start
        last, beyond = first, 0
        while last < len(hunks) and hunks[last].start + shift <= end:  # overlaps, or touches the right end
            beyond = max(0, hunks[last].start + shift + len(hunks[last].slots) - end)
            shift += hunks[last].growth()
            last += 1
        self._size += len(slots) - count
        merged = Hunk(start, end - shift + beyond, slots)
        self._merge(first, last, merged, head, beyond)
        if len(hunks) > _MAX_HUNKS:
            self._become_dense()

    def _merge(self, first: int, last: int, merged: Hunk, head: int, beyond: int) -> None:
        """Put `merged` in the place of hunks `first` to `last`, so many slots of which stay around its own."""
        hunks = self._hunks
        if last == first + 1 and hunks[first].start == merged.start and hunks[first].stop == merged.stop:
            slots = hunks[first].slots
            slots[head : len(slots) - beyond] = merged.slots
            return
        if head:
            merged.slots[:0] = hunks[first].slots[:head]
        if beyond:
            merged.slots += hunks[last - 1].slots[-beyond:]
        hunks[first:last] = [merged]

    def _become_dense(self) -> list[Slot]:
        """Cover the whole array with one hunk and return its slots."""
        if not self.dense:
            kept: list[Slot] = self._base.copy()
            for place, draft in self._visited.items():
                kept[place] = draft
            self._hunks = [Hunk(0, len(kept), self._cut(kept, lambda slot: slot))]
            self._visited = {}
            self.dense = True
        return self._hunks[0].slots


def _plain(value: object) -> object:
    return value.current_json() if isinstance(value, DraftBase) else value
