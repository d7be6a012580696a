"""``write``: a whole file. Proved by tests/actors/tools/test_write.py."""

import os

from ..agent.tool import Tool, ToolResult
from ..agent.toolcontext import ToolContext
from .environment import Environment, FileError
from .paths import absolute
from .places import EnvironmentOf, environment_of
from .queues import turn


def write_tool(where: Environment | EnvironmentOf) -> Tool:
    """Make the tool."""

    async def write(ctx: ToolContext, path: str, content: str) -> ToolResult:
        """Write a file: make it, with the directories above it, or replace all that it holds.

        Args:
            path: The file, absolute or below the working directory.
            content: All that the file is to hold.
        """
        environment = await environment_of(where, ctx)
        async with turn(await file_key(environment, path)):
            await environment.make_directory(os.path.dirname(os.path.join(environment.cwd, path)), recursive=True)
            await environment.write(path, content)
        size = len(content.encode("utf-8", "replace"))
        return ToolResult(content=f"Wrote {size:,} bytes to {path}", details={"path": path, "bytes": size})

    return Tool(write)


async def file_key(environment: Environment, path: str) -> tuple[str, str]:
    """Give what tells a file from all others: its file system, and where all links lead, as far as it is there."""
    missing: list[str] = []
    here = absolute(environment.cwd, path)
    while True:
        try:
            real = await environment.canonical(here)
            return environment.file_system, os.path.join(real, *reversed(missing))
        except FileError as error:
            if error.code != "not_found" or os.path.dirname(here) == here:
                raise
        here, name = os.path.split(here)
        missing.append(name)
