"""Runs ``async def`` tests on a loop of their own, and keeps logs out of the output."""

import asyncio
import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog

TEST_TIME_S = 20


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def main():
        async with asyncio.timeout(TEST_TIME_S):
            await pyfuncitem.obj(**arguments)

    asyncio.run(main())
    return True


@pytest.fixture(autouse=True)
def logs():
    """The warnings and errors that the test logs, as dicts."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with structlog.testing.capture_logs() as events:
        yield events
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name != "perdure-exit"]
    for thread in left:
        thread.join(5)
    assert not [thread for thread in left if thread.is_alive()]


class Ended:
    """How a script ended: all that it wrote, and the seconds from its line "ready" to its end."""

    def __init__(self, code, interrupt):
        lines = []
        with subprocess.Popen(
            [sys.executable, "-u", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ,
        ) as process:
            for line in process.stdout:
                lines.append(line)
                if line == "ready\n":
                    ready = time.monotonic()
                    if interrupt:
                        process.send_signal(signal.SIGINT)
            self.status = process.wait()
        self.seconds = time.monotonic() - ready
        self.output = "".join(lines)


@pytest.fixture(scope="session")
def run_scripts():
    """Run scripts side by side, since most of their time is waiting; those named "... interrupted ..." get a Ctrl-C."""

    def run(scripts):
        with ThreadPoolExecutor(len(scripts)) as pool:
            ended = {name: pool.submit(Ended, code, "interrupted" in name) for name, code in scripts.items()}
            return {name: end.result(timeout=40) for name, end in ended.items()}

    return run
