"""A commit from the caller's side, and what happens when its block ends.

When the block ends the transaction is sealed on the line: consequences of task changes are decided in the same batch, ready
tasks are reserved, drafts become operations; then the batch is admitted, the line handed on, and the caller waits for
durability. Everything that can go wrong goes wrong before admission and leaves nothing behind.
Proved by tests/actors/session/test_commit.py.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, TypeVar

import msgspec
import structlog

from ...storage.errors import StorageError
from ...storage.records import (
    Base,
    Batch,
    ConversationDelete,
    DocumentChange,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
    DocumentRetire,
    Faulted,
    MessageDelete,
    MessageRecord,
    Orphaned,
    TaskRecord,
    Terminal,
    Write,
)
from ...supervisors.settlement import Settlement, settle
from .core import MAX_UNDURABLE_WRITES, SessionCore
from .directory import Directory
from .documents import Address, Open, content
from .errors import SessionClosed, SessionFailed
from .mail import end_mail
from .publication import DocumentChanged, Publication
from .tx import BaseTx

TX = TypeVar("TX", bound=BaseTx)

log = structlog.get_logger("perdure.session")


class Commit(Generic[TX]):
    """``async with`` gives the transaction; leaving the block returns when its batch is durable.

    An exception in the block stores nothing. Once the block has ended well, cancelling the caller no longer undoes it.
    ``wait=False`` returns at admission, for steps whose effects stay inside the session.
    Raises SessionFailed, SessionClosed, LineReentry.
    """

    def __init__(self, core: SessionCore, make: Callable[[], TX], *, wait: bool = True) -> None:
        self._core = core
        self._make = make
        self._wait = wait
        self._tx: TX | None = None

    async def __aenter__(self) -> TX:
        await self._acquire()
        try:
            self._core.check()
            self._tx = self._make()
        except BaseException:
            self._core.line.release()
            raise
        return self._tx

    async def _acquire(self) -> None:
        self._core.check()
        if self._core.pending.writes > MAX_UNDURABLE_WRITES:
            self._core.line.refuse_reentry()
            await self._core.drained()
        await self._core.line.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tx = self._tx
        assert tx is not None
        try:
            if error is not None:
                tx.rollback()
                return
            await self._seal(tx)
        finally:
            self._core.line.release()
        if self._wait:
            await self._core.gate.wait(self._core.seq)

    async def _seal(self, tx: TX) -> None:
        try:
            self._core.check()
            changed = await _follow_up(tx)
            prepared = _prepare(tx, await tx.staged_copies())
        except BaseException:
            tx.rollback()
            raise
        _admit(tx, prepared)
        if self._core.scheduler is not None:
            self._core.scheduler.admitted(tx, changed)


class SessionCommit(Generic[TX]):
    """A commit of a session named by key: its current incarnation is found when the block begins."""

    def __init__(self, directory: Directory, key: str, make: Callable[[SessionCore], TX]) -> None:
        self._directory = directory
        self._key = key
        self._make = make
        self._commit: Commit[TX] | None = None

    async def __aenter__(self) -> TX:
        core = await self._directory.core(self._key)
        self._commit = Commit(core, lambda: self._make(core))
        return await self._commit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._commit is not None
        await self._commit.__aexit__(kind, error, trace)


# --- consequences


async def _follow_up(tx: BaseTx) -> dict[int, None]:
    """Stage everything that follows from the block's task changes; name all tasks that changed or may run."""
    core, forest = tx.core, tx.core.forest
    if not tx.touched and not (core.scheduler is not None and core.scheduler.waiting):
        return {}
    concerned: dict[int, None] = {}
    touched: Iterable[int] | None = list(tx.touched)
    while touched is not None:
        settlement = settle(forest, touched, core.clock.now(), list(tx.awaited.values()))
        tx.touched.clear()
        tx.awaited.clear()
        for record in settlement.changed.values():
            tx.rows[record.id] = record
        await _call_hooks(tx, settlement)
        if core.scheduler is not None:
            core.scheduler.reserve(tx, settlement.candidates)
        concerned |= settlement.candidates
        touched = list(tx.touched) or None
    return concerned


async def _call_hooks(tx: BaseTx, settlement: Settlement) -> None:
    for conversation in settlement.withdrawn:
        for hook in tx.core.hooks.withdrawn:
            await hook(tx, conversation)
    for record in settlement.ended:
        assert isinstance(record.state, Terminal)
        if isinstance(record.state.outcome, Faulted | Orphaned) and tx.clean_up:
            await _clean_up(tx, record)
        await tx.retire_documents_of(record.id)
        await end_mail(tx, record.id)
        tx.ended.append(record.id)
        if record.trace is not None:
            _trace(tx, record)


def _trace(tx: BaseTx, record: TaskRecord) -> None:
    """Make a task's span, for when its end is durable. The task ends even if that fails."""
    for span_of in tx.core.hooks.span_of:
        try:
            span = span_of(tx, record)
        except Exception:
            log.exception("span_failed", session=tx.core.key, task=record.id, kind=record.kind)
        else:
            tx.spans += [] if span is None else [span]


async def _clean_up(tx: BaseTx, record: TaskRecord) -> None:
    """Let a task's definition clean up after it. The task ends even if that fails: what was staged before is stored."""
    for undecided in tx.core.hooks.undecided:
        try:
            await undecided(tx, record)
        except (SessionFailed, SessionClosed, StorageError):
            raise
        except Exception:
            log.exception("clean_up_failed", session=tx.core.key, task=record.id, kind=record.kind)


# --- the batch


class _Prepared(msgspec.Struct):
    """A sealed transaction's writes and what its publication says."""

    writes: list[Write]
    documents: list[DocumentChanged] = []
    adopt: list[tuple[Address, Open]] = []
    retire: list[Address] = []


def _prepare(tx: BaseTx, copies: Iterable[DocumentCopy | DocumentCreate]) -> _Prepared:
    """Turn drafts into stored content. Raises what a definition's ``checkpoint_when`` raises."""
    done = _Prepared([*tx.rows.values(), *(MessageDelete(id=deleted) for deleted in tx.deleted), *copies])
    for address, one in tx.closed:
        _prepare_document(done, one)
        _prepare_retirement(done, address, one.loaded.record)
    for address, record in tx.retiring.items():
        _prepare_retirement(done, address, record)
    for address, one in tx.opened.items():
        if _prepare_document(done, one):
            done.adopt.append((address, one))
    done.writes += [ConversationDelete(id=conversation) for conversation in tx.gone]
    return done


def _prepare_document(done: _Prepared, one: Open) -> bool:
    one.prepared = one.change.prepare()
    one.stored = stored = content(one)
    record = one.loaded.record
    if stored is None:
        one.change.abort()
        return False
    if one.created:
        assert isinstance(stored, Base)
        done.writes.append(DocumentCreate(record=record, content=stored))
    else:
        done.writes.append(DocumentChange(id=record.id, content=stored))
    ops = [["r", one.prepared.value]] if one.created else list(one.prepared.ops)
    if ops:
        done.documents.append(DocumentChanged(record, one.prepared.value, ops, created=one.created))
    return True


def _prepare_retirement(done: _Prepared, address: Address, record: DocumentRecord) -> None:
    done.writes.append(DocumentRetire(id=record.id))
    done.documents.append(DocumentChanged(record, None, [["r", None]]))
    done.retire.append(address)


def _admit(tx: BaseTx, prepared: _Prepared) -> None:
    """From here on the batch belongs to the session's state. Nothing in here can fail."""
    core = tx.core
    core.forest.checkpoint()
    tx.open = False
    for one in (*tx.opened.values(), *(closed for _, closed in tx.closed)):
        one.loaded.held = False
    if not prepared.writes:
        return
    core.seq += 1
    for conversation in tx.created:
        core.remember(conversation)
    for conversation_id in tx.gone:
        core.forget(conversation_id)
    for conversation_id, begins in tx.unfinished.items():
        (core.unfinished.add if begins else core.unfinished.discard)(conversation_id)
    core.mail.change((row for row in tx.rows.values() if isinstance(row, MessageRecord)), tx.deleted)
    for task in tx.ended:
        core.task_documents.pop(task, None)
        core.recovered.discard(task)
    for address in prepared.retire:
        core.documents.pop(address, None)
        core.retired[address] = core.seq
        core.retirements += 1
    for address, one in prepared.adopt:
        _adopt(core, address, one)
    core.copied.update(dict.fromkeys(tx.copies, core.seq))
    batch = Batch(session=core.key, seq=core.seq, last_id=core.last_id, writes=prepared.writes, wake=core.next_wake())
    rows, deleted, gone = tuple(tx.rows.values()), tuple(tx.deleted), tuple(tx.gone)
    core.admit(batch, Publication(core.seq, rows, prepared.documents, deleted, tx.spans, gone))


def _adopt(core: SessionCore, address: Address, one: Open) -> None:
    assert one.prepared is not None
    loaded = one.loaded
    loaded.tracker.adopt(one.prepared)
    loaded.seq = core.seq
    loaded.deltas_since_base = 0 if isinstance(one.stored, Base) else loaded.deltas_since_base + 1
    loaded.stored_version = one.doc.version
    core.retired.pop(address, None)
    core.keep(address, loaded)
    if address.scope == "task" and address.scope_id is not None:
        core.task_documents.setdefault(address.scope_id, set()).add(address)
