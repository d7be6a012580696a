"""Reads of committed documents from outside a transaction. They never create and never write."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ...storage.records import ConversationScope
from .arguments import whole
from .core import SessionCore
from .documents import Doc, fits, migrated
from .errors import InvalidValue
from .forks import visible_entry

T = TypeVar("T")


async def snapshot(core: SessionCore, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None) -> Any:
    """Read a document's committed value, or None: the definition's type, or immutable JSON (do not change it).

    Raises DocumentMismatch, InvalidValue, SessionFailed.
    """
    core.check()
    loaded = await core.document(doc, doc.address(scope_id, key))
    if loaded is None:
        return None
    value, seq = loaded.tracker.value, loaded.seq
    await core.gate.wait(seq)
    return doc.view(value)


async def snapshot_as_of(
    core: SessionCore, doc: Doc[Any], conversation_id: int, at: int, *, key: str | None = None
) -> Any:
    """Read a conversation's rewindable document as it was at the end of the commit that appended entry ``at``, or None.

    That is what a fork after the entry gets. Raises EntryNotVisible, DocumentMismatch, InvalidValue, SessionFailed.
    """
    core.check()
    if doc.history != "rewindable":
        raise InvalidValue(f'document {doc.kind!r} keeps only its latest value: its past needs history="rewindable"')
    doc.address(conversation_id, key)
    await core.drained()
    entry, seq = await visible_entry(core, conversation_id, whole("at, an entry's id,", at))
    scope = ConversationScope(conversation_id=entry.conversation_id)
    record = await core.storage.find_document(core.key, doc.kind, scope, key, seq)
    if record is None:
        return None
    fits(doc, record)
    stored = await core.storage.document(core.key, record.id, seq)
    return None if stored is None else doc.view(migrated(doc, stored.value, stored.version))


async def between_commits(core: SessionCore, look: Callable[[], T]) -> T:
    """Look at what the session keeps in memory, between two commits; return once what was seen is durable.

    Raises SessionFailed, SessionClosed, LineReentry.
    """
    core.check()
    await core.line.acquire()
    try:
        core.check()
        seen, seq = look(), core.seq
    finally:
        core.line.release()
    await core.gate.wait(seq)
    return seen


@asynccontextmanager
async def still(core: SessionCore) -> AsyncIterator[None]:
    """Hold the line with everything durable and published: what is read inside is one committed state."""
    core.check()
    await core.line.acquire()
    try:
        await core.drained()
        core.check()  # it may have died while we waited, and would never tell us of its end
        yield
    finally:
        core.line.release()
