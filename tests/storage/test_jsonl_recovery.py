"""What JSONL makes of files that a crash left, and of files that no crash can leave."""

import asyncio
import json

import pytest
from perdure.storage.conformance_rig import ENDED, base, conversation, document, entry, fails, set_n, task
from perdure.storage.errors import SchemaTooNew, StorageCorrupt

from .jsonl_support import ListedFiles, lines, opened, plant, tree, with_store

DOC, OTHER, TASK = 2, 3, 4


@pytest.fixture
def store(tmp_path):
    """A closed store with one session ``s``: two documents, a live and an ended task, at sequence 2."""

    async def body(rig):
        rig.last_id = 9
        await rig.commit(conversation(1), document(DOC, {"n": 0}), document(OTHER, {"é": "é"}, key="k"), task(TASK))
        await rig.commit(set_n(DOC, 1), task(5, ENDED))

    with_store(tmp_path, body)
    return tmp_path


def line(**fields) -> bytes:
    return json.dumps({"format": 1, **fields}).encode() + b"\n"


def record(seq: int, payload: dict, ordinal: int = 0) -> bytes:
    return line(type="record", seq=seq, ordinal=ordinal, payload=payload)


def content(seq: int, n: int, doc: int = DOC) -> bytes:
    return record(seq, {"type": "document", "id": doc, "content": {"kind": "base", "version": 1, "value": {"n": n}}})


def append(path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def refuse(store, kind=StorageCorrupt) -> str:
    """Check that opening fails, twice, and changes nothing; give the message."""
    before = tree(store)

    async def open_store():
        async with opened(store):
            pass

    errors = [asyncio.run(fails(kind, open_store())) for _ in range(2)]
    assert tree(store) == before
    return str(errors[0])


# --- what a crash leaves


def test_tails_torn_inside_a_character_are_cut_at_the_byte(store):  # ST-52
    before = tree(store)
    for name in ("s/main.jsonl", "s/doc-3.jsonl"):
        append(store / name, '{"type":"é'.encode()[:-1])

    async def body(rig):
        assert tree(store) == before
        assert await rig.value(OTHER) == ({"é": "é"}, 0)
        assert await rig.commit(entry(6)) == 3

    with_store(store, body)


def test_an_unconfirmed_state_of_a_task_that_has_ended_goes_with_its_file(store):  # ST-53
    state = lines(store / "s/task-4.jsonl")[0]["payload"]
    state["value"]["id"] = 5
    plant(store, {"s/task-5.jsonl": record(3, state)})

    async def body(rig):
        assert await rig.storage.task("s", 5) == task(5, ENDED)
        assert not (store / "s/task-5.jsonl").exists()

    with_store(store, body)


def test_an_unconfirmed_content_is_cut_and_its_sequence_used_again(store):
    before = tree(store)
    append(store / "s/doc-2.jsonl", content(3, 7))

    async def body(rig):
        assert tree(store) == before
        assert await rig.value(DOC) == ({"n": 1}, 1)
        assert await rig.commit(set_n(DOC, 2)) == 3
        await rig.restart()
        assert await rig.value(DOC) == ({"n": 2}, 2)

    with_store(store, body)


def test_what_has_lost_its_last_block_is_torn(store):
    before = tree(store)
    append(store / "s/main.jsonl", b'{"type":"commit",' + b"\0" * 40 + b"\n")
    append(store / "s/doc-2.jsonl", b"\0" * 100)

    async def body(rig):
        assert tree(store) == before

    with_store(store, body)


@pytest.mark.parametrize("name", ["main.jsonl", "doc-2.jsonl"])
def test_a_blank_last_line_is_cut(store, name):  # B017
    before = tree(store)
    append(store / "s" / name, b"\n")

    async def body(rig):
        assert tree(store) == before

    with_store(store, body)


def test_leftovers_of_a_reclamation_are_removed(store):
    plant(store, {"s/doc-2.jsonl.reclaim": b"half a li"})
    with_store(store, lambda rig: rig.commit(base(DOC, {"n": 2})))
    assert not list((store / "s").glob("*.reclaim"))


def test_a_session_that_has_no_commit_yet_can_have_its_first(store):
    plant(store, {"t/main.jsonl": b"", "u/main.jsonl": b"", "u/doc-2.jsonl": content(1, 1), "v.new/main.jsonl": b""})

    async def body(rig):
        assert [session.key for session in (await rig.storage.sessions(9)).items] == ["s"]
        for key in "tuv":
            other = rig.other(key)
            await other.commit(conversation(other.id()))
            await other.commit(document(other.id(), {"n": 5}))
        await rig.restart()
        for key in "tuv":
            assert (await rig.storage.document(key, 2)).value == {"n": 5}
        assert [session.key for session in (await rig.storage.sessions(9)).items] == ["s", "t", "u", "v"]

    with_store(store, body)


def test_what_is_no_session_is_left_alone(store):
    plant(store, {"README": b"a file", "notes.d/x": b"a directory", "s/notes.txt": b"a file", "s/doc-0.jsonl": b"x"})
    with_store(store, lambda rig: rig.commit())
    assert (store / "s/doc-0.jsonl").read_bytes() == b"x"


# --- what no crash leaves


def test_a_confirmed_record_behind_an_unconfirmed_one_is_refused(store):  # ST-55
    first, second = (store / "s/doc-2.jsonl").read_bytes().splitlines(keepends=True)
    (store / "s/doc-2.jsonl").write_bytes(first + content(3, 3) + second)
    assert "doc-2.jsonl: a confirmed record follows an unconfirmed one" in refuse(store)


@pytest.mark.parametrize("torn", [b"half a line\0\n", b"\n"])
@pytest.mark.parametrize("name", ["main.jsonl", "doc-2.jsonl"])
def test_a_confirmed_line_behind_a_torn_one_is_refused(store, name, torn):
    first, second = (store / "s" / name).read_bytes().splitlines(keepends=True)
    (store / "s" / name).write_bytes(first + torn + second)
    message = refuse(store)
    assert f"{name}: " in message
    assert "follows a" in message


def test_a_repeated_commit_is_refused(store):  # ST-56
    marker = (store / "s/main.jsonl").read_bytes().splitlines(keepends=True)[-1]
    append(store / "s/main.jsonl", marker)
    assert "main.jsonl: commit 2 follows commit 2" in refuse(store)


def test_a_commit_that_its_session_cannot_take_is_refused(store):
    append(store / "s/main.jsonl", line(type="commit", seq=3, lastId=9, conversations=[{"id": 1}]))
    assert "commit 3 does not fit: id 1 is stored already" in refuse(store)


def test_a_content_without_its_value_is_refused(store):  # ST-57
    broken = record(1, {"type": "document", "id": DOC, "content": {"kind": "base", "version": 1}})
    (store / "s/doc-2.jsonl").write_bytes(broken)
    assert "doc-2.jsonl has a complete but malformed line" in refuse(store)


def test_a_first_content_that_is_no_base_is_refused(store):
    broken = record(1, {"type": "document", "id": OTHER, "content": {"kind": "delta", "version": 1, "ops": []}})
    (store / "s/doc-3.jsonl").write_bytes(broken)
    assert "document 3 does not begin with a base" in refuse(store)


@pytest.mark.parametrize("bad", [b"{}\n", b"nonsense\n", b'{"format":1,"type":"x"}\n', b'"\xff"\n', b'{"format":0}\n'])
@pytest.mark.parametrize("name", ["main.jsonl", "doc-2.jsonl", "doc-99.jsonl", "task-4.jsonl", "task-5.jsonl"])
def test_a_complete_but_malformed_line_is_refused_by_the_name_of_its_file(store, name, bad):  # ST-58
    append(store / "s" / name, bad)
    assert f"s/{name} has a complete but malformed line" in refuse(store)


@pytest.mark.parametrize("name", ["doc-2.jsonl", "doc-3.jsonl", "task-4.jsonl"])
def test_missing_confirmed_records_are_named(store, name):
    whole = (store / "s" / name).read_bytes()
    for left in (None, b"", whole[: whole.rfind(b"\n", 0, -1) + 1], whole[:-1], whole + whole):
        (store / "s" / name).unlink(missing_ok=True)
        if left is not None:
            (store / "s" / name).write_bytes(left)
        assert f"s/{name}" in refuse(store)


def test_a_delta_whose_base_is_missing_is_refused(store):
    first, second = (store / "s/doc-2.jsonl").read_bytes().splitlines(keepends=True)
    (store / "s/doc-2.jsonl").write_bytes(second)
    assert "doc-2.jsonl lacks record (1, 0), which a commit lists" in refuse(store)
    assert first != second


def test_a_record_in_the_wrong_file_is_refused(store):
    append(store / "s/doc-3.jsonl", content(3, 3))
    assert "doc-3.jsonl holds a record of doc-2" in refuse(store)


def test_a_middle_line_that_is_damaged_is_refused(store):  # B019
    async def body(rig):
        for number in (6, 7, 8):
            await rig.commit(entry(number))

    with_store(store, body)
    data = (store / "s/main.jsonl").read_bytes().splitlines(keepends=True)
    data[2] = data[2].replace(b'"seq":3', b'"seq":#')
    (store / "s/main.jsonl").write_bytes(b"".join(data))
    assert "main.jsonl has a complete but malformed line" in refuse(store)


def test_a_renamed_or_copied_session_is_refused(store):
    (store / "s").rename(store / "copy")
    assert "copy holds session 's': its directory was renamed" in refuse(store)


def test_a_session_that_does_not_say_whose_it_is_is_refused(store):
    first, second = (store / "s/main.jsonl").read_bytes().splitlines(keepends=True)
    for data in (
        first.replace(b'"session":{"key"', b'"x":{"key"') + second,
        first + first.replace(b'"seq":1', b'"seq":2'),
    ):
        (store / "s/main.jsonl").write_bytes(data)
        assert "main.jsonl does not begin with its session, or has several" in refuse(store)


def test_a_newer_format_is_refused_and_left_alone(store):  # B023
    for name in ("main.jsonl", "doc-2.jsonl"):
        before = (store / "s" / name).read_bytes()
        append(store / "s" / name, b'{"format":2,"whatever":{}}\n')
        assert f"s/{name} has schema 2; this perdure reads up to 1" in refuse(store, SchemaTooNew)
        (store / "s" / name).write_bytes(before)
    with_store(store, lambda rig: rig.commit())


def test_one_damaged_session_changes_nothing_in_the_others(store):
    plant(store, {"t/main.jsonl": b"nonsense\n"})
    append(store / "s/main.jsonl", b"torn")
    files = ListedFiles(store)

    async def open_store():
        async with opened(store, files=files):
            pass

    asyncio.run(fails(StorageCorrupt, open_store()))
    assert files.operations == ["mkdir ."]
    assert (store / "s/main.jsonl").read_bytes().endswith(b"torn")
