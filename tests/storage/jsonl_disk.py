"""A disk in memory that knows what has been flushed, and can lose the rest."""

import copy
import errno
import itertools
import random
from collections.abc import Callable
from pathlib import Path

SECTOR = 64
"""So small that a line spans several."""

Loss = Callable[[], bool]
"""Decides of each thing that was not flushed whether it survives."""


class Node:
    """A file: its content as written, as flushed, and what was written since: (offset, data), or (size, None) cut."""

    def __init__(self) -> None:
        self.data = b""
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []

    def write(self, offset: int, data: bytes | None) -> None:
        self.data = _written(self.data, offset, data)
        self.pending.append((offset, data))

    def flush(self) -> None:
        self.durable, self.pending = self.data, []

    def survivor(self, survives: Loss) -> "Node":
        """Give what is left of the file: each sector of each write survives or does not."""
        left = Node()
        content = self.durable
        for offset, data in self.pending:
            for start, part in [(offset, None)] if data is None else _sectors(offset, data):
                if survives():
                    content = _written(content, start, part)
        left.data = left.durable = content
        return left


def _written(content: bytes, offset: int, data: bytes | None) -> bytes:
    if data is None:
        return content[:offset]
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def _sectors(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    cuts = [offset, *range(offset - offset % SECTOR + SECTOR, offset + len(data), SECTOR), offset + len(data)]
    return [(a, data[a - offset : b - offset]) for a, b in itertools.pairwise(cuts)]


class Directory:
    """Names as they are, as flushed, and the changes since; a renaming is one change."""

    def __init__(self) -> None:
        self.names: dict[str, Node | Directory] = {}
        self.durable: dict[str, Node | Directory] = {}
        self.pending: list[dict[str, Node | Directory | None]] = []

    def change(self, names: "dict[str, Node | Directory | None]") -> None:
        _update(self.names, names)
        self.pending.append(names)

    def flush(self) -> None:
        self.durable, self.pending = dict(self.names), []

    def survivor(self, survives: Loss) -> "Directory":
        left = Directory()
        names = dict(self.durable)
        for change in self.pending:
            if survives():
                _update(names, change)
        left.names = {name: node.survivor(survives) for name, node in names.items()}
        left.flush()
        return left


def _update(names: dict, change: dict) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class SimulatedDisk:
    """File operations on a tree below ``root``. ``moments`` keeps the tree as it was before each operation.

    ``acknowledged`` is for the test to say how far it has got; each moment notes it. ``operations_left`` may be set to let
    the disk fail for good.
    """

    def __init__(self, root: Path, tree: Directory | None = None) -> None:
        self._root = root.resolve()
        self.tree = tree or Directory()
        self.acknowledged = 0
        self.moments: list[tuple[int, Directory]] | None = None
        self.operations_left: float = float("inf")

    def watch(self) -> None:
        """Keep moments from now on."""
        self.moments = []

    def cut(self, name: str, size: int, tail: bytes = b"") -> "SimulatedDisk":
        """Give a copy of the disk with one of ``files`` cut, and perhaps something written behind the cut."""
        disk = SimulatedDisk(self._root, copy.deepcopy(self.tree))
        node = disk.files()[name]
        node.data = node.data[:size] + tail
        return disk

    def after_loss(self, tree: Directory, survives: Loss) -> "SimulatedDisk":
        """Give the disk that a moment's tree would be after a loss of power."""
        return SimulatedDisk(self._root, tree.survivor(survives))

    def files(self) -> dict[str, Node]:
        """List all files by path below the root."""
        return {
            f"{folder}/{name}": node
            for folder, inside in self.tree.names.items()
            if isinstance(inside, Directory)
            for name, node in inside.names.items()
        }

    def note_moment(self) -> None:
        """Keep the tree as it is now."""
        self.operations_left -= 1
        if self.operations_left < 0:
            raise OSError(errno.EIO, "the machine is off")
        if self.moments is not None:
            self.moments.append((self.acknowledged, copy.deepcopy(self.tree)))

    def _find(self, path: Path):
        node = self.tree
        for name in path.relative_to(self._root).parts:
            if not isinstance(node, Directory):
                raise NotADirectoryError(str(path))
            if name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "not there", str(path))
            node = node.names[name]
        return node

    def make_directory(self, path):
        self.note_moment()
        if path != self._root and path.name not in self._find(path.parent).names:
            self._find(path.parent).change({path.name: Directory()})

    def list(self, path):
        found = self._find(path)
        if isinstance(found, Node):
            raise NotADirectoryError(str(path))
        return list(found.names)

    def read(self, path):
        return self._find(path).data

    def append(self, path, data, at):
        self.note_moment()
        if at == 0 and path.name not in self._find(path.parent).names:
            self._find(path.parent).change({path.name: Node()})
        node = self._find(path)
        assert at in (None, len(node.data))
        node.write(len(node.data), data)

    def write(self, path, data):
        self.note_moment()
        node = Node()
        node.write(0, data)
        self._find(path.parent).change({path.name: node})

    def truncate(self, path, size):
        self.note_moment()
        self._find(path).write(size, None)

    def rename(self, source, target):
        self.note_moment()
        self._find(source.parent).change({source.name: None, target.name: self._find(source)})

    def remove(self, path):
        self.note_moment()
        self._find(path)
        self._find(path.parent).change({path.name: None})

    def remove_directory(self, path):
        assert not self.list(path)
        self.remove(path)

    def flush(self, path):
        self.note_moment()
        self._find(path).flush()

    def flush_directory(self, path):
        self.note_moment()
        if path != self._root.parent:
            self._find(path).flush()


def losses(seed: object, count: int) -> list[Loss]:
    """Make ways to lose what was not flushed: all of it, none of it, and so many random parts of it."""
    chosen = [random.Random(f"{seed}/{number}") for number in range(count)]
    return [lambda: False, lambda: True, *(_chance(generator) for generator in chosen)]


def _chance(generator: random.Random) -> Loss:
    likely = generator.random()
    return lambda: generator.random() < likely
