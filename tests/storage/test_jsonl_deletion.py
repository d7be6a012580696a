"""Deleting sessions of a JSONL store: at once, for good, and without a trace in the sessions that shared commits."""

import pytest
from perdure.storage.conformance_rig import conversation, document, entry, fails
from perdure.storage.errors import StorageClosed, StorageCorrupt, StorageError

from .jsonl_support import ListedFiles, catch_up, lines, opened, plant, with_store


def run(tmp_path, body, **options):
    """Run a coroutine on a store with the sessions ``s`` and ``t``, which have written a group together."""
    files = ListedFiles(tmp_path)

    async def prepared(rig):
        other = rig.other("t")
        rig.last_id = other.last_id = 9
        await rig.write(rig.batch(conversation(1)), other.batch(conversation(1), document(2, {})))
        await rig.write(other.batch(entry(3)), rig.batch(entry(3)))
        files.heal()
        return await body(rig, other, files)

    return with_store(tmp_path, prepared, files=files, **options)


@pytest.mark.parametrize("fsync", [False, True])
def test_a_line_deletes_and_removal_follows(tmp_path, fsync):
    async def body(rig, other, files):
        assert await rig.storage.delete_session("t")
        expected = [
            "append deleted.jsonl",
            "flush deleted.jsonl",
            "flushdir .",
            "rename t t.2.deleted",
            "flushdir .",
            "remove t.2.deleted/doc-2.jsonl",
            "remove t.2.deleted/main.jsonl",
            "rmdir t.2.deleted",
        ]
        listed = [*files.operations[:-3], *sorted(files.operations[-3:-1]), files.operations[-1]]
        assert listed == [step for step in expected if fsync or not step.startswith("flush")]
        assert lines(tmp_path / "deleted.jsonl") == [{"type": "deleted", "format": 1, "key": "t", "number": 2}]

    run(tmp_path, body, fsync=fsync)


@pytest.mark.parametrize("key", ["s", "t"])
def test_whoever_shared_the_last_group_with_a_deleted_session_keeps_its_commits(tmp_path, key):
    """Both the one that the deleted session confirmed, and the one that confirmed the deleted session."""

    async def body(rig, other, files):
        assert await rig.storage.delete_session(key)
        await rig.restart()
        left = "t" if key == "s" else "s"
        assert [session.key for session in (await rig.storage.sessions(9)).items] == [left]
        assert await rig.storage.entry(left, 3) == (entry(3), 2)
        assert await rig.storage.session(key) is None

    run(tmp_path, body)


def test_a_new_session_of_the_key_is_another_one(tmp_path):
    """Commits of the old one, which a later one's sequences repeat, confirm nothing of the new one."""

    async def body(rig, other, files):
        await rig.storage.delete_session("t")
        again = rig.other("t")
        again.last_id = 9
        files.fail("append", 3, "before")  # directory, main file of t, then the marker of s that would confirm it
        await fails(StorageError, rig.storage.write([again.batch(conversation(1)), rig.batch(entry(4))]))
        files.heal()
        await rig.restart()
        assert await rig.storage.session("t") is None
        await catch_up(rig)
        again.seq = 0
        await rig.write(again.batch(conversation(1)), rig.batch(entry(4)))
        await rig.restart()
        assert (await rig.storage.session("t")).seq == 1
        assert [session.key for session in (await rig.storage.sessions(9)).items] == ["s", "t"]

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("operation", "mode", "gone"),
    [
        ("append", "before", False),
        ("append", "short", False),
        ("append", "after", True),
        ("rename", "before", True),
        ("rename", "after", True),
    ],
)
def test_a_deletion_that_fails_is_poison_and_its_line_decides(tmp_path, operation, mode, gone):
    async def body(rig, other, files):
        files.fail(operation, 1, mode)
        await fails(StorageError, rig.storage.delete_session("t"))
        await fails(StorageClosed, rig.storage.delete_session("t"))
        await fails(StorageClosed, rig.storage.write([rig.batch()]))
        files.heal()
        await rig.restart()
        assert (await rig.storage.session("t") is None) == gone
        assert not list(tmp_path.glob("*.deleted"))
        await catch_up(other)
        other.last_id = 9
        await other.commit(conversation(1) if gone else entry(4))

    run(tmp_path, body)


@pytest.mark.parametrize("operation", ["remove", "rmdir"])
def test_what_could_not_be_removed_is_removed_at_the_next_open(tmp_path, operation):
    async def body(rig, other, files):
        files.fail(operation, 1, "before")
        assert await rig.storage.delete_session("t")
        assert list(tmp_path.glob("*.deleted"))
        files.heal()
        await rig.restart()
        assert not list(tmp_path.glob("*.deleted"))

    run(tmp_path, body)


def test_the_numbers_of_deleted_sessions_are_not_used_again(tmp_path):
    async def body(rig, other, files):
        for key in "abc":
            new = rig.other(key)
            await new.commit(conversation(new.id()))
            await rig.storage.delete_session(key)
            await rig.restart()
        assert [line["number"] for line in lines(tmp_path / "deleted.jsonl")] == [3, 4, 5]

    run(tmp_path, body)


def test_a_torn_deletion_is_none(tmp_path):
    run(tmp_path, lambda rig, other, files: rig.storage.delete_session("t"))
    whole = (tmp_path / "deleted.jsonl").read_bytes()

    async def body(rig):
        assert (tmp_path / "deleted.jsonl").read_bytes() == whole
        assert [session.key for session in (await rig.storage.sessions(9)).items] == ["s"]
        await rig.storage.delete_session("s")
        await rig.restart()
        assert (await rig.storage.sessions(9)).items == []

    plant(tmp_path, {"deleted.jsonl": whole + whole[:-1]})
    with_store(tmp_path, body)


def test_a_damaged_deletion_is_refused(tmp_path):
    async def open_store():
        async with opened(tmp_path):
            pass

    async def body(rig, other, files):
        await rig.storage.delete_session("t")
        await rig.storage.close()
        whole = (tmp_path / "deleted.jsonl").read_bytes()
        for damage in (b"{}\n", b"\n" + whole):
            plant(tmp_path, {"deleted.jsonl": whole + damage})
            assert "deleted.jsonl" in str(await fails(StorageCorrupt, open_store()))

    run(tmp_path, body)


def test_a_session_from_another_store_is_refused_when_its_number_is_taken(tmp_path):
    for name in ("one", "two"):
        with_store(tmp_path / name, lambda rig: rig.commit(conversation(rig.id())), key=name)
    (tmp_path / "two" / "two").rename(tmp_path / "one" / "two")

    async def open_store(_):
        pass

    with pytest.raises(StorageCorrupt, match="have one number: one comes from another store"):
        with_store(tmp_path / "one", open_store)
