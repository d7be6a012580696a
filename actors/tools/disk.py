"""File operations on this machine's disk: blocking, by absolute path, errors as FileError.

Proved by tests/actors/tools/test_files.py.
"""

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .environment import FileError, FileErrorCode, FileInfo, Kind

CODES: dict[int | None, FileErrorCode] = {
    errno.ENOENT: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ENOTDIR: "not_directory",
    errno.EISDIR: "is_directory",
    errno.EINVAL: "invalid",
    errno.ELOOP: "invalid",
    errno.ENXIO: "invalid",
    errno.ENAMETOOLONG: "invalid",
}
LARGEST = 2**53 - 1
"""The largest size or offset: what JSON carries exactly."""
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


@contextmanager
def reporting(path: str) -> Iterator[None]:
    """Raise FileError for what the operating system refuses."""
    try:
        yield
    except OSError as error:
        code = CODES.get(error.errno, "unknown")
        raise FileError(code, path, f"{error.strerror or error} ({code})") from error


def whole(path: str, what: str, value: Any) -> int:
    """Check a size or offset. Raises FileError."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise FileError("invalid", path, f"{what} must be a whole number of bytes from 0 to {LARGEST}, got: {value!r}")
    return value


def open_regular(path: str, *, no_follow: bool = False) -> int:
    """Open a regular file for reading, never waiting for the other end of a pipe. Gives its descriptor."""
    with reporting(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if no_follow else 0))
    try:
        _check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise FileError("is_directory", path, "Is a directory (is_directory)")
    if not stat.S_ISREG(status.st_mode):
        raise FileError("invalid", path, "is no regular file (invalid)")


def read(path: str) -> bytes:
    """Read a whole file."""
    with reporting(path), os.fdopen(open_regular(path), "rb") as file:
        return file.read()


def write(path: str, data: bytes) -> None:
    """Replace a file, or make it, by a rename. A link stays one, and a file keeps its permissions."""
    with reporting(path):
        target = os.path.realpath(path)
        mode = _mode_to_keep(path, target)
        part = f"{target}.{secrets.token_hex(4)}.part"
        try:
            _write_new(part, data, mode)
            os.replace(part, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
        _sync_directory(os.path.dirname(target))


def _mode_to_keep(path: str, target: str) -> int | None:
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    _check_regular(path, status)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return stat.S_IMODE(status.st_mode)


def _write_new(path: str, data: bytes, mode: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _sync_directory(path: str) -> None:
    """Make a rename survive a loss of power, where the file system can."""
    with suppress(OSError):
        sync(path, os.O_DIRECTORY)


def append(path: str, data: bytes) -> None:
    """Add to a file's end."""
    with reporting(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            _check_regular(path, os.fstat(descriptor))
            file.write(data)


def truncate(path: str, size: int) -> None:
    """Give a file exactly so many bytes."""
    with reporting(path):
        os.truncate(path, whole(path, "a size", size))


def flush(path: str) -> None:
    """Sync a file through one descriptor, which is closed whatever happens."""
    with reporting(path):
        _check_regular(path, os.stat(path))
        sync(path)


def sync(path: str, flags: int = 0) -> None:
    """Open, fsync, close."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: str, target: str) -> None:
    """Move; the error names whichever of the two is at fault."""
    with reporting(source):
        os.lstat(source)
    with reporting(target):
        os.replace(source, target)


def remove(path: str, *, recursive: bool, force: bool) -> None:
    """Remove what is there, never following a link."""
    with reporting(path):
        try:
            is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
        except FileNotFoundError:
            if force:
                return
            raise
        if is_directory and not recursive:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if is_directory:
            shutil.rmtree(path)
        else:
            os.unlink(path)


def make_directory(path: str, *, recursive: bool) -> None:
    """Make a directory."""
    with reporting(path):
        if recursive:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)


def info(path: str) -> FileInfo:
    """Tell what is there."""
    with reporting(path):
        status = os.lstat(path)
    found = describe(path, status)
    if found is None:
        raise FileError("invalid", path, "is no file, directory or link (invalid)")
    return found


def describe(path: str, status: os.stat_result) -> FileInfo | None:
    """Put a status into our words; None for devices, sockets and pipes."""
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None
    return FileInfo(os.path.basename(path) or path, path, kind, status.st_size, status.st_mtime_ns // 1_000_000)


def list_directory(path: str) -> list[FileInfo]:
    """List by name. An entry that vanishes meanwhile is an error."""
    with reporting(path):
        names = sorted(os.listdir(path))
    found = []
    for name in names:
        at = os.path.join(path, name)
        with reporting(at):
            found.append(describe(at, os.lstat(at)))
    return [one for one in found if one is not None]


def canonical(path: str) -> str:
    """Follow all links."""
    with reporting(path):
        return os.path.realpath(path, strict=True)


def temp_directory(where: str | None, prefix: str) -> str:
    """Make a directory that only this user can look into."""
    with reporting(where or tempfile.gettempdir()):
        return tempfile.mkdtemp(prefix=prefix, dir=where)


def temp_file(where: str | None, prefix: str, suffix: str) -> str:
    """Make a file that only this user can read."""
    with reporting(where or tempfile.gettempdir()):
        descriptor, path = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=where)
        os.close(descriptor)
        return path
