"""Forks: a conversation that shares another one's history up to an entry, and copies of its documents by their policy.

What is copied is decided by records alone, so that documents of kinds that nobody here knows are copied too; the values
are taken over by storage. So a fork costs its documents, however long the history is. Proved by
tests/actors/session/test_forks.py and tests/actors/conversation/test_forks.py.
"""

from collections.abc import Container, Iterable
from typing import Any

import msgspec

from ...chord import Tracker
from ...storage.contract import DocumentQuery, EntryQuery
from ...storage.records import (
    Base,
    ConversationScope,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
    EntryRecord,
    StoredDocument,
)
from .core import DOCUMENTS_PAGE, SessionCore
from .documents import Address, Doc, Loaded, fits, migrated
from .errors import EntryNotVisible, InvalidValue


class Source(msgspec.Struct, frozen=True):
    """A document that a fork gets a copy of: as it is now, or as it was at commit ``at``."""

    record: DocumentRecord
    at: int | None


async def visible_entry(core: SessionCore, conversation_id: int, at: int) -> tuple[EntryRecord, int]:
    """Find a stored entry that a conversation shows, and its commit. Raises EntryNotVisible."""
    found = await core.storage.entry(core.key, at, conversation_id)
    if found is None:
        raise EntryNotVisible(at, conversation_id)
    return found


async def fork_point(core: SessionCore, conversation_id: int, at: int | None) -> tuple[EntryRecord, int]:
    """Find the entry to fork after, and its commit: the newest one when none is named. Storage must have kept up.

    Raises EntryNotVisible, and InvalidValue for a conversation without entries.
    """
    if at is None:
        newest = await core.storage.scan_entries(core.key, EntryQuery(conversation_id=conversation_id), 1)
        if not newest.items:
            raise InvalidValue(f"conversation {conversation_id} has no entry to fork after")
        at = newest.items[0].id
    return await visible_entry(core, conversation_id, at)


async def sources(core: SessionCore, conversation_id: int, entry: EntryRecord, seq: int) -> list[Source]:
    """List the documents that a fork after an entry gets copies of, in the order of their ids.

    State as of an entry is that of the conversation which appended it, at the end of the commit that did.
    """
    now = await _documents(core, conversation_id, None)
    then = await _documents(core, entry.conversation_id, seq)
    return copied(now, then, seq)


def copied(now: Iterable[DocumentRecord], then: Iterable[DocumentRecord], seq: int) -> list[Source]:
    """Decide what is copied of the documents alive now and at commit ``seq``.

    An address that has been taken over since by a document of another policy follows the new one.
    """
    policies = {(record.kind, record.key): record.fork for record in now}
    current = [Source(record, None) for record in now if record.fork == "current"]
    as_of = [
        Source(record, seq)
        for record in then
        if record.fork == "asOf" and policies.get((record.kind, record.key), "asOf") == "asOf"
    ]
    return sorted([*current, *as_of], key=lambda source: source.record.id)


def copy_of(source: Source, id: int, conversation_id: int) -> DocumentCopy:
    """Make the write that copies a document into a fork."""
    scope = ConversationScope(conversation_id=conversation_id)
    record = msgspec.structs.replace(source.record, id=id, scope=scope, created_at=0, retired_at=None)
    return DocumentCopy(record=record, source=source.record.id, at=source.at)


async def live_documents(core: SessionCore, conversation_id: int) -> list[DocumentRecord]:
    """List a conversation's documents. Storage must have kept up."""
    return await _documents(core, conversation_id, None)


async def _documents(core: SessionCore, conversation_id: int, at: int | None) -> list[DocumentRecord]:
    query = DocumentQuery(scope=ConversationScope(conversation_id=conversation_id), at=at)
    page = await core.storage.scan_documents(core.key, query, DOCUMENTS_PAGE)
    found: list[DocumentRecord] = list(page.items)
    while page.next is not None:
        page = await core.storage.scan_documents(core.key, query, DOCUMENTS_PAGE, page.next)
        found.extend(page.items)
    return found


class Copies(dict[Address, DocumentCopy]):
    """The documents that one block's forks take over as they are, by the address of the copy."""

    async def take(self, core: SessionCore, doc: Doc[Any], address: Address) -> Loaded:
        """Give a copy as a document of its own, which the block may change. Raises DocumentMismatch."""
        copy = self[address]
        fits(doc, copy.record)
        stored = await _copied_value(core, copy)
        loaded = Loaded(copy.record, Tracker(migrated(doc, stored.value, stored.version)), doc.version, None, 0)
        del self[address]
        return loaded

    async def writes(self, core: SessionCore, changed: Container[int]) -> list[DocumentCopy | DocumentCreate]:
        """Give the writes that make the copies; those of documents that the same batch changes are written out.

        Storage refuses to copy what its batch writes, since it could not know which value is meant.
        """
        return [await _written_out(core, copy) if copy.source in changed else copy for copy in self.values()]


async def _copied_value(core: SessionCore, copy: DocumentCopy) -> StoredDocument:
    stored: StoredDocument | None = await core.storage.document(core.key, copy.source, copy.at)
    assert stored is not None
    return stored


async def _written_out(core: SessionCore, copy: DocumentCopy) -> DocumentCreate:
    stored = await _copied_value(core, copy)
    return DocumentCreate(record=copy.record, content=Base(version=stored.version, value=stored.value))
