"""One session of the memory backend: its tables, and how a batch changes them.

Everything kept is encoded JSON, so it is detached from the caller by construction. Each change notes how to take it
back, which makes a group of batches atomic without copying anything.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import msgspec

from . import codec
from .ancestry import Segment, segments
from .checks import (
    check_copy,
    check_counters,
    check_message,
    check_message_change,
    check_parent,
    check_reference,
    check_submission,
    reject,
    rewindable,
    scope_id,
    sort_documents,
    sort_messages,
)
from .errors import StorageCorrupt
from .memory_deletion import delete_conversation
from .records import (
    MAX_ID,
    Base,
    Batch,
    ConversationDelete,
    ConversationRecord,
    Delta,
    DocumentChange,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
    EntryRecord,
    MessageDelete,
    MessageRecord,
    Scope,
    SessionRecord,
    StoredDocument,
    SubmissionRecord,
    TaskRecord,
    Write,
)
from .replay import materialise

K = TypeVar("K")
V = TypeVar("V")
Address = tuple[type[Scope], int, str, str | None]


class Undo:
    """The steps that take back what a group has changed so far."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def note(self, step: Callable[[], object]) -> None:
        """Remember how to take a change back."""
        self._steps.append(step)

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Set a key so that it can be taken back."""
        if key in table:
            self.note(partial(table.__setitem__, key, table[key]))
        else:
            self.note(partial(table.pop, key))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        """Delete a key so that it can be taken back."""
        self.note(partial(table.__setitem__, key, table.pop(key)))

    def set(self, target: object, name: str, value: object) -> None:
        """Set an attribute so that it can be taken back."""
        self.note(partial(setattr, target, name, getattr(target, name)))
        setattr(target, name, value)

    def roll_back(self) -> None:
        """Take everything back, newest first."""
        while self._steps:
            self._steps.pop()()


class EntryRow(msgspec.Struct, frozen=True):
    """A stored entry, and what scans ask of it."""

    conversation_id: int
    seq: int
    is_head: bool
    body: str


class Revision(msgspec.Struct, frozen=True):
    """What one commit did to a document."""

    seq: int
    base: bool
    version: int
    body: str


class DocumentRow(msgspec.Struct):
    """One incarnation and its revisions, oldest first."""

    record: DocumentRecord
    revisions: list[Revision]

    def alive(self, at: int | None) -> bool:
        """Tell whether the incarnation is alive at a sequence (None: now)."""
        retired_at = self.record.retired_at
        if at is None:
            return retired_at is None
        return self.record.created_at <= at and (retired_at is None or at < retired_at)

    def value(self, at: int | None) -> StoredDocument:
        """Materialise the value at a sequence inside the lifetime."""
        upto = (row for row in reversed(self.revisions) if at is None or row.seq <= at)
        return materialise(self.record, ((row.base, row.version, row.body) for row in upto))


class MemorySession:
    """The tables of one session."""

    def __init__(self, key: str, created_at: int) -> None:
        self.key = key
        self.created_at = created_at
        self.seq = 0
        self.last_id = 0
        self.wake: int | None = None
        self.types: dict[int, type[Write]] = {}
        self.conversations: dict[int, str] = {}
        self.entries: dict[int, EntryRow] = {}
        self.entry_ids: dict[int, list[int]] = {}
        self.tasks: dict[int, str] = {}
        self.submissions: dict[int, str] = {}
        self.requests: dict[tuple[int, str], int] = {}
        self.messages: dict[int, str] = {}
        self.message_requests: dict[tuple[int, str], int] = {}
        self.documents: dict[int, DocumentRow] = {}
        self.addresses: dict[Address, int] = {}

    def record(self) -> SessionRecord:
        """Describe the session."""
        return SessionRecord(
            key=self.key, created_at=self.created_at, seq=self.seq, last_id=self.last_id, wake=self.wake
        )

    # --- reading

    def segments(self, conversation_id: int, low: int = 1, high: int = MAX_ID) -> list[Segment]:
        """List the visible parts of a conversation and its ancestors, newest first."""
        return segments(self._chain(conversation_id), low, high)

    def _chain(self, conversation_id: int) -> Iterator[tuple[int, int | None]]:
        wanted: int | None = conversation_id
        while wanted in self.conversations:
            parent = codec.decode_conversation(self.conversations[wanted]).parent
            yield wanted, None if parent is None else parent.at
            wanted = None if parent is None else parent.conversation_id

    def ids_in(self, segment: Segment) -> list[int]:
        """List the entries of a segment, ascending."""
        ids = self.entry_ids.get(segment.conversation_id, [])
        return ids[bisect_left(ids, segment.low) : bisect_right(ids, segment.high)]

    def visible(self, id: int, conversation_id: int) -> bool:
        """Tell whether an entry can be seen in a conversation."""
        if conversation_id not in self.conversations:
            return False
        owner = self.entries[id].conversation_id
        return any(part.conversation_id == owner for part in self.segments(conversation_id, id, id))

    def count_dead(self) -> int:
        """Count the dead letters."""
        return sum(codec.decode_message(body).status == "dead" for body in self.messages.values())

    # --- writing

    def apply(self, batch: Batch, undo: Undo) -> None:
        """Apply a batch; on StorageRejected the caller rolls back."""
        check_counters(batch, self.seq, self.last_id)
        for name in ("seq", "last_id", "wake"):
            undo.set(self, name, getattr(batch, name))
        documents: list[Write] = []
        messages: list[MessageRecord | MessageDelete] = []
        conversations: list[int] = []
        for write in batch.writes:
            match write:
                case ConversationDelete():
                    conversations.append(write.id)
                case ConversationRecord():
                    self._put_conversation(write, undo)
                case EntryRecord():
                    self._put_entry(write, undo)
                case TaskRecord():
                    self._put_task(write, undo)
                case SubmissionRecord():
                    self._put_submission(write, undo)
                case MessageRecord() | MessageDelete():
                    messages.append(write)
                case _:
                    documents.append(write)
        records, deleted = sort_messages(messages)
        for number in deleted:
            self._drop_message(number, undo)
        for record in records:
            self._put_message(record, undo)
        self._put_documents(documents, undo)
        for number in deleted:
            undo.drop(self.types, number)
        for conversation in conversations:
            delete_conversation(self, conversation, undo)

    def _own(self, id: int, kind: type[Write], undo: Undo) -> bool:
        """Give an id to a record type for ever; tell whether it was new."""
        if not 0 < id <= self.last_id:
            reject(f"id {id} is not between 1 and the batch's last_id {self.last_id}")
        owner = self.types.get(id)
        if owner is None:
            undo.put(self.types, id, kind)
        elif owner is not kind:
            reject(f"id {id} belongs to another record")
        return owner is None

    def _own_new(self, id: int, kind: type[Write], undo: Undo) -> None:
        if not self._own(id, kind, undo):
            reject(f"id {id} is stored already and cannot change")

    def _put_conversation(self, record: ConversationRecord, undo: Undo) -> None:
        self._own_new(record.id, ConversationRecord, undo)
        check_parent(record)
        if record.parent:
            check_reference(record.parent.conversation_id)
        if record.owner:
            check_reference(record.owner.conversation_id)
            check_reference(record.owner.task_id)
        undo.put(self.conversations, record.id, codec.encode(record))

    def _put_entry(self, record: EntryRecord, undo: Undo) -> None:
        self._own_new(record.id, EntryRecord, undo)
        check_reference(record.conversation_id)
        row = EntryRow(record.conversation_id, self.seq, record.head is not None, codec.encode(record))
        undo.put(self.entries, record.id, row)
        ids = self.entry_ids.setdefault(record.conversation_id, [])
        insort(ids, record.id)
        undo.note(partial(ids.remove, record.id))

    def _put_task(self, record: TaskRecord, undo: Undo) -> None:
        check_reference(record.conversation_id)
        if not self._own(record.id, TaskRecord, undo) and not codec.decode_task(self.tasks[record.id]).live:
            reject(f"task {record.id} is terminal and cannot change")
        undo.put(self.tasks, record.id, codec.encode(record))

    def _put_submission(self, record: SubmissionRecord, undo: Undo) -> None:
        check_reference(record.conversation_id)
        check_submission(record)
        if not self._own(record.id, SubmissionRecord, undo):
            old = codec.decode_submission(self.submissions[record.id])
            if old.settled:
                reject(f"submission {record.id} is settled and cannot change")
            if (old.conversation_id, old.request_id) != (record.conversation_id, record.request_id):
                reject(f"submission {record.id} cannot change its conversation or request id")
        elif record.request_id is not None:
            request = (record.conversation_id, record.request_id)
            if request in self.requests:
                reject(f"request {record.request_id!r} was submitted to conversation {record.conversation_id} already")
            undo.put(self.requests, request, record.id)
        undo.put(self.submissions, record.id, codec.encode(record))

    # --- messages

    def _put_message(self, record: MessageRecord, undo: Undo) -> None:
        check_message(record)
        if not self._own(record.id, MessageRecord, undo):
            check_message_change(codec.decode_message(self.messages[record.id]), record)
        elif record.request_id is not None:
            request = (record.task_id, record.request_id)
            if request in self.message_requests:
                reject(f"request {record.request_id!r} was sent to task {record.task_id} already")
            undo.put(self.message_requests, request, record.id)
        undo.put(self.messages, record.id, codec.encode(record))

    def _drop_message(self, id: int, undo: Undo) -> None:
        if id not in self.messages:
            reject(f"message {id} does not exist")
        record = codec.decode_message(self.messages[id])
        if record.request_id is not None:
            undo.drop(self.message_requests, (record.task_id, record.request_id))
        undo.drop(self.messages, id)

    # --- documents

    def _read_copy(self, copy: DocumentCopy) -> Base:
        row = self.documents.get(copy.source)
        record = check_copy(copy, None if row is None else row.record)
        if row is None or not row.alive(copy.at) or not (copy.at is None or rewindable(record)):
            reject(f"document {copy.record.id} copies document {copy.source}, which has no value at {copy.at}")
        try:
            source = row.value(copy.at)
        except StorageCorrupt as error:
            reject(f"document {copy.record.id} copies document {copy.source}: {error}")
        return Base(version=source.version, value=source.value)

    def _put_documents(self, documents: list[Write], undo: Undo) -> None:
        writes = sort_documents(documents)
        copies = {write.record.id: self._read_copy(write) for write in writes.created if type(write) is DocumentCopy}
        for change in writes.changes:
            self._change(change, undo)
        for retired in writes.retired:
            self._retire(retired, undo)
        for created in writes.created:
            self._create(created, copies, undo)
            if created.record.id in writes.stillborn:
                self._retire(created.record.id, undo)

    def _live(self, id: int) -> DocumentRow:
        row = self.documents.get(id)
        if row is None or not row.alive(None):
            reject(f"document {id} is unknown or retired")
        return row

    def _change(self, change: DocumentChange, undo: Undo) -> None:
        row = self._live(change.id)
        content = change.content
        if type(content) is Delta and content.version != row.revisions[-1].version:
            reject(f"document {change.id}: a delta of version {content.version} cannot follow another version")
        self._put_revision(row, content, undo)

    def _put_revision(self, row: DocumentRow, content: Base | Delta, undo: Undo) -> None:
        is_base = type(content) is Base
        revision = Revision(self.seq, is_base, content.version, codec.encode_content(content))
        if is_base and not rewindable(row.record):
            undo.set(row, "revisions", [revision])
        else:
            row.revisions.append(revision)
            undo.note(row.revisions.pop)

    def _retire(self, id: int, undo: Undo) -> None:
        row = self._live(id)
        undo.drop(self.addresses, address(row.record))
        undo.set(row, "record", msgspec.structs.replace(row.record, retired_at=self.seq))
        if not rewindable(row.record):
            undo.set(row, "revisions", [])

    def _create(self, write: DocumentCreate | DocumentCopy, copies: dict[int, Base], undo: Undo) -> None:
        record = write.record
        self._own_new(record.id, DocumentCreate, undo)
        if address(record) in self.addresses:
            reject(f"document {record.id}: its address has a live document already")
        content = write.content if type(write) is DocumentCreate else copies[record.id]
        # Through JSON, so that the scope is detached like everything else.
        stored = codec.decode_document(codec.encode(record))
        row = DocumentRow(msgspec.structs.replace(stored, created_at=self.seq, retired_at=None), [])
        self._put_revision(row, content, undo)
        undo.put(self.documents, record.id, row)
        undo.put(self.addresses, address(record), record.id)


def address(record: DocumentRecord) -> Address:
    """Give the address that one live document may have."""
    return type(record.scope), scope_id(record.scope), record.kind, record.key
