"""Operations on JSON values: what one may look like, and what it does.

    ["r", value]                replace the whole value        ["t", path, count]   cut UTF-16 units off a text's front
    ["s", path, value]          set a key or an element        ["p", path, index, count, items]   splice an array
    ["d", path]                 delete a key or an element     ["m", path, order]   reorder: new[i] = old[order[i]]
    ["a", path, text]           append to a text

A path is a list of keys (str) and indexes (int). Operations may come from anywhere: each is checked when its turn
comes, and all replicas agree on what is refused. Payloads are taken as JSON and not walked.
Proved by tests/chord/test_vectors.py and tests/chord/test_apply.py.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from .errors import InvalidOp, OutOfRange, PathMissing, UnsafePath, quote
from .text import append, drop_units, halves_meet
from .values import ABSENT, MAX_NUMBER, Json

Op: TypeAlias = list[Any]
"""One operation, decoded: a list that starts with its verb."""

Path: TypeAlias = list[str | int]
"""Where an operation acts: keys and indexes from the root down."""

RESERVED = frozenset({"__proto__", "constructor", "prototype"})
"""Keys that no path may name: they reach into JavaScript's object machinery. As keys within values they are data."""

MAX_SAFE = 2**53
"""Up to here JavaScript holds every integer exactly; beyond it, an index or count means the nearest double."""


def apply(value: Json, ops: list[Op]) -> Json:
    """Apply `ops` to `value` in place and return the root, which is another object after a replacement.

    The operations before a failing one stay applied. Payloads are adopted, not copied: they become part of the value
    and later operations may change them, so the caller gives `ops` away. Appending to a text costs O(chunk) as long
    as nothing else refers to that text.

    Raises:
        InvalidOp, UnsafePath, OutOfRange, PathMissing: as their names say; the message quotes the operation.
    """
    return _run(value, ops, None)


def apply_immutable(value: Json, ops: list[Op]) -> Json:
    """Apply `ops` to a copy of what they touch and return it; `value` and `ops` stay as they are.

    Whatever no operation touched is shared with `value` (`is`), and payloads are shared with `ops`, so none of the
    three may be changed afterwards. An empty list returns `value` itself. Raises like `apply`, and then nothing has
    happened.
    """
    return _run(value, ops, {})


def apply_owned(value: Json, ops: list[Op], owned: dict[int, Json]) -> Json:
    """`apply_immutable`, but containers in `owned` (by id) are changed in place, and copies made are added to it."""
    return _run(value, ops, owned)


def _run(root: Json, ops: list[Op], owned: dict[int, Json] | None) -> Json:
    for op in checked_batch(ops):
        root = VERBS[op[0]].act(root, op, owned)
    return root


# Shapes: what can be seen from an operation alone.


def checked_batch(ops: object) -> Iterator[Op]:
    """The operations of a batch one by one, each checked for its shape when its turn comes. Raises `InvalidOp`."""
    if type(ops) is not list:
        raise InvalidOp(f"expected a list of operations, got {quote(ops)}")
    for op in ops:
        if type(op) is not list or not op or type(op[0]) is not str or op[0] not in VERBS:
            raise InvalidOp(f"expected an operation, a list that starts with one of r s d a t p m, got {quote(op)}")
        arity, takes, _, at_root = VERBS[op[0]]
        if len(op) != arity or not takes(op) or not (at_root or op[1]):
            raise misshapen(op)
        yield op


def misshapen(op: Op) -> InvalidOp:
    """The error for an operation of a known verb that has the wrong shape."""
    return InvalidOp(f"expected {_SHAPES[op[0]]}, got {quote(op)}")


def is_count(number: object) -> bool:
    """Whether `number` is an integer of at least 0 as JSON knows it: 2.0 is one, True is not."""
    if type(number) is float:
        return number.is_integer() and number >= 0
    return type(number) is int and 0 <= number <= MAX_NUMBER


def _takes_value(op: Op) -> bool:
    return type(op[1]) is list


def _takes_text(op: Op) -> bool:
    return type(op[1]) is list and type(op[2]) is str


def _takes_count(op: Op) -> bool:
    return type(op[1]) is list and is_count(op[2])


def _takes_items(op: Op) -> bool:
    return type(op[1]) is list and is_count(op[2]) and is_count(op[3]) and type(op[4]) is list


def _takes_order(op: Op) -> bool:
    if type(op[1]) is not list or type(op[2]) is not list or not all(map(is_count, op[2])):
        return False
    return sorted(op[2]) == list(range(len(op[2])))


# Paths: what can only be seen on the value.


def _descend(root: Json, path: Path, op: Op, owned: dict[int, Json] | None) -> tuple[Json, Json]:
    """Walk down `path`; return the root and what stands at the end, both safe to change when there is an `owned`."""
    node = root if owned is None else _own(root, owned)
    root = node
    for segment in path:
        if type(node) is dict:
            place: Any = _key(segment, op)
            child = node.get(place, ABSENT)
        elif type(node) is list:
            place = _index(segment, op)
            child = node[place] if place < len(node) else ABSENT
        else:
            child = ABSENT
        if child is ABSENT:
            for each in op[1]:  # an unsafe path is called so, whether or not it leads anywhere
                check_segment(each, op)
            raise PathMissing(f"nothing stands at {segment!r} on the path of {quote(op)}")
        if owned is not None and (type(child) is dict or type(child) is list):
            child = node[place] = _own(child, owned)
        node = child
    return root, node


def _own(node: Json, owned: dict[int, Json]) -> Json:
    if id(node) in owned or (type(node) is not dict and type(node) is not list):
        return node
    copy = node.copy()
    owned[id(copy)] = copy  # the reference keeps the id from being given to another object
    return copy


def check_segment(segment: object, op: Op) -> None:
    """Refuse what can address neither a key nor an element.

    Raises:
        UnsafePath: for a reserved key, and anything that is neither text nor an integer of at least 0.
    """
    if type(segment) is str:
        if segment in RESERVED:
            raise UnsafePath(f"the key {segment!r} is reserved, in {quote(op)}")
    elif not is_count(segment):
        raise UnsafePath(f"expected a key or an index on the path, got {quote(segment)} in {quote(op)}")


def _key(segment: Any, op: Op) -> str:
    if type(segment) is str and segment not in RESERVED:
        return segment
    check_segment(segment, op)
    return key_of(segment)


def key_of(index: float) -> str:
    """The key that an integer means on an object: its text as JavaScript writes it, from the nearest double."""
    if index <= MAX_SAFE:
        return str(int(index))
    double = float(index)
    return str(int(Decimal(repr(double)))) if double < 1e21 else repr(double)


def _index(segment: Any, op: Op) -> int:
    if type(segment) is int and 0 <= segment <= MAX_NUMBER:
        return segment
    check_segment(segment, op)
    if type(segment) is str:
        raise UnsafePath(f"the key {segment!r} cannot address an array, in {quote(op)}")
    return int(segment)


# What the verbs do. Each takes the root and returns the root.


def _set(root: Json, op: Op, owned: dict[int, Json] | None) -> Json:
    _, path, value = op
    root, parent = _descend(root, path[:-1], op, owned)
    if type(parent) is dict:
        parent[_key(path[-1], op)] = value
    elif _slot(parent, path[-1], op) == len(parent):
        parent.append(value)
    else:
        parent[_index(path[-1], op)] = value
    return root


def _slot(parent: Json, segment: Any, op: Op) -> int:
    """The index that `segment` means in an array, up to and including the one after its end."""
    if type(parent) is not list:
        check_segment(segment, op)
        raise PathMissing(f"expected an object or an array above the end of the path, in {quote(op)}")
    index = _index(segment, op)
    if index > len(parent):
        raise OutOfRange(f"index {index} is beyond the end of {len(parent)} elements, in {quote(op)}")
    return index


def _delete(root: Json, op: Op, owned: dict[int, Json] | None) -> Json:
    path = op[1]
    root, parent = _descend(root, path[:-1], op, owned)
    if type(parent) is dict:
        parent.pop(_key(path[-1], op), None)
        return root
    index = _slot(parent, path[-1], op)
    if index == len(parent):
        raise PathMissing(f"no element stands at {index}, in {quote(op)}")
    del parent[index]
    return root


def _text_at(parent: Json, segment: Any, op: Op) -> tuple[Any, str]:
    """The place in `parent` that `segment` means, and the text there."""
    if type(parent) is dict:
        place: Any = _key(segment, op)
        text = parent.get(place, ABSENT)
    else:
        place = _slot(parent, segment, op)
        text = parent[place] if place < len(parent) else ABSENT
    if type(text) is not str:
        raise PathMissing(f"expected text at the end of the path, in {quote(op)}")
    return place, text


def _append(root: Json, op: Op, owned: dict[int, Json] | None) -> Json:
    _, path, chunk = op
    root, parent = _descend(root, path[:-1], op, owned)
    place, text = _text_at(parent, path[-1], op)
    if halves_meet(text, chunk):
        parent[place] = append(text, chunk)
        return root
    # With the slot emptied this name is the only reference, and CPython then grows the text in place instead of
    # copying it (tests/bench shows the difference). Where something else holds the text, `+=` copies as ever.
    parent[place] = None
    text += chunk
    parent[place] = text
    return root


def _trim(root: Json, op: Op, owned: dict[int, Json] | None) -> Json:
    _, path, count = op
    root, parent = _descend(root, path[:-1], op, owned)
    place, text = _text_at(parent, path[-1], op)
    parent[place] = drop_units(text, int(count))
    return root


def _splice(root: Json, op: Op, owned: dict[int, Json] | None) -> Json:
    _, path, index, count, items = op
    root, array = _array_at(root, path, op, owned)
    start = int(index)
    array[start : start + int(count)] = items
    return root


def _reorder(root: Json, op: Op, owned: dict[int, Json] | None) -> Json:
    _, path, order = op
    root, array = _array_at(root, path, op, owned)
    if len(order) != len(array):
        raise PathMissing(f"expected an order of {len(array)} elements, in {quote(op)}")
    array[:] = [array[int(index)] for index in order]
    return root


def _array_at(root: Json, path: Path, op: Op, owned: dict[int, Json] | None) -> tuple[Json, list[Json]]:
    root, array = _descend(root, path, op, owned)
    if type(array) is not list:
        raise PathMissing(f"expected an array at the end of the path, in {quote(op)}")
    return root, array


class Verb(NamedTuple):
    """What one verb asks for and does."""

    arity: int
    takes: Callable[[Op], bool]
    act: Callable[[Json, Op, dict[int, Json] | None], Json]
    at_root: bool = False  # whether the path may be empty


VERBS = {
    "r": Verb(2, lambda _op: True, lambda _root, op, _owned: op[1], at_root=True),
    "s": Verb(3, _takes_value, _set),
    "d": Verb(2, _takes_value, _delete),
    "a": Verb(3, _takes_text, _append),
    "t": Verb(3, _takes_count, _trim),
    "p": Verb(5, _takes_items, _splice, at_root=True),
    "m": Verb(3, _takes_order, _reorder, at_root=True),
}

_SHAPES = {
    "r": '["r", value]',
    "s": '["s", path, value] with a path that is not empty',
    "d": '["d", path] with a path that is not empty',
    "a": '["a", path, text] with a path that is not empty',
    "t": '["t", path, count] with a path that is not empty and a count of at least 0',
    "p": '["p", path, index, count, items] with an index and a count of at least 0',
    "m": '["m", path, order] with each index once',
}
