"""JSONL when an operation on its files fails: what the caller learns, and what is there after a reopen."""

import asyncio
import errno
import itertools
import os

import pytest
from perdure.storage import jsonl_files
from perdure.storage.conformance_rig import (
    ENDED,
    base,
    conversation,
    delta,
    document,
    entry,
    fails,
    set_n,
    task,
)
from perdure.storage.errors import StorageClosed, StorageCorrupt, StorageError, StorageFull
from perdure.storage.records import DocumentRetire, EntryRecord, Pending

from .jsonl_support import ListedFiles, catch_up, expected_states, lines, opened, snapshot, tell, tree, with_store

DOC, OTHER, TASK = 2, 3, 4
MODES = ("before", "short", "after")
HELD = task(TASK, Pending(checkpoint={"text": "x" * 512}))


def run(tmp_path, body, **options):
    """Run a coroutine on a store with one session ``s`` that holds its root conversation; ids 2 to 9 are handed out."""
    store = tmp_path / "store"
    files = ListedFiles(store)

    async def prepared(rig):
        rig.last_id = 9
        await rig.commit(conversation(1))
        files.heal()
        return await body(rig, files, store / "s")

    return with_store(store, prepared, files=files, **options)


async def poisoned(rig, *writes):
    """Check that a commit fails with an unknown outcome, and that nothing can be written after it."""
    error = await fails(StorageError, rig.storage.write([rig.batch(*writes)]))
    assert type(error) is StorageError
    assert "a test asked for it" in str(error)
    await fails(StorageClosed, rig.storage.write([rig.batch()]))


async def reopen(rig, files):
    """Restart the store with files that work."""
    files.heal()
    await rig.restart()
    await catch_up(rig)


# --- commits


def test_half_a_side_append_is_cut_away(tmp_path):  # ST-34
    async def body(rig, files, folder):
        files.fail("append", 1, "short")
        await poisoned(rig, task(TASK), HELD)
        torn = (folder / "task-4.jsonl").read_bytes()
        assert torn.count(b"\n") == 1
        assert not torn.endswith(b"\n")
        await reopen(rig, files)
        assert await rig.storage.task("s", TASK) is None
        assert (folder / "task-4.jsonl").read_bytes() == b""
        assert await rig.commit(task(TASK)) == 2
        assert len(lines(folder / "task-4.jsonl")) == 1

    run(tmp_path, body)


def test_what_cannot_be_stored_never_reaches_the_disk(tmp_path):  # ST-35
    async def body(rig, files, _):
        await rig.refuse(EntryRecord(id=5, conversation_id=1, kind="bad", data=object()))
        await rig.refuse(document(DOC, {"n": 0}), set_n(OTHER, 1))
        assert files.operations == []
        assert await rig.storage.entry("s", 5) is None
        assert await rig.commit(entry(5)) == 2

    run(tmp_path, body)


@pytest.mark.parametrize(("call", "mode"), list(itertools.product((1, 2, 3), MODES)))
def test_a_failed_append_is_poison_and_the_marker_decides(tmp_path, call, mode):  # ST-36, ST-37
    async def body(rig, files, _):
        files.fail("append", call, mode)
        await poisoned(rig, document(DOC, {"n": 1}), document(OTHER, {"n": 2}, key="k"))
        assert await rig.value(DOC) is None
        await reopen(rig, files)
        stored = (call, mode) == (3, "after")
        assert await rig.value(DOC) == (({"n": 1}, 0) if stored else None)
        assert await rig.value(OTHER) == (({"n": 2}, 0) if stored else None)
        assert await rig.commit(entry(5)) == 2 + stored

    run(tmp_path, body)


@pytest.mark.parametrize(("call", "mode"), list(itertools.product((1, 2), ("before", "after"))))
def test_no_marker_follows_a_side_flush_that_failed(tmp_path, call, mode):  # ST-38
    async def body(rig, files, _):
        files.fail("flush", call, mode)
        await poisoned(rig, document(DOC, {"n": 1}), document(OTHER, {"n": 2}, key="k"))
        assert "append s/main.jsonl" not in files.operations
        await reopen(rig, files)
        assert await rig.value(DOC) is None
        assert await rig.value(OTHER) is None

    run(tmp_path, body, fsync=True)


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_marker_that_cannot_be_flushed_is_not_acknowledged(tmp_path, mode):
    """ST-45, where the marker is flushed with each commit: so its failure is the commit's, and reclaims nothing."""

    async def body(rig, files, folder):
        await rig.commit(document(DOC, {"n": 0}))
        files.fail("flush", 2, mode)
        await poisoned(rig, base(DOC, {"n": 1}))
        assert files.operations[-1] == "flush s/main.jsonl"
        assert len(lines(folder / "doc-2.jsonl")) == 2
        await reopen(rig, files)
        assert await rig.value(DOC) == ({"n": 1}, 0)
        assert len(lines(folder / "doc-2.jsonl")) == 1

    run(tmp_path, body, fsync=True)


def test_a_store_whose_marker_cannot_be_flushed_does_not_open(tmp_path):
    """ST-46, where nothing is believed that is not durable: opening fails, changes nothing, and works once it can."""

    async def body(rig, files, folder):
        await rig.commit(document(DOC, {"n": 0}))
        files.fail("flush", 2, "before")
        await poisoned(rig, base(DOC, {"n": 1}))
        await rig.storage.close()
        files.fail("flush", 2, "before")
        before = tree(folder)
        await fails(StorageError, rig.storage.open())
        assert files.operations[-1] == "flush s/main.jsonl"
        assert tree(folder) == before
        await reopen(rig, files)
        assert await rig.value(DOC) == ({"n": 1}, 0)
        assert len(lines(folder / "doc-2.jsonl")) == 1

    run(tmp_path, body, fsync=True)


# --- reclamation

REPLACING = [("write", mode) for mode in MODES] + [("rename", "before"), ("rename", "after")]


@pytest.mark.parametrize(("operation", "mode"), REPLACING)
@pytest.mark.parametrize("fsync", [False, True])
def test_a_replacement_that_fails_harms_no_commit(tmp_path, operation, mode, fsync):  # ST-43
    async def body(rig, files, folder):
        await rig.commit(document(DOC, {"n": 0}))
        await rig.commit(set_n(DOC, 1))
        files.fail(operation, 1, mode)
        assert await rig.commit(base(DOC, {"n": 2})) == 4
        assert await rig.value(DOC) == ({"n": 2}, 0)
        await reopen(rig, files)
        assert await rig.value(DOC) == ({"n": 2}, 0)
        assert len(lines(folder / "doc-2.jsonl")) == 1
        assert not (folder / "doc-2.jsonl.reclaim").exists()

    run(tmp_path, body, fsync=fsync)


@pytest.mark.parametrize(("operation", "mode"), [*REPLACING, ("flush", "before"), ("flush", "after")])
def test_commits_go_on_after_a_replacement_that_failed(tmp_path, operation, mode):  # ST-47
    async def body(rig, files, folder):
        await rig.commit(document(DOC, {"n": 0}))
        files.fail(operation, 3 if operation == "flush" else 1, mode)
        assert await rig.commit(base(DOC, {"n": 1})) == 3
        assert "rename" not in files.operations[-1] or operation == "rename"
        assert await rig.commit(set_n(DOC, 2)) == 4
        await reopen(rig, files)
        assert await rig.value(DOC) == ({"n": 2}, 1)
        assert len(lines(folder / "doc-2.jsonl")) == 2

    run(tmp_path, body, fsync=True)


def test_an_idle_store_reclaims_what_failed_before(tmp_path):
    async def body(rig, files, folder):
        await rig.commit(document(DOC, {"n": 0}), task(TASK))
        files.fail("rename", 1, "before")
        await rig.commit(base(DOC, {"n": 1}))
        assert len(lines(folder / "doc-2.jsonl")) == 2
        files.fail("remove", 1, "after")
        await rig.commit(task(TASK, ENDED))
        await rig.storage.idle()
        assert len(lines(folder / "doc-2.jsonl")) == 1
        files.heal()
        await rig.storage.idle()
        assert files.operations == []
        assert await rig.commit(set_n(DOC, 2)) == 5

    run(tmp_path, body)


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_removal_that_fails_harms_no_commit(tmp_path, mode):  # ST-44
    async def body(rig, files, folder):
        await rig.commit(document(DOC, {"n": 0}), task(TASK))
        files.fail("remove", 1, mode)
        assert await rig.commit(DocumentRetire(id=DOC)) == 3
        assert await rig.value(DOC) is None
        await reopen(rig, files)
        assert await rig.value(DOC) is None
        assert await rig.storage.task("s", TASK) == task(TASK)
        assert not (folder / "doc-2.jsonl").exists()

    run(tmp_path, body)


# --- every operation


def operations_of_the_story(store, fsync):
    files = ListedFiles(store)

    async def body(rig):
        return [None async for _ in tell(rig.storage)]

    with_store(store, body, files=files, fsync=fsync)
    names = [operation.split()[0] for operation in files.operations]
    return [(name, call) for name in sorted(set(names)) for call in range(1, names.count(name) + 1)]


@pytest.mark.parametrize("fsync", [False, True])
def test_a_group_is_stored_whole_or_not_at_all_whatever_fails(tmp_path, fsync):  # ST-07, B014
    """Any operation, on either side of its effect, over all sessions; and the store goes on after a reopen."""
    expected = expected_states()
    operations = operations_of_the_story(tmp_path / "count", fsync)
    for operation, call in [one for one in operations if one[0].startswith("flush") == fsync]:
        for mode in MODES if operation in ("append", "write") else ("before", "after"):
            store = tmp_path / f"{operation}-{call}-{mode}"
            files = ListedFiles(store)
            files.fail(operation, call, mode)
            acknowledged = asyncio.run(until_failure(store, files, fsync, expected))
            assert asyncio.run(stored_state(store)) in expected[acknowledged:][:2], store.name


async def until_failure(store, files, fsync, expected):
    acknowledged = 0
    try:
        async with opened(store, files=files, fsync=fsync) as rig:
            async for _ in tell(rig.storage):
                acknowledged += 1
                assert snapshot(rig.storage) == expected[acknowledged]
    except StorageError:
        pass
    return acknowledged


async def stored_state(store):
    """Give what is stored, and check that more can be stored."""
    async with opened(store) as rig:
        found = snapshot(rig.storage)
        rig.last_id = max(rig.last_id, 1)
        await rig.write(rig.batch(entry(rig.id())), rig.other("v").batch())
    async with opened(store) as rig:
        assert (await rig.storage.entry("s", rig.last_id))[1] == rig.seq
    return found


# --- the disk


def test_a_full_disk_is_a_typed_error_and_the_store_goes_on_when_there_is_room(tmp_path):  # B013
    async def body(rig, files, _):
        for code in (errno.ENOSPC, errno.EDQUOT):
            files.fail("append", 1, "short", code)
            await fails(StorageFull, rig.storage.write([rig.batch(entry(5))]))
            await fails(StorageClosed, rig.storage.write([rig.batch(entry(5))]))
            assert await rig.storage.entry("s", 5) is None
            await reopen(rig, files)
        assert await rig.commit(entry(5)) == 2

    run(tmp_path, body)


def test_a_short_write_is_continued_not_repeated(tmp_path, monkeypatch):  # B020
    write = os.write
    monkeypatch.setattr(jsonl_files.os, "write", lambda file, data: write(file, bytes(data[: 1 + len(data) // 2])))

    async def body(rig, _, folder):
        await rig.commit(document(DOC, {"n": 0}), entry(5))
        await rig.commit(base(DOC, {"n": 1}), entry(6))
        assert [line["seq"] for line in lines(folder / "main.jsonl")] == [1, 2, 3]
        assert len(lines(folder / "doc-2.jsonl")) == 1
        await rig.restart()
        assert await rig.value(DOC) == ({"n": 1}, 0)

    run(tmp_path, body)


def shrink(path):
    os.truncate(path, path.stat().st_size - 1)


def replace(path):
    path.unlink()
    path.touch()


@pytest.mark.parametrize("damage", [os.remove, shrink, replace, lambda path: path.write_bytes(b"{}\n")])
@pytest.mark.parametrize("name", ["main.jsonl", "doc-2.jsonl"])
def test_a_file_changed_underneath_takes_no_more_commits(tmp_path, damage, name):
    async def body(rig, _, folder):
        await rig.commit(document(DOC, {"n": 0}))
        damage(folder / name)
        error = await fails(StorageError, rig.storage.write([rig.batch(set_n(DOC, 1))]))
        assert name in str(error)
        await fails(StorageClosed, rig.storage.write([rig.batch()]))
        assert await rig.value(DOC) == ({"n": 0}, 0)

    run(tmp_path, body)


def test_a_main_file_that_was_deleted_is_missed_at_open(tmp_path):
    async def body(rig, _, folder):
        await rig.commit(entry(5))
        await rig.storage.close()
        (folder / "main.jsonl").unlink()
        error = await fails(StorageCorrupt, rig.storage.open())
        assert "main.jsonl is missing" in str(error)

    run(tmp_path, body)


def test_a_directory_that_cannot_be_used_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "store", tmp_path / "file", tmp_path / "file" / "store"):
        error = asyncio.run(fails(StorageError, open_and_close(path)))
        assert type(error) is StorageError
        assert str(path) in str(error)


def test_a_read_only_directory_is_a_clear_error(tmp_path):
    async def body(rig, files, _):
        files.fail("append", 1, "before", errno.EROFS)
        error = await fails(StorageError, rig.storage.write([rig.batch(entry(5))]))
        assert type(error) is StorageError

    run(tmp_path, body)


def test_a_delta_that_does_not_fit_is_corruption_of_that_document_only(tmp_path):
    async def body(rig, _, __):
        await rig.commit(document(DOC, {}), document(OTHER, {}, key="k"))
        await rig.commit(delta(DOC, ["a", ["none"], "x"]))
        await rig.restart()
        await fails(StorageCorrupt, rig.storage.document("s", DOC))
        assert await rig.value(OTHER) == ({}, 0)

    run(tmp_path, body)


async def open_and_close(path):
    async with opened(path):
        pass
