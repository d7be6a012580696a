"""``read``: a part of a text file, or a picture. Proved by tests/actors/tools/test_read.py."""

from typing import Any

from ..agent.output import OutputLimits
from ..agent.results import remark
from ..agent.tool import Tool, ToolResult
from ..agent.toolcontext import ToolContext
from ..models.images import MAX_BYTES, kind_of, picture
from .environment import Environment, FileError
from .places import EnvironmentOf, environment_of

SNIFF = 8_192
"""Bytes at a file's beginning that tell what it is."""


def read_tool(where: Environment | EnvironmentOf, limits: OutputLimits) -> Tool:
    """Make the tool."""

    async def read(ctx: ToolContext, path: str, offset: int = 1, limit: int | None = None) -> ToolResult:
        """Read a file.

        Text comes from the file's beginning up to a limit of lines and bytes; go on with offset. Pictures (PNG, JPEG, GIF,
        WebP) are shown.

        Args:
            path: The file, absolute or below the working directory.
            offset: The number of the first line to read, from 1.
            limit: How many lines to read at most.
        """
        environment = await environment_of(where, ctx)
        start = await _beginning(environment, path)
        if kind_of(start):
            data = await _whole(environment, path)
            return ToolResult(content=[picture(data)], details={"path": path, "bytes": len(data)})
        if b"\0" in start:
            raise FileError("invalid", path, "is a binary file, not text")
        return await _text(environment, path, max(offset, 1), limit, limits)

    return Tool(read, replay="safe", limits=limits)


async def _beginning(environment: Environment, path: str) -> bytes:
    file = await environment.open_file(path)
    try:
        return await file.read(0, SNIFF)
    finally:
        await file.close()


async def _whole(environment: Environment, path: str) -> bytes:
    """Give a picture's bytes, or of one that is too large as many as tell so."""
    file = await environment.open_file(path)
    try:
        return await file.read(0, MAX_BYTES + 1)
    finally:
        await file.close()


async def _text(
    environment: Environment, path: str, offset: int, limit: int | None, limits: OutputLimits
) -> ToolResult:
    page = _Page(limits.max_lines if limit is None else max(1, min(limit, limits.max_lines)), limits.max_bytes)
    lines = await environment.open_lines(path, longest=limits.max_bytes)
    number = 0
    try:
        while not page.full and (line := await lines.next()) is not None:
            number += 1
            if number >= offset:
                text = line.text.removeprefix("\ufeff") if number == 1 else line.text
                page.add(text + "\n" * line.terminated, cut=line.dropped > 0)
    finally:
        await lines.close()
    if not page.taken and offset > max(number, 1):
        raise FileError("invalid", path, f"has {number} lines: there is nothing from line {offset}")
    return page.result(offset)


class _Page:
    """Lines up to a number and a size; a first line that alone is too long is cut."""

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        self._max_lines = max_lines
        self._left = max_bytes
        self.taken: list[str] = []
        self.full = False
        self._cut = False

    def add(self, line: str, *, cut: bool) -> None:
        size = len(line.encode())
        if len(self.taken) == self._max_lines or (size > self._left and self.taken):
            self.full = True
            return
        self._cut = cut or size > self._left
        self.taken.append(line.encode()[: self._left].decode("utf-8", "ignore") if self._cut else line)
        self._left -= size
        self.full = self._cut

    def result(self, offset: int) -> ToolResult:
        last = offset + len(self.taken) - 1
        remarks: list[Any] = []
        if self._cut:
            remarks.append(
                remark("line_cut", f"Line {last} is too long to be shown whole: only its beginning is", "warn")
            )
        if self.full:
            message = f"Lines {offset} to {last} are shown; if there are more, they begin at offset={last + 1}"
            remarks.append(remark("more", message, "info"))
        return ToolResult(content="".join(self.taken), diagnostics=remarks)
