"""What an open JSONL store runs on: the owner lock, the journal, and the one thread that touches its files.

Whatever was begun on the thread runs to its end, and the lock is given up behind it, so that no write of a former owner
meets the next one. Proved by tests/storage/test_jsonl_life.py.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import current_thread
from typing import ParamSpec, TypeVar

from .errors import StorageInUse
from .jsonl_files import Files, storage_errors
from .jsonl_journal import Journal
from .jsonl_recovery import Recovery, recover
from .owner import OwnerLock

P = ParamSpec("P")
R = TypeVar("R")

_THREAD = "perdure-jsonl"


class Engine:
    """An open store's files."""

    def __init__(self, lock: OwnerLock, journal: Journal, thread: ThreadPoolExecutor) -> None:
        self.journal = journal
        self._lock = lock
        self._thread = thread

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function on the thread, in the order of the calls, to its end, whether somebody waits for it or not."""
        return await _run(self._thread, partial(function, *args, **kwargs))

    async def change(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that changes files. Raises StorageFenced, and does not run it, when the lock was taken away.

        Files have no transactions, so a process that is stopped between this look and its write still writes.
        """
        return await self.run(self._change, partial(function, *args, **kwargs))

    def _change(self, function: Callable[[], R]) -> R:
        self._lock.check()
        return function()

    async def close(self) -> None:
        """Give up ownership, and wait for the thread's end."""
        try:
            await self.run(self._lock.release)
        finally:
            self._thread.shutdown()

    def abandon(self) -> None:
        """Close from any thread, without a loop."""
        with suppress(RuntimeError):  # the interpreter is ending: then the thread has come to its end before
            self._thread.submit(self._lock.release)
        self._thread.shutdown(wait=not current_thread().name.startswith(_THREAD))


async def open_engine(path: Path, files: Files, clock: Callable[[], int], *, fsync: bool) -> tuple[Engine, Recovery]:
    """Take ownership of a directory and recover what is in it.

    Raises StorageInUse, SchemaTooNew, StorageCorrupt, and StorageError when the directory cannot be used.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix=_THREAD)
    try:
        lock, journal, found = await _run(thread, partial(_open_files, path, files, clock, fsync=fsync))
    except BaseException:
        thread.shutdown(wait=False)
        raise
    return Engine(lock, journal, thread), found


def _open_files(
    path: Path, files: Files, clock: Callable[[], int], *, fsync: bool
) -> tuple[OwnerLock, Journal, Recovery]:
    root = path.resolve()
    with storage_errors(root):
        files.make_directory(root)
        lock = _take(root, clock())
        try:
            found = recover(root, files)
            journal = Journal(root, files, fsync=fsync)
            journal.repair(found)
        except BaseException:
            lock.release()
            raise
    return lock, journal, found


def _take(root: Path, now: int) -> OwnerLock:
    """Lock a directory from inside, so that no other name of it leads past the lock."""
    lock = OwnerLock(str(root / "store"))
    try:
        lock.acquire(now)
    except StorageInUse as error:
        raise StorageInUse(str(root), pid=error.pid, host=error.host) from None
    return lock


async def _run(thread: ThreadPoolExecutor, function: Callable[[], R]) -> R:
    return await asyncio.get_running_loop().run_in_executor(thread, function)
