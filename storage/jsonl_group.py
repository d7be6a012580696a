"""A group of batches as lines of a JSONL store, and lines as batches again: pure functions.

``join(split(batch))`` does to a session what the batch does. Proved by tests/storage/test_jsonl_equivalence.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from . import codec
from .checks import reject
from .errors import StorageCorrupt, StorageRejected
from .jsonl_format import (
    FORMAT,
    Commit,
    DocumentContent,
    SessionHeader,
    SideRecord,
    TaskState,
    encode_line,
)
from .memory_session import MemorySession
from .records import (
    Base,
    Batch,
    ConversationDelete,
    ConversationRecord,
    DocumentChange,
    DocumentCopy,
    DocumentCreate,
    DocumentRetire,
    EntryRecord,
    MessageDelete,
    MessageRecord,
    Record,
    SubmissionRecord,
    TaskRecord,
    Write,
)

Contents = Mapping[tuple[str, int, int], TaskState | DocumentContent]
"""What the side files hold of a session: by side, sequence and ordinal."""

_RECLAIMED = Base(version=0, value={})
"""Stands for a first content that was reclaimed: a later base or the retirement takes its place."""


# --- a batch, as the store keeps it


class _Counters(Record, frozen=True):
    session: str
    seq: int
    last_id: int
    wake: int | None


_DECODE = {kind: msgspec.json.Decoder(kind).decode for kind in (*get_args(Write), _Counters)}


def detach(batch: Batch) -> Batch:
    """Copy a batch through JSON. Raises StorageRejected for what is not storable, or is no batch."""
    writes: list[Write] = [_detach(write) for write in batch.writes]
    counters = _detach(_Counters(batch.session, batch.seq, batch.last_id, batch.wake))
    return Batch(writes=writes, **msgspec.structs.asdict(counters))


def _detach(record: Any) -> Any:
    decode = _DECODE.get(type(record))
    if decode is None:
        reject(f"{type(record).__name__} is not a write")
    try:
        return decode(codec.encode(record))
    except (ValueError, RecursionError) as error:
        raise StorageRejected(f"not storable: {error}") from error


def resolve_copies(session: MemorySession, batch: Batch) -> Batch:
    """Replace document copies by creations with the content that they copy from the session as it stands."""
    return replace(
        batch,
        writes=[
            DocumentCreate(record=write.record, content=session._read_copy(write))
            if type(write) is DocumentCopy
            else write
            for write in batch.writes
        ],
    )


# --- batches to lines


class Prepared(NamedTuple):
    """A batch without copies that its session will take, with the session's number, and its header if it begins here."""

    session: MemorySession
    number: int
    batch: Batch
    header: SessionHeader | None


class Lines(NamedTuple):
    """What a group appends: to side files, to the main files of sessions, and last of all to one main file."""

    side: dict[tuple[str, str], bytes]
    followers: dict[str, bytes]
    leader: tuple[str, bytes]


def encode_group(group: Sequence[Prepared]) -> Lines:
    """Make the lines of a group, whose last batch's commit confirms the others."""
    side: dict[tuple[str, str], bytes] = {}
    commits = []
    for one in group:
        commit, records = split(one.batch, one.header)
        commits.append((one.number, commit))
        for record in records:
            place = one.batch.session, record.payload.side
            side[place] = side.get(place, b"") + encode_line(record)
    mains: dict[str, bytes] = {}
    for one, commit in zip(group, link(commits), strict=True):
        mains[one.batch.session] = mains.get(one.batch.session, b"") + encode_line(commit)
    leader = group[-1].batch.session
    return Lines(side, mains, (leader, mains.pop(leader)))


def link(commits: Sequence[tuple[int, Commit]]) -> list[Commit]:
    """Make the commits of a group, with their sessions' numbers, valid together: the last one confirms the others."""
    leader, last = commits[-1]
    before: dict[int, int] = {}
    linked = []
    for number, commit in commits[:-1]:
        linked.append(replace(commit, awaits=leader, after=before.get(number)))
        before[number] = commit.seq
    after = before.pop(leader, None)
    return [*linked, replace(last, confirms=before, after=after)]


def split(batch: Batch, header: SessionHeader | None) -> tuple[Commit, list[SideRecord]]:
    """Divide a batch without copies: what ``main.jsonl`` holds of it, and what side files hold, in batch order."""
    payloads = [payload for write in batch.writes if (payload := _payload(write)) is not None]
    side: dict[str, int] = {}
    records = []
    for payload in payloads:
        ordinal = side.get(payload.side, 0)
        side[payload.side] = ordinal + 1
        records.append(SideRecord(format=FORMAT, seq=batch.seq, ordinal=ordinal, payload=payload))
    commit = Commit(
        format=FORMAT,
        seq=batch.seq,
        last_id=batch.last_id,
        wake=batch.wake,
        session=header,
        conversations=_of(batch, ConversationRecord),
        entries=_of(batch, EntryRecord),
        tasks=[task for task in _of(batch, TaskRecord) if not task.live],
        submissions=_of(batch, SubmissionRecord),
        messages=_of(batch, MessageRecord),
        deleted=[write.id for write in _of(batch, MessageDelete)],
        documents=[replace(write.record, created_at=batch.seq) for write in _of(batch, DocumentCreate)],
        retired=[write.id for write in _of(batch, DocumentRetire)],
        erased=[write.id for write in _of(batch, ConversationDelete)],
        side=side,
    )
    return commit, records


def _of(batch: Batch, kind: type[Any]) -> list[Any]:
    return [write for write in batch.writes if type(write) is kind]


def _payload(write: Write) -> TaskState | DocumentContent | None:
    """Give what a side file holds of a write."""
    match write:
        case TaskRecord(live=True):
            return TaskState(value=write)
        case DocumentCreate():
            return DocumentContent(id=write.record.id, content=write.content)
        case DocumentChange():
            return DocumentContent(id=write.id, content=write.content)
    return None


# --- lines to batches


def join(key: str, commit: Commit, contents: Contents) -> Batch:
    """Put a batch together again; what ``contents`` lacks must be known to be superseded later."""
    states: list[Write] = []
    bases: dict[int, Base] = {}
    changes: list[Write] = []
    created = {record.id for record in commit.documents}
    for payload in _payloads(commit, contents):
        if isinstance(payload, TaskState):
            states.append(payload.value)
        elif payload.id not in created:
            changes.append(DocumentChange(id=payload.id, content=payload.content))
        elif isinstance(payload.content, Base):
            bases[payload.id] = payload.content
        else:
            raise StorageCorrupt(f"document {payload.id} does not begin with a base")
    creations = [DocumentCreate(record=record, content=bases.get(record.id, _RECLAIMED)) for record in commit.documents]
    retirements = [DocumentRetire(id=retired) for retired in commit.retired]
    erasures = [ConversationDelete(id=erased) for erased in commit.erased]
    tables: list[Write] = [*commit.conversations, *commit.entries, *states, *commit.tasks, *commit.submissions]
    messages: list[Write] = [*commit.messages, *(MessageDelete(id=deleted) for deleted in commit.deleted)]
    return Batch(
        session=key,
        seq=commit.seq,
        last_id=commit.last_id,
        writes=[*tables, *messages, *changes, *creations, *retirements, *erasures],
        wake=commit.wake,
    )


def _payloads(commit: Commit, contents: Contents) -> list[TaskState | DocumentContent]:
    places = [(side, commit.seq, ordinal) for side, records in commit.side.items() for ordinal in range(records)]
    return [contents[place] for place in places if place in contents]
