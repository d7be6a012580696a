"""From the drafts of a change to the operations that publish it.

Only containers that were visited are looked at. Within one, its structure comes first (keys, splices, order), then the
changes inside the containers it kept, addressed as they stand afterwards; an element that was added travels in its
final state. Where single operations would be longer than the container they change, they give way to one replacement
of it. Proved by the track vectors and by tests/chord/test_tracker.py.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .apply import RESERVED, Op, Path
from .diff import appended, fits, json_size, replacement, splice_changes, value_changes
from .draft import DraftBase, GrowingText, Slot, settle
from .draft_dict import GONE, Draft
from .draft_list import Hunk, ListDraft
from .values import ABSENT, Json, clone

_FEW = 8
"""So many operations on one container are always published as they are."""


def delta(root: DraftBase) -> list[Op]:
    """The operations that lead from the base of `root` to its current value; none when they are the same."""
    ops: list[Op] = []
    _changes_within(root, [], ops)
    return ops


def _changes_within(draft: DraftBase, path: Path, ops: list[Op]) -> None:
    """Add the operations for everything that changed in a container that was kept."""
    mark = len(ops)
    if type(draft) is Draft:
        _object_changes(draft, path, ops)
    elif type(draft) is ListDraft:
        _array_changes(draft, path, ops)
    made = len(ops) - mark
    if made > _FEW and 2 * made > draft._size and fits(value := draft.settled(), json_size(ops[mark:])):
        ops[mark:] = [replacement(path, clone(value))]


def _object_changes(draft: Draft, path: Path, ops: list[Op]) -> None:
    mark = len(ops)
    for key, slot in draft._slots.items():
        before = len(ops)
        if slot is GONE:
            ops.append(["d", [*path, key]])
        else:
            _slot_changes(slot, draft._base.get(key, ABSENT), [*path, key], ops)
        if key in RESERVED and len(ops) > before:
            # No path may lead over this key, but a value may hold it: the object is replaced as a whole.
            ops[mark:] = [replacement(path, clone(draft.settled()))]
            return


def _slot_changes(slot: Slot, old: Json, path: Path, ops: list[Op]) -> None:
    """Add the operations that make `old`, which stands at `path`, what `slot` says."""
    if isinstance(slot, DraftBase) and slot._base is old:
        _changes_within(slot, path, ops)
        return
    if type(slot) is GrowingText and slot.head is old:
        ops += appended(path, "".join(slot.chunks))
        return
    ops += value_changes(old, _payload(slot), path)


def _payload(slot: Slot) -> Json:
    """The value of a slot, sharing no container with the base: operations stand for themselves."""
    value = settle(slot)
    return clone(value) if isinstance(slot, DraftBase) and not slot.is_fresh() else value


# Arrays.


def _array_changes(draft: ListDraft, path: Path, ops: list[Op]) -> None:
    if draft.dense:
        _dense_changes(draft._base, draft._hunks[0].slots, path, ops)
        return
    _splice_all(draft._base, draft._hunks, path, ops)
    for place, slot in sorted(draft._visited.items()):
        index = draft.index_of_kept(place)
        if index is not None:
            _changes_within(slot, [*path, index], ops)


def _splice_all(base: list[Json], hunks: Sequence[Hunk], path: Path, ops: list[Op]) -> None:
    shift = 0
    for hunk in hunks:
        _splice(base[hunk.start : hunk.stop], hunk.slots, hunk.start + shift, path, ops)
        shift += hunk.growth()


def _splice(old: list[Json], new: list[Slot], index: int, path: Path, ops: list[Op]) -> None:
    if len(old) == len(new) == 1:
        _slot_changes(new[0], old[0], [*path, index], ops)
    else:
        ops += splice_changes(old, list(map(_payload, new)), index, path)


def _dense_changes(base: list[Json], slots: list[Slot], path: Path, ops: list[Op]) -> None:
    """Find out by identity where each slot came from; publish the rest as splices or, if shorter, as a new order."""
    origins = _origins(base, slots)
    kept = _longest_rise(origins)
    changes: list[Op] = []
    _splice_all(base, list(_gaps(base, slots, origins, kept)), path, changes)
    if len(kept) < len(slots) == len(base) and -1 not in origins:
        order: list[Op] = [["m", path, origins]]
        if json_size(order) < json_size(changes):
            changes, kept = order, list(range(len(slots)))
    ops += changes
    for index in kept:
        if isinstance(slots[index], DraftBase | GrowingText):
            _slot_changes(slots[index], base[origins[index]], [*path, index], ops)


def _origins(base: list[Json], slots: list[Slot]) -> list[int]:
    """For each slot the place in the base of the element that it is, or -1. No place is given twice."""
    places: dict[int, list[int]] = {}
    for place in range(len(base) - 1, -1, -1):
        places.setdefault(id(base[place]), []).append(place)
    origins = []
    for slot in slots:
        element = slot._base if isinstance(slot, DraftBase) else slot.head if type(slot) is GrowingText else slot
        found = places.get(id(element))
        origins.append(found.pop() if found else -1)
    return origins


def _longest_rise(origins: list[int]) -> list[int]:
    """Indexes of a longest rising subsequence of `origins`, without the -1: the elements that need not move."""
    ends: list[int] = []  # ends[n]: the smallest origin that a rise of n + 1 elements can end with
    lasts: list[int] = []  # and the index that it stands at
    before: dict[int, int] = {}
    for index, origin in enumerate(origins):
        if origin < 0:
            continue
        length = bisect_left(ends, origin)
        if length:
            before[index] = lasts[length - 1]
        ends[length : length + 1] = [origin]
        lasts[length : length + 1] = [index]
    rise = lasts[-1:]
    while rise and rise[-1] in before:
        rise.append(before[rise[-1]])
    return rise[::-1]


def _gaps(base: list[Json], slots: list[Slot], origins: list[int], kept: list[int]) -> Iterator[Hunk]:
    """The hunks between slots that stay where they are relative to each other."""
    edges = [(-1, -1), *((index, origins[index]) for index in kept), (len(slots), len(base))]
    for (index, origin), (next_index, next_origin) in pairwise(edges):
        if next_index - index > 1 or next_origin - origin > 1:
            moved = [
                clone(slot) for slot in slots[index + 1 : next_index]
            ]  # a container without its draft is the base's
            yield Hunk(origin + 1, next_origin, moved)
