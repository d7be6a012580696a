import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest
from perdure.actors.agent.threads import in_thread

from ..conversation.support import go

DEPTH: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)


def test_a_function_runs_in_a_thread_of_its_own_with_the_callers_context():
    async def main():
        DEPTH.set(3)
        ident, depth = await in_thread(lambda: (threading.get_ident(), DEPTH.get()))
        assert ident != threading.get_ident()
        assert depth == 3

    go(main)


@pytest.mark.parametrize(
    "problem", [ValueError("x"), StopIteration(), GeneratorExit(), SystemExit(), asyncio.CancelledError()], ids=repr
)
def test_whatever_it_raises_is_raised(problem):
    """B032."""

    def fall_over():
        raise problem

    async def main():
        with pytest.raises(RuntimeError if isinstance(problem, StopIteration) else type(problem)):
            await in_thread(fall_over)

    go(main)


def test_any_number_of_functions_that_hang_keep_nobody_waiting():
    """B101."""

    async def main():
        free = threading.Event()
        stuck = [asyncio.ensure_future(in_thread(free.wait)) for _ in range(50)]
        assert await in_thread(lambda: "here") == "here"
        for task in stuck:
            task.cancel()
        ends = await asyncio.gather(*stuck, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}
        free.set()

    go(main)


SCRIPT = """
import asyncio, threading, perdure
from perdure.actors.models import call

started = threading.Event()

@perdure.tool
def hang() -> None:
    "Hang."
    started.set()
    threading.Event().wait()

async def main():
    model = perdure.ScriptedModel(lambda request: call("hang"))
    kit = perdure.Extension(name="kit", tools=[hang])
    async with perdure.System.open(perdure.MemoryStorage(), models=[model], extensions=[kit]) as system:
        session = await system.session("s")
        root = await session.root(agent=perdure.Agent(model="scripted/model"))
        submission = await root.submit("x")
        while not started.is_set():
            await asyncio.sleep(0)
        await root.abort()
        print((await submission.wait()).reason)

asyncio.run(main())
"""


def test_a_sync_tool_that_hangs_does_not_keep_the_process_from_ending():
    """B008, must show 5 of issue 2."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=15, check=False, env=os.environ
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "aborted"), ended.stderr


def test_a_function_that_ends_after_its_loop_disturbs_nobody(recwarn):
    """B010."""
    free, ended = threading.Event(), threading.Event()
    problems = []
    before, threading.excepthook = threading.excepthook, problems.append

    def late():
        free.wait()
        ended.set()

    async def main():
        task = asyncio.ensure_future(in_thread(late))
        await asyncio.sleep(0)
        task.cancel()

    try:
        go(main)
        free.set()
        assert ended.wait(5)
        for thread in threading.enumerate():
            if thread.name.startswith("tool"):
                thread.join(5)
    finally:
        threading.excepthook = before
    assert problems == []
