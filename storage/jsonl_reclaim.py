"""What a JSONL store's side files need not hold any more: pure functions of a session's state.

A terminal task's record stands in the main file, so its side file can go. Of a document that keeps only its latest
value, nothing before its newest base is needed, and nothing at all once it has retired; of what has been deleted with its
conversation, nothing either.
"""

from collections.abc import Iterable

from . import codec
from .checks import rewindable
from .jsonl_format import FORMAT, DocumentContent, SideRecord, document_side, encode_line, parse_side, task_side
from .memory_session import MemorySession, Revision
from .records import Base, Batch, ConversationDelete, DocumentChange, DocumentCreate, DocumentRetire, TaskRecord


def freed(session: MemorySession, batch: Batch) -> Iterable[str]:
    """Name the sides that hold something superfluous once a batch has been applied to its session."""
    for write in batch.writes:
        match write:
            case TaskRecord(live=False):
                yield task_side(write.id)
            case DocumentRetire() | DocumentChange(content=Base()) if not _keeps_its_past(session, write.id):
                yield document_side(write.id)


def _keeps_its_past(session: MemorySession, document: int) -> bool:
    row = session.documents.get(document)
    return row is not None and rewindable(row.record)


def endangered(session: MemorySession, batches: Iterable[Batch]) -> set[int]:
    """Name the documents of which some may be gone once batches have been applied: none unless a conversation goes."""
    writes = [write for batch in batches for write in batch.writes]
    if not any(isinstance(write, ConversationDelete) for write in writes):
        return set()
    return {*session.documents, *(write.record.id for write in writes if isinstance(write, DocumentCreate))}


def superfluous(session: MemorySession, side: str, records: int) -> bool:
    """Tell whether a side file of so many records holds one that is not needed."""
    kind, number = parse_side(side)
    if kind == "task":
        return not codec.decode_task(session.tasks[number]).live if number in session.tasks else records > 0
    row = session.documents.get(number)
    if row is None:
        return records > 0
    if rewindable(row.record):
        return False
    return not row.alive(None) or records > len(row.revisions)


def remainder(session: MemorySession, side: str) -> bytes:
    """Give the lines that a side file with something superfluous must keep; none when the file can go."""
    kind, number = parse_side(side)
    if kind == "task" or number not in session.documents:
        return b""
    return b"".join(encode_line(_record(number, revision)) for revision in session.documents[number].revisions)


def _record(id: int, revision: Revision) -> SideRecord:
    content = codec.decode_content(revision.base, revision.version, revision.body)
    payload = DocumentContent(id=id, content=content)
    return SideRecord(format=FORMAT, seq=revision.seq, ordinal=0, payload=payload)
