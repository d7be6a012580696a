"""The complete output of a command, in a file once it is too long to be kept. Proved by tests/actors/tools/test_commands.py."""

import asyncio
import os
import tempfile
import time
from contextlib import suppress
from typing import BinaryIO

from .blocking import in_thread
from .environment import SpillLimits

PREFIX, SUFFIX = "pi-output-", ".log"


class Spill:
    """Keeps raw output up to the limits in memory, then all of it in a file that only this user can read.

    ``path`` is None until there is one. Whoever writes waits for the disk, so nothing piles up.
    """

    def __init__(self, limits: SpillLimits, folder: str | None) -> None:
        self.path: str | None = None
        self._limits = limits
        self._folder = folder
        self._kept: list[bytes] = []
        self._bytes = self._lines = 0
        self._file: BinaryIO | None = None
        self._one_at_a_time = asyncio.Lock()  # there are two streams

    async def write(self, chunk: bytes) -> None:
        """Take a chunk. Raises OSError when the file cannot be written."""
        self._bytes += len(chunk)
        self._lines += chunk.count(b"\n")
        self._kept.append(chunk)
        if self._file is not None or self._bytes > self._limits.max_bytes or self._lines > self._limits.max_lines:
            async with self._one_at_a_time:
                kept, self._kept = self._kept, []
                await in_thread(self._store, b"".join(kept))

    def _store(self, data: bytes) -> None:
        if self._file is None:
            descriptor, self.path = tempfile.mkstemp(prefix=PREFIX, suffix=SUFFIX, dir=self._folder)
            self._file = os.fdopen(descriptor, "wb", buffering=0)
            if self._limits.keep_s is not None:
                sweep(os.path.dirname(self.path), self._limits.keep_s)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    async def close(self) -> None:
        """Give the file up; it stays for whoever wants to read it, for a while."""
        async with self._one_at_a_time:
            if self._file is not None:
                self._file.close()


def sweep(folder: str, keep_s: float) -> None:
    """Remove the files of this user's earlier commands that nobody has written to for so long. Blocking.

    Whatever hinders that is left to the next one: the output at hand matters more.
    """
    before = time.time() - keep_s
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                with suppress(OSError):
                    _remove_old(entry, before)


def _remove_old(entry: "os.DirEntry[str]", before: float) -> None:
    found = entry.stat(follow_symlinks=False)
    if entry.is_file(follow_symlinks=False) and found.st_uid == os.getuid() and found.st_mtime < before:
        os.unlink(entry.path)
