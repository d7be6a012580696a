"""What a durable commit tells those who watch a session."""

from typing import Any

import msgspec

from ...storage.records import (
    ConversationRecord,
    DocumentRecord,
    EntryRecord,
    JsonObject,
    SubmissionRecord,
    TaskRecord,
)


class DocumentChanged(msgspec.Struct, frozen=True):
    """A document's new value and the exact operations that lead to it; ``value`` is None when it was retired."""

    record: DocumentRecord
    value: JsonObject | None
    ops: list[Any]
    created: bool = False


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One commit, after it became durable. Immutable; in the order of commits."""

    seq: int
    conversations: list[ConversationRecord]
    entries: list[EntryRecord]
    tasks: list[TaskRecord]
    submissions: list[SubmissionRecord]
    documents: list[DocumentChanged]
