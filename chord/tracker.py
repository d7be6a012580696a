"""One document, changed in transactions.

    tracker.begin_change() -> Change -> edit `change.state` -> prepare() -> Prepared -> tracker.adopt(prepared)
                                     -> abort()                                       or drop it

A revision, once handed out, is never changed: that is a contract between everyone who holds one, not enforced by
freezing. Preparing computes operations; the next revision is made from them when somebody asks for it. Nothing here
is aware of threads. Proved by tests/chord/test_tracker.py.
"""

from typing import Any

from .apply import Op, apply_immutable, apply_owned
from .delta import delta
from .draft import DraftBase, Lease
from .errors import DraftRevoked, StaleChange, quote
from .values import ABSENT, Json

_MAX_OWNED = 256
"""So many containers may be remembered as private to a tracker; remembering keeps even deleted ones in memory."""


class Tracker:
    """Keeps the current revision of one JSON document and prepares the next ones.

    Takes over `value` in O(1): it must be strict JSON (`copy_json`) that nobody will change. With
    `lone_surrogates=True` drafts accept text that is not valid Unicode, as documents shared with JavaScript may hold.
    """

    __slots__ = ("_change", "_halves", "_owned", "_released", "_revision", "_value")

    def __init__(self, value: Json, *, lone_surrogates: bool = False) -> None:
        self._value = value
        self._revision = 0
        self._halves = lone_surrogates
        self._change: Change | None = None
        self._owned: dict[int, Json] = {}  # containers of the value that nobody outside has seen, by id
        self._released = 0  # revisions before this one were given up

    @property
    def value(self) -> Json:
        """The current revision, shared: not to be changed. O(1), but see `adopt` for what looking at it costs."""
        self._owned = {}
        return self._value

    @property
    def revision(self) -> int:
        """Counts the adopted changes, from 0."""
        return self._revision

    def begin_change(self) -> "Change":
        """Open a change of the current revision.

        Raises:
            StaleChange: a change is open already, or the document is neither an object nor an array.
        """
        if self._change is not None:
            raise StaleChange("expected one open change at a time, got a second one; prepare or abort the first")
        if type(self._value) is not dict and type(self._value) is not list:
            raise StaleChange(f"expected an object or array to change, got {quote(self._value)}; use prepare_replace")
        self._change = Change(self, DraftBase.over(self._value, (), Lease(halves=self._halves)))
        return self._change

    def prepare_replace(self, value: Json) -> "Prepared":
        """Prepare the replacement of the whole document by `value`, which is taken over as by the constructor."""
        return Prepared(self, self._value, self._revision, [["r", value]])

    def adopt(self, prepared: "Prepared", *, consume: bool = False) -> None:
        """Make a prepared change the current revision; only swaps pointers if its value was read before.

        With `consume=True` the caller says that it will not ask for `prepared.base`, nor for `prepared.value` after
        the next adoption. The containers that only this tracker has seen (those it copied since somebody last read
        `value`) are then changed in place: the cost is that of the path, not of the width of the objects on it, and
        growing text is extended instead of copied.

        Raises:
            StaleChange: it was prepared by another tracker or on an older revision. Nothing has changed.
        """
        if prepared._tracker is not self or prepared.base_revision != self._revision:
            raise StaleChange(
                f"expected a change prepared on revision {self._revision} of this tracker, "
                f"got one of revision {prepared.base_revision}{'' if prepared._tracker is self else ' of another'}"
            )
        if consume and prepared._value is ABSENT and self._change is None:
            self._value = apply_owned(self._value, prepared.ops, self._owned)
            self._owned = self._owned if len(self._owned) <= _MAX_OWNED else {}
            self._released = self._revision + 1
            prepared._consumed = True
        else:
            self._value = prepared.value
            self._owned = {}
        self._revision += 1


class Change:
    """An open change of a tracker's document. Ends with `prepare` or `abort`, and with it all its drafts."""

    __slots__ = ("_draft", "_revision", "_tracker")

    def __init__(self, tracker: Tracker, draft: DraftBase) -> None:
        self._tracker = tracker
        self._revision = tracker.revision
        self._draft: DraftBase | None = draft

    @property
    def state(self) -> Any:
        """The draft of the whole document, a `Draft` or `ListDraft`. Raises `DraftRevoked` after the end."""
        if self._draft is None:
            raise DraftRevoked("expected an open change, got one that was prepared or aborted")
        return self._draft

    def prepare(self) -> "Prepared":
        """End the change and return what it amounts to. Raises `DraftRevoked` when it has ended already."""
        draft = self.state
        self.abort()
        return Prepared(self._tracker, draft._base, self._revision, delta(draft))

    def abort(self) -> None:
        """End the change and forget it. Does nothing when it has ended."""
        if self._draft is not None:
            self._draft._lease.open = False
            self._draft = None
            self._tracker._change = None


class Prepared:
    """A change that is ready to be adopted, or to be dropped.

    `ops` lead from `base` to `value`; they are empty when nothing changed. They share no container with `base`, but
    payloads with `value`, so neither may be changed: follow with `apply_immutable`, or give `apply` a copy. `value` is
    made when it is first read, from `base` and `ops`, and shares with `base` what the change did not touch.
    """

    __slots__ = ("_base", "_consumed", "_tracker", "_value", "base_revision", "ops")

    def __init__(self, tracker: Tracker, base: Json, base_revision: int, ops: list[Op]) -> None:
        self._tracker = tracker
        self._base = base
        self._value: Json = ABSENT
        self._consumed = False
        self.ops = ops
        self.base_revision = base_revision

    @property
    def base(self) -> Json:
        """The revision that was changed. Raises `StaleChange` if it was given up by `adopt(..., consume=True)`."""
        if self.base_revision < self._tracker._released:
            raise StaleChange(f"revision {self.base_revision} was given up when a later one was adopted with consume")
        self._tracker._owned = {}
        return self._base

    @property
    def value(self) -> Json:
        """The revision after the change. Raises `StaleChange` if it, or what it is made from, was given up."""
        if self._value is ABSENT:
            adopted_last = self._consumed and self._tracker.revision == self.base_revision + 1
            self._value = self._tracker.value if adopted_last else apply_immutable(self.base, self.ops)
        return self._value
