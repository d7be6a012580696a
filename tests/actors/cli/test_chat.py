"""``perdure chat`` as a person uses it: a real terminal, another process, keys one after another."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

APP = """
import asyncio, pathlib
import perdure
from perdure.models import Pause, UserMessage, call, plain_text

@perdure.tool(approval="always")
async def pay(amount: int) -> str:
    "Pay."
    with open("paid", "a") as file:
        file.write(f"{amount};")
    return f"paid {amount}"

@perdure.tool(replay="safe")
async def wait_for(name: str) -> str:
    "Wait for a file."
    while not pathlib.Path(name).exists():
        await asyncio.sleep(0.01)
    return f"{name} is there"

async def brain(request):
    last = request.messages[-1]
    said = plain_text(last.content)
    if not isinstance(last, UserMessage):
        return f"So: {said}"
    if said.startswith("pay"):
        return call("pay", amount=5)
    if said.startswith("wait"):
        return call("wait_for", name="flag")
    if said == "stream":
        await asyncio.sleep(0)
        return ["Once upon a time ", Pause(3600), "the end"]
    return f"You said: {said}"

def app():
    kit = perdure.Extension(name="kit", tools=[pay, wait_for])
    return {"models": [perdure.ScriptedModel(brain)], "extensions": [kit], "agent": perdure.Agent(model="scripted/model")}
"""
ANSI = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|.)")


class Terminal:
    """A terminal with a command in it."""

    def __init__(self, fd, process):
        self.fd = fd
        self.process = process
        self.seen = ""

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def until(self, text, within=20.0):
        """Read until a text is on the screen, after all that was waited for before."""
        deadline = time.monotonic() + within
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come after: {self.seen[-2_000:]}"
            try:
                data = os.read(self.fd, 65_536)
            except OSError:
                data = b""
            assert data, f"the terminal was closed before {text!r}: {self.seen[-2_000:]}"
            self.seen += ANSI.sub(b"", data).decode("utf-8", "replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def leave(self):
        self.type("\x04")
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65_536)
                except OSError:
                    break
        return self.process.wait(timeout=20)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "chat_app.py").write_text(APP)
    return tmp_path


@contextmanager
def chat(folder, *options):
    main, child = pty.openpty()
    command = [sys.executable, "-m", "perdure", "chat", "c.db", "--app", "chat_app:app", *options]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, cwd=folder, env=environment, start_new_session=True
    )
    os.close(child)
    try:
        yield Terminal(main, process)
    finally:
        process.kill()
        process.wait()
        os.close(main)


def test_an_answer_comes_and_the_next_run_of_the_command_shows_it_again(folder):
    with chat(folder) as terminal:
        terminal.until("Ctrl-D leaves")
        terminal.type("hello there\r")
        terminal.until("> hello there")
        terminal.until("You said: hello there")
        assert terminal.leave() == 0
    with chat(folder) as terminal:
        terminal.until("You said: hello there")
        assert terminal.leave() == 0


def test_a_model_that_is_not_there_is_said(folder):
    with chat(folder, "--model", "scripted/gone") as terminal:
        terminal.type("hello\r")
        terminal.until("no answer: no_model")
        assert terminal.leave() == 0


def test_escape_stops_an_answer_that_streams(folder):
    with chat(folder) as terminal:
        terminal.type("stream\r")
        terminal.until("Once upon a time")
        terminal.type("\x1b")
        terminal.until("(aborted")
        terminal.type("still there?\r")
        terminal.until("You said: still there?")
        assert terminal.leave() == 0


def test_what_is_typed_while_a_tool_runs_steers_the_run(folder):
    with chat(folder) as terminal:
        terminal.type("wait\r")
        terminal.until("⚙ wait_for")
        terminal.type("be quick\r")
        terminal.until("queued: be quick")
        (folder / "flag").touch()
        terminal.until("flag is there")
        terminal.until("> be quick")
        terminal.until("You said: be quick")
        assert terminal.leave() == 0


@pytest.mark.parametrize(("key", "said"), [("y", "So: paid 5"), ("n", "So: ")])
def test_a_call_that_waits_for_approval_is_decided_with_one_key(folder, key, said):
    with chat(folder) as terminal:
        terminal.type("pay\r")
        terminal.until('pay {"amount":5}: let it run? [y/n]')
        assert not (folder / "paid").exists()
        terminal.type(key)
        terminal.until(said)
        assert (folder / "paid").exists() is (key == "y")
        assert terminal.leave() == 0


def test_a_chat_that_was_killed_goes_on_where_it_was(folder):
    with chat(folder) as terminal:
        terminal.type("wait\r")
        terminal.until("⚙ wait_for")
        terminal.process.send_signal(signal.SIGKILL)
    (folder / "flag").touch()
    with chat(folder) as terminal:
        terminal.until("So: flag is there")
        assert terminal.leave() == 0


def test_a_terminal_is_left_as_it_was(folder):
    main, child = pty.openpty()
    import termios

    before = termios.tcgetattr(child)
    command = [sys.executable, "-m", "perdure", "chat", "c.db", "--app", "chat_app:app"]
    with subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, cwd=folder, start_new_session=True
    ) as process:
        terminal = Terminal(main, process)
        terminal.until("Ctrl-D leaves")
        assert termios.tcgetattr(child) != before
        assert terminal.leave() == 0
    assert termios.tcgetattr(child) == before
    os.close(main)
    os.close(child)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--app", "nothing:here"], "No module named"), ([], "needs a terminal"), (["--app", "x"], "expected")],
)
def test_what_cannot_be_talked_to_is_said_and_nothing_is_made(folder, options, said):
    """P11."""
    command = [sys.executable, "-m", "perdure", "chat", "c.db", *options]
    if options:
        main, child = pty.openpty()
        process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, cwd=folder, start_new_session=True)
        os.close(child)
        Terminal(main, process).until(said)
        assert process.wait(timeout=20) == 2
        os.close(main)
    else:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, said in done.stderr) == (2, True)
    assert not (folder / "c.db").exists()
