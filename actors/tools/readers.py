"""Readers of files and directories that are too large to be read at once.

Proved by tests/actors/tools/test_readers.py.
"""

import codecs
import os
from collections.abc import Iterator

from .blocking import in_thread
from .disk import describe, open_regular, reporting, whole
from .environment import FileError, FileInfo, Line

CHUNK = 64 * 1024
STEP = 1024 * 1024
"""Bytes that one positional read takes at most, so that a cancel need not wait for more."""


class Descriptor:
    """An open file that knows when it has been closed."""

    _descriptor: int | None = None

    def __init__(self, path: str, *, no_follow: bool = False) -> None:
        self.path = path
        self._descriptor = open_regular(path, no_follow=no_follow)
        self.size = os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """Read once. Blocking."""
        if self._descriptor is None:
            raise FileError("invalid", self.path, "has been closed (invalid)")
        with reporting(self.path):
            return os.pread(self._descriptor, length, offset)

    def close(self) -> None:
        """Close once."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    __del__ = close


class LocalFileReader:
    """See ``environment.FileReader``."""

    def __init__(self, path: str, *, no_follow: bool = False) -> None:
        self._file = Descriptor(path, no_follow=no_follow)
        self.path, self.size = path, self._file.size

    async def read(self, offset: int, length: int) -> bytes:
        """Read in steps."""
        start, left = whole(self.path, "an offset", offset), whole(self.path, "a length", length)
        parts: list[bytes] = []
        while True:
            part = await in_thread(self._file.read_at, start, min(left, STEP))
            parts.append(part)
            start, left = start + len(part), left - len(part)
            if not part or not left:
                return b"".join(parts)

    async def close(self) -> None:
        """Close once."""
        self._file.close()


class LocalLineReader:
    """See ``environment.LineReader``. Holds a chunk and a line, cut to ``longest`` characters."""

    def __init__(self, path: str, longest: int | None) -> None:
        self._file = Descriptor(path)
        self.path = path
        self._longest = longest
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ready: Iterator[Line] = iter(())
        self._part: list[str] = []
        self._kept = self._dropped = 0
        self._ended = False

    async def next(self) -> Line | None:
        """Give the next line."""
        while True:
            line = next(self._ready, None)
            if line is not None and not self._file_closed():
                return line
            if self._ended and not self._file_closed():
                return None
            self._ready = iter(self._lines(await in_thread(self._file.read_at, self._offset, CHUNK)))

    def _file_closed(self) -> bool:
        return self._file._descriptor is None

    def _lines(self, chunk: bytes) -> list[Line]:
        self._offset += len(chunk)
        self._ended = not chunk
        *whole_lines, rest = self._decoder.decode(chunk, final=self._ended).split("\n")
        lines = [self._line(text, terminated=True) for text in whole_lines]
        self._add(rest)
        if self._ended and (self._kept or self._dropped):
            lines.append(self._line("", terminated=False))
        return lines

    def _add(self, text: str) -> None:
        kept = text if self._longest is None else text[: self._longest - self._kept]
        self._part.append(kept)
        self._kept += len(kept)
        self._dropped += len(text) - len(kept)

    def _line(self, text: str, *, terminated: bool) -> Line:
        self._add(text)
        line = Line("".join(self._part), terminated, self._dropped)
        self._part, self._kept, self._dropped = [], 0, 0
        return line

    async def close(self) -> None:
        """Close once."""
        self._file.close()


class LocalDirectoryReader:
    """See ``environment.DirectoryReader``."""

    def __init__(self, path: str) -> None:
        self.path = path
        with reporting(path):
            self._entries = os.scandir(path)
        self._closed = False

    async def next(self, count: int) -> list[FileInfo]:
        """Give the next entries."""
        return await in_thread(self._page, count)

    def _page(self, count: int) -> list[FileInfo]:
        if self._closed:
            raise FileError("invalid", self.path, "has been closed (invalid)")
        found: list[FileInfo] = []
        while len(found) < count:
            with reporting(self.path):
                entry = next(self._entries, None)
            if entry is None:
                break
            one = _still_there(entry.path)
            found += [] if one is None else [one]
        return found

    async def close(self) -> None:
        """Close once."""
        self._closed = True
        self._entries.close()


def _still_there(path: str) -> FileInfo | None:
    with reporting(path):
        try:
            return describe(path, os.lstat(path))
        except FileNotFoundError:
            return None
