"""One command from its start to its end: output as it comes, limits, and death with everything that it started.

A cancel is never swallowed. Of other endings at once the first of these counts: a raising callback, the time limit, a
spill that cannot be written, the exit. Proved by tests/actors/tools/test_commands.py.
"""

import asyncio
import codecs
import secrets
import subprocess
import threading
from collections.abc import Awaitable, Callable
from typing import IO, Any

import structlog

from ..runtime import Clock, Timer
from . import processes
from .blocking import in_thread
from .environment import CommandError, CommandResult, OnOutput, ProcessId, Stream
from .spill import Spill

log = structlog.get_logger("perdure.tools")

QUIET_S = 0.1
"""Once a command has ended, so long without output means that whoever still holds its pipes has nothing to say."""
PATIENCE_S = 1.5
"""So long after a command's end its output is over, even if somebody goes on writing."""
DEATH_S = 3.0
"""How long a killed process may take to be gone before nobody waits for it any more."""
CHUNK = 64 * 1024


class Command:
    """A running command. Make it with ``start``, then ``result`` once."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        token: str,
        *,
        clock: Clock,
        on_output: OnOutput | None,
        spill: Spill | None,
    ) -> None:
        self._process = process
        self._token = token
        self._clock = clock
        self._on_output = on_output
        self._spill = spill
        self._over = self._timed_out = self._killed = False
        self._callback_error: BaseException | None = None
        self._spill_error: OSError | None = None
        self._busy = 0
        self._heard_at = 0.0
        self._exited = _exit_of(process)
        self._pumps = [
            asyncio.ensure_future(self._pump("stdout", process.stdout)),
            asyncio.ensure_future(self._pump("stderr", process.stderr)),
        ]

    @classmethod
    def start(cls, argv: list[str], *, cwd: str, env: dict[str, str], held: bool, **options: Any) -> "Command":
        """Start a program. Raises CommandError."""
        token = secrets.token_hex(12)
        try:
            process = processes.start(argv, cwd=cwd, env=env, token=token, held=held)
        except (OSError, ValueError) as error:
            raise CommandError("spawn_error", f"{argv[0]} cannot be started: {error}") from error
        return cls(process, token, **options)

    # --- life

    async def result(
        self, timeout_s: float | None, started: Callable[[ProcessId], Awaitable[None]] | None
    ) -> CommandResult:
        """Give how it ended. Cancelling kills it. Raises CommandError, and what ``started`` raises."""
        timer: Timer | None = None
        try:
            if started is not None:
                await started(await in_thread(self._identity))
                processes.release(self._process)
            if timeout_s is not None:
                timer = self._clock.call_later(timeout_s, self._time_out)
            await asyncio.shield(self._exited)
            await self._drain()
            if self._killed:
                await self._gone()
        except BaseException:
            self.kill()
            await self._gone()
            raise
        finally:
            self._over = True
            await self._give_up(timer)
        self._raise_failure(timeout_s)
        return CommandResult(exit_code=self._exited.result(), spill=self._path, left_running=await self._left())

    def _identity(self) -> ProcessId:
        pid = self._process.pid
        return ProcessId(pid, processes.started_at(pid) or "", self._token)

    async def _give_up(self, timer: Timer | None) -> None:
        self._on_output = None  # whoever still writes must not keep what it belongs to in memory
        if timer is not None:
            timer.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._spill is not None:
            await self._spill.close()

    def _time_out(self) -> None:
        self._timed_out = not self._exited.done()
        if self._timed_out:
            self.kill()

    def kill(self) -> None:
        """Kill the whole group now; the call ends as it would have by itself."""
        self._killed = True
        if not self._exited.done():  # after that its number may be another's
            processes.kill_group(self._process.pid)

    async def kill_left(self) -> None:
        """Kill what an ended command has left behind."""
        await in_thread(processes.kill_bearers, self._token)

    @property
    def holds_output(self) -> bool:
        """Whether anybody can still write to the command's pipes."""
        return any(not pump.done() for pump in self._pumps)

    async def _gone(self) -> None:
        """Wait for a killed command's death, and kill what has left its group."""
        await asyncio.wait([self._exited], timeout=DEATH_S)
        await self.kill_left()
        await asyncio.wait(self._pumps, timeout=QUIET_S)

    async def _left(self) -> bool:
        return self.holds_output or await in_thread(processes.group_lives, self._process.pid)

    # --- endings

    @property
    def _path(self) -> str | None:
        return None if self._spill is None else self._spill.path

    def _raise_failure(self, timeout_s: float | None) -> None:
        if self._callback_error is not None:
            raise CommandError("callback_error", str(self._callback_error), self._path) from self._callback_error
        if self._timed_out:
            raise CommandError("timeout", f"Command timed out after {timeout_s:g} seconds", self._path)
        if self._spill_error is not None:
            message = f"Failed to preserve complete shell output: {self._spill_error}"
            raise CommandError("unknown", message) from self._spill_error

    # --- output

    async def _pump(self, stream: Stream, pipe: IO[bytes] | None) -> None:
        """Read to the end; once the call is over, only so that whoever still writes does not die of it."""
        reader = asyncio.StreamReader(limit=CHUNK)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        start = True
        try:
            while chunk := await reader.read(CHUNK):
                text = decoder.decode(chunk)
                await self._take(stream, chunk, text.removeprefix("\ufeff") if start else text)
                start = start and not text
            await self._take(stream, b"", decoder.decode(b"", final=True))
        finally:
            transport.close()

    async def _take(self, stream: Stream, chunk: bytes, text: str) -> None:
        self._busy += 1
        try:
            if not self._deaf and self._spill is not None:
                await self._spill.write(chunk)
        except OSError as error:
            self._spill_error = error
            self.kill()
        finally:
            self._busy -= 1
        self._heard_at = asyncio.get_running_loop().time()
        if text and not self._deaf and self._on_output is not None:
            self._tell(self._on_output, stream, text)

    def _tell(self, on_output: OnOutput, stream: Stream, text: str) -> None:
        try:
            on_output(stream, text)
        except Exception as error:  # noqa: BLE001
            self._callback_error = error
            self.kill()

    @property
    def _deaf(self) -> bool:
        return self._over or self._callback_error is not None or self._spill_error is not None

    async def _drain(self) -> None:
        """Wait for the output's end: that of the pipes, or of anything coming from them."""
        loop = asyncio.get_running_loop()
        self._heard_at = began = loop.time()
        while self.holds_output:
            waited = loop.time() - self._heard_at
            if not self._busy and (waited >= QUIET_S or loop.time() - began >= PATIENCE_S):
                return
            await asyncio.wait(self._pumps, timeout=max(QUIET_S - waited, 0.01))


def _exit_of(process: "subprocess.Popen[bytes]") -> "asyncio.Future[int]":
    """Give a future for the exit code. A thread of its own waits for it: no signal handler, any loop, any thread."""
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[int] = loop.create_future()

    def wait() -> None:
        code = process.wait()
        try:
            loop.call_soon_threadsafe(_settle, exited, code)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            log.debug("process_outlived_loop", pid=process.pid)

    threading.Thread(target=wait, name=f"process {process.pid}", daemon=True).start()
    return exited


def _settle(exited: "asyncio.Future[int]", code: int) -> None:
    if not exited.done():
        exited.set_result(code)
