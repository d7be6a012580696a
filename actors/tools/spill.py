"""The complete output of a command, in a file once it is too long to be kept. Proved by tests/actors/tools/test_commands.py."""

import asyncio
import os
import tempfile
from typing import BinaryIO

from .blocking import in_thread
from .environment import SpillLimits


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
            descriptor, self.path = tempfile.mkstemp(prefix="pi-output-", suffix=".log", dir=self._folder)
            self._file = os.fdopen(descriptor, "wb", buffering=0)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    async def close(self) -> None:
        """Give the file up; it stays for whoever wants to read it."""
        async with self._one_at_a_time:
            if self._file is not None:
                self._file.close()
