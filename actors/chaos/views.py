"""A conversation's view, derived from what is stored alone: what a watcher must have been shown, and at its end shows.

Independent of the views that a running system keeps, to be compared with them. Proved by tests/actors/chaos/test_views.py.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ...chord import Decoder, apply_immutable
from ...storage.records import (
    Base,
    Batch,
    ConversationRecord,
    ConversationScope,
    Delta,
    DocumentChange,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
    DocumentRetire,
    EntryRecord,
    JsonObject,
)
from ..conversation.builtin import BUILT_IN
from ..conversation.context import active_range
from .stored import StoredSession

KINDS = {doc.kind for doc in BUILT_IN}


def stored_view(session: StoredSession, conversation: int) -> JsonObject:
    """Give the view of a conversation as it is stored now."""
    documents = {kind: session.of_conversation(kind, conversation) for kind in KINDS}
    return _view(session.conversations[conversation], session.entries[conversation], documents)


def _view(record: ConversationRecord, entries: list[EntryRecord], documents: JsonObject) -> JsonObject:
    head = next((entry for entry in reversed(entries) if entry.head is not None), None)
    return {
        "conversation": msgspec.to_builtins(record),
        "entries": msgspec.to_builtins(active_range(entries, head)),
        "docs": {kind: value for kind, value in documents.items() if value is not None},
    }


class Documents:
    """The values of documents while a session's commits go by."""

    def __init__(self) -> None:
        self.values: dict[int, JsonObject] = {}
        self.records: dict[int, DocumentRecord] = {}
        self._decoders: dict[int, Decoder] = {}
        self._history: dict[int, list[tuple[int, JsonObject]]] = {}

    def apply(self, batch: Batch) -> None:
        """Take in a commit; a copy is of what its source was before it, or at its point of the past."""
        for write in [one for one in batch.writes if isinstance(one, DocumentCopy)]:
            self._begin(write.record, self._past(write.source, write.at), batch.seq)
        for one in batch.writes:
            if isinstance(one, DocumentCreate):
                self._begin(one.record, one.content.value, batch.seq)
            elif isinstance(one, DocumentChange):
                self._set(one.id, self._changed(one.id, one.content), batch.seq)
            elif isinstance(one, DocumentRetire):
                self.values.pop(one.id, None)

    def of(self, conversation: int) -> dict[str, JsonObject]:
        """Give the live documents of a conversation by kind."""
        scope = ConversationScope(conversation_id=conversation)
        return {self.records[one].kind: value for one, value in self.values.items() if self.records[one].scope == scope}

    def _begin(self, record: DocumentRecord, value: JsonObject, seq: int) -> None:
        self.records[record.id] = record
        self._set(record.id, value, seq)

    def _set(self, id: int, value: JsonObject, seq: int) -> None:
        self.values[id] = value
        self._history.setdefault(id, []).append((seq, value))

    def _past(self, id: int, at: int | None) -> JsonObject:
        return next(value for seq, value in reversed(self._history[id]) if at is None or seq <= at)

    def _changed(self, id: int, content: Base | Delta) -> JsonObject:
        if isinstance(content, Base):
            self._decoders.pop(id, None)
            return content.value
        ops = self._decoders.setdefault(id, Decoder()).decode(content.ops)
        changed: JsonObject = apply_immutable(self.values[id], ops)
        return changed


def view_states(batches: Iterable[Batch], conversation: int) -> Iterator[JsonObject]:
    """Give the view of a conversation after each commit since the one that created it, in order."""
    documents, entries = Documents(), Visible()
    for batch in batches:
        documents.apply(batch)
        entries.apply(batch)
        if conversation in entries.records:
            docs = {kind: value for kind, value in documents.of(conversation).items() if kind in KINDS}
            yield _view(entries.records[conversation], entries.of(conversation), docs)


class Visible:
    """The transcripts of a session while its commits go by."""

    def __init__(self) -> None:
        self.records: dict[int, ConversationRecord] = {}
        self._own: dict[int, list[EntryRecord]] = {}

    def apply(self, batch: Batch) -> None:
        """Take in a commit."""
        for write in batch.writes:
            if isinstance(write, ConversationRecord):
                self.records[write.id] = write
            elif isinstance(write, EntryRecord):
                self._own.setdefault(write.conversation_id, []).append(write)

    def of(self, conversation: int) -> list[EntryRecord]:
        """Give the visible entries of a conversation, through its fork ancestry, oldest first."""
        own = self._own.get(conversation, [])
        parent: Any = self.records[conversation].parent
        if parent is None:
            return own
        return [entry for entry in self.of(parent.conversation_id) if entry.id <= parent.at] + own
