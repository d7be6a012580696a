"""Helpers for tests with real processes."""

import asyncio
import time
from pathlib import Path

from perdure.actors.tools.processes import started_at


def alive(pid):
    """Whether a process is there that has not ended; one that nobody has reaped has."""
    return started_at(int(pid)) is not None


async def until(condition, within=10.0):
    """Wait for something that only the operating system can tell, and give it."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.01)
    return value


def pid_in(path):
    """The pid that a command has written to a file, once it has."""
    path = Path(path)
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else None
