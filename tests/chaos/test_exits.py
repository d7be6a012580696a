"""Programs that end in every way that programs end, and the store that they leave behind.

Each is a process of its own. It commits a note, leaves a tool at work that would take ten minutes, and ends: within five
seconds, with the exit status that Python gives such an end, and with everything that was committed in the file.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import asynccontextmanager, contextmanager

import msgspec
import perdure
import pytest

PRELUDE = """
import asyncio, os, signal, sys, threading
import perdure
from perdure.actors.models import call
path = sys.argv[1]
working = threading.Event()

@perdure.tool(replay="safe")
async def wait(ctx: perdure.ToolContext) -> str:
    '''Wait for ten minutes.'''
    working.set()
    await ctx.sleep(600)
    return "done"

def brain(request):
    return call("wait")

options = {
    "models": [perdure.ScriptedModel(brain)],
    "extensions": [perdure.Extension(name="slow", tools=[wait])],
}

async def begin(system):
    session = await system.session("s")
    root = await session.root(agent=perdure.Agent(model="scripted/model"))
    async with root.commit() as tx:
        await tx.append("note", {"text": "kept"})
    await root.submit("go")
    while not working.is_set():
        await asyncio.sleep(0.01)
    print("working", flush=True)
    return system
"""

LIMIT_S = 5.0


class Ended(msgspec.Struct):
    """How a program ended: its exit status, what it said on stderr, and how long the end took in seconds."""

    status: int
    errors: str
    took_s: float


@contextmanager
def program(path, body, prelude=PRELUDE):
    """Start a program that has the store's path as its argument."""
    source = prelude + textwrap.dedent(body)
    command = [sys.executable, "-c", source, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run(path, body, *, interrupt=None, prelude=PRELUDE):
    """Run a program until it is at work, send it a signal if one is given, and see how it ends."""
    with program(path, body, prelude) as process:
        assert process.stdout.readline() == "working\n", process.stderr.read()
        begun = time.perf_counter()
        if interrupt is not None:
            process.send_signal(interrupt)
        _, errors = process.communicate(timeout=60)
        return Ended(process.returncode, errors, time.perf_counter() - begun)


def check(path, ended, status):
    """It ended in time and as it should, and nothing is lost."""
    assert ended.status == status, ended.errors
    assert ended.took_s < LIMIT_S, ended.errors
    assert asyncio.run(left(path)) == (["kept"], ["placed"], ["pi.generation", "pi.tool"])


async def left(path):
    """What the next owner finds: the notes, the states of the submissions, and the work to go on with."""
    async with opened(path) as storage:
        entries = await storage.scan_entries("s", perdure.EntryQuery(conversation_id=1), 100)
        notes = [entry.data["text"] for entry in entries.items if entry.kind == "note"]
        submissions = await storage.scan_submissions("s", perdure.SubmissionQuery(), 100)
        live = await storage.live_tasks("s")
        return notes, [one.status for one in submissions.items], [task.kind for task in live]


@asynccontextmanager
async def opened(path):
    storage = perdure.SqliteStorage(path)
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agents.db"


def warns_of(path, ended):
    """Whether the program was told that it had left the store open."""
    return any("was left open" in line and str(path) in line for line in ended.errors.splitlines())


# --- ends inside the block


def test_a_program_that_raises_inside_the_block_ends_with_its_error(path):
    """B008."""
    ended = run(
        path,
        """
        async def main():
            async with perdure.System.open(path, **options) as system:
                await begin(system)
                raise LookupError("a mistake of the program")
        asyncio.run(main())
        """,
    )
    check(path, ended, 1)
    assert ended.errors.splitlines()[-1] == "LookupError: a mistake of the program"
    assert not warns_of(path, ended)


def test_a_program_that_exits_inside_the_block_ends_with_its_status(path):
    ended = run(
        path,
        """
        async def main():
            async with perdure.System.open(path, **options) as system:
                await begin(system)
                sys.exit(3)
        asyncio.run(main())
        """,
    )
    check(path, ended, 3)
    assert ended.errors == ""


def test_ctrl_c_in_the_block_ends_the_program_as_python_ends_it(path):
    ended = run(
        path,
        """
        async def main():
            async with perdure.System.open(path, **options) as system:
                await begin(system)
                await asyncio.Event().wait()
        asyncio.run(main())
        """,
        interrupt=signal.SIGINT,
    )
    check(path, ended, -signal.SIGINT)
    assert ended.errors.splitlines()[-1] == "KeyboardInterrupt"
    assert not warns_of(path, ended)


def test_sigterm_with_its_default_action_ends_the_program_at_once(path):
    ended = run(
        path,
        """
        async def main():
            async with perdure.System.open(path, **options) as system:
                await begin(system)
                await asyncio.Event().wait()
        asyncio.run(main())
        """,
        interrupt=signal.SIGTERM,
    )
    check(path, ended, -signal.SIGTERM)


def test_a_program_that_closes_on_sigterm_ends_in_order(path):
    """B046."""
    ended = run(
        path,
        """
        async def main():
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            async with perdure.System.open(path, **options) as system:
                await begin(system)
                await stop.wait()
        asyncio.run(main())
        """,
        interrupt=signal.SIGTERM,
    )
    check(path, ended, 0)
    assert ended.errors == ""


# --- ends outside of it: nobody closes


def test_a_program_that_forgets_to_close_ends_and_is_told_which_file_it_left_open(path):
    """B008."""
    ended = run(
        path,
        """
        async def main():
            system = perdure.System.open(path, **options)
            await begin(await system.__aenter__())
        asyncio.run(main())
        """,
    )
    check(path, ended, 0)
    assert warns_of(path, ended), ended.errors


def test_a_program_that_keeps_what_it_forgot_to_close_ends_and_is_told(path):
    ended = run(
        path,
        """
        kept = []
        async def main():
            kept.append(await begin(await perdure.System.open(path, **options).__aenter__()))
        asyncio.run(main())
        """,
    )
    check(path, ended, 0)
    assert warns_of(path, ended), ended.errors


def test_a_program_that_raises_outside_of_any_block_ends_with_its_error_and_is_told(path):
    """B008."""
    ended = run(
        path,
        """
        async def main():
            system = perdure.System.open(path, **options)
            await begin(await system.__aenter__())
            raise LookupError("a mistake of the program")
        asyncio.run(main())
        """,
    )
    check(path, ended, 1)
    assert "LookupError: a mistake of the program" in ended.errors
    assert warns_of(path, ended), ended.errors


def test_a_program_that_exits_outside_of_any_block_ends_with_its_status_and_is_told(path):
    """B008."""
    ended = run(
        path,
        """
        async def main():
            system = perdure.System.open(path, **options)
            await begin(await system.__aenter__())
            sys.exit(3)
        asyncio.run(main())
        """,
    )
    check(path, ended, 3)
    assert warns_of(path, ended), ended.errors


def test_a_program_that_is_interrupted_outside_of_any_block_ends_and_is_told(path):
    """B008."""
    ended = run(
        path,
        """
        async def main():
            system = perdure.System.open(path, **options)
            await begin(await system.__aenter__())
            await asyncio.Event().wait()
        asyncio.run(main())
        """,
        interrupt=signal.SIGINT,
    )
    check(path, ended, -signal.SIGINT)
    assert warns_of(path, ended), ended.errors


def test_a_program_whose_loop_just_stops_ends_and_is_told(path):
    ended = run(
        path,
        """
        loop = asyncio.new_event_loop()
        system = loop.run_until_complete(perdure.System.open(path, **options).__aenter__())
        loop.run_until_complete(begin(system))
        """,
    )
    check(path, ended, 0)
    assert warns_of(path, ended), ended.errors


def test_a_tool_that_blocks_its_thread_does_not_hold_the_program_up(path):
    """B008."""
    blocking = PRELUDE.replace("async def wait(ctx: perdure.ToolContext)", "def wait()").replace(
        "await ctx.sleep(600)", "threading.Event().wait()"
    )
    ended = run(
        path,
        """
        async def main():
            async with perdure.System.open(path, **options) as system:
                await begin(system)
                raise LookupError("a mistake of the program")
        asyncio.run(main())
        """,
        prelude=blocking,
    )
    check(path, ended, 1)


# --- a system in a background thread


def test_a_background_system_that_is_never_closed_does_not_hold_the_program_up(path):
    ended = run(
        path,
        """
        background = perdure.System.background(path, **options)
        background.call(begin)
        """,
    )
    check(path, ended, 0)


def test_a_background_system_whose_program_raises_does_not_hold_it_up(path):
    ended = run(
        path,
        """
        background = perdure.System.background(path, **options)
        background.call(begin)
        raise LookupError("a mistake of the program")
        """,
    )
    check(path, ended, 1)
    assert "LookupError: a mistake of the program" in ended.errors


def test_a_background_system_whose_program_exits_does_not_hold_it_up(path):
    ended = run(
        path,
        """
        background = perdure.System.background(path, **options)
        background.call(begin)
        sys.exit(3)
        """,
    )
    check(path, ended, 3)


def test_ctrl_c_ends_a_program_with_a_background_system(path):
    ended = run(
        path,
        """
        with perdure.System.background(path, **options) as background:
            background.call(begin)
            threading.Event().wait()
        """,
        interrupt=signal.SIGINT,
    )
    check(path, ended, -signal.SIGINT)


# --- who owns the file

HOLDER = """
async def main():
    async with perdure.System.open(path, **options) as system:
        await begin(system)
        await asyncio.Event().wait()
asyncio.run(main())
"""

INTRUDER = """
import asyncio, sys, time
import perdure

async def main():
    for make in (perdure.SqliteStorage, perdure.System.open):
        begun = time.perf_counter()
        try:
            opening = make(sys.argv[1])
            await (opening.open() if make is perdure.SqliteStorage else opening.__aenter__())
        except perdure.StorageInUse as error:
            print(error.pid, error.host, time.perf_counter() - begun)
            print(error)

asyncio.run(main())
"""


@contextmanager
def holder(path):
    """A process that has the store open and works on it."""
    with program(path, HOLDER) as process:
        assert process.stdout.readline() == "working\n", process.stderr.read()
        yield process


def intrude(path):
    """Try to open the store in another process, as a storage and as a system. Returns what it printed, and seconds."""
    begun = time.perf_counter()
    with program(path, "", INTRUDER) as process:
        said, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
    return said.splitlines(), time.perf_counter() - begun


def test_a_second_process_is_refused_at_once_and_told_who_the_owner_is(path):
    """B002, B004."""
    with holder(path) as owner:
        said, took_s = intrude(path)
        refusals = [line.split() for line in said[::2]]
        assert [refusal[:2] for refusal in refusals] == [[str(owner.pid), socket.gethostname()]] * 2
        assert all(float(refusal[2]) < 0.5 for refusal in refusals)
        for sentence in said[1::2]:
            assert f"agents.db is in use by process {owner.pid} on {socket.gethostname()}" in sentence
        assert min(took_s, intrude(path)[1]) < 2.0
        assert owner.poll() is None


def test_a_second_process_is_refused_through_an_alias_of_the_file(path, tmp_path):
    """B004."""
    with holder(path) as owner:
        alias = tmp_path / "alias"
        alias.symlink_to(tmp_path, target_is_directory=True)
        said, _ = intrude(alias / path.name)
        assert said[0].split()[0] == str(owner.pid)


def test_after_its_owner_was_killed_the_file_opens_without_any_cleaning_up(path):
    """B004, B016."""
    with holder(path) as owner:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        begun = time.perf_counter()
        assert asyncio.run(left(path)) == (["kept"], ["placed"], ["pi.generation", "pi.tool"])
        assert time.perf_counter() - begun < 2.0
    assert "in use" not in "".join(intrude(path)[0])


def test_a_second_opening_in_the_same_process_is_refused_at_once(path):
    """B004: by the owner itself, too."""

    async def run():
        async with perdure.System.open(path):
            with pytest.raises(perdure.StorageInUse) as refusal:
                await perdure.System.open(path).__aenter__()
            assert refusal.value.pid == os.getpid()

    asyncio.run(run())
