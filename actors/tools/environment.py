"""Where a conversation's tools work: files and commands, behind one protocol, so that it may be another machine.

Every operation is a coroutine. Cancelled before it has begun it does nothing; paths that are not absolute start at the
environment's working directory. Proved by tests/actors/tools/test_files.py and test_commands.py.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from ...chord import PerdureError

FileErrorCode = Literal[
    "not_found", "permission_denied", "not_directory", "is_directory", "invalid", "outside_root", "unknown"
]
CommandErrorCode = Literal["callback_error", "timeout", "spawn_error", "shell_unavailable", "invalid", "unknown"]
Kind = Literal["file", "directory", "symlink"]
Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, str], object]


class FileError(PerdureError):
    """A file operation failed and changed nothing, unless ``code`` is "unknown": then look.

    ``path`` is the absolute path at fault.
    """

    def __init__(self, code: FileErrorCode, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.code: FileErrorCode = code
        self.path = path


class CommandError(PerdureError):
    """A command was not started, or was killed with its whole process group; what it did before stays done.

    ``spill`` is the file that holds its complete output, if that was too long to be kept in memory.
    """

    def __init__(self, code: CommandErrorCode, message: str, spill: str | None = None) -> None:
        super().__init__(message)
        self.code: CommandErrorCode = code
        self.spill = spill


class FileInfo(msgspec.Struct, frozen=True):
    """One directory entry, links as links. ``size`` is in bytes, ``mtime`` in ms since the epoch."""

    name: str
    path: str
    kind: Kind
    size: int
    mtime: int


class Line(msgspec.Struct, frozen=True):
    """A line without its newline. ``terminated`` tells whether it had one, ``dropped`` how many characters were cut off."""

    text: str
    terminated: bool
    dropped: int = 0


class ProcessId(msgspec.Struct, frozen=True):
    """Tells one process from every other: its pid alone may be another's tomorrow.

    ``started`` says when it began, in words of its operating system. ``token`` is in the environment of the process and
    of everything that it starts.
    """

    pid: int
    started: str
    token: str


class SpillLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much output a command may have before all of it goes to a file, too, and how long such files are kept.

    A new one takes away those that nobody has written to for ``keep_s`` seconds (None: none of them).
    """

    max_bytes: int = 50 * 1024
    max_lines: int = 2_000
    keep_s: float | None = 7 * 86_400.0


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended; a negative ``exit_code`` is the signal that killed it.

    ``left_running`` tells that it has left processes behind that still run.
    """

    exit_code: int
    spill: str | None = None
    left_running: bool = False


class FileReader(Protocol):
    """Reads one regular file at any position, while it may change."""

    path: str
    size: int
    """Bytes, when it was opened."""

    async def read(self, offset: int, length: int) -> bytes:
        """Give at most ``length`` bytes from ``offset``. Raises FileError, with "invalid" after ``close``."""

    async def close(self) -> None:
        """Give the file up. May be called again."""


class LineReader(Protocol):
    """Reads one file line by line. Lines end with LF only."""

    path: str

    async def next(self) -> Line | None:
        """Give the next line, None at the end. Raises FileError, with "invalid" after ``close``."""

    async def close(self) -> None:
        """Give the file up. May be called again."""


class DirectoryReader(Protocol):
    """Reads one directory page by page, in no order; entries that vanish meanwhile are skipped."""

    path: str

    async def next(self, count: int) -> list[FileInfo]:
        """Give the next entries, an empty list at the end. Raises FileError, with "invalid" after ``close``."""

    async def close(self) -> None:
        """Give the directory up. May be called again."""


class Environment(Protocol):
    """Files and commands. Operations raise FileError or CommandError."""

    cwd: str
    """The working directory, absolute."""
    file_system: str
    """Environments that name the same one see the same files: what is changed in turns there, is so by all of them."""

    # --- files

    async def read_bytes(self, path: str) -> bytes:
        """Read a regular file."""

    async def read_text(self, path: str) -> str:
        """Read a regular file; what is not UTF-8 in it is replaced."""

    async def read_lines(self, path: str, limit: int) -> list[str]:
        """Read at most the first ``limit`` lines, without their newlines."""

    async def write(self, path: str, data: str | bytes) -> None:
        """Make or replace a file as a whole: others see the old content or the new, also after a loss of power."""

    async def append(self, path: str, data: str | bytes) -> None:
        """Add to a file's end; make it if there is none."""

    async def truncate(self, path: str, size: int) -> None:
        """Cut a file, or fill it up with zeros, to ``size`` bytes."""

    async def flush(self, path: str) -> None:
        """Return when a file's content would survive a loss of power."""

    async def rename(self, source: str, target: str) -> None:
        """Move, replacing the target at once."""

    async def remove(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Remove a file or link, with ``recursive`` a directory; with ``force`` nothing to remove is no error."""

    async def make_directory(self, path: str, *, recursive: bool = False) -> None:
        """Make a directory, with ``recursive`` those above it and not minding that it is there already."""

    async def list_directory(self, path: str) -> list[FileInfo]:
        """List a directory by name. What is no file, directory or link is left out."""

    async def info(self, path: str) -> FileInfo:
        """Tell what is there, without following a link."""

    async def canonical(self, path: str) -> str:
        """Give the absolute path that all links lead to."""

    async def exists(self, path: str) -> bool:
        """Tell whether anything is there."""

    async def temp_directory(self, prefix: str = "") -> str:
        """Make a new directory for temporary files."""

    async def temp_file(self, prefix: str = "", suffix: str = "") -> str:
        """Make a new empty temporary file."""

    async def open_file(self, path: str, *, no_follow: bool = False) -> FileReader:
        """Open a regular file to read it in parts; ``no_follow`` refuses a link."""

    async def open_lines(self, path: str, *, longest: int | None = None) -> LineReader:
        """Open a regular file to read it by lines, each cut to ``longest`` characters."""

    async def open_directory(self, path: str) -> DirectoryReader:
        """Open a directory to list it by pages."""

    # --- commands

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = True,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        spill: SpillLimits | None = None,
        started: Callable[[ProcessId], Awaitable[None]] | None = None,
    ) -> CommandResult:
        """Run a shell command, or a program with its arguments, to its end, whatever its exit code.

        ``env`` adds to the environment's variables; without ``inherit_env`` there are no others. ``on_output`` gets
        decoded text as it comes. ``started`` is awaited with the process's identity before the command does anything:
        who stores it there can have the process ended after a crash. Cancelling kills the whole process group.
        """

    async def end(self, process: ProcessId) -> bool:
        """Kill what is left of a command that an earlier life of this program has started; tell whether anything was."""

    async def close(self) -> None:
        """Kill the commands that run, and what ended ones have left behind that still holds their output."""
