"""Owning, opening, closing and leaving a JSONL store; callers that are cancelled, readers that do not wait."""

import asyncio
import gc
import json
import os
import random
import signal
import socket
import stat
import sys
import threading
import time
import warnings

import pytest
from perdure.storage.conformance_rig import Rig, conversation, entry, fails, ids, pages
from perdure.storage.contract import EntryQuery
from perdure.storage.errors import StorageClosed, StorageError, StorageFenced, StorageInUse, StorageRejected
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.jsonl_files import DiskFiles
from perdure.storage.records import Batch, EntryRecord

from .jsonl_support import opened, with_store
from .support import python

LIMIT_S = 5.0


async def entries(rig, key="s"):
    query = EntryQuery(conversation_id=1, order="ascending")
    return ids(await pages(rig.storage.scan_entries, key, query, limit=999))


# --- the owner


@pytest.mark.parametrize("begin_anew", [True, False])
def test_an_owner_whose_lock_was_taken_away_writes_nothing_more(tmp_path, begin_anew):
    """Whether a newer owner is there already or not: it cannot tell."""

    async def main():
        old = Rig(JsonlStorage(tmp_path), reopen=False, key="s")
        await old.storage.open()
        await old.commit(conversation(old.id()))
        (tmp_path / "store.lock").unlink()
        newer = JsonlStorage(tmp_path)
        if begin_anew:
            await newer.open()
        files = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
        for _ in range(2):
            await fails(StorageFenced, old.storage.write([old.batch(entry(old.id()))]))
        await fails(StorageFenced, old.storage.delete_session("s"))
        await old.storage.idle()
        assert files == {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
        assert await old.storage.session("s") is not None, "reading needs no lock"
        await old.storage.close()
        await newer.close()

    asyncio.run(main())


HOLD = """
import asyncio, sys
from perdure.storage.jsonl import JsonlStorage

async def main():
    storage = JsonlStorage(sys.argv[1])
    await storage.open()
    print("open", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def in_use(path):
    """Check that a store cannot be opened."""
    return await fails(StorageInUse, JsonlStorage(path).open())


def test_a_second_process_learns_who_has_the_store_and_gets_it_when_that_dies(tmp_path):  # B004
    with python(HOLD, tmp_path) as owner:
        assert owner.stdout.readline() == "open\n"
        error = asyncio.run(in_use(tmp_path))
        assert (error.pid, error.host, error.path) == (owner.pid, socket.gethostname(), str(tmp_path))
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with_store(tmp_path, lambda rig: rig.commit(conversation(rig.id())))


def test_a_store_cannot_be_opened_twice_in_one_process_under_any_name(tmp_path):  # B004
    path = tmp_path / "folder" / "store"
    path.mkdir(parents=True)
    relative = os.path.relpath(path)
    (tmp_path / "alias").symlink_to(path.parent)
    (tmp_path / "link").symlink_to(path)

    async def body(rig):
        for alias in (path, tmp_path / "alias" / "store", tmp_path / "link", relative, f"{path}/."):
            assert (await in_use(alias)).pid == os.getpid()
        await rig.commit(conversation(rig.id()))

    with_store(path, body)


def test_of_fifty_stores_on_one_path_one_wins(tmp_path):  # B029
    async def main():
        stores = [JsonlStorage(tmp_path) for _ in range(50)]
        outcomes = await asyncio.gather(*(store.open() for store in stores), return_exceptions=True)
        await asyncio.gather(*(store.close() for store in stores))
        return outcomes

    outcomes = asyncio.run(main())
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, StorageInUse) for outcome in outcomes) == 49


def test_fifty_tasks_open_one_store_once(tmp_path):  # B029
    async def main():
        store = JsonlStorage(tmp_path)
        await asyncio.gather(*(store.open() for _ in range(50)))
        await store.close()
        await store.close()

    asyncio.run(main())


def test_the_lock_says_who_the_owner_is(tmp_path):
    with_store(tmp_path, lambda rig: rig.commit())
    left = json.loads((tmp_path / "store.lock").read_text())
    assert left == {"pid": os.getpid(), "host": socket.gethostname(), "startedAt": 7}


def test_everything_is_for_its_owner_only(tmp_path):  # B184
    previous = os.umask(0)
    try:
        with_store(tmp_path / "store", lambda rig: rig.commit(conversation(rig.id())))
    finally:
        os.umask(previous)
    made = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()}
    assert modes == {0o700}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()}
    assert modes == {0o600}


def test_a_store_needs_a_directory():
    with pytest.raises(ValueError, match="MemoryStorage"):
        JsonlStorage("")


# --- death

WRITER = """
import asyncio, sys
from perdure.storage.conformance_rig import Rig, base, conversation, document, entry, set_n, task, ENDED, PENDING
from perdure.storage.jsonl import JsonlStorage

async def main():
    storage = JsonlStorage(sys.argv[1])
    await storage.open()
    rigs = [Rig(storage, reopen=False, key=f"s{number}") for number in range(3)]
    for rig in rigs:
        known = await storage.session(rig.key)
        if known is None:
            await rig.commit(conversation(rig.id()), document(rig.id(), {"n": 1}))
        else:
            rig.seq, rig.last_id = known.seq, known.last_id
    while True:
        group = []
        for rig in rigs:
            change = base(2, {"n": rig.seq + 1}) if rig.seq % 3 else set_n(2, rig.seq + 1)
            group.append(rig.batch(entry(rig.id()), change, task(rig.id(), ENDED if rig.seq % 2 else PENDING)))
        await storage.write(group)
        print(rigs[0].seq, flush=True)

asyncio.run(main())
"""


async def check(rig, acknowledged):
    """Check that all sessions stand at one commit, not before the acknowledged one, whole and without gaps."""
    seqs = set()
    for key in ("s0", "s1", "s2"):
        record = await rig.storage.session(key)
        seqs.add(record.seq)
        assert await entries(rig, key) == list(range(3, record.last_id, 2))
        assert (await rig.storage.document(key, 2)).value == {"n": record.seq}
        assert record.last_id == 2 * record.seq
    assert len(seqs) == 1, "a group was torn"
    assert seqs.pop() >= acknowledged


def test_sigkill_at_any_moment_loses_nothing_acknowledged(tmp_path):  # B016
    moments = random.Random(16)
    acknowledged = 0
    for _ in range(4):
        with python(WRITER, tmp_path) as writer:
            for _ in range(moments.randrange(1, 60)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split("\n")
            acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        with_store(tmp_path, lambda rig, acknowledged=acknowledged: check(rig, acknowledged))


# --- leaving

SCRIPT = """
import asyncio, sys
from perdure.storage.conformance_rig import Rig, conversation, entry
from perdure.storage.jsonl import JsonlStorage

kept = []

async def main():
    storage = JsonlStorage(sys.argv[1])
    kept.append(storage)
    await storage.open()
    rig = Rig(storage, reopen=False, key="s")
    await rig.commit(conversation(rig.id()))
    await rig.commit(entry(rig.id()))
    print("committed", flush=True)
    {ending}

asyncio.run(main())
"""

ENDINGS = {
    "pass": (0, "left open"),
    "raise SystemExit(7)": (7, "left open"),
    "while True: await rig.commit(entry(rig.id()))": (-signal.SIGINT, "KeyboardInterrupt"),
    "asyncio.ensure_future(rig.commit(entry(rig.id())))": (0, "left open"),
    "await rig.storage.close()": (0, ""),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_that_never_closes_ends_with_its_commits_intact(tmp_path, ending):  # B008
    code, said = ENDINGS[ending]
    with python(SCRIPT.format(ending=ending), tmp_path) as process:
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
    assert with_store(tmp_path, lambda rig: rig.storage.entry("s", 2)) == (entry(2), 2)


def test_a_store_that_is_dropped_says_so_and_frees_its_directory(tmp_path):
    async def drop():
        storage = JsonlStorage(tmp_path)
        await storage.open()
        await Rig(storage, reopen=False, key="s").commit()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(drop())
        gc.collect()
    assert f"{tmp_path} was left open" in str([warning.message for warning in caught])
    assert with_store(tmp_path, lambda rig: rig.commit()) == 2


def test_a_store_that_is_dropped_frees_its_directory_even_where_warnings_are_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    async def drop():
        await JsonlStorage(tmp_path).open()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(drop())
        gc.collect()
    with_store(tmp_path, lambda rig: rig.commit())


def test_a_loop_that_ends_under_a_write_leaves_it_whole_or_absent(tmp_path):
    storage = JsonlStorage(tmp_path)
    rig = Rig(storage, reopen=False, key="s")
    unfinished = []

    async def begin():
        await storage.open()
        await rig.commit(conversation(rig.id()))
        unfinished.append(asyncio.ensure_future(rig.commit(*(entry(rig.id()) for _ in range(500)))))
        await asyncio.sleep(0)

    async def go_on():
        await fails(StorageClosed, storage.write([rig.batch()]))
        await storage.close()
        await storage.open()
        found = await entries(rig)
        await storage.close()
        return found

    asyncio.run(begin())
    assert asyncio.run(go_on()) in ([], list(range(2, 502)))


def test_opening_and_closing_happen_in_the_order_of_the_calls(tmp_path):
    async def main():
        storage = JsonlStorage(tmp_path)
        await asyncio.gather(storage.open(), storage.close(), storage.open(), storage.close(), storage.open())
        await storage.idle()
        await asyncio.gather(storage.close(), storage.open(), storage.close())
        await fails(StorageClosed, storage.idle())

    asyncio.run(main())


def test_opening_writing_closing_leaves_no_thread_and_no_late_callback(tmp_path, monkeypatch):  # B010
    late = []
    monkeypatch.setattr(threading, "excepthook", late.append)
    before = threading.active_count()

    async def life():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: late.append(context))
        async with opened(tmp_path) as rig:
            await rig.commit(entry(rig.id()))
            assert threading.active_count() == before + 1
        assert threading.active_count() == before

    for _ in range(30):
        asyncio.run(life())
    assert late == []


def test_a_closed_store_is_closed_for_whoever_was_waiting(tmp_path):
    async def main():
        async with opened(tmp_path) as rig:
            storage = rig.storage
            writes = [asyncio.ensure_future(storage.write([rig.batch()])) for _ in range(3)]
            closing = asyncio.ensure_future(storage.close())
            late = asyncio.ensure_future(storage.write([rig.batch()]))
            outcomes = await asyncio.gather(*writes, closing, late, return_exceptions=True)
        assert outcomes[:4] == [None] * 4
        assert isinstance(outcomes[4], StorageClosed)
        async with opened(tmp_path) as rig:
            assert rig.seq == 3

    asyncio.run(main())


# --- callers


class GatedFiles(DiskFiles):
    """The disk, where appends to main files wait for a gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def append(self, path, data, at):
        if path.name == "main.jsonl":
            self.waiting.set()
            assert self.gate.wait(LIMIT_S)
        super().append(path, data, at)


def gated(tmp_path, body):
    files = GatedFiles()

    async def prepared(rig):
        await rig.commit(conversation(rig.id()))
        files.waiting.clear()
        files.gate.clear()
        await body(rig, files)

    with_store(tmp_path, prepared, files=files)


async def start_write(rig, files):
    """Begin to commit an entry, and let it come to the disk."""
    writing = asyncio.ensure_future(rig.storage.write([rig.batch(entry(rig.id()))]))
    await asyncio.get_running_loop().run_in_executor(None, files.waiting.wait, LIMIT_S)
    return writing


def test_readers_neither_wait_for_a_write_nor_see_it_before_it_is_stored(tmp_path):  # P1
    async def body(rig, files):
        writing = await start_write(rig, files)
        assert await rig.storage.entry("s", 2) is None
        assert (await rig.storage.session("s")).seq == 1
        assert not writing.done()
        files.gate.set()
        await writing
        assert await rig.storage.entry("s", 2) == (entry(2), 2)

    gated(tmp_path, body)


def test_a_cancelled_write_is_stored_and_holds_up_nobody_else(tmp_path):  # B005, B007
    async def body(rig, files):
        writing = await start_write(rig, files)
        batch = rig.batch(*(entry(rig.id()) for _ in range(500)))
        queued = asyncio.ensure_future(rig.storage.write([batch]))
        for one in (writing, queued):
            await asyncio.sleep(0)
            one.cancel()
            await asyncio.wait([one])
            assert one.cancelled()
        batch.writes[0] = None  # borrowed no longer
        batch.writes[1].data["n"] = "changed"
        files.gate.set()
        assert await rig.commit(entry(rig.id())) == 4
        assert await entries(rig) == list(range(2, rig.last_id + 1))
        assert (await rig.storage.entry("s", 4))[0] == entry(4)

    gated(tmp_path, body)


def test_writes_cancelled_at_twenty_moments_are_whole_or_absent(tmp_path):  # B007
    async def body(rig):
        await rig.commit(conversation(rig.id()))
        for moment in range(20):
            before = len(await entries(rig))
            batch = rig.batch(*(entry(rig.id()) for _ in range(100)))
            writing = asyncio.ensure_future(rig.storage.write([batch]))
            for _ in range(moment):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait([writing])
            await rig.commit()
            assert len(await entries(rig)) in {before, before + 100}

    with_store(tmp_path, body)


def test_a_cancelled_open_closes_again(tmp_path):
    async def nothing():
        pass

    async def main():
        for moment in range(8):
            store = JsonlStorage(tmp_path)
            opening = asyncio.ensure_future(store.open())
            for _ in range(moment):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait([opening])
            if opening.cancelled():
                await store._steps.run(nothing)  # behind what the cancellation began
                await fails(StorageClosed, store.write([]))
            await store.close()
            async with opened(tmp_path):
                pass

    asyncio.run(main())


# --- bad data


def test_one_bad_batch_of_a_hundred_is_named_and_the_rest_can_be_written(tmp_path):
    async def body(rig):
        others = [rig.other(f"s{number}") for number in range(100)]
        for number, bad in ((0, object()), (57, "\ud800"), (99, {1: object()})):
            batches = [one.batch(conversation(one.id())) for one in others]
            wrong = EntryRecord(id=1, conversation_id=1, kind="note", data=bad)
            broken = [*batches[:number], Batch(session="bad", seq=1, last_id=1, writes=[wrong]), *batches[number:]]
            assert (await fails(StorageRejected, rig.storage.write(broken))).index == number
            await rig.storage.write(batches)
        assert (await rig.storage.sessions(1000)).next is None

    with_store(tmp_path, body)


@pytest.mark.parametrize("nonsense", [None, "1", 1.5, object()])
def test_nonsense_is_refused_not_fatal(tmp_path, nonsense):
    async def body(rig):
        await rig.commit(conversation(rig.id()))
        await rig.refuse(EntryRecord(id=nonsense, conversation_id=1, kind="note"))
        await rig.refuse(nonsense)
        await fails(StorageRejected, rig.storage.write([Batch(session="s", seq=2, last_id=nonsense, writes=[])]))
        await fails(StorageRejected, rig.storage.write([Batch(session=nonsense, seq={}, last_id=1, writes=[])]))
        await rig.commit(entry(rig.id()))

    with_store(tmp_path, body)


def test_a_failed_open_can_be_tried_again(tmp_path):
    async def main():
        store = JsonlStorage(tmp_path / "none" / "store")
        await fails(StorageError, store.open())
        (tmp_path / "none").mkdir()
        await store.open()
        await store.close()

    asyncio.run(main())
