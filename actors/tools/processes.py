"""Processes: held until they have been noted down, told apart from others of their pid, and killed with all they started.

A command is the leader of a session and process group of its own. What leaves that group is found by the token in its
environment, where the system shows environments (Linux). Proved by tests/actors/tools/test_processes.py.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .environment import ProcessId

TOKEN = "PERDURE_PROCESS"  # noqa: S105  (a name)
HOLD = ("/bin/sh", "-c", 'read -r _ && exec "$@" </dev/null', "perdure")
"""Waits for a line before it becomes the command; if whoever should send it dies, it ends and nothing has happened."""
_PROC = Path("/proc")


def start(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], token: str, held: bool
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own, its output to pipes. ``held``: it begins with ``release``.

    Raises OSError, and ValueError for text that no argument can be.
    """
    return subprocess.Popen(  # noqa: S603
        [*HOLD, *argv] if held else list(argv),
        cwd=cwd,
        env={**env, TOKEN: token},
        stdin=subprocess.PIPE if held else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )


def release(process: "subprocess.Popen[bytes]") -> None:
    """Let a held program begin. One that has been killed meanwhile does not."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(b"\n")
    process.stdin.close()


def started_at(pid: int) -> str | None:
    """Tell when the process that has this pid now began, None when there is none. Two that share a pid never agree."""
    if _PROC.joinpath("self", "stat").exists():
        return _linux_start(pid)
    asked = subprocess.run(  # noqa: S603
        ["/bin/ps", "-o", "lstart=", "-p", str(pid)], check=False, capture_output=True, text=True, timeout=10
    )
    return asked.stdout.strip() or None


def _linux_start(pid: int) -> str | None:
    try:
        fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
        boot = _PROC.joinpath("sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else f"{boot}:{fields[19].decode()}"


def kill_group(leader: int) -> bool:
    """Kill a process group; False when there is none that is ours to kill."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def group_lives(leader: int) -> bool:
    """Whether a process group has members that have not ended. Blocking."""
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return sys.platform != "linux" or any(_in_group(folder, leader) for folder in _folders())


def _in_group(folder: Path, leader: int) -> bool:
    try:
        fields = folder.joinpath("stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X") and int(fields[2]) == leader


def kill_bearers(token: str) -> bool:
    """Kill every process that carries a token, until none is left; tell whether there was any. Blocking."""
    mark = f"{TOKEN}={token}".encode()
    found = False
    while bearers := [pid for pid in _bearers(mark) if pid != os.getpid()]:
        for pid in bearers:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        found = True
    return found


def _bearers(mark: bytes) -> Iterator[int]:
    for folder in _folders():
        with suppress(OSError):
            if mark in folder.joinpath("environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _folders() -> Iterator[Path]:
    with suppress(OSError):
        yield from (folder for folder in _PROC.iterdir() if folder.name.isdigit())


def end(process: ProcessId) -> bool:
    """Kill what is left of a process of an earlier life, and nothing else; tell whether anything was. Blocking."""
    ours = started_at(process.pid) == process.started
    killed = ours and kill_group(process.pid)
    return kill_bearers(process.token) or killed
