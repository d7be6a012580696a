"""The order in which JSONL does what it does to its files, and what these then hold."""

import json

import pytest
from perdure.storage.conformance_rig import ENDED, base, conversation, document, entry, set_n, task
from perdure.storage.records import ConversationScope, DocumentRetire, Pending, SessionScope, TaskScope

from .jsonl_support import ListedFiles, lines, opened, with_store

DOC, OTHER, TASK = 2, 3, 4


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


def test_an_empty_directory_becomes_a_store_of_readable_files(tmp_path):  # ST-29
    async def body(rig, _, folder):
        await rig.commit(document(DOC, {"n": 0}), task(TASK))
        assert await rig.storage.conversation("s", 1) == conversation(1)
        assert sorted(file.name for file in folder.iterdir()) == ["doc-2.jsonl", "main.jsonl", "task-4.jsonl"]
        assert sorted(file.name for file in folder.parent.iterdir()) == ["s", "store.lock"]

    (tmp_path / "store").mkdir()
    run(tmp_path, body)


def test_the_first_commit_of_a_session_brings_its_directory_and_says_whose_it_is(tmp_path):
    files = ListedFiles(tmp_path)

    async def body(rig):
        files.heal()
        await rig.commit(conversation(rig.id()), wake=5)

    with_store(tmp_path, body, files=files, key="Ä/b.c")
    folder = "%c3%84%2fb%2ec"
    assert files.operations == [
        f"mkdir {folder}.new",
        f"append {folder}.new/main.jsonl",
        f"rename {folder}.new {folder}",
        f"append {folder}/main.jsonl",
    ]
    header = {"key": "Ä/b.c", "createdAt": 7, "number": 1}
    line = {"type": "commit", "format": 1, "seq": 1, "lastId": 1, "wake": 5, "session": header}
    assert lines(tmp_path / folder / "main.jsonl") == [line | {"conversations": [{"id": 1}]}]


def test_a_new_directory_is_durable_before_anything_in_it(tmp_path):
    files = ListedFiles(tmp_path / "store")

    async def body(rig):
        await rig.commit(conversation(rig.id()), document(rig.id(), {}))

    with_store(tmp_path / "store", body, files=files, fsync=True)
    assert files.operations == [
        "mkdir .",
        "flushdir .",
        "flushdir ..",
        "mkdir s.new",
        "append s.new/main.jsonl",
        "flushdir s.new",
        "rename s.new s",
        "flushdir .",
        "append s/doc-2.jsonl",
        "flush s/doc-2.jsonl",
        "flushdir s",
        "append s/main.jsonl",
        "flush s/main.jsonl",
    ]


def test_side_files_hold_what_is_alive_and_main_holds_what_is_over(tmp_path):  # ST-31
    async def body(rig, _, folder):
        await rig.commit(task(TASK))
        await rig.commit(document(DOC, {"n": 0}))
        await rig.commit(set_n(DOC, 1))
        assert len(lines(folder / "doc-2.jsonl")) == 2
        await rig.commit(base(DOC, {"n": 2}))
        assert len(lines(folder / "doc-2.jsonl")) == 1
        assert len(lines(folder / "task-4.jsonl")) == 1
        await rig.commit(DocumentRetire(id=DOC))
        await rig.commit(task(TASK, ENDED))
        assert [file.name for file in folder.iterdir()] == ["main.jsonl"]
        assert [line["type"] for line in lines(folder / "main.jsonl")] == ["commit"] * 7
        assert await rig.storage.task("s", TASK) == task(TASK, ENDED)

    run(tmp_path, body)


def test_replacements_of_a_task_within_a_commit_are_ordered(tmp_path):  # ST-32
    second = task(TASK, Pending(checkpoint={"phase": "second"}))

    async def body(rig, _, folder):
        await rig.commit(task(TASK), second)
        assert [line["ordinal"] for line in lines(folder / "task-4.jsonl")] == [0, 1]
        await rig.restart()
        assert await rig.storage.task("s", TASK) == second

    run(tmp_path, body)


def test_a_side_record_says_which_commit_it_belongs_to(tmp_path):  # ST-33
    async def body(rig, _, folder):
        await rig.commit(document(DOC, {"n": 0}), task(TASK))
        await rig.commit(set_n(DOC, 1))
        record = {"type": "record", "format": 1, "ordinal": 0}
        contents = [{"kind": "base", "version": 1, "value": {"n": 0}}, {"kind": "delta", "version": 1}]
        contents[1]["ops"] = [["s", ["n"], 1]]
        assert lines(folder / "doc-2.jsonl") == [
            record | {"seq": seq, "payload": {"type": "document", "id": DOC, "content": content}}
            for seq, content in zip((2, 3), contents, strict=True)
        ]
        (state,) = lines(folder / "task-4.jsonl")
        assert state["payload"]["type"] == "task"
        assert state["payload"]["value"]["state"] == {"status": "pending", "checkpoint": {"phase": "start"}}
        assert [line.get("side") for line in lines(folder / "main.jsonl")] == [
            None,
            {"doc-2": 1, "task-4": 1},
            {"doc-2": 1},
        ]

    run(tmp_path, body)


@pytest.mark.parametrize("fsync", [False, True])
def test_side_files_come_before_the_marker(tmp_path, fsync):  # ST-39
    async def body(rig, files, _):
        await rig.commit(document(DOC, {"n": 0}), document(OTHER, {"n": 0}, key="k"))
        files.heal()
        await rig.commit(set_n(OTHER, 1), set_n(DOC, 1))
        appends = ["append s/doc-3.jsonl", "append s/doc-2.jsonl"]
        flushes = ["flush s/doc-3.jsonl", "flush s/doc-2.jsonl"]
        marker = ["append s/main.jsonl"]
        # The reference leaves the marker unflushed; here an acknowledged commit survives a loss of power.
        expected = [*appends, *flushes, *marker, "flush s/main.jsonl"] if fsync else appends + marker
        assert files.operations == expected

    run(tmp_path, body, fsync=fsync)


@pytest.mark.parametrize("fsync", [False, True])
def test_reclamation_comes_after_the_marker_that_allows_it(tmp_path, fsync):  # ST-40
    async def body(rig, files, _):
        await rig.commit(document(DOC, {"n": 0}))
        files.heal()
        await rig.commit(base(DOC, {"n": 1}))
        expected = [
            "append s/doc-2.jsonl",
            "flush s/doc-2.jsonl",
            "append s/main.jsonl",
            "flush s/main.jsonl",
            "write s/doc-2.jsonl.reclaim",
            "flush s/doc-2.jsonl.reclaim",
            "rename s/doc-2.jsonl.reclaim s/doc-2.jsonl",
        ]
        assert files.operations == [step for step in expected if fsync or not step.startswith("flush")]
        files.heal()
        await rig.commit(set_n(DOC, 2))
        assert ("flushdir s" in files.operations) == fsync, "the new name is durable before a commit relies on it"

    run(tmp_path, body, fsync=fsync)


@pytest.mark.parametrize("fsync", [False, True])
def test_a_commit_of_entries_is_one_append(tmp_path, fsync):  # ST-41
    async def body(rig, files, _):
        await rig.commit(entry(5), entry(6))
        assert files.operations == ["append s/main.jsonl", *(["flush s/main.jsonl"] if fsync else [])]

    run(tmp_path, body, fsync=fsync)


def test_later_deltas_go_to_the_replacement(tmp_path):  # ST-49
    async def body(rig, _, folder):
        await rig.commit(document(DOC, {"n": 0}))
        before = (folder / "doc-2.jsonl").stat().st_ino
        await rig.commit(base(DOC, {"n": 10}))
        await rig.commit(set_n(DOC, 11))
        assert (folder / "doc-2.jsonl").stat().st_ino != before
        assert len(lines(folder / "doc-2.jsonl")) == 2
        await rig.restart()
        assert await rig.value(DOC) == ({"n": 11}, 1)

    run(tmp_path, body)


def test_a_base_and_deltas_of_one_group_are_reclaimed_together(tmp_path):
    async def body(rig, _, folder):
        await rig.commit(document(DOC, {"n": 0}))
        await rig.write(rig.batch(base(DOC, {"n": 1})), rig.batch(set_n(DOC, 2)), rig.batch(set_n(DOC, 3)))
        assert [line["seq"] for line in lines(folder / "doc-2.jsonl")] == [3, 4, 5]
        await rig.restart()
        assert await rig.value(DOC) == ({"n": 3}, 2)

    run(tmp_path, body)


def test_a_rewindable_document_keeps_everything(tmp_path):  # ST-50
    async def body(rig, _, folder):
        scope = ConversationScope(conversation_id=1)
        created = await rig.commit(document(DOC, {"n": 0}, scope=scope, history="rewindable"))
        changed = await rig.commit(set_n(DOC, 1))
        await rig.commit(base(DOC, {"n": 2}))
        await rig.commit(DocumentRetire(id=DOC))
        assert len(lines(folder / "doc-2.jsonl")) == 3
        await rig.restart()
        assert await rig.value(DOC, created) == ({"n": 0}, 0)
        assert await rig.value(DOC, changed) == ({"n": 1}, 1)
        assert await rig.value(DOC) is None

    run(tmp_path, body)


def test_one_commit_may_end_a_task_and_all_its_documents(tmp_path):  # ST-51
    scopes = {2: SessionScope(), 3: ConversationScope(conversation_id=1), 5: TaskScope(task_id=TASK)}

    async def body(rig, _, folder):
        created = await rig.commit(task(TASK), *(document(doc, {}, scope=scope) for doc, scope in scopes.items()))
        assert len(list(folder.iterdir())) == 5
        ended = await rig.commit(task(TASK, ENDED), *(DocumentRetire(id=doc) for doc in scopes))
        assert [file.name for file in folder.iterdir()] == ["main.jsonl"]
        await rig.restart()
        for doc, scope in scopes.items():
            found = await rig.storage.find_document("s", "doc", scope, at=created)
            assert (found.id, found.created_at, found.retired_at) == (doc, created, ended)
            assert await rig.storage.find_document("s", "doc", scope, at=ended) is None

    run(tmp_path, body)


# --- groups


@pytest.mark.parametrize("fsync", [False, True])
def test_the_last_commit_of_a_group_confirms_the_others(tmp_path, fsync):
    async def body(rig, files, folder):
        other = rig.other("t")
        await other.commit(conversation(other.id()))
        files.heal()
        await rig.write(rig.batch(task(TASK)), other.batch(), rig.batch(), other.batch(), rig.batch(task(TASK, ENDED)))
        expected = [
            "append s/task-4.jsonl",
            "flush s/task-4.jsonl",
            "flushdir s",
            "append t/main.jsonl",
            "flush t/main.jsonl",
            "append s/main.jsonl",
            "flush s/main.jsonl",
            "remove s/task-4.jsonl",
        ]
        assert files.operations == [step for step in expected if fsync or not step.startswith("flush")]
        marks = ("seq", "awaits", "confirms", "after")
        known = [{mark: line[mark] for mark in marks if mark in line} for line in lines(folder / "main.jsonl")]
        assert known == [
            {"seq": 1},
            {"seq": 2, "awaits": 1},
            {"seq": 3, "awaits": 1, "after": 2},
            {"seq": 4, "confirms": {"2": 3}, "after": 3},
        ]
        known = [{mark: line[mark] for mark in marks if mark in line} for line in lines(folder.parent / "t/main.jsonl")]
        assert known == [{"seq": 1}, {"seq": 2, "awaits": 1}, {"seq": 3, "awaits": 1, "after": 2}]

    run(tmp_path, body, fsync=fsync)


def test_every_line_is_strict_json_on_one_line(tmp_path):
    async def body(rig, _, folder):
        text = "a\nb\r\u2028\u0085\0\x1f\ud7ff\U0001f600"
        await rig.commit(document(DOC, {text: text}))
        await rig.restart()
        assert await rig.value(DOC) == ({text: text}, 0)
        (line,) = (folder / "doc-2.jsonl").read_bytes().split(b"\n")[:-1]
        assert json.loads(line)["payload"]["content"]["value"] == {text: text}

    run(tmp_path, body)


def test_opening_a_store_that_was_closed_changes_nothing(tmp_path):
    async def body(rig, files, _):
        await rig.commit(document(DOC, {"n": 0}), task(TASK), entry(5))
        await rig.commit(set_n(DOC, 1), task(TASK, ENDED))
        await rig.storage.close()
        files.heal()
        await rig.storage.open()
        assert files.operations == ["mkdir ."]

    run(tmp_path, body)


def test_what_is_found_is_flushed_before_it_is_believed(tmp_path):  # P1, where the reference defers; see ST-46
    async def body(rig, files, _):
        await rig.commit(document(DOC, {"n": 0}), task(TASK))
        await rig.storage.close()
        files.heal()
        async with opened(tmp_path / "store", files=files, fsync=True):
            flushed = [*sorted(files.operations[1:3]), *files.operations[3:]]
            expected = ["flush s/doc-2.jsonl", "flush s/task-4.jsonl", "flush s/main.jsonl", "flushdir s", "flushdir ."]
            assert flushed == expected

    run(tmp_path, body)
