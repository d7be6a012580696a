"""Runs a blocking function in a thread of its own.

A thread cannot be ended from outside. So it comes from no pool, which functions that hang would use up, and it keeps no
process from ending. Proved by tests/actors/agent/test_threads.py.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import Any

Outcome = tuple[Any, BaseException | None]


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what the function returns and raise what it raises, whatever that is. Cancelling this leaves the thread behind."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Outcome] = loop.create_future()
    context = copy_context()

    def work() -> None:
        outcome = context.run(_outcome, function, args, kwargs)
        try:
            loop.call_soon_threadsafe(_settle, ended, outcome)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            return

    Thread(target=work, name=f"tool {getattr(function, '__name__', '')}", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return result


def _outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
    """Call the function; what it raises is handed on as a value, since not every exception can pass through a future."""
    try:
        return function(*args, **kwargs), None
    except BaseException as error:  # noqa: BLE001
        return None, error


def _settle(ended: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not ended.done():
        ended.set_result(outcome)
