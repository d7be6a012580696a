"""The file operations that a JSONL store is made of, and what their errors mean.

Everything that such a store does to a disk goes through ``Files``, so that a test can list the operations, let one of
them fail, or lose what was not flushed.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from .errors import StorageError, StorageFull


class Files(Protocol):
    """Blocking file operations on absolute paths. Each raises OSError; nothing is durable before it is flushed."""

    def make_directory(self, path: Path) -> None:
        """Make a directory, for its owner only; one that exists is left as it is."""

    def list(self, path: Path) -> list[str]:
        """Name what a directory holds. Raises NotADirectoryError for a file."""

    def read(self, path: Path) -> bytes:
        """Read a file."""

    def append(self, path: Path, data: bytes, at: int | None) -> None:
        """Append to a file that is ``at`` bytes long, or however long with None; one of 0 bytes need not exist.

        Raises when the file is missing or has another length: then somebody else has been at it. On any error the file
        may have grown by a part of the data.
        """

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a file's content."""

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file."""

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or directory over another name."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def flush(self, path: Path) -> None:
        """Make a file's content durable."""

    def flush_directory(self, path: Path) -> None:
        """Make the names in a directory durable: files made, renamed and removed."""


class DiskFiles:
    """The file system of this machine. Holds no file open between operations."""

    def make_directory(self, path: Path) -> None:
        """Make a directory, for its owner only; one that exists is left as it is."""
        path.mkdir(0o700, exist_ok=True)

    def list(self, path: Path) -> list[str]:
        """Name what a directory holds."""
        return [entry.name for entry in path.iterdir()]

    def read(self, path: Path) -> bytes:
        """Read a file."""
        return path.read_bytes()

    def append(self, path: Path, data: bytes, at: int | None) -> None:
        """Append to a file of a known length."""
        with _opened(path, os.O_WRONLY | os.O_APPEND | (os.O_CREAT if at == 0 else 0)) as file:
            size = os.fstat(file).st_size
            if at not in (None, size):
                raise OSError(
                    errno.ESTALE, f"somebody else has changed the file: {size} bytes long, not {at}", str(path)
                )
            _write_all(file, data)

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a file's content."""
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            _write_all(file, data)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file."""
        os.truncate(path, size)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or directory over another name."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def flush(self, path: Path) -> None:
        """Make a file's content durable."""
        with _opened(path, os.O_RDWR) as file:
            os.fsync(file)

    def flush_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as file:
            os.fsync(file)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    """Write on where the system stopped short, so that no byte is written twice."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Let errors of the file system leave the block as storage errors."""
    try:
        yield
    except OSError as error:
        kind = StorageFull if error.errno in _FULL else StorageError
        raise kind(f"{path} cannot be used: {error}") from error
