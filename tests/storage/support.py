"""What the storage tests share."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from perdure.storage.conformance_rig import Rig
from perdure.storage.sqlite import SqliteStorage


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Rig]:
    """Open a SQLite store, process-durable unless told otherwise, and close it."""
    storage = SqliteStorage(path, **({"durability": "process"} | options))
    await storage.open()
    try:
        yield Rig(storage, reopen=False)
    finally:
        await storage.close()


def with_store(path: Path, body: Callable[[Rig], Awaitable[Any]], **options: Any) -> Any:
    """Run a coroutine on an open store."""

    async def run() -> Any:
        async with opened(path, **options) as rig:
            return await body(rig)

    return asyncio.run(run())


def python(source: str, *arguments: object, prefix: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Start another Python process on a script, under another program if a prefix names one."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", source, *map(str, arguments)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a disk in memory of so many bytes; skips the test where that is not allowed."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
