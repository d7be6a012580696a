"""What the JSONL tests share: a store on a directory, its files, and file operations that are listed and fail."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.storage.conformance_rig import Rig
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.jsonl_files import DiskFiles


@asynccontextmanager
async def opened(path: Path, key: str = "s", **options) -> AsyncIterator[Rig]:
    """Open a JSONL store, with a rig whose counters go on from what is stored, and close it."""
    storage = JsonlStorage(path, clock=lambda: 7, **options)
    await storage.open()
    try:
        rig = Rig(storage, reopen=False, key=key)
        await catch_up(rig)
        yield rig
    finally:
        await storage.close()


async def catch_up(rig: Rig) -> None:
    """Set a rig's counters to what is stored."""
    known = await rig.storage.session(rig.key)
    rig.seq, rig.last_id = (known.seq, known.last_id) if known else (0, 0)


def with_store(path: Path, body, **options):
    """Run a coroutine on an open store."""

    async def run():
        async with opened(path, **options) as rig:
            return await body(rig)

    return asyncio.run(run())


def lines(path: Path) -> list[dict]:
    """Decode a file's lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def tree(path: Path) -> dict[str, bytes]:
    """Read every JSONL file below a directory."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*.jsonl*"))}


def plant(path: Path, files: dict[str, bytes]) -> None:
    """Write files below a directory."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


class ListedFiles(DiskFiles):
    """The disk, with a list of the operations that change something, one of which may fail.

    A failure comes before the operation, after it, or, for writing, with half of the data written ("short").
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self.operations: list[str] = []
        self._failure = None

    def fail(self, operation: str, call: int, mode: str, error: int = errno.EIO) -> None:
        """Let the n-th call of an operation fail from now on; forget the list."""
        self.operations.clear()
        self._failure = (operation, call, mode, error)

    def heal(self) -> None:
        """Let nothing fail any more; forget the list."""
        self.operations.clear()
        self._failure = None

    def _run(self, operation: str, act, *paths: Path, half=None) -> None:
        names = " ".join(os.path.relpath(path, self._root) for path in paths)
        self.operations.append(f"{operation} {names}")
        calls = sum(listed.startswith(f"{operation} ") for listed in self.operations)
        if self._failure is None or self._failure[:2] != (operation, calls):
            act()
            return
        _, _, mode, error = self._failure
        {"before": lambda: None, "short": half, "after": act}[mode]()
        raise OSError(error, "a test asked for it")

    def make_directory(self, path):
        self._run("mkdir", lambda: super(ListedFiles, self).make_directory(path), path)

    def append(self, path, data, at):
        act = super().append
        self._run("append", lambda: act(path, data, at), path, half=lambda: act(path, data[: len(data) // 2], at))

    def write(self, path, data):
        act = super().write
        self._run("write", lambda: act(path, data), path, half=lambda: act(path, data[: len(data) // 2]))

    def truncate(self, path, size):
        self._run("truncate", lambda: super(ListedFiles, self).truncate(path, size), path)

    def rename(self, source, target):
        self._run("rename", lambda: super(ListedFiles, self).rename(source, target), source, target)

    def remove(self, path):
        self._run("remove", lambda: super(ListedFiles, self).remove(path), path)

    def flush(self, path):
        self._run("flush", lambda: super(ListedFiles, self).flush(path), path)

    def flush_directory(self, path):
        self._run("flushdir", lambda: super(ListedFiles, self).flush_directory(path), path)
