"""Writing a JSONL store's files, in the order in which a crash may interrupt it.

A commit's side records are complete before its marker is appended, and those of a group's other commits before its last
marker; with ``fsync`` "complete" means flushed, names of new files included. A side file is reclaimed only after the
marker that allows it. Blocking: for one thread at a time. Proved by tests/storage/test_jsonl_protocol.py and
tests/storage/test_jsonl_power.py.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .jsonl_files import Files, storage_errors
from .jsonl_format import MAIN, RECLAIM, SUFFIX, directory_name
from .jsonl_group import Lines
from .jsonl_recovery import Recovered

_UNFINISHED = ".new"
"""Ends the name of a session's directory until it holds a main file. No session's name has a dot."""


class Folder:
    """A session's directory: how long each of its files is (None: not known), and whether names are not flushed."""

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
        unfinished = Folder(self.root / (name + _UNFINISHED), {})
        self._files.make_directory(unfinished.path)
        self._append(unfinished, MAIN, b"")
        if self._fsync:
            self._flush_names(unfinished)
        self._files.rename(unfinished.path, path)
        if self._fsync:
            self._files.flush_directory(self.root)
        folder = self._folders[name] = Folder(path, unfinished.sizes)
        return folder

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

    def repair(self, recovered: Sequence[Recovered]) -> None:
        """Cut what is not confirmed, flush what is, and take over the files. Raises StorageFull and StorageError."""
        with storage_errors(self.root):
            for found in recovered:
                for name in found.leftovers:
                    self._files.remove(found.path / name)
                for name in found.cuts:
                    self._files.truncate(found.path / name, found.sizes[name])
                self._folders[found.path.name] = Folder(found.path, dict(found.sizes))
            if self._fsync:
                self._flush_all()

    def _flush_all(self) -> None:
        """Make durable what is believed from now on: whoever wrote it may have died before it was flushed."""
        for folder in self._folders.values():
            for name in sorted(folder.sizes, key=MAIN.__eq__):
                self._files.flush(folder.file(name))
            self._files.flush_directory(folder.path)
        self._files.flush_directory(self.root)
        if not self._folders:
            with suppress(PermissionError):  # then somebody else made the directory, long ago
                self._files.flush_directory(self.root.parent)
