"""Writing a JSONL store's files, in the order in which a crash may interrupt it.

A commit's side records are complete before its marker is appended, and those of a group's other commits before its last
marker; with ``fsync`` "complete" means flushed, names of new files included. A side file is reclaimed only after the
marker that allows it. Blocking: for one thread at a time. Proved by tests/storage/test_jsonl_protocol.py and
tests/storage/test_jsonl_power.py.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from .jsonl_files import Files, storage_errors
from .jsonl_format import (
    DELETED,
    DISCARDED,
    FORMAT,
    MAIN,
    RECLAIM,
    SUFFIX,
    UNFINISHED,
    Deletion,
    directory_name,
    encode_line,
)
from .jsonl_group import Lines
from .jsonl_recovery import Recovered, Recovery


class Folder:
    """A directory: how long each of its files is (None: not known), and whether it has names that are not flushed."""

    __slots__ = ("path", "sizes", "unflushed")

    def __init__(self, path: Path, sizes: dict[str, int | None]) -> None:
        self.path = path
        self.sizes = sizes
        self.unflushed = False

    def file(self, name: str) -> Path:
        """Give a file's path."""
        return self.path / name


class Journal:
    """The files of an open store. After an error of ``write`` nothing more may be written before a recovery."""

    def __init__(self, root: Path, files: Files, *, fsync: bool) -> None:
        self.root = root
        self._files = files
        self._fsync = fsync
        self._store = Folder(root, {})
        self._folders: dict[str, Folder] = {}

    # --- commits

    def write(self, lines: Lines) -> None:
        """Append a group. Raises StorageFull or StorageError when it is not known how much of it is stored."""
        leader, last = lines.leader
        with storage_errors(self.root):
            for key in (*lines.followers, leader):
                self._folder(key)
            self._append_sides(lines.side)
            self._append_mains(lines.followers)
            self._append_mains({leader: last})

    def _append_sides(self, lines: Mapping[tuple[str, str], bytes]) -> None:
        appended = [(self._folder(key), side + SUFFIX, data) for (key, side), data in lines.items()]
        for folder, name, data in appended:
            self._append(folder, name, data)
        if self._fsync:
            for folder, name, _ in appended:
                self._files.flush(folder.file(name))
            for folder, _, _ in appended:
                self._flush_names(folder)

    def _append_mains(self, lines: Mapping[str, bytes]) -> None:
        for key, data in lines.items():
            self._append(self._folder(key), MAIN, data)
        if self._fsync:
            for key in lines:
                self._files.flush(self._folder(key).file(MAIN))

    def _append(self, folder: Folder, name: str, data: bytes) -> None:
        size = folder.sizes.get(name, 0)
        self._files.append(folder.file(name), data, size)
        folder.unflushed |= name not in folder.sizes
        folder.sizes[name] = None if size is None else size + len(data)

    def _flush_names(self, folder: Folder) -> None:
        if folder.unflushed:
            self._files.flush_directory(folder.path)
            folder.unflushed = False

    # --- sessions

    def _folder(self, key: str) -> Folder:
        name = directory_name(key)
        return self._folders.get(name) or self._make_folder(name)

    def _make_folder(self, name: str) -> Folder:
        """Make a session's directory. It has its name only when it has a main file, so one without has lost it."""
        path = self.root / name
        unfinished = Folder(self.root / (name + UNFINISHED), {})
        self._files.make_directory(unfinished.path)
        self._append(unfinished, MAIN, b"")
        if self._fsync:
            self._flush_names(unfinished)
        self._files.rename(unfinished.path, path)
        self._store.unflushed = True
        if self._fsync:
            self._flush_names(self._store)
        folder = self._folders[name] = Folder(path, unfinished.sizes)
        return folder

    def delete(self, key: str, number: int) -> None:
        """Delete a session: at once, with a line of ``deleted.jsonl``; its files are removed afterwards.

        Raises StorageFull or StorageError when it is not known whether it is deleted.
        """
        with storage_errors(self.root):
            self._append(self._store, DELETED, encode_line(Deletion(format=FORMAT, key=key, number=number)))
            if self._fsync:
                self._files.flush(self._store.file(DELETED))
                self._flush_names(self._store)
            discarded = self._discard(self._folders.pop(directory_name(key)).path, number)
            if self._fsync:
                self._flush_names(self._store)
        self._clear(discarded)

    def _discard(self, path: Path, number: int) -> Path:
        """Take a directory's name away, so that another session may have it."""
        discarded = path.with_name(f"{path.name}.{number}{DISCARDED}")
        self._files.rename(path, discarded)
        self._store.unflushed = True
        return discarded

    def _clear(self, path: Path) -> None:
        """Remove a discarded directory; what cannot be removed is removed by a later recovery."""
        with suppress(OSError):
            for name in self._files.list(path):
                self._files.remove(path / name)
            self._files.remove_directory(path)

    # --- reclamation

    def reclaim(self, plan: Mapping[tuple[str, str], bytes]) -> set[tuple[str, str]]:
        """Leave only the given lines of side files; without lines, remove them. Name those where that failed.

        A commit that has been stored is not undone by a failure here, so none is raised.
        """
        return {(key, side) for (key, side), lines in plan.items() if not self._reclaim(key, side + SUFFIX, lines)}

    def _reclaim(self, key: str, name: str, lines: bytes) -> bool:
        folder = self._folder(key)
        try:
            if name in folder.sizes and lines:
                self._replace(folder, name, lines)
            elif name in folder.sizes:
                self._remove(folder, name)
        except OSError:
            return False
        return True

    def _remove(self, folder: Folder, name: str) -> None:
        with suppress(FileNotFoundError):  # an earlier try has removed it, but was not told so
            self._files.remove(folder.file(name))
        del folder.sizes[name]

    def _replace(self, folder: Folder, name: str, data: bytes) -> None:
        """Put another file in place of one. Appends find it at once; its name is flushed before one is relied on."""
        replacement = folder.file(name + RECLAIM)
        self._files.write(replacement, data)
        if self._fsync:
            self._files.flush(replacement)
        folder.unflushed, folder.sizes[name] = True, None
        self._files.rename(replacement, folder.file(name))
        folder.sizes[name] = len(data)

    # --- recovery

    def repair(self, recovery: Recovery) -> None:
        """Cut what is not confirmed, flush what is, and take over the files. Raises StorageFull and StorageError."""
        with storage_errors(self.root):
            self._repair_deletions(recovery)
            discarded = [self._discard(path, number) for number, path in recovery.discards]
            for session in recovery.sessions:
                self._cut(session)
            if self._fsync:
                self._flush_all()
        for path in (*recovery.leftovers, *discarded):
            self._clear(path)

    def _repair_deletions(self, recovery: Recovery) -> None:
        """Have the deletions durable before any directory goes."""
        if recovery.deletions_torn:
            self._files.truncate(self._store.file(DELETED), recovery.deletions_size)
        if recovery.deletions_torn or recovery.deleted:
            self._store.sizes[DELETED] = recovery.deletions_size
            if self._fsync:
                self._files.flush(self._store.file(DELETED))
                self._files.flush_directory(self.root)

    def _cut(self, session: Recovered) -> None:
        for name in session.leftovers:
            self._files.remove(session.path / name)
        for name in session.cuts:
            self._files.truncate(session.path / name, session.sizes[name])
        self._folders[session.path.name] = Folder(session.path, dict(session.sizes))

    def _flush_all(self) -> None:
        """Make durable what is believed from now on: whoever wrote it may have died before it was flushed."""
        for folder in (*self._folders.values(), self._store):
            for name in sorted(folder.sizes, key=MAIN.__eq__):
                self._files.flush(folder.file(name))
            self._files.flush_directory(folder.path)
        if not self._folders:
            with suppress(PermissionError):  # then somebody else made the directory, long ago
                self._files.flush_directory(self.root.parent)
