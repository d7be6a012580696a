"""What all drafts share: the lease that ends them, the contents of a place, and text that grows in pieces.

A draft stands for one container of an immutable base and keeps its edits beside it, so opening one costs nothing and
an edit costs what it touches. A *slot* is the content of one place: an atom or text as it is, a `DraftBase` for a
container that was visited, a `GrowingText`, or a container not visited yet. A draft is *fresh* when it stands for a
container that was assigned in this change: it has no base and nobody else holds its slots. References only lead
downward, so a finished draft is freed at once. Proved by tests/chord/test_draft_dict.py and test_draft_list.py.
"""

from abc import abstractmethod
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

from .errors import DraftRevoked, InvalidJson
from .text import halves_meet, join_halves
from .values import Json, JsonSource, clone, copy_below

Slot: TypeAlias = Any


class Lease:
    """The permission that all drafts of one change share. With `halves`, text may hold lone surrogates."""

    __slots__ = ("halves", "open")

    def __init__(self, *, halves: bool = False) -> None:
        self.open = True
        self.halves = halves


class DraftBase(JsonSource):
    """An object or array of a document while it is being changed: a `Draft` or a `ListDraft`.

    They behave as dict and list do. Reading a container gives a draft of it; text and atoms are plain. What is
    assigned is checked and copied at once: later changes of the assigned object do not reach the document, and changes
    of something that was taken out with `pop` do not either. When the change has been prepared or aborted, every read
    and write raises `DraftRevoked`.
    """

    __slots__ = ("_lease", "_path")
    _kinds: ClassVar[dict[type, type["DraftBase"]]] = {}

    _base: Any  # the container of the base that this draft stands for; one of nobody's for a fresh draft
    _size: int  # how many elements or keys it has now
    _lease: Lease
    _path: tuple[str | int, ...]  # where it stood when it was visited, for messages; its length is its depth for ever

    def __init_subclass__(cls, *, of: type, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        DraftBase._kinds[of] = cls

    @staticmethod
    def over(base: Json, path: tuple[str | int, ...], lease: Lease) -> "DraftBase":
        """A draft of a container that belongs to the immutable base."""
        return DraftBase._kinds[type(base)](base, path, lease)

    @staticmethod
    def fresh(container: Json, path: tuple[str | int, ...], lease: Lease) -> "DraftBase":
        """A draft of a container that was copied in during this change and can be changed in place."""
        return DraftBase._kinds[type(container)]._fresh(container, path, lease)

    @abstractmethod
    def __init__(self, base: Any, path: tuple[str | int, ...], lease: Lease) -> None: ...

    @classmethod
    @abstractmethod
    def _fresh(cls, container: Any, path: tuple[str | int, ...], lease: Lease) -> Self: ...

    @abstractmethod
    def is_fresh(self) -> bool:
        """Whether this draft has no base, so that its value is nobody else's."""

    @abstractmethod
    def settled(self) -> Json:
        """The current value whether or not the lease is open: the base itself when nothing in it was changed."""

    def current_json(self) -> Json:
        """The current value, sharing with the base what was not edited: to be read at once, never kept or changed."""
        if not self._lease.open:
            self._revoked()
        return self.settled()

    def to_json(self) -> Json:
        """A detached copy of the current value. Raises `DraftRevoked` when the change has ended."""
        return clone(self.current_json())

    def __copy__(self) -> Json:
        return self.to_json()

    def __deepcopy__(self, _memo: object) -> Json:
        return self.to_json()

    def _admit(self, value: object, place: str | int, old: Slot = None) -> Json:
        """A checked copy of a value that is to stand at `place` of this container, over `old`."""
        path = (*self._path, place)
        if type(value) is str and not value.isascii() and type(old) is str and not self._lease.halves:
            # Looking for surrogates takes ten times as long as comparing, so of text that grows the old part is spared.
            copy_below(value.removeprefix(old), len(path), path=path)
            return value
        return copy_below(value, len(path), halves=self._lease.halves, path=path)

    def _grown(self, slot: Slot, chunk: object, place: str | int) -> Slot:
        """The slot that holds the text of `slot` with `chunk` at its end."""
        text = self._admit(chunk, place)
        if type(text) is not str or (type(slot) is not str and type(slot) is not GrowingText):
            kinds = f"{type(text).__name__} to {type(settle(slot)).__name__}"
            raise InvalidJson(f"expected text to append to text, got {kinds} at {place!r}")
        if self._lease.halves and halves_meet(settle(slot), text):
            return join_halves(settle(slot) + text)
        if isinstance(slot, str):
            return GrowingText(slot, text)
        slot.add(text)
        return slot

    def _revoked(self) -> NoReturn:
        raise DraftRevoked("expected a draft of an open change, got one whose change was prepared or aborted")

    __hash__ = None  # type: ignore[assignment]  # mutable, equal by content

    def __eq__(self, other: object) -> bool:
        return bool(self.current_json() == (other.current_json() if isinstance(other, DraftBase) else other))

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.settled()!r})" if self._lease.open else f"<{name}, revoked>"


class GrowingText:
    """Text that is being appended to: what it was, and the chunks since, joined only when somebody reads."""

    __slots__ = ("_whole", "chunks", "head")

    def __init__(self, head: str, chunk: str) -> None:
        self.head = head
        self.chunks = [chunk]
        self._whole: str | None = None

    def add(self, chunk: str) -> None:
        """Append, in O(chunk)."""
        self.chunks.append(chunk)
        self._whole = None

    def read(self) -> str:
        """The whole text."""
        if self._whole is None:
            self._whole = "".join((self.head, *self.chunks))
        return self._whole


def settle(slot: Slot) -> Json:
    """The JSON value that a slot stands for."""
    if isinstance(slot, DraftBase):
        return slot.settled()
    return slot.read() if type(slot) is GrowingText else slot
