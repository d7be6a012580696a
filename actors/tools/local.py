"""The environment of this machine: its disk and its processes. Proved by tests/actors/tools/test_files.py and others."""

import math
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from ..runtime import Clock, SystemClock
from . import disk, processes
from .blocking import in_thread
from .commands import Command
from .environment import CommandError, CommandResult, FileInfo, OnOutput, ProcessId, SpillLimits
from .paths import absolute, confined
from .readers import LocalDirectoryReader, LocalFileReader, LocalLineReader
from .spill import Spill

T = TypeVar("T")

_ANY_PROGRAM = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "COLORTERM",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
)
_TOOLCHAINS = (
    "XDG_*",
    "SSL_CERT_*",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "GOPATH",
    "GOROOT",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "NVM_DIR",
)
INHERITED = (*_ANY_PROGRAM, *_TOOLCHAINS)
"""Variables of this process that commands get: a list of what may pass, since secrets go by any name."""
MAX_TIMEOUT_S = 2_147_483.0


class LocalEnvironment:
    """Files and commands of this machine (see ``environment.Environment``).

    ``root`` confines file operations, not commands, to a directory. Commands get ``env``, and of this process's variables
    those that ``inherit`` names (with ``*`` in the name; None: all of them). Temporary files and the complete output of
    long commands go to ``temp`` (default: the system's place for them).
    """

    def __init__(
        self,
        cwd: str | os.PathLike[str] = ".",
        *,
        root: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        inherit: Iterable[str] | None = INHERITED,
        shell: str | None = None,
        temp: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.cwd = os.path.abspath(cwd)
        self.file_system = f"local:{socket.gethostname()}"
        self._temp = None if temp is None else os.path.abspath(temp)
        self._roots = [os.path.abspath(one) for one in (root, self._temp) if root is not None and one is not None]
        self._env = dict(env or {})
        self._inherit = None if inherit is None else tuple(inherit)
        self._shell = shell
        self._clock = clock or SystemClock()
        self._commands: set[Command] = set()

    def __repr__(self) -> str:
        return f"LocalEnvironment({self.cwd!r})"

    # --- files

    async def read_bytes(self, path: str) -> bytes:
        """Read a regular file."""
        return await self._at(path, disk.read)

    async def read_text(self, path: str) -> str:
        """Read a regular file; what is not UTF-8 in it is replaced."""
        return (await self.read_bytes(path)).decode("utf-8", "replace")

    async def read_lines(self, path: str, limit: int) -> list[str]:
        """Read at most the first ``limit`` lines, without their newlines."""
        lines: list[str] = []
        if limit <= 0:
            return lines
        reader = await self.open_lines(path)
        try:
            while len(lines) < limit and (line := await reader.next()) is not None:
                lines.append(line.text)
        finally:
            await reader.close()
        return lines

    async def write(self, path: str, data: str | bytes) -> None:
        """Make or replace a file as a whole."""
        await self._at(path, disk.write, _bytes(data))

    async def append(self, path: str, data: str | bytes) -> None:
        """Add to a file's end; make it if there is none."""
        await self._at(path, disk.append, _bytes(data))

    async def truncate(self, path: str, size: int) -> None:
        """Cut a file, or fill it up with zeros, to ``size`` bytes."""
        await self._at(path, disk.truncate, size)

    async def flush(self, path: str) -> None:
        """Return when a file's content would survive a loss of power."""
        await self._at(path, disk.flush)

    async def rename(self, source: str, target: str) -> None:
        """Move, replacing the target at once."""
        await in_thread(self._rename, source, target)

    def _rename(self, source: str, target: str) -> None:
        disk.rename(self._path(source, follow=False), self._path(target, follow=False))

    async def remove(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Remove a file or link, with ``recursive`` a directory; with ``force`` nothing to remove is no error."""
        await self._at(path, disk.remove, follow=False, recursive=recursive, force=force)

    async def make_directory(self, path: str, *, recursive: bool = False) -> None:
        """Make a directory."""
        await self._at(path, disk.make_directory, recursive=recursive)

    async def list_directory(self, path: str) -> list[FileInfo]:
        """List a directory by name."""
        return await self._at(path, disk.list_directory)

    async def info(self, path: str) -> FileInfo:
        """Tell what is there, without following a link."""
        return await self._at(path, disk.info, follow=False)

    async def canonical(self, path: str) -> str:
        """Give the absolute path that all links lead to."""
        return await self._at(path, disk.canonical)

    async def exists(self, path: str) -> bool:
        """Tell whether anything is there."""
        return await self._at(path, os.path.lexists, follow=False)

    async def temp_directory(self, prefix: str = "") -> str:
        """Make a new directory for temporary files."""
        return await in_thread(disk.temp_directory, self._temp, prefix)

    async def temp_file(self, prefix: str = "", suffix: str = "") -> str:
        """Make a new empty temporary file."""
        return await in_thread(disk.temp_file, self._temp, prefix, suffix)

    async def open_file(self, path: str, *, no_follow: bool = False) -> LocalFileReader:
        """Open a regular file to read it in parts; ``no_follow`` refuses a link."""
        return await self._at(path, LocalFileReader, follow=not no_follow, no_follow=no_follow)

    async def open_lines(self, path: str, *, longest: int | None = None) -> LocalLineReader:
        """Open a regular file to read it by lines, each cut to ``longest`` characters."""
        return await self._at(path, LocalLineReader, longest)

    async def open_directory(self, path: str) -> LocalDirectoryReader:
        """Open a directory to list it by pages."""
        return await self._at(path, LocalDirectoryReader)

    async def _at(self, path: str, work: Callable[..., T], *args: Any, follow: bool = True, **options: Any) -> T:
        return await in_thread(lambda: work(self._path(path, follow=follow), *args, **options))

    def _path(self, path: str, *, follow: bool) -> str:
        return confined(absolute(self.cwd, path), self._roots, follow=follow)

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
        """Run a shell command, or a program with its arguments, to its end (see ``environment.Environment``)."""
        _check_timeout(timeout_s)
        variables = {**(self._base() if inherit_env else {}), **(env or {})}
        folder = absolute(self.cwd, cwd or self.cwd)
        argv = await in_thread(self._argv, command, folder, variables)
        running = Command.start(
            argv,
            cwd=folder,
            env=variables,
            held=started is not None,
            clock=self._clock,
            on_output=on_output,
            spill=None if spill is None else Spill(spill, self._temp),
        )
        self._commands = {one for one in self._commands if one.holds_output} | {running}
        return await running.result(timeout_s, started)

    def _base(self) -> dict[str, str]:
        inherited = self._inherit
        passed = {
            name: value
            for name, value in os.environ.items()
            if inherited is None or any(fnmatchcase(name, pattern) for pattern in inherited)
        }
        return {**passed, **self._env}

    def _argv(self, command: str | Sequence[str], cwd: str, variables: Mapping[str, str]) -> list[str]:
        """Give what to start. Raises CommandError for what cannot be, before anything is."""
        if not os.path.isdir(cwd):
            raise CommandError("spawn_error", f"Working directory does not exist: {cwd}")
        if isinstance(command, str):
            return [self._find_shell(), "-c", command]
        argv = [str(part) for part in command]
        if not argv:
            raise CommandError("spawn_error", "there is no program to run in an empty list")
        found = shutil.which(argv[0], path=variables.get("PATH", os.defpath))
        if found is None and not os.access(os.path.join(cwd, argv[0]), os.X_OK):
            raise CommandError("spawn_error", f"{argv[0]}: there is no such program, or it may not be executed")
        return argv if found is None else [found, *argv[1:]]

    def _find_shell(self) -> str:
        shell = self._shell or shutil.which("bash") or "/bin/sh"
        if not os.path.exists(shell):
            raise CommandError("shell_unavailable", f"there is no shell {shell}")
        if not os.path.isfile(shell) or not os.access(shell, os.X_OK):
            raise CommandError("spawn_error", f"the shell {shell} may not be executed")
        return shell

    async def end(self, process: ProcessId) -> bool:
        """Kill what is left of a command that an earlier life of this program has started; tell whether anything was."""
        return await in_thread(processes.end, process)

    async def close(self) -> None:
        """Kill the commands that run, and what ended ones have left behind that still holds their output."""
        for running in self._commands:
            running.kill()
        for running in self._commands:
            await running.kill_left()


def _bytes(data: str | bytes) -> bytes:
    return data.encode("utf-8", "replace") if isinstance(data, str) else data


def _check_timeout(timeout_s: float | None) -> None:
    if timeout_s is None:
        return
    known = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and math.isfinite(timeout_s)
    if not known or not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise CommandError("invalid", f"Invalid timeout: expected seconds up to {MAX_TIMEOUT_S:g}, got {timeout_s!r}")
