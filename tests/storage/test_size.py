"""A store grows with what it holds: one row for what changes, a short tail for documents, linear for history."""

import sqlite3

from perdure.storage.conformance_rig import ENDED, base, conversation, delta, document, entry, submission, task
from perdure.storage.records import ConversationScope, DocumentRetire, EntryRecord, Pending

from .support import with_store


def count(path, table):
    connection = sqlite3.connect(path)
    (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return rows


def test_a_base_reclaims_what_came_before_it_unless_the_document_is_rewindable(tmp_path):  # ST-64, ST-31, ST-50
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        latest, kept = rig.id(), rig.id()
        rewindable = document(kept, {}, kind="kept", scope=ConversationScope(conversation_id=1), history="rewindable")
        await rig.commit(document(latest, {}), rewindable)
        for n in range(10):
            await rig.commit(delta(latest, ["s", ["n"], n]), delta(kept, ["s", ["n"], n]))
        assert count(path, "revisions") == 22
        await rig.commit(base(latest, {"n": 1}), base(kept, {"n": 1}))
        assert count(path, "revisions") == 1 + 12
        await rig.commit(delta(latest, ["r", {"n": 2}]))
        assert count(path, "revisions") == 2 + 12, "a root replacement authorises nothing"
        await rig.commit(DocumentRetire(id=latest), DocumentRetire(id=kept))
        assert count(path, "revisions") == 12
        assert count(path, "documents") == 2

    with_store(path, body)


def test_what_a_group_supersedes_is_never_written(tmp_path):
    path = tmp_path / "s.db"

    async def body(rig):
        work, doc = rig.id(), rig.id()
        await rig.commit(conversation(rig.id()), task(work), document(doc, {}))
        changed = []
        writing = rig.storage._engine.writing
        await writing.run(writing.sqlite.set_trace_callback, changed.append)
        await rig.write(*(rig.batch(task(work, Pending(checkpoint={"n": n}))) for n in range(100)))
        await writing.run(writing.sqlite.set_trace_callback, None)
        assert sum("INTO live_tasks" in statement for statement in changed) == 1
        assert sum("INTO sessions" in statement for statement in changed) == 1
        assert len(changed) < 8

    with_store(path, body)


def test_ended_work_leaves_one_small_row(tmp_path):
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        for _ in range(50):
            work, sent = rig.id(), rig.id()
            await rig.commit(task(work), submission(sent))
            await rig.commit(task(work, Pending(checkpoint={"n": 1})), submission(sent, status="placed"))
            await rig.commit(task(work, ENDED), submission(sent, status="done"))
        assert [count(path, table) for table in ("live_tasks", "ended_tasks", "submissions")] == [0, 50, 50]

    with_store(path, body)


def test_small_commits_stay_small_on_disk(tmp_path):  # ST-67
    path = tmp_path / "s.db"

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        doc = rig.id()
        await rig.commit(document(doc, {}))
        for n in range(100):
            note = EntryRecord(id=rig.id(), conversation_id=1, kind="note", data="x" * 1024)
            await rig.commit(note, delta(doc, ["s", ["n"], n]))

    with_store(path, body)
    assert path.stat().st_size < 2**20


def test_what_a_base_reclaims_makes_room_for_the_entries_of_its_own_commit(tmp_path):
    """An answer's partials give their pages to its entry, so the file holds the text once, not twice."""
    path = tmp_path / "s.db"

    def pages():
        connection = sqlite3.connect(path)
        (number,) = connection.execute("PRAGMA page_count").fetchone()
        connection.close()
        return number

    async def body(rig):
        doc = rig.id()
        await rig.commit(conversation(rig.id()), document(doc, {"text": ""}))
        for _ in range(100):
            await rig.commit(delta(doc, ["a", ["text"], "x" * 400]))
        before = pages()
        answer = EntryRecord(id=rig.id(), conversation_id=1, kind="pi.assistant", data="x" * 100 * 400)
        await rig.commit(answer, base(doc, {}))
        assert pages() == before

    with_store(path, body)


def test_a_long_conversation_of_long_results_takes_hardly_more_than_its_payload(tmp_path):  # B011
    path = tmp_path / "s.db"
    sizes = []

    async def body(rig):
        await rig.commit(conversation(rig.id()))
        for turn in range(300):
            result = EntryRecord(id=rig.id(), conversation_id=1, kind="result", data="y" * 20_000)
            await rig.commit(EntryRecord(id=rig.id(), conversation_id=1, kind="note", data="x" * 1000), result)
            if turn % 100 == 99:
                await rig.restart()
                sizes.append(path.stat().st_size)

    with_store(path, body)
    assert sizes[-1] < 1.5 * 300 * 21_000
    assert sizes[2] - sizes[1] < 1.1 * (sizes[1] - sizes[0])


def test_the_cost_of_a_step_does_not_grow_with_history(tmp_path):  # B028: counted in instructions of SQLite, not time
    async def body(rig):
        writing = rig.storage._engine.writing
        steps = []
        await rig.commit(conversation(rig.id()), task(rig.id()))

        async def cost():
            steps.clear()
            await writing.run(writing.sqlite.set_progress_handler, lambda: steps.append(1) and None, 1)
            await rig.commit(entry(rig.id()), task(2, Pending(checkpoint={"n": 1})), submission(rig.id()))
            await writing.run(writing.sqlite.set_progress_handler, None, 0)
            return len(steps)

        early = await cost()
        for _ in range(30):
            await rig.commit(*(entry(rig.id()) for _ in range(100)), task(rig.id(), ENDED))
        late = await cost()
        assert late < 1.5 * early

    with_store(tmp_path / "s.db", body)
