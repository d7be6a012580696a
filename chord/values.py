"""Strict JSON: what a value may be, checked while it is copied.

A value that has passed through `copy_json` is made of exact built-in types, shares no container with its source, and
can be written as UTF-8 JSON text that reads back equal. Imports text and errors of this room only.
Proved by tests/chord/test_values.py.
"""

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any, TypeAlias

from .errors import InvalidJson, quote
from .text import is_unicode, join_halves

Json: TypeAlias = Any
"""A JSON value: None, bool, int, finite float, str, or a list or str-keyed dict of such. (mypy has no use for more.)"""

MAX_DEPTH = 200
"""Deepest nesting of containers in a document: within what JSON parsers and Python's stack take with ease."""

MAX_NUMBER = int(sys.float_info.max)
"""Largest magnitude of a number: beyond it there is no double, and in JSON text no number."""

ABSENT: Any = object()
"""Stands for "no value", where None would be JSON's null."""


class JsonSource:  # not an ABC: isinstance on one takes four times as long, and copying asks it often
    """Stands for a JSON value that may change later, like a draft. `copy_json` takes it for its current value."""

    __slots__ = ()

    @abstractmethod
    def current_json(self) -> Json:
        """The value now, possibly shared: to be read at once, never changed, never kept."""


def copy_json(value: object, *, path: Iterable[str | int] = ()) -> Json:
    """Check that `value` is strict JSON and return a copy that shares no container with it.

    Accepted are None, bool, int, finite float, str, list, and dict with str keys, of exactly these types; and drafts,
    which count as their current value. An int that JavaScript cannot hold exactly (beyond 2**53) is kept as it is:
    Python and storage keep it, a replica in a browser rounds it. `path` says where the value is going to stand; it
    only serves the error message.

    Raises:
        InvalidJson: for any other type (subclasses too), NaN and infinities, an int beyond the largest double (which
            JSON parsers take for infinite, or refuse), keys that are not str, text with lone surrogates (see
            `valid_text`), cycles, and nesting deeper than `MAX_DEPTH` containers.
    """
    return copy_below(value, 0, path=path)


def copy_below(value: object, depth: int, *, halves: bool = False, path: Iterable[str | int] = ()) -> Json:
    """`copy_json` for a value that will stand inside `depth` containers. With `halves`, lone surrogates may pass."""
    try:
        return _copy(value, depth, halves)
    except _Refused:
        raise _explain(value, depth, halves, tuple(path)) from None
    except RecursionError:
        raise InvalidJson(f"expected strict JSON at {_show(tuple(path))}, got more than the stack can hold") from None


class _Refused(Exception):
    """The copier met something that is not strict JSON. Where and why is for the slower search to say."""


def _copy(value: Any, depth: int, halves: bool) -> Json:
    kind = type(value)
    if kind is str:
        return _copy_text(value, halves)
    if kind is bool or value is None or (kind is int and -MAX_NUMBER <= value <= MAX_NUMBER):
        return value
    if kind is float and isfinite(value):
        return value
    if kind is dict:
        return _copy_dict(value, depth + 1, halves)
    if kind is list:
        return _copy_list(value, depth + 1, halves)
    if isinstance(value, JsonSource):
        return _copy(value.current_json(), depth, halves)
    raise _Refused


def _copy_text(text: str, halves: bool) -> str:
    if is_unicode(text):
        return text
    if halves:
        return join_halves(text)
    raise _Refused


# The two loops repeat what `_copy` decides, since a call for each item would half as much again cost what a copy costs,
# and so that a level of nesting takes one frame of Python's stack.


def _copy_dict(source: dict[Any, Any], depth: int, halves: bool) -> dict[str, Json]:
    if depth > MAX_DEPTH:
        raise _Refused
    copy = {}
    for key, item in source.items():
        if type(key) is not str:
            raise _Refused
        if not key.isascii():
            key = _copy_text(key, halves)  # noqa: PLW2901
        kind = type(item)
        if kind is str:
            copy[key] = item if item.isascii() else _copy_text(item, halves)
        elif kind is bool or item is None or (kind is int and -MAX_NUMBER <= item <= MAX_NUMBER):
            copy[key] = item
        elif kind is dict:
            copy[key] = _copy_dict(item, depth + 1, halves)
        elif kind is list:
            copy[key] = _copy_list(item, depth + 1, halves)
        else:
            copy[key] = _copy(item, depth, halves)
    return copy


def _copy_list(source: list[Any], depth: int, halves: bool) -> list[Json]:
    if depth > MAX_DEPTH:
        raise _Refused
    copy: list[Json] = []
    add = copy.append
    for item in source:
        kind = type(item)
        if kind is str:
            add(item if item.isascii() else _copy_text(item, halves))
        elif kind is dict:
            add(_copy_dict(item, depth + 1, halves))
        elif kind is bool or item is None or (kind is int and -MAX_NUMBER <= item <= MAX_NUMBER):
            add(item)
        elif kind is list:
            add(_copy_list(item, depth + 1, halves))
        else:
            add(_copy(item, depth, halves))
    return copy


def _explain(value: object, depth: int, halves: bool, path: tuple[str | int, ...]) -> InvalidJson:
    """Search the refused value for its first fault, in the order in which the copier walks."""
    where, fault = next(_faults(value, depth, halves, path, ()))
    return InvalidJson(f"expected strict JSON, got {fault} at {_show(where)}")


def _faults(
    value: Any, depth: int, halves: bool, path: tuple[str | int, ...], above: tuple[int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, JsonSource):
        value = value.current_json()
    kind = type(value)
    if kind is not dict and kind is not list:
        fault = _leaf_fault(value, halves)
        if fault is not None:
            yield path, fault
        return
    if id(value) in above:
        yield path, "a cycle"
        return
    if depth == MAX_DEPTH:
        yield path, f"nesting deeper than {MAX_DEPTH} containers"
        return
    for key, item in value.items() if kind is dict else enumerate(value):
        if kind is dict and (type(key) is not str or not (halves or is_unicode(key))):
            yield path, f"the key {quote(key)}"
            return
        yield from _faults(item, depth + 1, halves, (*path, key), (*above, id(value)))


def _leaf_fault(value: Any, halves: bool) -> str | None:
    kind = type(value)
    if kind is str:
        return None if halves or is_unicode(value) else "text with a lone surrogate (repair it with valid_text)"
    if kind is float:
        return None if isfinite(value) else repr(value)
    if kind is int:
        return None if -MAX_NUMBER <= value <= MAX_NUMBER else f"an int of {value.bit_length()} bits"
    return None if kind in _LEAVES else f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _show(path: tuple[str | int, ...]) -> str:
    """A path as one would write it in code: `$["rows"][3]`."""
    return "$" + "".join(f"[{segment!r}]" for segment in path)


def same_json(one: Json, other: Json) -> bool:
    """Whether two JSON values are the same, with 1, 1.0 and True told apart; the order of keys does not count."""
    if one is other:
        return True
    if type(one) is not type(other) or one != other:  # `==` on containers runs in C and settles most cases
        return False
    if type(one) is dict:
        return all(same_json(item, other[key]) for key, item in one.items())
    return type(one) is not list or all(map(same_json, one, other))


def clone(value: Json) -> Json:
    """A copy of a value known to be strict JSON, with no container shared."""
    if type(value) is dict:
        return {key: item if type(item) in _LEAVES else clone(item) for key, item in value.items()}
    if type(value) is list:
        return [item if type(item) in _LEAVES else clone(item) for item in value]
    return value


_LEAVES = frozenset({str, int, float, bool, type(None)})
