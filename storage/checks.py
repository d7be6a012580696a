"""Rules of the contract that every backend applies in the same way: batches before they are written, and scan cursors.

All of them raise ``StorageRejected`` and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from .contract import Cursor, Order
from .errors import StorageRejected
from .records import (
    MAX_ID,
    Batch,
    ConversationRecord,
    ConversationScope,
    DocumentChange,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
    DocumentRetire,
    MessageDelete,
    MessageRecord,
    Scope,
    SessionScope,
    SubmissionRecord,
    TaskScope,
    Write,
)

MAX_SEQ = 2**63 - 1
"""Largest commit sequence, and largest time: a signed 64-bit integer."""


def reject(message: str) -> NoReturn:
    """Refuse, certainly without effect."""
    raise StorageRejected(message)


# --- batches ---------------------------------------------------------------------------------------------------------


def check_counters(batch: Batch, seq: int, last_id: int) -> None:
    """Check a batch's counters against those of its session (0 and 0 for a new one)."""
    if not seq < batch.seq <= MAX_SEQ:
        reject(f"session {batch.session!r}: sequence {batch.seq} does not follow {seq}")
    if not last_id <= batch.last_id <= MAX_ID:
        reject(f"session {batch.session!r}: last_id {batch.last_id} is not between {last_id} and {MAX_ID}")
    if batch.wake is not None and not 0 <= batch.wake <= MAX_SEQ:
        reject(f"session {batch.session!r}: wake {batch.wake} is not a time in milliseconds")


def check_reference(id: int) -> None:
    """Check that an id which a record refers to can be one."""
    if not 0 < id <= MAX_ID:
        reject(f"{id} is not an id: expected 1 to {MAX_ID}")


def check_parent(record: ConversationRecord) -> None:
    """Check that a conversation's ancestors are older than itself, so that there is no circle of them."""
    if record.parent is not None:
        check_reference(record.parent.at)
        if record.parent.conversation_id >= record.id:
            reject(f"conversation {record.id} cannot be a fork of the younger {record.parent.conversation_id}")


def check_submission(record: SubmissionRecord) -> None:
    """Check that a write submission keeps out of the states that only inputs have."""
    if record.type == "write" and (record.status == "placed" or record.answer is not None):
        reject(f"submission {record.id} is a write: it is never placed and has no answer")


def check_message(record: MessageRecord) -> None:
    """Check that a message's fields fit its status."""
    check_reference(record.task_id)
    if record.status == "outgoing" and record.request_id is not None:
        reject(f"message {record.id} is outgoing: a request id belongs to a message from outside")
    if record.status == "consumed" and (record.request_id is None or record.body is not None):
        reject(f"message {record.id} is consumed: what is kept of it has a request id and no body")
    if record.session is not None and record.status in ("queued", "consumed"):
        reject(f"message {record.id} is {record.status}: it has arrived in its own session")


def check_message_change(old: MessageRecord, new: MessageRecord) -> None:
    """Check that a message changes while it is live, goes forward, and stays the one that it is."""
    if not old.live or new.status == "outgoing":
        reject(f"message {new.id} is {old.status}: it cannot become {new.status}")
    if (old.task_id, old.request_id) != (new.task_id, new.request_id):
        reject(f"message {new.id} cannot change its task or request id")


def sort_messages(writes: list[MessageRecord | MessageDelete]) -> tuple[list[MessageRecord], list[int]]:
    """Divide the message writes of a batch into records and deletions; each message is written at most once."""
    records = [write for write in writes if isinstance(write, MessageRecord)]
    deleted = [write.id for write in writes if isinstance(write, MessageDelete)]
    seen: set[int] = set()
    for number in (*(record.id for record in records), *deleted):
        if number in seen:
            reject(f"message {number} is written more than once in one batch")
        seen.add(number)
    return records, deleted


def check_document(record: DocumentRecord) -> None:
    """Check that history and fork policy are set for a conversation document, for no other, and fit each other."""
    if type(record.scope) is not ConversationScope:
        if record.history is not None or record.fork is not None:
            reject(f"document {record.id}: only conversation documents have a history and a fork policy")
    elif record.history is None or record.fork is None:
        reject(f"document {record.id}: a conversation document needs a history and a fork policy")
    elif record.fork == "asOf" and record.history != "rewindable":
        reject(f"document {record.id}: fork policy asOf needs a rewindable history")


def scope_id(scope: Scope) -> int:
    """Give the id that a scope belongs to; 0 is the session."""
    if isinstance(scope, SessionScope):
        return 0
    number = scope.conversation_id if isinstance(scope, ConversationScope) else scope.task_id
    check_reference(number)
    return number


SCOPE_TYPES: dict[type[Scope], int] = {SessionScope: 0, ConversationScope: 1, TaskScope: 2}


def rewindable(record: DocumentRecord) -> bool:
    """Tell whether a document keeps every revision, rather than those since its newest base."""
    return record.history == "rewindable"


@dataclass(slots=True)
class DocumentWrites:
    """The document writes of one batch in the order in which they take effect, whatever order they came in.

    Contents go first, then the retirements of older incarnations, then the new ones: so that a document may be changed
    and retired, and its address taken over, in one batch.
    """

    changes: list[DocumentChange] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    created: list[DocumentCreate | DocumentCopy] = field(default_factory=list)
    stillborn: set[int] = field(default_factory=set)
    """Created and retired by the same batch."""


def sort_documents(writes: list[Write]) -> DocumentWrites:
    """Sort the document writes of a batch and check that they do not contradict each other."""
    result = DocumentWrites()
    touched: set[int] = set()
    retired: set[int] = set()
    for write in writes:
        if type(write) is DocumentChange:
            _once(touched, write.id, "content")
            result.changes.append(write)
        elif type(write) is DocumentRetire:
            _once(retired, write.id, "retirement")
        elif type(write) is DocumentCreate or type(write) is DocumentCopy:
            check_document(write.record)
            _once(touched, write.record.id, "content")
            result.created.append(write)
        else:
            reject(f"{type(write).__name__} is not a write")
    new = {write.record.id for write in result.created}
    result.stillborn = retired & new
    result.retired = sorted(retired - new)
    for write in result.created:
        if type(write) is DocumentCopy and (write.source in touched or write.source in retired):
            reject(f"document {write.record.id} copies document {write.source}, which the same batch writes")
    return result


def _once(seen: set[int], id: int, what: str) -> None:
    if id in seen:
        reject(f"document {id} has more than one {what} in one batch")
    seen.add(id)


def check_copy(copy: DocumentCopy, source: DocumentRecord | None) -> DocumentRecord:
    """Check that a copy's source can be copied to where the copy says; the lifetime is the caller's to check."""
    record = copy.record
    if source is None or type(source.scope) is not ConversationScope:
        reject(f"document {record.id} copies document {copy.source}, which is no conversation document")
    if (source.kind, source.key, source.history, source.fork) != (record.kind, record.key, record.history, record.fork):
        reject(f"document {record.id} copies document {copy.source}, which has another definition")
    return source


# --- scans -----------------------------------------------------------------------------------------------------------


def check_limit(limit: int) -> None:
    """Check a page size."""
    if type(limit) is not int or not 0 < limit <= MAX_ID:
        reject(f"a page holds 1 to {MAX_ID} items, not {limit!r}")


def check_text(*texts: str | None) -> None:
    """Check that what is looked up could have been stored."""
    for text in texts:
        try:
            if text is not None:
                text.encode()
        except UnicodeEncodeError:
            reject(f"{text!r} is not valid Unicode text")


def make_cursor(order: Order, after: int) -> Cursor:
    """Make the cursor that goes on behind an item."""
    return {"order": order, "after": after}


def read_cursor(cursor: Cursor | None, order: Order | None, default: Order) -> tuple[Order, int | None]:
    """Give the order in which a scan runs, and the item behind which it goes on (None: from the beginning)."""
    if cursor is None:
        return order or default, None
    kept, after = (cursor.get("order"), cursor.get("after")) if isinstance(cursor, Mapping) else (None, None)
    if kept not in ("ascending", "descending") or type(after) is not int or not 0 <= after <= MAX_ID:
        reject("a cursor must be the one that an earlier page of the same scan gave")
    if order is not None and order != kept:
        reject(f"the cursor belongs to a scan in {kept} order, not {order}")
    return kept, after
