"""What a durable commit tells those who watch a session."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec

from ...storage.records import (
    ConversationRecord,
    DocumentRecord,
    EntryRecord,
    JsonObject,
    MessageRecord,
    SubmissionRecord,
    TaskRecord,
)
from .pending import Row
from .tracing import EndedSpan

R = TypeVar("R", bound=Row)


class DocumentChanged(msgspec.Struct, frozen=True):
    """A document's new value and the exact operations that lead to it; ``value`` is None when it was retired."""

    record: DocumentRecord
    value: JsonObject | None
    ops: list[Any]
    created: bool = False


class Publication(msgspec.Struct, frozen=True):
    """One commit, after it became durable. Immutable; in the order of commits."""

    seq: int
    rows: Sequence[Row]
    """All records that the commit wrote."""
    documents: Sequence[DocumentChanged]
    deleted: Sequence[int] = ()
    """Messages that it deleted: they have arrived elsewhere, or were received."""
    spans: Sequence[EndedSpan] = ()
    """Of the work that it ended."""
    gone: Sequence[int] = ()
    """Conversations that it deleted."""

    @property
    def conversations(self) -> list[ConversationRecord]:
        """The conversations that the commit created."""
        return self._of(ConversationRecord)

    @property
    def entries(self) -> list[EntryRecord]:
        """The entries that it appended, in order."""
        return self._of(EntryRecord)

    @property
    def tasks(self) -> list[TaskRecord]:
        """The tasks that it changed, as they are now."""
        return self._of(TaskRecord)

    @property
    def submissions(self) -> list[SubmissionRecord]:
        """The submissions that it changed, as they are now."""
        return self._of(SubmissionRecord)

    @property
    def messages(self) -> list[MessageRecord]:
        """The messages that it changed, as they are now."""
        return self._of(MessageRecord)

    def _of(self, kind: type[R]) -> list[R]:
        return [cast("R", row) for row in self.rows if type(row) is kind]
