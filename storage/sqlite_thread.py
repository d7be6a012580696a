"""aiosqlite's connection, made safe to forget: a thread for SQLite that never keeps its process alive.

The stock worker thread is no daemon, so an unclosed connection hangs the interpreter's exit, and it dies with a
traceback when a loop is closed under a running call. Proved by tests/storage/test_exit.py.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any, ParamSpec, TypeVar

import aiosqlite
from aiosqlite.core import _STOP_RUNNING_SENTINEL, set_exception, set_result

from .errors import StorageClosed

P = ParamSpec("P")
R = TypeVar("R")
_Queue = SimpleQueue[tuple["asyncio.Future[Any] | None", Callable[[], Any]]]


class SqliteThread(aiosqlite.Connection):
    """One SQLite connection and the daemon thread that alone uses it.

    ``connector`` makes the connection, on that thread.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread = Thread(target=_work, args=(self._tx,), name="perdure-sqlite", daemon=True)

    async def open(self) -> None:
        """Start the thread and connect. Raises what the connector raises, and leaves no thread behind then."""
        try:
            await self
        except Exception:
            self._thread.join()
            raise

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function on the thread, in the order of the calls.

        Once called it runs to its end; cancelling the caller only means that nobody learns how it ended. Raises
        StorageClosed when the connection is being closed, or is.
        """
        if not self._running or self._connection is None:
            raise StorageClosed("the store is closed")
        result: R = await self._execute(function, *args, **kwargs)  # type: ignore[no-untyped-call]
        return result

    def run_unwatched(self, function: Callable[[], object]) -> None:
        """Run a function on the thread after the calls so far; nobody waits for it."""
        self._tx.put_nowait((None, function))

    @property
    def sqlite(self) -> sqlite3.Connection:
        """The connection, for functions on the thread."""
        return self._conn

    async def close(self) -> None:
        """Close the connection after the calls before it, and wait for the thread's end."""
        try:
            await super().close()
        finally:
            self._thread.join()

    def abandon(self, timeout_s: float) -> None:
        """Close from any thread, without a loop, waiting so long at most."""
        connection = self._connection
        self._connection = None
        self._running = False
        if connection is not None:
            self._tx.put_nowait((None, partial(_close, connection)))
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join(timeout_s)


def _close(connection: sqlite3.Connection) -> object:
    connection.close()
    return _STOP_RUNNING_SENTINEL


def _work(queue: _Queue) -> None:
    """Run what is queued until told to stop."""
    while _work_once(*queue.get()) is not _STOP_RUNNING_SENTINEL:
        pass


def _work_once(future: "asyncio.Future[Any] | None", function: Callable[[], Any]) -> object:
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - the waiter gets it, as it would without a thread
        _post(future, set_exception, error)
        return None
    _post(future, set_result, result)
    return result


def _post(future: "asyncio.Future[Any] | None", settle: Callable[..., None], outcome: object) -> None:
    if future is not None:
        with suppress(RuntimeError):  # its loop was closed: nobody waits any more
            future.get_loop().call_soon_threadsafe(settle, future, outcome)
