"""Reading a JSONL store: from the bytes that a crash left to sessions, and to what has to be cut away.

Nothing is changed here, and everything is checked before anything is changed. What a commit's marker confirms must be
there, unless a later base, retirement or end of a task makes it superfluous; what no marker confirms is left out.
Proved by tests/storage/test_jsonl_recovery.py and tests/storage/test_jsonl_torn.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .checks import rewindable
from .errors import StorageCorrupt, StorageRejected
from .jsonl_files import Files
from .jsonl_format import (
    DELETED,
    DISCARDED,
    MAIN,
    RECLAIM,
    SUFFIX,
    Commit,
    DocumentContent,
    SessionHeader,
    SideRecord,
    TaskState,
    decode_commit,
    decode_deletion,
    decode_side,
    directory_name,
    document_side,
    is_directory_name,
    read_lines,
    side_of,
    task_side,
)
from .jsonl_group import Contents, join
from .jsonl_reclaim import superfluous
from .memory_session import MemorySession, Undo
from .records import Base

Place = tuple[int, int]


class Marker(NamedTuple):
    """A commit, and the offset behind its line."""

    commit: Commit
    end: int


@dataclass(slots=True)
class Recovered:
    """A session's directory, and the session, if it has a commit.

    ``sizes`` tells how much of each file is valid, ``cuts`` which files are longer than that.
    """

    path: Path
    sizes: dict[str, int] = field(default_factory=dict)
    cuts: set[str] = field(default_factory=set)
    leftovers: list[str] = field(default_factory=list)
    records: dict[str, int] = field(default_factory=dict)
    """How many valid records each side holds."""
    header: SessionHeader | None = None
    session: MemorySession | None = None

    def superfluous(self) -> Iterator[tuple[str, str]]:
        """Name the session and each of its sides that holds something which is not needed."""
        if self.session is not None:
            for side, records in self.records.items():
                if superfluous(self.session, side, records):
                    yield self.session.key, side


@dataclass(slots=True)
class Recovery:
    """What a store's directory holds: sessions, and who has been deleted.

    ``discards`` are numbers and directories of deleted sessions, ``leftovers`` directories that have lost their name.
    """

    leftovers: list[Path]
    sessions: list[Recovered] = field(default_factory=list)
    discards: list[tuple[int, Path]] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    deletions_size: int = 0
    deletions_torn: bool = False

    @property
    def last_number(self) -> int:
        """The highest number that a session has had."""
        return max([0, *self.deleted, *(one.header.number for one in self.sessions if one.header)])


class Found:
    """A session's files as they were found."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        names = files.list(path)
        self.leftovers = [name for name in names if name.endswith(RECLAIM)]
        if MAIN not in names:
            raise StorageCorrupt(f"{path / MAIN} is missing")
        self.main = files.read(path / MAIN)
        sides = {side: name for name in names if (side := side_of(name))}
        self.sides = {side: files.read(path / name) for side, name in sides.items()}
        self.markers = list(_read_markers(path / MAIN, self.main))
        self.header = self._check_header()

    def _check_header(self) -> SessionHeader | None:
        headers = [marker.commit.session for marker in self.markers]
        if not headers:
            return None
        header = headers[0]
        if header is None or any(headers[1:]):
            raise StorageCorrupt(f"{self.path / MAIN} does not begin with its session, or has several")
        if directory_name(header.key) != self.path.name:
            raise StorageCorrupt(f"{self.path} holds session {header.key!r}: its directory was renamed")
        return header


def recover(root: Path, files: Files) -> Recovery:
    """Read all sessions, in the order of their creation. Raises StorageCorrupt, SchemaTooNew and OSError."""
    names = files.list(root)
    found = list(_read_folders(root, names, files))
    result = Recovery(leftovers=[root / name for name in names if name.endswith(DISCARDED)])
    if DELETED in names:
        _read_deletions(root / DELETED, files.read(root / DELETED), result)
    kept = [one for one in found if one.header is None or one.header.number not in result.deleted]
    drop_unconfirmed(kept, result.deleted)
    result.discards = [(one.header.number, one.path) for one in found if one.header and one not in kept]
    result.sessions = sorted(map(rebuild, kept), key=lambda one: one.header.number if one.header else 0)
    return result


def _read_folders(root: Path, names: Iterable[str], files: Files) -> Iterator[Found]:
    for name in filter(is_directory_name, names):
        try:
            yield Found(root / name, files)
        except NotADirectoryError:
            continue


def _read_deletions(path: Path, data: bytes, result: Recovery) -> None:
    """Note who has been deleted. Nothing stands behind a torn line: deletions are appended one by one."""
    for line in read_lines(data):
        if line.torn:
            result.deletions_torn = True
        elif result.deletions_torn:
            raise StorageCorrupt(f"{path}: a deletion follows a torn line")
        else:
            result.deleted.add(decode_deletion(path, line.data).number)
            result.deletions_size = line.end


# --- main files


def _read_markers(path: Path, data: bytes) -> Iterator[Marker]:
    """Read the complete commits. Behind a torn line there may only be the rest of what was appended with it."""
    seq, torn = 0, False
    for line in read_lines(data):
        if line.torn:
            torn = True
            continue
        commit = decode_commit(path, line.data)
        if commit.seq <= seq:
            raise StorageCorrupt(f"{path}: commit {commit.seq} follows commit {seq}")
        if not torn:
            seq = commit.seq
            yield Marker(commit, line.end)
        elif commit.after is None or commit.after <= seq:
            raise StorageCorrupt(f"{path}: commit {commit.seq} follows a torn line")


def drop_unconfirmed(folders: Iterable[Found], deleted: set[int]) -> None:
    """Drop the commits of a group whose last one is missing, and check that none of any other group is missing.

    What awaits a deleted session was confirmed by it: nothing is deleted while a group is unfinished.
    """
    sessions = _by_number(folders)
    confirmed: dict[int, int] = {}
    for folder in sessions.values():
        for marker in folder.markers:
            for number, seq in marker.commit.confirms.items():
                confirmed[number] = max(seq, confirmed.get(number, 0))
    for number, folder in sessions.items():
        while folder.markers and _is_open(folder.markers[-1].commit, confirmed.get(number, 0), deleted):
            folder.markers.pop()
    for number, seq in confirmed.items():
        if number not in deleted:
            _check_reached(sessions.get(number), number, seq)


def _by_number(folders: Iterable[Found]) -> dict[int, Found]:
    sessions: dict[int, Found] = {}
    for folder in folders:
        if folder.header is not None:
            other = sessions.setdefault(folder.header.number, folder)
            if other is not folder:
                raise StorageCorrupt(f"{other.path} and {folder.path} have one number: one comes from another store")
    return sessions


def _is_open(commit: Commit, confirmed: int, deleted: set[int]) -> bool:
    return commit.awaits is not None and commit.awaits not in deleted and commit.seq > confirmed


def _check_reached(folder: Found | None, number: int, seq: int) -> None:
    if folder is None:
        raise StorageCorrupt(f"session number {number} is missing, of which another session confirms commit {seq}")
    if not folder.markers or folder.markers[-1].commit.seq < seq:
        raise StorageCorrupt(f"{folder.path / MAIN} lacks commit {seq}, which another session confirms")


# --- side files


class _SideLine(NamedTuple):
    """A side file's complete record, and the offset behind it; the record is None for a torn line."""

    record: SideRecord | None
    end: int


def _read_side(path: Path, side: str, data: bytes) -> list[_SideLine]:
    found = []
    for line in read_lines(data):
        record = None if line.torn else decode_side(path, line.data)
        if record is not None and record.payload.side != side:
            raise StorageCorrupt(f"{path} holds a record of {record.payload.side}")
        found.append(_SideLine(record, line.end))
    return found


def _confirm(path: Path, found: list[_SideLine], listed: list[Place], *, base_will_do: bool) -> list[_SideLine]:
    """Give the records that commits list. All must be there, or, where a base will do, those from some base on."""
    wanted = set(listed)
    known = [one.record is not None and one.record.place in wanted for one in found]
    confirmed = found[: known.index(False) if False in known else len(known)]
    if any(known[len(confirmed) :]):
        raise StorageCorrupt(f"{path}: a confirmed record follows an unconfirmed one")
    records = [one.record for one in confirmed if one.record]
    missing = len(listed) - len(records)
    if [record.place for record in records] != listed[max(missing, 0) :]:
        raise StorageCorrupt(f"{path} does not hold the records that commits list: one is missing or there twice")
    if missing > 0 and not (base_will_do and records and _is_base(records[0])):
        raise StorageCorrupt(f"{path} lacks record {listed[missing - 1]}, which a commit lists")
    return confirmed


def _is_base(record: SideRecord) -> bool:
    return isinstance(getattr(record.payload, "content", None), Base)


# --- sessions


def rebuild(folder: Found) -> Recovered:
    """Apply a session's confirmed commits."""
    commits = [marker.commit for marker in folder.markers]
    result = Recovered(folder.path, leftovers=folder.leftovers)
    _measure(result, MAIN, folder.markers[-1].end if commits else 0, folder.main)
    contents = _read_contents(folder, commits, result)
    header = folder.header
    if commits and header:
        result.header = header
        result.session = MemorySession(header.key, header.created_at)
        for commit in commits:
            _apply(result.session, commit, contents, folder.path)
    return result


def _measure(result: Recovered, name: str, valid: int, data: bytes) -> None:
    result.sizes[name] = valid
    if valid < len(data):
        result.cuts.add(name)


def _read_contents(folder: Found, commits: list[Commit], result: Recovered) -> Contents:
    listed = _list_places(commits)
    ended, latest = _ended(commits), _latest(commits)
    contents: dict[tuple[str, int, int], TaskState | DocumentContent] = {}
    for side in {*listed, *folder.sides}:
        name, data = side + SUFFIX, folder.sides.get(side, b"")
        path = folder.path / name
        found = _read_side(path, side, data)
        if side in ended:
            confirmed = found
        else:
            confirmed = _confirm(path, found, listed.get(side, []), base_will_do=side in latest)
            contents |= {(side, *one.record.place): one.record.payload for one in confirmed if one.record}
        if side in folder.sides:
            _measure(result, name, confirmed[-1].end if confirmed else 0, data)
            result.records[side] = len(confirmed)
    return contents


def _list_places(commits: list[Commit]) -> dict[str, list[Place]]:
    """List the records that commits confirm, by side."""
    places: dict[str, list[Place]] = {}
    for commit in commits:
        for side, records in commit.side.items():
            places.setdefault(side, []).extend((commit.seq, ordinal) for ordinal in range(records))
    return places


def _latest(commits: list[Commit]) -> set[str]:
    """Name the sides of documents that keep only their latest value."""
    return {document_side(record.id) for commit in commits for record in commit.documents if not rewindable(record)}


def _ended(commits: list[Commit]) -> set[str]:
    """Name the sides that nothing needs any more: of terminal tasks and of documents that left no history."""
    tasks = {task_side(task.id) for commit in commits for task in commit.tasks}
    retired = {document_side(number) for commit in commits for number in commit.retired}
    return tasks | (retired & _latest(commits)) | _deleted(commits)


def _deleted(commits: list[Commit]) -> set[str]:
    """Name the sides of documents that went with their conversations: those that no fork shows anything of."""
    forks: dict[int, set[int]] = {}
    for record in (record for commit in commits for record in commit.conversations):
        if record.parent is not None:
            forks.setdefault(record.parent.conversation_id, set()).add(record.id)
    erased = {number for commit in commits for number in commit.erased}
    erased |= {record.id for commit in commits for record in commit.conversations if record.deleted}
    gone: set[int] = set()
    for number in sorted(erased, reverse=True):  # a fork is younger than what it is a fork of
        if forks.get(number, set()) <= gone:
            gone.add(number)
    documents = [record for commit in commits for record in commit.documents]
    return {document_side(one.id) for one in documents if getattr(one.scope, "conversation_id", None) in gone}


def _apply(session: MemorySession, commit: Commit, contents: Contents, path: Path) -> None:
    try:
        session.apply(join(session.key, commit, contents), Undo())
    except (StorageRejected, StorageCorrupt) as error:
        raise StorageCorrupt(f"{path / MAIN}: commit {commit.seq} does not fit: {error}") from error
