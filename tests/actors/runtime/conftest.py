"""Runs ``async def`` tests on a loop of their own, and keeps logs out of the output."""

import asyncio
import inspect
import logging
import threading

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
