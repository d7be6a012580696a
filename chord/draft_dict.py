"""An object of a document while it is being changed, with the manners of a dict.

Edits lie in `_slots`, over `_base`; see draft.py for what a slot is. Proved by tests/chord/test_draft_dict.py.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Self

from .draft import DraftBase, GrowingText, Lease, Slot, settle
from .errors import InvalidJson, quote
from .values import ABSENT, Json, clone, copy_below

GONE: Any = object()
"""The slot of a key of the base that was deleted."""

_NO_BASE: dict[str, Json] = {}


class Draft(DraftBase, MutableMapping[str, Any], of=dict):
    """An object being changed. Works as a dict, plus `append_text`; see `DraftBase`.

    Keys iterate in the order of the base, new ones after it. Iteration goes over the keys there were at its start.
    """

    __slots__ = ("_base", "_size", "_slots")

    def __init__(self, base: dict[str, Json], path: tuple[str | int, ...], lease: Lease) -> None:
        self._base = base
        self._slots: dict[str, Slot] = {}
        self._size = len(base)
        self._path = path
        self._lease = lease

    @classmethod
    def _fresh(cls, container: dict[str, Json], path: tuple[str | int, ...], lease: Lease) -> Self:
        draft = cls(_NO_BASE, path, lease)
        draft._slots = container
        draft._size = len(container)
        return draft

    # Reading.

    def __getitem__(self, key: str) -> Any:
        if not self._lease.open:
            self._revoked()
        slot = self._slots.get(key, ABSENT)
        if slot is ABSENT:
            slot = self._base[key]
            if type(slot) is dict or type(slot) is list:
                slot = self._slots[key] = DraftBase.over(slot, (*self._path, key), self._lease)
        elif type(slot) is dict or type(slot) is list:
            slot = self._slots[key] = DraftBase.fresh(slot, (*self._path, key), self._lease)
        elif type(slot) is GrowingText:
            return slot.read()
        elif slot is GONE:
            raise KeyError(key)
        return slot

    def __contains__(self, key: object) -> bool:
        return self._slot(key) is not ABSENT

    def __len__(self) -> int:
        if not self._lease.open:
            self._revoked()
        return self._size

    def __iter__(self) -> Iterator[str]:
        for key in self._keys():
            if not self._lease.open:
                self._revoked()
            yield key

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def get(self, key: str, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        try:
            return self[key]
        except KeyError:
            return default

    def copy(self) -> dict[str, Json]:
        """A detached plain copy, all the way down."""
        return self.to_json()  # type: ignore[no-any-return]

    def is_fresh(self) -> bool:
        """See `DraftBase.is_fresh`."""
        return self._base is _NO_BASE

    def settled(self) -> dict[str, Json]:
        """See `DraftBase.settled`."""
        value = self._base if self._base is not _NO_BASE else self._slots.copy()
        for key, slot in self._slots.items():
            item = settle(slot)
            if item is not self._base.get(key, ABSENT):
                value = value.copy() if value is self._base else value
                if item is GONE:
                    del value[key]
                else:
                    value[key] = item
        return value

    def _keys(self) -> list[str]:
        slots, base = self._slots, self._base
        old = [key for key in base if slots.get(key) is not GONE] if slots else list(base)
        return old + [key for key in slots if key not in base]

    def _slot(self, key: Any) -> Slot:
        """The slot at `key`, or ABSENT."""
        if not self._lease.open:
            self._revoked()
        slot = self._slots.get(key, ABSENT)
        if slot is ABSENT:
            return self._base.get(key, ABSENT)
        return ABSENT if slot is GONE else slot

    # Writing.

    def __setitem__(self, key: str, value: object) -> None:
        old = self._slot(key)
        if value is old and value is not ABSENT:
            return  # what `draft["rows"] += [...]` ends with: the draft that stands there already
        if type(key) is not str:
            raise InvalidJson(f"expected a str as key, got {quote(key)}")
        item = self._admit(value, key, old)
        self._slots[key if key.isascii() else self._admit(key, key)] = item
        self._size += old is ABSENT

    def __delitem__(self, key: str) -> None:
        if self._slot(key) is ABSENT:
            raise KeyError(key)
        self._size -= 1
        if key in self._base:
            self._slots[key] = GONE
        else:
            del self._slots[key]

    def append_text(self, key: str, chunk: str) -> None:
        """Append `chunk` to the text at `key`, in O(chunk): for text that arrives in pieces.

        Raises:
            KeyError: there is nothing at `key`.
            InvalidJson: it is no text, or `chunk` is not valid text.
        """
        slot = self._slot(key)
        if slot is ABSENT:
            raise KeyError(key)
        self._slots[key] = self._grown(slot, chunk, key)

    def pop(self, key: str, default: Any = ABSENT) -> Any:
        """Remove `key` and return a detached copy of its value, or `default` where there is none."""
        slot = self._slot(key)
        if slot is ABSENT:
            if default is ABSENT:
                raise KeyError(key)
            return default
        del self[key]
        return clone(settle(slot))

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and return it with a detached copy of its value."""
        if not len(self):
            raise KeyError("popitem(): the draft is empty")
        key = self._keys()[-1]
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all keys."""
        if len(self):
            self._slots = dict.fromkeys(self._base, GONE)
            self._size = 0

    def setdefault(self, key: str, default: object = None) -> Any:
        """The value at `key`, which is set to `default` first where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set all keys of a mapping or of pairs. All values are checked before the first one is set."""
        if not self._lease.open:
            self._revoked()
        items = copy_below(dict(*args, **kwargs), len(self._path), halves=self._lease.halves, path=self._path)
        self._size += sum(self._slot(key) is ABSENT for key in items)
        self._slots.update(items)

    def __ior__(self, other: Mapping[str, object]) -> Self:
        self.update(other)
        return self

    def __or__(self, other: Mapping[str, object]) -> dict[str, Any]:
        return {**self.copy(), **other}

    def __ror__(self, other: Mapping[str, object]) -> dict[str, Any]:
        return dict(other) | self.copy()
