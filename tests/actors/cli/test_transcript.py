"""Transcripts on the command line, beside an owner in another process that goes on writing."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import perdure
import pytest

from ..conversation.support import MODEL, go, scene
from .test_commands import output, refused

OWNER = """
import asyncio, sys
import perdure

def brain(request):
    return "first half, " + "and \\x1b[31mred " + "last half"

async def main():
    model = perdure.ScriptedModel(brain, tokens_per_second=float(sys.argv[2]))
    async with perdure.System.open(sys.argv[1], models=[model]) as system:
        root = await (await system.session("s")).root(agent=perdure.Agent(model="scripted/model"))
        print("open", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print((await (await root.submit(line.strip())).wait()).status, flush=True)

asyncio.run(main())
"""
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}


@contextmanager
def process(*command, **options):
    """Run a process that is killed at the end at the latest."""
    with subprocess.Popen([sys.executable, *map(str, command)], env=ENVIRONMENT, **options) as running:
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def owner(path, tokens_per_second=1_000):
    """Own a store in another process, and submit there what is written to it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with process("-c", OWNER, path, tokens_per_second, **pipes) as running:
        assert running.stdout.readline() == "open\n"
        yield running


def submit(running, text):
    running.stdin.write(text + "\n")
    running.stdin.flush()


def until(read, wanted):
    """Read until something has been printed, and give all that was; a hanging reader is ended by the test's time limit."""
    got = ""
    while wanted not in got:
        piece = read()
        assert piece, f"it ended, and had printed: {got!r}"
        got += piece
    return got


def answered(running, text):
    submit(running, text)
    assert running.stdout.readline() == "done\n"


def test_show_prints_a_transcript_beside_its_owner_and_nothing_that_steers_a_terminal(tmp_path):
    """P11: also after the owner's death."""
    path = tmp_path / "s.db"
    with owner(path) as running:
        answered(running, "hello \x07there")
        alive = output("show", path, "s")
        assert running.poll() is None
    assert alive == output("show", path, "s", 1)
    assert "> hello there\n" in alive
    assert "first half, and [31mred last half" in alive
    assert not {one for one in alive if not one.isprintable()} - {"\n"}
    assert max(map(len, alive.splitlines())) <= 100


def test_follow_prints_what_another_process_writes_and_ends_by_ctrl_c(tmp_path):
    path = tmp_path / "s.db"
    with owner(path) as running:
        answered(running, "one")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with process("-m", "perdure", "show", path, "s", "--follow", **pipes) as following:
            said = until(following.stdout.readline, "last half")
            assert "> one\n" in said
            for text in ("two", "three"):
                submit(running, text)
                said = until(following.stdout.readline, "last half")
                assert f"> {text}\n" in said
                assert "> one" not in said, "what was printed is not printed again"
            following.send_signal(signal.SIGINT)
            rest, trouble = following.communicate(timeout=15)
            assert (following.returncode, trouble) == (0, "")
            assert "> " not in rest


def test_follow_shows_on_a_terminal_what_streams(tmp_path):
    """The answer takes minutes: what is seen of it is not its entry."""
    path = tmp_path / "s.db"
    with owner(path, tokens_per_second=0.5) as running:
        submit(running, "go on")
        master, terminal = pty.openpty()
        with process("-m", "perdure", "show", path, "s", "-f", stdin=terminal, stdout=terminal) as following:
            os.close(terminal)
            seen = until(lambda: os.read(master, 4_096).decode(errors="replace"), "first")
            assert "> go on" in seen
            drain = threading.Thread(target=drained, args=(master,), daemon=True)
            drain.start()
            following.send_signal(signal.SIGINT)
            assert following.wait(timeout=15) == 0
            drain.join(timeout=15)
        os.close(master)


def drained(master):
    """Read a terminal to its end, lest its writer waits."""
    try:
        while os.read(master, 4_096):
            pass
    except OSError:
        pass


def test_export_writes_what_the_library_exports(tmp_path):
    path = tmp_path / "s.db"

    async def main():
        async with scene(lambda request: "fine", storage=perdure.SqliteStorage(path)) as s:
            await s.ask("how is it?")
            fork = await s.root.fork()
            for conversation in (s.root, fork):
                for form in ("jsonl", "markdown"):
                    wanted = "".join([piece async for piece in conversation.export(form)])
                    done = output_beside("export", path, "s", conversation.id, "--format", form)
                    assert await done == wanted
            return fork.id

    fork = go(main, within=60.0)
    header = json.loads(output("export", path, "s", fork).splitlines()[0])
    assert header["conversation"] == {"id": fork, "parent": header["conversation"]["parent"]}


async def output_beside(*arguments):
    """Run the command while this process, which owns the store, goes on."""
    return await asyncio.to_thread(output, *arguments)


@pytest.mark.parametrize("command", ["show", "export"])
def test_what_is_not_there_is_told_by_an_exit_code(tmp_path, command):
    """P11."""
    path = tmp_path / "s.db"
    assert refused(command, path, "s")[0] == 3

    async def main():
        async with scene(storage=perdure.SqliteStorage(path), agent=perdure.Agent(model=MODEL)):
            pass

    go(main)
    for arguments, code in ((("nobody",), 6), (("s", 77), 9), (("s", "x"), 2)):
        assert refused(command, path, *arguments)[0] == code
