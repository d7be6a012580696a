"""Whether somebody's code has failed or was told to stop. Proved by tests/actors/agent/test_tooltask.py."""

import asyncio


def told_to_stop(error: BaseException) -> bool:
    """Whether an exception is somebody's cancel of this asyncio task, not one that the code let out of its own."""
    current = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and current is not None and current.cancelling() > 0
