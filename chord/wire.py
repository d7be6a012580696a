"""Operations in the short form for a stream: a path is written out once, then named by a number or left out.

    ["#", id, path]   names a path; stands right before the operation that uses the path for the second time
    ["a", id, text]   a path by its name                  ["a", text]   the path of the operation before, in one batch

Names live across batches until a replacement, which forgets them all on both sides. So there is one encoder and one
decoder per stream, and every batch goes through both, in order. Proved by the wire vectors and
tests/chord/test_wire.py.
"""

from .apply import MAX_SAFE, RESERVED, VERBS, Op, Path, check_segment, is_count, misshapen
from .errors import InvalidOp, PathMissing, quote

_MAX_PATHS = 10_000
"""Paths that an encoder remembers between two replacements; what comes later is written out each time."""


class Encoder:
    """Encodes the operation batches of one stream."""

    __slots__ = ("_ids", "_used")

    def __init__(self) -> None:
        self._ids: dict[tuple[str | int, ...], int] = {}
        self._used: set[tuple[str | int, ...]] = set()

    def encode(self, ops: list[Op]) -> list[Op]:
        """The wire form of a batch. Trusts `ops` and shares their parts: neither may be changed afterwards."""
        wire: list[Op] = []
        previous: tuple[str | int, ...] | None = None
        for op in ops:
            if op[0] == "r":
                self._ids.clear()
                self._used.clear()
                previous = None
                wire.append(op)
                continue
            path = tuple(op[1])
            if path == previous:
                wire.append([op[0], *op[2:]])
                continue
            previous = path
            name = self._ids.get(path)
            if name is None and path in self._used:
                name = self._ids[path] = len(self._ids)
                wire.append(["#", name, op[1]])
            if name is None:
                self._remember(path)
                wire.append(op)
            else:
                wire.append([op[0], name, *op[2:]])
        return wire

    def _remember(self, path: tuple[str | int, ...]) -> None:
        if len(self._used) < _MAX_PATHS:
            self._used.add(path)


class Decoder:
    """Decodes the wire batches of one stream. After an error it is out of step, and so is the stream."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[float, Path] = {}

    def decode(self, wire: list[Op]) -> list[Op]:
        """The operations of a batch, checked as far as can be without the value that they are for.

        Raises:
            InvalidOp: it is no batch, or an operation has the wrong shape.
            UnsafePath: a path holds a reserved key, or what is no key and no index.
            PathMissing: a path is left out or named where none is known, or leads to the root for s, d, a or t.
        """
        if type(wire) is not list:
            raise InvalidOp(f"expected a list of operations, got {quote(wire)}")
        ops: list[Op] = []
        previous: Path | None = None
        for short in wire:
            if type(short) is not list or not short:
                raise InvalidOp(f"expected an operation, got {quote(short)}")
            if short[0] == "#":
                self._define(short)
                continue
            op = self._spell_out(short, previous)
            previous = op[1] if op[0] != "r" else None
            ops.append(op)
        return ops

    def _define(self, short: Op) -> None:
        if len(short) != 3 or not is_count(short[1]) or type(short[2]) is not list:
            raise InvalidOp(f'expected ["#", id, path], got {quote(short)}')
        self._paths[_name(short[1])] = _checked(short[2], short)

    def _spell_out(self, short: Op, previous: Path | None) -> Op:
        if type(short[0]) is not str or short[0] not in VERBS:
            raise InvalidOp(f"expected one of # r s d a t p m, got {quote(short)}")
        arity, takes, _, at_root = VERBS[short[0]]
        if len(short) == arity:
            if short[0] == "r":
                self._paths.clear()
                return short
            path: Path | None = self._path(short)
            op = short.copy()
            op[1] = path
        elif len(short) == arity - 1 and short[0] != "r":
            path = previous
            op = [short[0], path or [], *short[1:]]
        else:
            raise misshapen(short)
        if not takes(op):
            raise misshapen(op)
        if path is None:
            raise PathMissing(f"no path is given, and none before it in its batch, for {quote(short)}")
        if not path and not at_root:
            raise PathMissing(f"the path leads to the root, which only r, p and m can change, in {quote(short)}")
        return op

    def _path(self, short: Op) -> Path:
        """The path that an operation gives, written out or by its name."""
        place = short[1]
        if type(place) is list:
            return _checked(place, short)
        path = self._paths.get(place) if type(place) is int else None
        if path is not None:
            return path
        if not is_count(place):
            raise InvalidOp(f"expected a path or the id of one, got {quote(short)}")
        path = self._paths.get(_name(place))
        if path is None:
            raise PathMissing(f"no path was named {place}, in {quote(short)}")
        return path


def _checked(path: Path, short: Op) -> Path:
    for segment in path:
        if type(segment) is not str or segment in RESERVED:
            check_segment(segment, short)
    return path


def _name(number: float) -> float:
    return number if number <= MAX_SAFE else float(number)
