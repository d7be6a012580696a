"""The operations between two plain values: for what was assigned over something, and for text.

Objects are compared key by key, arrays after their common ends are set aside, texts by what was appended and cut off
in front. It is a help, not a search for the shortest way: where the steps would be longer than the new value, the
value is sent. Proved by the track and overlap vectors and by tests/chord/test_diff.py.
"""

import json

import msgspec

from .apply import RESERVED, Op, Path
from .text import utf16_length
from .values import ABSENT, Json, same_json


def replacement(path: Path, value: Json) -> Op:
    """The operation that puts `value` at `path`."""
    return ["s", path, value] if path else ["r", value]


def value_changes(old: Json, new: Json, path: Path) -> list[Op]:
    """The operations that make `old`, which stands at `path`, equal to `new`; none if they are the same."""
    steps = _steps(old, new, path)
    whole = [replacement(path, new)]
    return steps if len(steps) < 2 or json_size(steps) < json_size(whole) else whole


def _steps(old: Json, new: Json, path: Path) -> list[Op]:
    kind = type(new)
    if type(old) is kind:
        if kind is str:
            return text_changes(old, new, path)
        if kind is dict:
            return _object_changes(old, new, path)
        if kind is list:
            return splice_changes(old, new, 0, path)
        if old == new:
            return []
    return [replacement(path, new)]


def _object_changes(old: dict[str, Json], new: dict[str, Json], path: Path) -> list[Op]:
    if any(key in RESERVED and not same_json(old.get(key, ABSENT), new.get(key, ABSENT)) for key in (*old, *new)):
        return [replacement(path, new)]  # no path may lead over this key, but a value may hold it
    ops: list[Op] = [["d", [*path, key]] for key in old if key not in new]
    for key, item in new.items():
        if key not in old:
            ops.append(["s", [*path, key], item])
        elif item is not old[key]:
            ops += _steps(old[key], item, [*path, key])
    return ops


def splice_changes(old: list[Json], new: list[Json], index: int, path: Path) -> list[Op]:
    """The operations that put the elements `new` where `old` stand, from `index` of the array at `path`."""
    shorter = min(len(old), len(new))
    low = next((i for i in range(shorter) if not same_json(new[i], old[i])), shorter)
    high = next((i for i in range(shorter - low) if not same_json(new[-1 - i], old[-1 - i])), shorter - low)
    old, new = old[low : len(old) - high], new[low : len(new) - high]
    if not old and not new:
        return []
    at, pairs = index + low, shorter - low - high
    splice: list[Op] = [["p", path, at, len(old), new]]
    if not pairs:
        return splice
    steps: list[Op] = []
    for place in range(pairs):
        steps += _steps(old[place], new[place], [*path, at + place])
    if len(old) != len(new):
        steps.append(["p", path, at + pairs, len(old) - pairs, new[pairs:]])
    return steps if json_size(steps) < json_size(splice) else splice


# Text.


def text_changes(old: str, new: str, path: Path) -> list[Op]:
    """The operations from one text to another: append, trim at the front, both, or set."""
    if new.startswith(old):
        return appended(path, new[len(old) :])
    kept = _overlap(old, new)
    # Two operations repeat the path and their frame; a short overlap does not pay for that.
    if not kept or (kept < len(new) and kept <= len(str(path)) + 12):
        return [["s", path, new]]
    trim: Op = ["t", path, utf16_length(old[: len(old) - kept])]
    return [trim, ["a", path, new[kept:]]] if kept < len(new) else [trim]


def appended(path: Path, text: str) -> list[Op]:
    """The operation that appends `text`, if there is any."""
    return [["a", path, text]] if text else []


def _overlap(old: str, new: str) -> int:
    """Length of the longest end of `old` that `new` begins with; in very repetitive text possibly a shorter one."""
    probe = new[:_PROBE]
    place = old.find(probe, max(0, len(old) - len(new)))
    for _ in range(_TRIES):
        if place < 0:
            break
        if new.startswith(old[place:]):
            return len(old) - place
        place = old.find(probe, place + 1)
    longest = min(len(old), len(new), _PROBE)
    return next((size for size in range(longest, 0, -1) if old.endswith(new[:size])), 0)


_PROBE = 64
_TRIES = 64


# Sizes.


def json_size(value: Json) -> int:
    """Length of the JSON text of `value`, in bytes."""
    try:
        return len(msgspec.json.encode(value))
    except UnicodeEncodeError:  # a lone surrogate
        return len(json.dumps(value, separators=(",", ":")))


def fits(value: Json, limit: int) -> bool:
    """Whether the JSON text of `value` is about as short as `limit`, found out in time that `limit` bounds."""
    waiting = [value]
    size = 0
    while waiting and size <= limit:
        item = waiting.pop()
        size += 3
        if type(item) is str:
            size += len(item)
        elif type(item) is dict:
            size += sum(map(len, item)) + 3 * len(item)
            waiting += item.values()
        elif type(item) is list:
            waiting += item
    return size <= limit
