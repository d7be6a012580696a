"""Runs blocking work in a thread, with a clear meaning of cancel. Proved by tests/actors/tools/test_files.py."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return what the work returns. Cancelled before, nothing is done; cancelled meanwhile, it is done to its end first.

    A second cancel leaves the thread behind.
    """
    await asyncio.sleep(0)
    done = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    done.add_done_callback(_look_at)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if not done.done():
            await asyncio.wait([done])
        raise


def _look_at(done: "asyncio.Future[Any]") -> None:
    """What it raises after a cancel interests nobody."""
    if not done.cancelled():
        done.exception()
