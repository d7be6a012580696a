"""Operations on JSON values: what one may look like, and what it does.

    ["r", value]                replace the whole value        ["t", path, count]   cut UTF-16 units off a text's front
    ["s", path, value]          set a key or an element        ["p", path, index, count, items]   splice an array
    ["d", path]                 delete a key or an element     ["m", path, order]   reorder: new[i] = old[order[i]]
    ["a", path, text]           append to a text

A path is a list of keys (str) and indexes (int). Operations may come from anywhere: each is checked when its turn
comes, and all replicas agree on what is refused. Payloads are taken as JSON and not walked.
Proved by tests/chord/test_vectors.py and tests/chord/test_apply.py.
"""

import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from .errors import InvalidOp, OutOfRange, PathMissing, UnsafePath
from .text import append, drop_units, halves_meet
from .values import ABSENT, Json

Op: TypeAlias = list[Any]
"""One operation, decoded: a list that starts with its verb."""

Path: TypeAlias = list[str | int]
"""Where an operation acts: keys and indexes from the root down."""

RESERVED = frozenset({"__proto__", "constructor", "prototype"})
"""Keys that no path may name: they reach into JavaScript's object machinery. As keys within values they are data."""

_MAX_SAFE = 2**53
_MAX_NUMBER = int(sys.float_info.max)


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
    if type(ops) is not list:
        raise InvalidOp(f"expected a list of operations, got {_quote(ops)}")
    for op in ops:
        if type(op) is not list or not op or type(op[0]) is not str or op[0] not in _VERBS:
            raise InvalidOp(f"expected an operation, a list that starts with one of r s d a t p m, got {_quote(op)}")
        arity, check, act = _VERBS[op[0]]
        if len(op) != arity or not check(op):
            raise InvalidOp(f"expected {_SHAPES[op[0]]}, got {_quote(op)}")
        root = act(root, op, owned)
    return root


# Shapes: what can be seen from the operation alone.


def is_count(number: object) -> bool:
    """Whether `number` is an integer of at least 0 as JSON knows it: 2.0 is one, True is not."""
    if type(number) is float:
        return number.is_integer() and number >= 0
    return type(number) is int and 0 <= number <= _MAX_NUMBER


def _names_a_place(op: Op) -> bool:
    return type(op[1]) is list and bool(op[1])


def _is_append(op: Op) -> bool:
    return _names_a_place(op) and type(op[2]) is str


def _is_trim(op: Op) -> bool:
    return _names_a_place(op) and is_count(op[2])


def _is_splice(op: Op) -> bool:
    return type(op[1]) is list and is_count(op[2]) and is_count(op[3]) and type(op[4]) is list


def _is_order(op: Op) -> bool:
    return type(op[1]) is list and type(op[2]) is list and _is_permutation(op[2])


def _is_permutation(order: list[Any]) -> bool:
    return all(map(is_count, order)) and sorted(order) == list(range(len(order)))


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
            raise PathMissing(f"nothing stands at {segment!r} on the path of {_quote(op)}")
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
            raise UnsafePath(f"the key {segment!r} is reserved, in {_quote(op)}")
    elif not is_count(segment):
        raise UnsafePath(f"expected a key or an index on the path, got {_quote(segment)} in {_quote(op)}")


def _key(segment: Any, op: Op) -> str:
    if type(segment) is str and segment not in RESERVED:
        return segment
    check_segment(segment, op)
    return key_of(segment)


def key_of(index: float) -> str:
    """The key that an integer means on an object: its text as JavaScript writes it, from the nearest double."""
    if index <= _MAX_SAFE:
        return str(int(index))
    double = float(index)
    return str(int(Decimal(repr(double)))) if double < 1e21 else repr(double)


def _index(segment: Any, op: Op) -> int:
    if type(segment) is int and 0 <= segment <= _MAX_NUMBER:
        return segment
    check_segment(segment, op)
    if type(segment) is str:
        raise UnsafePath(f"the key {segment!r} cannot address an array, in {_quote(op)}")
    return int(segment)


# Verbs. Each takes the root and returns the root.


def _replace(_root: Json, op: Op, _owned: dict[int, Json] | None) -> Json:
    return op[1]


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
        raise PathMissing(f"expected an object or an array above the end of the path, in {_quote(op)}")
    index = _index(segment, op)
    if index > len(parent):
        raise OutOfRange(f"index {index} is beyond the end of {len(parent)} elements, in {_quote(op)}")
    return index


def _delete(root: Json, op: Op, owned: dict[int, Json] | None) -> Json:
    path = op[1]
    root, parent = _descend(root, path[:-1], op, owned)
    if type(parent) is dict:
        parent.pop(_key(path[-1], op), None)
        return root
    index = _slot(parent, path[-1], op)
    if index == len(parent):
        raise PathMissing(f"no element stands at {index}, in {_quote(op)}")
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
        raise PathMissing(f"expected text at the end of the path, in {_quote(op)}")
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
        raise PathMissing(f"expected an order of {len(array)} elements, in {_quote(op)}")
    array[:] = [array[int(index)] for index in order]
    return root


def _array_at(root: Json, path: Path, op: Op, owned: dict[int, Json] | None) -> tuple[Json, list[Json]]:
    root, array = _descend(root, path, op, owned)
    if type(array) is not list:
        raise PathMissing(f"expected an array at the end of the path, in {_quote(op)}")
    return root, array


def _quote(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 120 else text[:117] + "..."


_VERBS: dict[str, tuple[int, Callable[[Op], bool], Callable[[Json, Op, dict[int, Json] | None], Json]]] = {
    "r": (2, lambda _op: True, _replace),
    "s": (3, _names_a_place, _set),
    "d": (2, _names_a_place, _delete),
    "a": (3, _is_append, _append),
    "t": (3, _is_trim, _trim),
    "p": (5, _is_splice, _splice),
    "m": (3, _is_order, _reorder),
}

_SHAPES = {
    "r": '["r", value]',
    "s": '["s", path, value] with a path that is not empty',
    "d": '["d", path] with a path that is not empty',
    "a": '["a", path, text] with a path that is not empty',
    "t": '["t", path, count] with a path that is not empty and a count of at least 0',
    "p": '["p", path, index, count, items] with numbers of at least 0',
    "m": '["m", path, order] with each index once',
}
