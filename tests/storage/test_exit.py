"""A process ends within seconds however it ends, and what was committed is there."""

import asyncio
import gc
import signal
import sys
import threading
import time
import warnings

import pytest
from perdure.storage.conformance_rig import Rig, conversation, entry
from perdure.storage.errors import StorageClosed
from perdure.storage.sqlite import SqliteStorage

from .support import opened, python, with_store

LIMIT_S = 5.0

SCRIPT = """
import asyncio, sys
from perdure.storage.conformance_rig import Rig, conversation, entry
from perdure.storage.sqlite import SqliteStorage

kept = []

async def main():
    storage = SqliteStorage(sys.argv[1])
    kept.append(storage)
    await storage.open()
    rig = Rig(storage, reopen=False)
    await rig.commit(conversation(rig.id()))
    await rig.commit(entry(rig.id()))
    print("committed", flush=True)
    {ending}

asyncio.run(main())
"""

ENDINGS = {
    "pass": (0, "left open"),
    "raise LookupError('mine')": (1, "LookupError: mine"),
    "raise SystemExit(7)": (7, "left open"),
    "await asyncio.sleep(60)": (-signal.SIGINT, "KeyboardInterrupt"),
    "while True: await rig.commit(entry(rig.id()))": (-signal.SIGINT, "KeyboardInterrupt"),
    "asyncio.ensure_future(rig.commit(entry(rig.id())))": (0, "left open"),
    "await rig.storage.close()": (0, ""),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_that_never_closes_ends_with_its_commits_intact(tmp_path, ending):  # B008
    code, said = ENDINGS[ending]
    with python(SCRIPT.format(ending=ending), tmp_path / "s.db") as process:
        assert process.stdout.readline() == "committed\n", process.stderr.read()
        if code == -signal.SIGINT:
            process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, errors = process.communicate(timeout=30)
        assert time.monotonic() - start < LIMIT_S
    assert process.returncode == code
    assert said in errors
    assert ("left open" in errors) == ("close()" not in ending)
    assert "Event loop is closed" not in errors
    stored = with_store(tmp_path / "s.db", lambda rig: rig.storage.entry("session", 2))
    assert stored == (entry(2), 2)


def test_opening_writing_closing_leaves_no_thread_and_no_late_callback(tmp_path, monkeypatch):  # B010
    late = []
    monkeypatch.setattr(threading, "excepthook", late.append)
    before = threading.active_count()
    for _ in range(30):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: late.append(context))

        async def life():
            async with opened(tmp_path / "s.db") as rig:
                await rig.other(f"{time.monotonic_ns()}").commit()
            assert threading.active_count() == before

        loop.run_until_complete(life())
        loop.close()
    assert not late


def test_a_store_that_is_dropped_says_so_and_frees_its_file(tmp_path):
    path = tmp_path / "s.db"

    async def drop():
        storage = SqliteStorage(path)
        await storage.open()
        rig = Rig(storage, reopen=False)
        await rig.commit(conversation(rig.id()))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(drop())
        gc.collect()
    assert f"{path} was left open" in str([warning.message for warning in caught])
    assert with_store(path, lambda rig: rig.storage.conversation("session", 1)) == conversation(1)


def test_a_store_that_is_dropped_frees_its_file_even_where_warnings_are_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    async def drop():
        await SqliteStorage(tmp_path / "s.db").open()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(drop())
        gc.collect()
    with_store(tmp_path / "s.db", lambda rig: rig.commit())


def test_opening_and_closing_happen_in_the_order_of_the_calls(tmp_path):
    async def main():
        storage = SqliteStorage(tmp_path / "s.db")
        await asyncio.gather(storage.open(), storage.close(), storage.open(), storage.close(), storage.open())
        await storage.idle()
        await asyncio.gather(storage.close(), storage.open(), storage.close())
        with pytest.raises(StorageClosed):
            await storage.idle()

    asyncio.run(main())


def test_a_loop_that_ends_under_a_write_does_not_hurt_the_next_one(tmp_path):
    storage = SqliteStorage(tmp_path / "s.db", durability="process")
    rig = Rig(storage, reopen=False)
    unfinished = []

    async def begin():
        await storage.open()
        await rig.commit(conversation(rig.id()))
        unfinished.append(asyncio.ensure_future(rig.commit(*(entry(rig.id()) for _ in range(500)))))
        await asyncio.sleep(0)

    async def go_on():
        await rig.commit(entry(rig.id()))
        assert await storage.entry("session", 501) == (entry(501), 2)
        await storage.close()

    asyncio.run(begin())
    asyncio.run(go_on())


def test_a_cancelled_open_closes_again(tmp_path):
    async def main():
        storage = SqliteStorage(tmp_path / "s.db")
        opening = asyncio.ensure_future(storage.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await storage.close()
        with pytest.raises(StorageClosed):
            await storage.idle()
        async with opened(tmp_path / "s.db"):
            pass

    asyncio.run(main())


def test_a_cancelled_close_still_closes(tmp_path):
    async def main():
        async with opened(tmp_path / "s.db") as rig:
            closing = asyncio.ensure_future(rig.storage.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await rig.storage.open()
            await rig.commit()

    asyncio.run(main())
