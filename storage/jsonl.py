"""The JSONL backend: a directory of readable files for each session, and all of it in memory while the store is open.

Every commit is one line of its session's ``main.jsonl``, which is the moment at which it exists; what documents and
live tasks hold is in files beside it, which are cut down as soon as nobody can ask for their past. Reads are answered
from memory and never wait. Opening reads everything, so this is a backend for stores that fit in memory, and for people
who want to look at them; SQLite is the one for many sessions.

What a deleted conversation has said goes from memory, and the files of its documents go; the lines of ``main.jsonl`` stay,
and nothing reads them as anything, until the session is deleted. A copy of the session (``transfer``) has none of them.

    jsonl_engine      the lock, the thread, the journal
    jsonl_steps       opening, writing, closing: one at a time, to the end
    jsonl_group       batches as lines, and lines as batches
    jsonl_reclaim     what side files need not hold any more
    jsonl_journal     the order in which files are written
    jsonl_recovery    what is stored, from the files that a crash left
    jsonl_format      lines and names
    jsonl_files       file operations

Proved by tests/storage/test_jsonl*.py.
"""

import asyncio
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from . import codec
from .checks import check_text, scope_id
from .errors import StorageClosed, StorageFenced, StorageRejected
from .jsonl_engine import Engine, open_engine
from .jsonl_files import DiskFiles, Files
from .jsonl_format import SessionHeader, document_side
from .jsonl_group import Prepared, detach, encode_group, resolve_copies
from .jsonl_reclaim import endangered, freed, remainder
from .jsonl_steps import Steps
from .memory import MemoryStorage
from .memory_session import MemorySession, Undo
from .records import Batch, DocumentRecord, Scope, TaskRecord

P = ParamSpec("P")
R = TypeVar("R")
Side = tuple[str, str]
"""A session's key, and one of its side files."""


class JsonlStorage(MemoryStorage):
    """A store in a directory, owned by one process at a time. The directory is made if its parent exists.

    An acknowledged commit survives the death of the process; with ``fsync=True`` also a loss of power: its marker, the
    records that it refers to and the names of their files are flushed before it is acknowledged. A group is stored whole
    or not at all, over all its sessions, whenever a crash comes. Damage that no crash explains is StorageCorrupt at
    ``open``, and then nothing is changed.

    ``clock`` gives the time in milliseconds with which new sessions are stamped, ``files`` does the file operations.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = False,
        clock: Callable[[], int] | None = None,
        files: Files | None = None,
    ) -> None:
        super().__init__(clock=clock)
        self.path = os.fspath(path)
        if not self.path:
            raise ValueError("expected the path of a directory, not ''; use MemoryStorage for a store in memory")
        self._fsync = fsync
        self._files = files or DiskFiles()
        self._steps = Steps()
        self._engine: Engine | None = None
        self._failed = False
        self._live: dict[str, set[int]] = {}
        self._unreclaimed: set[Side] = set()

    # --- life

    async def open(self) -> None:
        """Take ownership, recover, and be ready; does nothing to an open store.

        Unconfirmed ends of files are cut. With ``fsync`` whatever is found is flushed before it is believed. Raises
        StorageInUse, SchemaTooNew, StorageCorrupt, and StorageError when the directory cannot be used. A cancelled open
        closes again.
        """
        try:
            await self._steps.run(self._start)
        except asyncio.CancelledError:
            self._steps.run(self._stop)
            raise

    async def close(self) -> None:
        """Finish the writes that were begun, forget everything and give up ownership. Idempotent."""
        await self._steps.run(self._stop)

    async def _start(self) -> None:
        if self._engine is not None:
            return
        self._engine, found = await open_engine(Path(self.path), self._files, self._clock, fsync=self._fsync)
        self._forgotten = weakref.finalize(self, _close_forgotten, self.path, self._engine)
        self._failed = False
        self._last_number = found.last_number
        for one in found.sessions:
            if one.session is not None and one.header is not None:
                self._take_over(one.session, one.header.number)
        await self._reclaim([side for one in found.sessions for side in one.superfluous()])

    async def _stop(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            self._forget()
            self._forgotten.detach()
            await engine.close()

    def _take_over(self, session: MemorySession, number: int) -> None:
        self._sessions[session.key] = session
        self._numbers[session.key] = number
        self._live[session.key] = {task for task, body in session.tasks.items() if codec.decode_task(body).live}

    def _forget(self) -> None:
        self._sessions.clear()
        self._numbers.clear()
        self._live.clear()
        self._unreclaimed.clear()

    def _check_open(self) -> None:
        self._opened()

    def _opened(self) -> Engine:
        if self._engine is None:
            raise StorageClosed(f"{self.path} is not open")
        return self._engine

    def _usable(self) -> Engine:
        if self._failed:
            raise StorageClosed(f"{self.path} has failed; close it and open it again")
        return self._opened()

    # --- writing

    async def write(self, batches: Sequence[Batch]) -> None:
        """Store all batches, in order, and then reclaim what they make superfluous.

        Cancelling the caller does not cancel the write. Raises StorageRejected (with the index of the bad batch) or
        StorageFenced when nothing was written; StorageFull or another StorageError when the outcome is unknown;
        StorageClosed from then on.
        """
        self._usable()
        detached = [_refuse_at(index, detach, batch) for index, batch in enumerate(batches)]
        if detached:
            await self._steps.run(partial(self._store, detached))

    async def _store(self, batches: list[Batch]) -> None:
        engine = self._usable()
        group = self._prepare(batches)
        await self._change(engine.journal.write, encode_group(group))
        before = {one.session.key: endangered(one.session, _batches_of(group, one.session)) for one in group}
        for one in group:
            self._publish(one)
        sides = [(one.session.key, side) for one in group for side in freed(one.session, one.batch)]
        for key, documents in before.items():
            sides += [(key, document_side(gone)) for gone in documents - self._sessions[key].documents.keys()]
        await self._reclaim(sides)

    async def _change(self, change: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Change files. When that fails its outcome is unknown, and nothing more is changed until the next open."""
        try:
            await self._usable().change(change, *args, **kwargs)
        except StorageFenced:
            raise
        except BaseException:
            self._failed = True
            raise

    def _prepare(self, batches: list[Batch]) -> list[Prepared]:
        """Check that every session will take its batches; leave the sessions as they are."""
        undo = Undo()
        try:
            return [_refuse_at(index, self._prepare_one, batch, undo) for index, batch in enumerate(batches)]
        finally:
            undo.roll_back()

    def _prepare_one(self, batch: Batch, undo: Undo) -> Prepared:
        session = self._session_of(batch, undo)
        header = self._begin(session, undo) if session.seq == 0 else None
        resolved = resolve_copies(session, batch)
        session.apply(batch, undo)
        return Prepared(session, self._numbers[session.key], resolved, header)

    def _begin(self, session: MemorySession, undo: Undo) -> SessionHeader:
        self._last_number += 1
        undo.put(self._numbers, session.key, self._last_number)
        return SessionHeader(key=session.key, created_at=session.created_at, number=self._last_number)

    def _publish(self, one: Prepared) -> None:
        if one.header is not None:
            self._take_over(one.session, one.number)
        one.session.apply(one.batch, Undo())
        live = self._live[one.session.key]
        for write in one.batch.writes:
            if type(write) is TaskRecord:
                (live.add if write.live else live.discard)(write.id)

    async def delete_session(self, key: str) -> bool:
        """Delete a session and everything in it; tell whether there was one. Raises what ``write`` raises."""
        self._usable()
        check_text(key)
        return await self._steps.run(partial(self._delete, key))

    async def _delete(self, key: str) -> bool:
        engine = self._usable()
        if key not in self._sessions:
            return False
        await self._change(engine.journal.delete, key, self._numbers[key])
        for table in (self._sessions, self._numbers, self._live):
            table.pop(key)
        self._unreclaimed = {side for side in self._unreclaimed if side[0] != key}
        return True

    # --- what memory alone finds too slowly in a long session

    async def live_tasks(self, session: str) -> list[TaskRecord]:
        """List every task that is not terminal, by id."""
        tasks = self._read(session).tasks
        return [codec.decode_task(tasks[task]) for task in sorted(self._live.get(session, ()))]

    async def find_document(
        self, session: str, kind: str, scope: Scope, key: str | None = None, at: int | None = None
    ) -> DocumentRecord | None:
        """Resolve an address to the incarnation alive at a commit sequence (None: now)."""
        if at is not None:
            return await super().find_document(session, kind, scope, key, at)
        stored = self._read(session, kind, key)
        found = stored.addresses.get((type(scope), scope_id(scope), kind, key))
        return None if found is None else stored.documents[found].record

    # --- reclamation

    async def idle(self) -> None:
        """Use a moment in which nobody waits for a write: reclaim what could not be reclaimed before."""
        self._opened()
        await self._steps.run(partial(self._reclaim, ()))

    async def _reclaim(self, sides: Iterable[Side]) -> None:
        """Cut side files down, these and those where it failed before. Nothing depends on it, so errors only delay it."""
        due = {*sides, *self._unreclaimed}
        if due and self._engine is not None and not self._failed:
            plan = {(key, side): remainder(self._sessions[key], side) for key, side in sorted(due)}
            with suppress(StorageFenced):  # the newer owner reclaims
                self._unreclaimed = await self._engine.change(self._engine.journal.reclaim, plan)


def _batches_of(group: Iterable[Prepared], session: MemorySession) -> list[Batch]:
    """List a session's batches of a group."""
    return [one.batch for one in group if one.session is session]


def _refuse_at(index: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that may refuse a batch, and let the refusal say which one."""
    try:
        return function(*args, **kwargs)
    except StorageRejected as error:
        raise StorageRejected(str(error), index=index) from error


def _close_forgotten(path: str, engine: Engine) -> None:
    """Close a store whose object was dropped, or whose process ends, while it was open."""
    engine.abandon()
    # Last, since a filter may turn it into an error.
    warnings.warn(f"{path} was left open; close it before its loop ends", RuntimeWarning, stacklevel=1)
