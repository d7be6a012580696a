"""A conversation in the terminal: it streams, hears what is typed meanwhile, asks for approval, and stops at Esc.

Only what any application could use. Leaving ends nothing: what runs goes on when the store is opened again.
Tests: tests/actors/cli/test_chat.py, through a real terminal.
"""

import asyncio
import logging
import os
import sys
import termios
import tty
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import structlog
from rich.console import Console
from rich.live import Live

from ...chord import PerdureError
from ...storage.records import JsonObject
from ..conversation.choice import Agent
from ..conversation.handles import Conversation
from ..session.errors import SessionFailed
from ..system import System
from . import talk
from .app import open_app
from .keys import END, ENTER, ESCAPE, INTERRUPT, Key, Keyboard, edit

ESCAPE_S = 0.05
"""How long an escape waits for what makes it the beginning of something else."""
BRACKETED_PASTE, PLAIN_PASTE = "\x1b[?2004h", "\x1b[?2004l"
NOTHING: JsonObject = {"entries": [], "docs": {"pi.live": {}, "pi.inbox": {"items": []}}}
HELP = "Enter sends (and steers what runs), /later TEXT waits for its turn, Esc stops, Ctrl-D leaves."


class NoTerminal(PerdureError):
    """Standard input or output is no terminal. Nothing was opened."""


async def talk_in_terminal(
    file: str | os.PathLike[str], spec: str | None, *, model: str | None, session: str, conversation: int | None
) -> None:
    """Open the system that ``spec`` describes, and talk. Raises AppInvalid, NoTerminal, what opening a store raises."""
    console = Console(highlight=False)
    if not (sys.stdin.isatty() and console.is_terminal):
        raise NoTerminal("chat needs a terminal as input and output")
    quiet_logs()
    async with open_app(file, spec, model=model) as app:
        await Chat(await open_conversation(app.system, session, conversation, app.agent), console).run()


def quiet_logs() -> None:
    """Keep log lines off the screen; where standard error goes elsewhere, they go there."""
    if sys.stderr.isatty():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    else:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


async def open_conversation(system: System, session: str, number: int | None, agent: Agent | None) -> Conversation:
    """Give the conversation to talk in: the session's root, or another one that is there. Raises UnknownRecord."""
    found = await system.session(session)
    root = await found.root(agent=agent)
    if number is not None:
        return await found.conversation(number)
    if agent is not None:
        await root.configure(agent)
    return root


class Chat:
    """One conversation on one terminal."""

    def __init__(self, conversation: Conversation, console: Console) -> None:
        self._conversation = conversation
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._view = NOTHING
        self._shown = 0
        """The newest entry that was printed."""
        self._line = ""
        self._notice = ""
        self._leave = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Talk until somebody leaves."""
        with raw_terminal(sys.stdin.fileno()), self._live:
            self._console.print(HELP, style="dim")
            following = asyncio.ensure_future(self._follow())
            leaving = asyncio.ensure_future(self._leave.wait())
            keyboard = TypedKeys(sys.stdin.fileno(), self._pressed, self._leave.set)
            try:
                await asyncio.wait([following, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                keyboard.close()
                for task in (following, leaving, *self._work):
                    task.cancel()
                await asyncio.wait([following, leaving, *self._work])
        if not following.cancelled():
            following.result()

    # --- what is seen

    async def _follow(self) -> None:
        """Show the conversation as it changes, over all lives of its session."""
        while True:
            try:
                async with await self._conversation.watch() as watch:
                    self._see(watch.value)
                    async for value, _ in watch:
                        self._see(value)
            except SessionFailed:
                continue

    def _see(self, view: JsonObject) -> None:
        self._view = view
        for entry in view["entries"]:
            if entry["id"] > self._shown:
                self._shown = entry["id"]
                for part in talk.said(entry):
                    self._console.print(part)
        self._draw()

    def _draw(self) -> None:
        self._live.update(talk.going_on(self._view, self._line, self._notice, self._console), refresh=True)

    # --- what is typed

    def _pressed(self, key: Key) -> None:
        self._notice = ""
        asked = talk.waiting_call(self._view)
        if key.name == END or (key.name == INTERRUPT and not self._line):
            self._leave.set()
        elif key.name == INTERRUPT:
            self._line = ""
        elif key.name == ESCAPE:
            self._do(self._conversation.abort())
        elif key.name == ENTER:
            self._send(self._line.strip())
            self._line = ""
        elif asked is not None and not self._line and key.text.lower() in ("y", "n"):
            self._decide(asked, allow=key.text.lower() == "y")
        else:
            self._line = edit(self._line, key)
        self._draw()

    def _send(self, text: str) -> None:
        if text == "/quit":
            self._leave.set()
        elif text.startswith("/later "):
            self._do(self._submit(text.removeprefix("/later "), "follow_up"))
        elif text:
            self._do(self._submit(text, "steer"))

    async def _submit(self, text: str, when_busy: Any) -> None:
        """Submit once, however often the session is rebuilt meanwhile; say why if there is no answer."""
        request = f"chat:{uuid4()}"
        while True:
            try:
                submission = await self._conversation.submit(text, when_busy=when_busy, request_id=request)
                settled = await submission.wait()
            except SessionFailed:
                continue
            if settled.reason not in (None, "aborted"):
                self._notice = f"no answer: {settled.reason}"
                self._draw()
            return

    def _decide(self, asked: JsonObject, *, allow: bool) -> None:
        decide = self._conversation.approve if allow else self._conversation.deny
        self._do(decide(asked["callId"], asked["approval"]["hash"]))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the terminal; what is wrong with it is shown."""
        task = asyncio.ensure_future(self._noticed(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _noticed(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PerdureError as error:
            self._notice = str(error)
            self._draw()


class TypedKeys:
    """Reads keys from a terminal, on the loop."""

    def __init__(self, fd: int, pressed: Any, ended: Any) -> None:
        self._fd = fd
        self._pressed = pressed
        self._ended = ended
        self._keyboard = Keyboard()
        self._loop = asyncio.get_running_loop()
        self._settling: asyncio.TimerHandle | None = None
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self.close()
            self._ended()
            return
        self._press(self._keyboard.feed(data))
        if self._keyboard.unsettled:
            self._settling = self._loop.call_later(ESCAPE_S, self._settle)

    def _settle(self) -> None:
        self._press(self._keyboard.settle())

    def _press(self, keys: list[Key]) -> None:
        for key in keys:
            self._pressed(key)

    def close(self) -> None:
        """Read no more."""
        if self._settling is not None:
            self._settling.cancel()
        self._loop.remove_reader(self._fd)


@contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """Have a terminal give each key as it is pressed, and put it back afterwards."""
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd, termios.TCSADRAIN)  # what was typed ahead stays
    now = termios.tcgetattr(fd)
    now[0] &= ~(termios.ICRNL | termios.IXON)
    now[3] &= ~termios.ISIG
    termios.tcsetattr(fd, termios.TCSADRAIN, now)
    sys.stdout.write(BRACKETED_PASTE)
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write(PLAIN_PASTE)
        sys.stdout.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
