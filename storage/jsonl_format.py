"""The lines of a JSONL store's files, and the names of its directories.

    main.jsonl       one commit a line: records of the tables, what became of documents, and how many records of that
                     commit each side file holds
    doc-<id>.jsonl   the contents of one document's incarnation, one a line
    task-<id>.jsonl  the states of one live task, one a line
    deleted.jsonl    beside the sessions' directories: which sessions have been deleted, one a line

A line is complete when it ends in a line feed and holds neither nothing nor a NUL byte, which is what a file system may
leave where it had grown a file but lost the bytes. Anything else is *torn*. Proved by tests/storage/test_jsonl_format.py.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from .errors import SchemaTooNew, StorageCorrupt
from .records import (
    Base,
    ConversationRecord,
    Delta,
    DocumentRecord,
    EntryRecord,
    MessageRecord,
    Record,
    SubmissionRecord,
    TaskRecord,
)

FORMAT = 1
MAIN = "main.jsonl"
DELETED = "deleted.jsonl"
SUFFIX = ".jsonl"
RECLAIM = ".reclaim"
"""Ends the name of a side file's replacement until it takes the side file's place."""
UNFINISHED = ".new"
"""Ends the name of a session's directory until it holds a main file."""
DISCARDED = ".deleted"
"""Ends the name of a deleted session's directory until it is removed."""

L = TypeVar("L", bound="Commit | SideRecord | Deletion")


# --- main.jsonl


class SessionHeader(Record, frozen=True, kw_only=True):
    """What a session's first commit says about the session.

    ``number`` grows with each session of a store and is never used again, also when the key is.
    """

    key: str
    created_at: int
    number: int


class Commit(Record, frozen=True, kw_only=True, tag_field="type", tag="commit"):
    """A line of ``main.jsonl``: a commit's marker.

    ``side`` tells how many records of this commit each side file holds, in batch order; ``tasks`` are those that ended;
    ``deleted`` are messages, ``erased`` conversations.
    A commit of a group is valid only with the group's last one: ``awaits`` is the number of the session whose commit that
    is, and that commit's ``confirms`` gives the numbers of other sessions and the sequence up to which it makes them
    valid. ``after`` is the sequence of the line before, when both were appended at once.
    """

    format: int
    seq: int
    last_id: int
    wake: int | None = None
    session: SessionHeader | None = None
    conversations: list[ConversationRecord] = []
    entries: list[EntryRecord] = []
    tasks: list[TaskRecord] = []
    submissions: list[SubmissionRecord] = []
    messages: list[MessageRecord] = []
    deleted: list[int] = []
    documents: list[DocumentRecord] = []
    retired: list[int] = []
    erased: list[int] = []
    side: dict[str, int] = {}
    awaits: int | None = None
    confirms: dict[int, int] = {}
    after: int | None = None


# --- deleted.jsonl


class Deletion(Record, frozen=True, kw_only=True, tag_field="type", tag="deleted"):
    """A line of ``deleted.jsonl``: a session that is gone, whatever its directory says."""

    format: int
    key: str
    number: int


# --- side files


class TaskState(Record, frozen=True, kw_only=True, tag_field="type", tag="task"):
    """A live task's record."""

    value: TaskRecord

    @property
    def side(self) -> str:
        """The side file that this belongs to."""
        return task_side(self.value.id)


class DocumentContent(Record, frozen=True, kw_only=True, tag_field="type", tag="document"):
    """What one commit did to a document."""

    id: int
    content: Base | Delta

    @property
    def side(self) -> str:
        """The side file that this belongs to."""
        return document_side(self.id)


class SideRecord(Record, frozen=True, kw_only=True, tag_field="type", tag="record"):
    """A line of a side file. ``ordinal`` counts the records that one commit has in this file, from 0."""

    format: int
    seq: int
    ordinal: int
    payload: TaskState | DocumentContent

    @property
    def place(self) -> tuple[int, int]:
        """Where the record stands in its file."""
        return self.seq, self.ordinal


# --- reading and writing lines


class Line(NamedTuple):
    """A line with its line feed, and the offset behind it."""

    data: bytes
    end: int

    @property
    def torn(self) -> bool:
        """Whether the line was never wholly written."""
        return not self.data.endswith(b"\n") or self.data == b"\n" or b"\0" in self.data


def read_lines(data: bytes) -> Iterator[Line]:
    """Cut a file into lines."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield Line(data[start:end], end)
        start = end


def encode_line(line: Commit | SideRecord | Deletion) -> bytes:
    """Encode a line of records that are known to be storable."""
    return _encode(line) + b"\n"


def decode_commit(path: Path, line: bytes) -> Commit:
    """Decode a complete line of ``main.jsonl``."""
    return _decode(path, line, _commit)


def decode_deletion(path: Path, line: bytes) -> Deletion:
    """Decode a complete line of ``deleted.jsonl``."""
    return _decode(path, line, _deletion)


def decode_side(path: Path, line: bytes) -> SideRecord:
    """Decode a complete line of a side file."""
    return _decode(path, line, _side)


def _decode(path: Path, line: bytes, decode: Callable[[bytes], L]) -> L:
    """Raises SchemaTooNew for a later format's line, StorageCorrupt for one that is none."""
    try:
        _check_format(path, line)
        return decode(line)
    except (ValueError, RecursionError) as error:
        start = line[:60].decode(errors="replace")
        raise StorageCorrupt(f"{path} has a complete but malformed line, {start!r}: {error}") from error


def _check_format(path: Path, line: bytes) -> None:
    found = _format(line).format
    if found > FORMAT:
        raise SchemaTooNew(str(path), found=found, supported=FORMAT)
    if found != FORMAT:
        raise ValueError(f"there is no format {found}")


class _Format(Record, frozen=True):
    format: int


_encode = msgspec.json.Encoder().encode
_format = msgspec.json.Decoder(_Format).decode
_commit = msgspec.json.Decoder(Commit).decode
_deletion = msgspec.json.Decoder(Deletion).decode
_side = msgspec.json.Decoder(SideRecord).decode


# --- names

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
_MAX_NAME = 200
_SESSION = re.compile(r"[a-z0-9_%-]+")
_SIDE_FILE = re.compile(r"(doc|task)-[1-9][0-9]*\.jsonl")


@lru_cache(maxsize=1 << 14)
def directory_name(key: str) -> str:
    """Name a session's directory: its key, percent-encoded; a long name is cut, and told apart by a hash of the key.

    Different keys have different names, also where file names differ by case only by accident. The key itself stands
    in the session's first commit.
    """
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in key.encode()) or "%"
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[: _MAX_NAME // 2]}%-{hashlib.sha256(key.encode()).hexdigest()}"


def is_directory_name(name: str) -> bool:
    """Tell whether a session's directory may have this name; none of a store's other files has."""
    return _SESSION.fullmatch(name) is not None


def document_side(id: int) -> str:
    """Name a document's side file, without suffix."""
    return f"doc-{id}"


def task_side(id: int) -> str:
    """Name a task's side file, without suffix."""
    return f"task-{id}"


def parse_side(side: str) -> tuple[str, int]:
    """Tell whether a side is a document's ("doc") or a task's ("task"), and the id."""
    kind, _, number = side.partition("-")
    return kind, int(number)


def side_of(name: str) -> str | None:
    """Tell which side a file is, None for any other file."""
    return name.removesuffix(SUFFIX) if _SIDE_FILE.fullmatch(name) else None
