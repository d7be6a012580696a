"""The owner lock: at most one process, and one store object in it, has a file open for writing.

The lock is the kernel's (``flock`` on a file beside the store), so it ends with its process however that ends, and
neither a reused pid nor a stale file means anything. The file only describes its owner. It is never deleted: deleting a
lock file lets two processes lock two files of one name. Proved by tests/storage/test_owner.py.
"""

import fcntl
import os
import socket
import weakref
from pathlib import Path

import msgspec

from .errors import StorageFenced, StorageInUse


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """How an owner describes itself in its lock file. ``started_at`` is when it took the lock, in ms."""

    pid: int
    host: str
    started_at: int


UNKNOWN = Owner(0, "unknown host", 0)
_KERNEL_LOCKS = Path("/proc/locks")


class OwnerLock:
    """Exclusive ownership of a file, from ``acquire`` to ``release``.

    Aliases of the file (symbolic links, relative paths, through linked folders) share one lock.
    """

    def __init__(self, path: str) -> None:
        self._file: int | None = None
        self.path = os.path.realpath(path) + ".lock"

    def acquire(self, started_at: int) -> None:
        """Take the lock or raise StorageInUse at once. Raises OSError when the lock file cannot be opened."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _describe(file, Owner(os.getpid(), socket.gethostname(), started_at))
        except BlockingIOError:
            owner = _read_owner(file)
            os.close(file)
            raise StorageInUse(self.path.removesuffix(".lock"), pid=owner.pid, host=owner.host) from None
        except BaseException:
            os.close(file)
            raise
        self._file = file
        _held.add(self)

    def check(self) -> None:
        """Raise StorageFenced when the lock file was removed or replaced, so that a newer owner may hold another one."""
        assert self._file is not None
        try:
            held, named = os.fstat(self._file), os.stat(self.path)  # noqa: PTH116
        except FileNotFoundError:
            named = None
        if named is None or (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino):
            path = self.path.removesuffix(".lock")
            raise StorageFenced(
                f"the lock of {path} was taken away and it may have a newer owner; this one can only close"
            )

    def release(self) -> None:
        """Give the lock up. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            _held.discard(self)
            os.close(file)

    def __del__(self) -> None:
        self.release()


def find_owner(path: str) -> Owner | None:
    """Tell who holds a file's owner lock, without touching it; None when nobody does.

    The kernel's list of locks says whether somebody does, the lock file who it is. Where there is no such list (only
    Linux has one), whoever is described counts as the owner while a process of that pid lives on this host.
    """
    lock = Path(os.path.realpath(path) + ".lock")
    try:
        stat, owner = lock.stat(), _describe_owner(lock)
    except FileNotFoundError:
        return None
    try:
        locks = _KERNEL_LOCKS.read_text()
    except OSError:
        return owner if owner.host == socket.gethostname() and _lives(owner.pid) else None
    return owner if any(_is_lock_of(line.split(), stat, owner) for line in locks.splitlines()) else None


def _describe_owner(lock: Path) -> Owner:
    """Read a lock file, as far as this user may."""
    try:
        with lock.open("rb") as file:
            return _read_owner(file.fileno())
    except PermissionError:
        return UNKNOWN


def _is_lock_of(line: list[str], stat: os.stat_result, owner: Owner) -> bool:
    """Recognise a lock by its file's device and inode; some file systems report another device, but its process fits."""
    if len(line) != 8 or line[1:4] != ["FLOCK", "ADVISORY", "WRITE"]:
        return False
    device, _, inode = line[5].rpartition(":")
    own = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}"
    return inode == str(stat.st_ino) and (device == own or line[4] == str(owner.pid))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def _describe(file: int, owner: Owner) -> None:
    description = msgspec.json.encode(owner)
    os.pwrite(file, description, 0)
    os.ftruncate(file, len(description))


def _read_owner(file: int) -> Owner:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=Owner)
    except msgspec.MsgspecError:
        return UNKNOWN


_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()


def _release_in_child() -> None:
    """Close the descriptors that a fork inherited: the lock would live on in the child after its owner's death."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)
