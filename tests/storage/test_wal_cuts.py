"""A log that a crash cut or tore anywhere: opening gives exactly the state after the last whole commit before the cut.

Must show 2 of the storage backends. The oracle is the log itself: a frame's header says whether it ends a commit.
"""

import asyncio
import os
import random
import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from perdure.storage.conformance_rig import ENDED, ROOT, Rig, conversation, document, entry, set_n, submission, task
from perdure.storage.contract import DocumentQuery, EntryQuery, SubmissionQuery, TaskQuery
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import EntryRecord, SessionScope
from perdure.storage.sqlite import SqliteStorage
from perdure.storage.sqlite_reader import SqliteReader
from perdure.storage.sqlite_schema import PAGE_BYTES

HEADER, FRAME = 32, 24 + PAGE_BYTES
COMMITS = 9


async def write_and_die(path):
    """Own a store, commit, and leave everything in its log."""
    storage = SqliteStorage(path, clock=lambda: 5)
    await storage.open()
    for commit in commits(Rig(storage, reopen=False)):
        await commit
    os._exit(0)


def commits(rig):
    """Yield commits of many sizes: groups of two sessions, tasks that end, documents that change."""
    other = rig.other("other")
    yield rig.commit(
        conversation(rig.id()), task(rig.id()), document(rig.id(), {"n": 0}), document(rig.id(), {"n": 0}, scope=ROOT)
    )
    yield other.commit(conversation(other.id()))
    for number in range(COMMITS - 2):
        big = EntryRecord(id=rig.id(), conversation_id=1, kind="note", data="x" * (3_000 * (number % 3)))
        end = [task(2, ENDED)] if number == 5 else []
        mine = rig.batch(big, set_n(3, number), submission(rig.id()), *end, wake=number)
        yield rig.write(mine, other.batch(entry(other.id())))


async def dump(store):
    """Read everything that is stored."""
    found = []
    for key in ("session", "other"):
        row = await store.session(key)
        found += [row, await store.document(key, 3), await store.document(key, 4)]
        found += [
            (await scan).items
            for scan in (
                store.scan_tasks(key, TaskQuery(), 999),
                store.scan_submissions(key, SubmissionQuery(), 999),
                store.scan_documents(key, DocumentQuery(scope=SessionScope()), 999),
            )
        ]
        found += (await store.scan_entries(key, EntryQuery(conversation_id=1), 999)).items if row else []
    return found


async def states():
    """Give what is stored after each commit, by the reference semantics."""
    storage = MemoryStorage(clock=lambda: 5)
    await storage.open()
    found = [await dump(storage)]
    for commit in commits(Rig(storage, reopen=False)):
        await commit
        found.append(await dump(storage))
    return found


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A store whose owner died with everything in the log, the log, and where each commit ends in it."""
    path = tmp_path_factory.mktemp("crashed") / "s.db"
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(write_and_die(path))
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    wal = Path(f"{path}-wal").read_bytes()
    assert (len(wal) - HEADER) % FRAME == 0
    frames = range(HEADER, len(wal), FRAME)
    ends = [at + FRAME for at in frames if struct.unpack_from(">I", wal, at + 4)[0]]
    expected = asyncio.run(states())
    assert len(ends) >= len(expected) == COMMITS + 1
    return path, wal, ends[len(ends) - COMMITS - 1 :], expected


def found_at(crashed, folder, wal):
    """Open a copy of the store with another log: what a reader sees, what an owner sees, and what the next one does."""
    path = folder / "s.db"
    shutil.copy(crashed[0], path)
    Path(f"{path}-wal").write_bytes(wal)

    async def run():
        async with SqliteReader(path) as reader:
            beside = await dump(reader)
        storage = SqliteStorage(path, durability="process", clock=lambda: 5)
        await storage.open()
        found = await dump(storage)
        rig = Rig(storage, reopen=False, key="next")
        await rig.commit(conversation(rig.id()))
        await storage.close()
        await storage.open()
        assert await dump(storage) == found, "what was found was not there to stay"
        assert await storage.conversation("next", 1) == conversation(1)
        await storage.close()
        return beside, found

    beside, found = asyncio.run(run())
    for left in folder.iterdir():
        left.unlink()
    assert beside == found
    return found


def before(crashed, offset):
    """Give the state after the last commit that is whole before an offset of the log."""
    _, _, ends, expected = crashed
    return expected[sum(end <= offset for end in ends[1:])]


def test_a_log_cut_at_any_page_or_inside_it_is_the_state_after_a_commit(crashed, tmp_path):
    _, wal, ends, expected = crashed
    inside = random.Random(1)
    cuts = [
        cut
        for low, high in pairwise([*range(ends[0], len(wal), FRAME), len(wal)])
        for cut in (low, inside.randrange(low + 1, high))
    ]
    assert len(cuts) > 60
    for cut in [*cuts, len(wal)]:
        assert found_at(crashed, tmp_path, wal[:cut]) == before(crashed, cut), f"cut at {cut}"
    assert before(crashed, len(wal)) == expected[-1]


def test_a_page_of_the_log_that_was_never_written_ends_what_is_believed(crashed, tmp_path):
    """Pages reach the disk in any order: one may be missing while later ones are there."""
    _, wal, ends, _ = crashed
    for at in range(ends[-3], len(wal), FRAME):
        for hole in (bytes(FRAME), wal[at : at + 24] + bytes(PAGE_BYTES), wal[at : at + FRAME - 512] + bytes(512)):
            if wal[at : at + FRAME] != hole:
                torn = wal[:at] + hole + wal[at + FRAME :]
                assert found_at(crashed, tmp_path, torn) == before(crashed, at), f"torn at {at}"


def test_what_an_earlier_log_left_behind_the_end_is_not_believed(crashed, tmp_path):
    """A log begins anew over its old pages: those behind the newest commit have another salt."""
    _, wal, ends, _ = crashed
    for end in ends[-3:-1]:
        stale = bytearray(wal[end:])
        for at in range(0, len(stale), FRAME):
            stale[at + 8] ^= 0xFF
        assert found_at(crashed, tmp_path, wal[:end] + bytes(stale)) == before(crashed, end)


def test_without_its_header_the_log_is_empty(crashed, tmp_path):
    _, wal, _, expected = crashed
    folder = tmp_path
    for cut in (0, 1, HEADER - 1):
        path = folder / "s.db"
        shutil.copy(crashed[0], path)
        Path(f"{path}-wal").write_bytes(wal[:cut])

        async def run(path=path):
            storage = SqliteStorage(path, clock=lambda: 5)
            await storage.open()
            found = await dump(storage)
            await storage.close()
            return found

        assert asyncio.run(run()) == expected[0]
