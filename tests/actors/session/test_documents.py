"""Documents: definitions, incarnations, versions, bases and deltas, lifetimes."""

import asyncio
import contextlib

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from perdure import Doc, DocumentMismatch, InvalidValue, Phase, Task, UnknownRecord
from perdure.actors.session.read import snapshot
from perdure.actors.task.tx import finish
from perdure.chord.errors import DraftRevoked, InvalidJson
from perdure.storage.contract import DocumentQuery
from perdure.storage.records import (
    Base,
    Completed,
    Delta,
    DocumentChange,
    DocumentCreate,
    DocumentRetire,
    SessionScope,
    TaskScope,
)

from .support import Rig, rig, turns

CountDoc = Doc("test.count", scope="session", initial=lambda: {"n": 0})
TaskDoc = Doc("test.work", scope="task", initial=lambda: {"n": 0})
FamilyDoc = Doc("test.family", scope="session", family=True, initial=lambda seed: {"seed": seed})


class Quiet(Task[None, None], name="test.quiet"):
    class Run(Phase):
        pass

    async def run(self, run, state):
        raise AssertionError("nothing runs tasks here")


async def change(session, doc, scope_id=None, *, key=None, **values):
    async with session.commit() as tx:
        (await tx.doc(doc, scope_id, key=key)).update(values)


def contents(batch):
    return [write.content for write in batch.writes if isinstance(write, DocumentCreate | DocumentChange)]


async def recorded(session):
    """Every batch that the session admits, in a list that grows."""
    batches, write = [], session.core._write

    def record(core, batch):
        batches.append(batch)
        write(core, batch)

    session.core._write = record
    return batches


# --- definitions


def test_a_definition_that_makes_no_sense_is_refused():
    with pytest.raises(InvalidValue):
        Doc("d", version=0)
    with pytest.raises(InvalidValue):
        Doc("d", fork="asOf")
    Doc("d", fork="asOf", history="rewindable")


def test_an_address_has_exactly_the_id_and_key_that_its_scope_and_family_ask_for():
    conversation = Doc("d")
    assert conversation.address(5, None).scope_id == 5
    for wrong in [(None, None), (5, "key")]:
        with pytest.raises(InvalidValue):
            conversation.address(*wrong)
    for wrong in [(5, None), (None, "key")]:
        with pytest.raises(InvalidValue):
            CountDoc.address(*wrong)
    with pytest.raises(InvalidValue):
        FamilyDoc.address(None, None)


# --- creation, change, reading


def test_access_in_a_block_creates_and_reading_never_does(place):
    """DF-08."""

    async def main():
        session = await rig(storage=place.store())
        assert await snapshot(session.core, CountDoc) is None
        async with session.commit():
            assert await snapshot(session.core, CountDoc) is None
        assert session.core.seq == 0
        async with session.commit() as tx:
            assert (await tx.doc(CountDoc))["n"] == 0
        assert await snapshot(session.core, CountDoc) == {"n": 0}
        assert session.core.seq == 1
        await session.storage.close()

    asyncio.run(main())


def test_values_survive_a_restart(place):
    """DF-02."""

    async def main():
        session = await rig(storage=place.store())
        await change(session, CountDoc, n=1, list=[1, {"deep": [2]}])
        await change(session, CountDoc, n=2)
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["list"][1]["deep"].append(3)
        await session.storage.close()
        again = await Rig(place.store()).open()
        assert await snapshot(again.core, CountDoc) == {"n": 2, "list": [1, {"deep": [2, 3]}]}
        await change(again, CountDoc, n=3)
        assert (await snapshot(again.core, CountDoc))["n"] == 3
        await again.storage.close()

    asyncio.run(main())


def test_two_acquisitions_in_a_block_give_the_same_draft():
    async def main():
        session = await rig()
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["n"] = 1
            assert (await tx.doc(CountDoc))["n"] == 1

    asyncio.run(main())


def test_the_committed_value_is_read_while_a_block_changes_it():
    async def main():
        session = await rig()
        await change(session, CountDoc, n=1)
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["n"] = 2
            assert await snapshot(session.core, CountDoc) == {"n": 1}
        assert await snapshot(session.core, CountDoc) == {"n": 2}

    asyncio.run(main())


def test_a_snapshot_waits_until_what_it_shows_is_durable():
    """P1."""

    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.doc(CountDoc)
        reading = asyncio.create_task(snapshot(session.core, CountDoc))
        await turns()
        assert not reading.done()
        await session.store()
        assert await reading == {"n": 0}

    asyncio.run(main())


def test_a_snapshot_never_changes_afterwards():
    async def main():
        session = await rig()
        await change(session, CountDoc, list=[1])
        before = await snapshot(session.core, CountDoc)
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["list"].append(2)
        assert before == {"n": 0, "list": [1]}

    asyncio.run(main())


def test_a_typed_definition_gives_typed_snapshots():
    class Count(msgspec.Struct):
        n: int

    typed = Doc("test.count", scope="session", initial=lambda: {"n": 4}, type=Count)

    async def main():
        session = await rig()
        async with session.commit() as tx:
            await tx.doc(typed)
        assert await snapshot(session.core, typed) == Count(4)

    asyncio.run(main())


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, object(), "a\udc00", {"x": [float("inf")]}])
def test_a_draft_takes_strict_json_only_and_says_so_at_the_assignment(value):
    """DF-13, P11: the block may go on."""

    async def main():
        session = await rig()
        async with session.commit() as tx:
            draft = await tx.doc(CountDoc)
            with pytest.raises(InvalidJson):
                draft["x"] = value
            draft["x"] = "fine"
        assert await snapshot(session.core, CountDoc) == {"n": 0, "x": "fine"}

    asyncio.run(main())


def test_a_value_assigned_to_a_draft_is_copied_at_once():
    """DF-13."""

    async def main():
        session = await rig()
        value = [1]
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["list"] = value
            value.append(2)
        assert (await snapshot(session.core, CountDoc))["list"] == [1]

    asyncio.run(main())


def test_an_initial_value_that_is_no_object_is_refused():
    async def main():
        session = await rig()
        with pytest.raises(InvalidValue):
            async with session.commit() as tx:
                await tx.doc(Doc("test.list", scope="session", initial=lambda: [1]))
        assert session.core.seq == 0

    asyncio.run(main())


def test_a_conversation_document_needs_its_conversation():
    async def main():
        session = await rig()
        await session.root()
        doc = Doc("test.notes")
        async with session.commit() as tx:
            await tx.doc(doc, 1)
            with pytest.raises(UnknownRecord):
                await tx.doc(doc, 7)

    asyncio.run(main())


# --- families


def test_a_family_member_is_seeded_by_its_first_acquisition(place):
    """DF-18."""

    async def main():
        session = await rig(storage=place.store())
        async with session.commit() as tx:
            assert (await tx.doc(FamilyDoc, key="a", seed=1))["seed"] == 1
            assert (await tx.doc(FamilyDoc, key="a", seed=2))["seed"] == 1
            assert (await tx.doc(FamilyDoc, key="b", seed=3))["seed"] == 3
        async with session.commit() as tx:
            assert (await tx.doc(FamilyDoc, key="a", seed=4))["seed"] == 1
        assert session.core.seq == 1
        assert await snapshot(session.core, FamilyDoc, key="c") is None
        await session.storage.close()

    asyncio.run(main())


# --- bases and deltas


def test_creation_stores_a_base_and_changes_store_deltas():
    async def main():
        session = await rig()
        batches = await recorded(session)
        await change(session, CountDoc, n=1)
        await change(session, CountDoc, n=2)
        assert contents(batches[0]) == [Base(version=1, value={"n": 1})]
        assert contents(batches[1]) == [Delta(version=1, ops=[["s", ["n"], 2]])]

    asyncio.run(main())


def test_checkpoint_when_is_asked_once_for_each_write_and_decides():
    """DF-15."""
    asked = []

    def decide(value, ops, deltas):
        asked.append((value["n"], [list(op) for op in ops], deltas))
        return deltas >= 2

    doc = Doc("test.count", scope="session", initial=lambda: {"n": 0}, checkpoint_when=decide)

    async def main():
        session = await rig()
        batches = await recorded(session)
        for number in range(1, 6):
            await change(session, doc, n=number)
        assert [type(contents(batch)[0]) for batch in batches] == [Base, Delta, Delta, Base, Delta]
        assert asked == [
            (2, [["s", ["n"], 2]], 0),
            (3, [["s", ["n"], 3]], 1),
            (4, [["s", ["n"], 4]], 2),
            (5, [["s", ["n"], 5]], 0),
        ]
        again = await session.reopened()
        await change(again, doc, n=6)
        assert asked[-1][2] == 1

    asyncio.run(main())


def test_a_replacement_of_everything_is_no_checkpoint_by_itself():
    """DF-15."""

    async def main():
        session = await rig()
        batches = await recorded(session)
        await change(session, CountDoc, n=1)
        async with session.commit() as tx:
            draft = await tx.doc(CountDoc)
            draft.clear()
            draft["other"] = True
        assert isinstance(contents(batches[1])[0], Delta)
        assert await snapshot((await session.reopened()).core, CountDoc) == {"other": True}

    asyncio.run(main())


def test_an_unchanged_document_writes_and_publishes_nothing():
    """DF-14."""

    async def main():
        session = await rig()
        root = await session.root()
        await change(session, CountDoc, n=1)
        batches = await recorded(session)
        async with session.commit(root) as tx:
            assert (await tx.doc(CountDoc))["n"] == 1
            await tx.append("note", 1)
        assert contents(batches[0]) == []
        assert session.published[-1].documents == []

    asyncio.run(main())


def test_a_publication_carries_the_operations_that_lead_to_the_value():
    async def main():
        session = await rig()
        await change(session, CountDoc, list=[1])
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["list"].append(2)
        created, changed = (publication.documents[0] for publication in session.published)
        assert (created.created, created.value, created.ops) == (
            True,
            {"n": 0, "list": [1]},
            [["r", {"n": 0, "list": [1]}]],
        )
        assert (changed.created, changed.value) == (False, {"n": 0, "list": [1, 2]})
        assert changed.ops == [["p", ["list"], 1, 0, [2]]]

    asyncio.run(main())


# --- versions


def version(number, **options):
    return Doc(
        "test.count",
        scope="session",
        version=number,
        initial=lambda: {"n": 0},
        migrate=lambda value, old: value | {"n": value["n"] + 10 * (number - old), "from": old},
        **options,
    )


def test_a_newer_version_migrates_on_access_and_stores_a_base_when_it_is_acquired(place):
    async def main():
        session = await rig(storage=place.store())
        await change(session, version(1), n=1)
        again = await Rig(session.storage).open()
        batches = await recorded(again)
        assert await snapshot(again.core, version(3)) == {"n": 21, "from": 1}
        assert batches == []  # DF-08: a reading never stores a migration
        async with again.commit() as tx:
            assert (await tx.doc(version(3)))["n"] == 21
        assert contents(batches[0]) == [Base(version=3, value={"n": 21, "from": 1})]
        async with again.commit() as tx:
            (await tx.doc(version(3)))["n"] += 1
        assert isinstance(contents(batches[1])[0], Delta)
        assert await snapshot((await Rig(session.storage).open()).core, version(3)) == {"n": 22, "from": 1}
        await session.storage.close()

    asyncio.run(main())


def test_a_document_in_memory_is_read_again_for_a_definition_of_another_version():
    """DF-21."""

    async def main():
        session = await rig()
        await change(session, version(1), n=1)
        assert await snapshot(session.core, version(1)) == {"n": 1}
        assert await snapshot(session.core, version(2)) == {"n": 11, "from": 1}
        await change(session, version(1), n=5)
        assert await snapshot(session.core, version(2)) == {"n": 15, "from": 1}
        await change(session, version(2), n=6)
        assert await snapshot(session.core, version(2)) == {"n": 6, "from": 1}
        with pytest.raises(DocumentMismatch):
            await snapshot(session.core, version(1))

    asyncio.run(main())


def test_a_reading_in_another_version_does_not_lose_a_change_under_way():
    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            (await tx.doc(version(1)))["n"] = 1
        reading = asyncio.create_task(snapshot(session.core, version(2)))
        await turns()
        async with session.commit(wait=False) as tx:
            (await tx.doc(version(1)))["n"] = 2
        await session.store(1)
        assert (await reading)["n"] == 11
        async with session.commit(wait=False) as tx:
            assert (await tx.doc(version(1)))["n"] == 2
        await session.store()

    asyncio.run(main())


@pytest.mark.parametrize("doc", [Doc("test.count", scope="session", version=2), version(1)])
def test_a_version_without_a_way_is_refused_and_changes_nothing(doc):
    async def main():
        session = await rig()
        await change(session, version(1 if doc.version == 2 else 3), n=1)
        seq = session.core.seq
        with pytest.raises(DocumentMismatch):
            await snapshot(session.core, doc)
        with pytest.raises(DocumentMismatch):
            async with session.commit() as tx:
                await tx.doc(doc)
        assert session.core.seq == seq

    asyncio.run(main())


def test_other_lifetime_policies_than_the_stored_ones_are_refused():
    async def main():
        session = await rig()
        root = await session.root()
        await change(session, Doc("test.notes"), root, n=1)
        for other in (Doc("test.notes", history="rewindable"), Doc("test.notes", fork="current")):
            with pytest.raises(DocumentMismatch):
                await snapshot(session.core, other, root)

    asyncio.run(main())


# --- retirement


def test_retiring_and_recreating_makes_another_incarnation(place):
    """DF-17."""

    async def main():
        session = await rig(storage=place.store())
        await change(session, CountDoc, n=1)
        first = session.published[-1].documents[0].record.id
        async with session.commit() as tx:
            draft = await tx.doc(CountDoc)
            await tx.retire_doc(CountDoc)
            assert (await tx.doc(CountDoc))["n"] == 0
            (await tx.doc(CountDoc))["n"] = 7
        with pytest.raises(DraftRevoked):
            draft["n"] = 1
        assert await snapshot(session.core, CountDoc) == {"n": 7}
        retired, created = session.published[-1].documents[-2:]
        assert (retired.record.id, retired.value) == (first, None)
        assert created.record.id != first
        async with session.commit() as tx:
            await tx.retire_doc(CountDoc)
        assert await snapshot(session.core, CountDoc) is None
        assert await snapshot((await Rig(session.storage).open()).core, CountDoc) is None
        await change(session, CountDoc, n=9)
        assert await snapshot((await Rig(session.storage).open()).core, CountDoc) == {"n": 9}
        await session.storage.close()

    asyncio.run(main())


def test_retiring_what_is_not_there_writes_nothing():
    async def main():
        session = await rig()
        async with session.commit() as tx:
            await tx.retire_doc(CountDoc)
        assert session.core.seq == 0

    asyncio.run(main())


def test_a_document_created_and_retired_by_one_block_never_was(place):
    """ST-27."""

    async def main():
        session = await rig(storage=place.store())
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["n"] = 1
            await tx.retire_doc(CountDoc)
        assert await snapshot(session.core, CountDoc) is None
        await change(session, CountDoc, n=2)
        assert await snapshot(session.core, CountDoc) == {"n": 2}
        await session.storage.close()

    asyncio.run(main())


def test_a_refused_block_retires_nothing():
    async def main():
        session = await rig()
        await change(session, CountDoc, n=1)
        with pytest.raises(RuntimeError):
            async with session.commit() as tx:
                await tx.retire_doc(CountDoc)
                raise RuntimeError
        await change(session, CountDoc, more=2)
        assert await snapshot(session.core, CountDoc) == {"n": 1, "more": 2}

    asyncio.run(main())


def test_a_reader_that_was_slow_does_not_bring_a_retired_document_back(place):
    """The reading began before the retirement and storage answers after it."""

    class Slow:
        def __init__(self, inner):
            self.inner, self.gate, self.asked = inner, None, asyncio.Event()

        def __getattr__(self, name):
            return getattr(self.inner, name)

        async def document(self, session, id, at=None):
            answer = await self.inner.document(session, id, at)
            gate, self.gate = self.gate, None
            if gate is not None:
                self.asked.set()
                await gate.wait()
            return answer

    async def main():
        session = await rig(storage=Slow(place.store()))
        await change(session, CountDoc, n=1)
        session.core.documents.clear()
        gate = session.storage.gate = asyncio.Event()
        reading = asyncio.create_task(snapshot(session.core, CountDoc))
        await session.storage.asked.wait()
        async with session.commit() as tx:
            await tx.retire_doc(CountDoc)
        gate.set()
        assert await reading is None
        await change(session, CountDoc, n=2)
        again = await Rig(session.storage.inner).open()
        assert await snapshot(again.core, CountDoc) == {"n": 2}
        await session.storage.close()

    asyncio.run(main())


# --- task documents


async def quiet_task(session):
    async with session.commit(1) as tx:
        return (await tx.create_task(Quiet)).id


async def end(session, *tasks):
    async with session.commit() as tx:
        for task in tasks:
            finish(tx, await tx.task(task), Completed())


async def alive(session, task):
    page = await session.storage.scan_documents("s", DocumentQuery(scope=TaskScope(task_id=task)), 10_000)
    return len(page.items)


def test_a_task_document_reads_while_the_outcome_is_held_and_is_gone_with_its_task(place):
    """DF-01."""

    async def main():
        session = await rig(storage=place.store())
        await session.root()
        task = await quiet_task(session)
        async with session.commit() as tx:
            child = (await tx.create_task(Quiet, owner=task)).id
        await change(session, TaskDoc, task, n=5)
        await end(session, task)
        assert await snapshot(session.core, TaskDoc, task) == {"n": 5}
        await end(session, child)
        assert await snapshot(session.core, TaskDoc, task) is None
        assert await alive(session, task) == 0
        await session.storage.close()

    asyncio.run(main())


def test_an_ended_task_takes_no_documents():
    """DF-17."""

    async def main():
        session = await rig()
        await session.root()
        task = await quiet_task(session)
        await end(session, task)
        async with session.commit() as tx:
            for wrong in (task, 99):
                with pytest.raises(UnknownRecord):
                    await tx.doc(TaskDoc, wrong)

    asyncio.run(main())


def test_documents_of_a_task_end_with_it_after_a_restart_that_has_not_seen_them(place):
    async def main():
        session = await rig(storage=place.store())
        await session.root()
        task = await quiet_task(session)
        family = Doc("test.parts", scope="task", family=True, version=3, initial=lambda seed: {"seed": seed})
        await change(session, TaskDoc, task, n=5)
        async with session.commit() as tx:
            for number in range(5):
                await tx.doc(family, task, key=str(number), seed=number)
        await session.storage.close()
        again = await Rig(place.store()).open()
        assert await alive(again, task) == 6
        await end(again, task)
        assert await alive(again, task) == 0
        assert again.core.recovered == set()
        await again.storage.close()

    asyncio.run(main())


def test_more_documents_of_a_task_than_one_page_of_storage_end_with_it():
    async def main():
        session = await rig()
        await session.root()
        task = await quiet_task(session)
        family = Doc("test.parts", scope="task", family=True, initial=lambda seed: {})
        async with session.commit() as tx:
            for number in range(1_100):
                await tx.doc(family, task, key=str(number))
        again = await session.reopened()
        await end(again, task)
        assert await alive(again, task) == 0

    asyncio.run(main())


def test_the_documents_of_a_block_that_ends_their_task_are_stored_and_retired():
    async def main():
        session = await rig()
        await session.root()
        task = await quiet_task(session)
        batches = await recorded(session)
        async with session.commit() as tx:
            (await tx.doc(TaskDoc, task))["n"] = 1
            finish(tx, await tx.task(task), Completed())
        writes = [type(write) for write in batches[0].writes]
        assert writes.count(DocumentCreate) == 1
        assert writes.count(DocumentRetire) == 1
        assert await alive(session, task) == 0
        assert session.core.task_documents == {}

    asyncio.run(main())


def test_ended_tasks_leave_no_documents_in_memory():
    """P10."""

    async def main():
        session = await rig()
        await session.root()
        for _ in range(20):
            task = await quiet_task(session)
            await change(session, TaskDoc, task, n=1)
            await end(session, task)
        assert session.core.documents == {}
        assert session.core.task_documents == {}
        assert session.core.retired == {}

    asyncio.run(main())


# --- memory


def test_documents_that_nobody_uses_leave_memory_and_keep_their_value(monkeypatch):
    """P10."""
    monkeypatch.setattr("perdure.actors.session.core.MAX_LOADED_DOCUMENTS", 10)

    async def main():
        session = await rig()
        for number in range(50):
            await change(session, FamilyDoc, key=str(number), n=number)
        assert len(session.core.documents) <= 11
        for number in range(50):
            assert (await snapshot(session.core, FamilyDoc, key=str(number)))["n"] == number

    asyncio.run(main())


def test_a_document_that_a_block_has_open_stays_in_memory(monkeypatch):
    monkeypatch.setattr("perdure.actors.session.core.MAX_LOADED_DOCUMENTS", 3)

    async def main():
        session = await rig()
        for number in range(20):
            await change(session, FamilyDoc, key=str(number), n=0)
        async with session.commit() as tx:
            drafts = [await tx.doc(FamilyDoc, key=str(number)) for number in range(20)]
            for number in range(20):
                await snapshot(session.core, FamilyDoc, key=str(number))
            for draft in drafts:
                draft["n"] += 1
        for number in range(20):
            assert (await snapshot(session.core, FamilyDoc, key=str(number)))["n"] == 1
        page = await session.storage.scan_documents("s", DocumentQuery(scope=SessionScope()), 100)
        assert len(page.items) == 20

    asyncio.run(main())


# --- names of paths


def fails_to_prepare(value, ops, deltas):
    raise ZeroDivisionError


FailingDoc = Doc("test.failing", scope="session", initial=lambda: {"n": 0}, checkpoint_when=fails_to_prepare)
BaseDoc = Doc("test.count", scope="session", initial=lambda: {"n": 0}, checkpoint_when=lambda *_: True)


def stored_ops(batches):
    return [content.ops for batch in batches for content in contents(batch) if isinstance(content, Delta)]


def test_a_path_is_written_out_once_and_then_named_until_the_next_base():
    """DF-03: a stream of small changes costs what changes, not where."""

    async def main():
        session = await rig()
        batches = await recorded(session)
        await change(session, CountDoc, n=0, deep={"text": ""})
        for _ in range(4):
            async with session.commit() as tx:
                (await tx.doc(CountDoc))["deep"].append_text("text", "more")
        path = ["deep", "text"]
        assert stored_ops(batches) == [
            [["a", path, "more"]],
            [["#", 0, path], ["a", 0, "more"]],
            [["a", 0, "more"]],
            [["a", 0, "more"]],
        ]
        async with session.commit() as tx:
            (await tx.doc(BaseDoc))["n"] = 9
        async with session.commit() as tx:
            (await tx.doc(CountDoc))["deep"].append_text("text", "!")
        assert stored_ops(batches)[-1] == [["a", path, "!"]]
        again = await session.reopened()
        assert (await snapshot(again.core, CountDoc))["deep"] == {"text": "more" * 4 + "!"}

    asyncio.run(main())


DEED = st.sampled_from(["change", "change", "refused", "refused", "raises", "base", "reopen", "forget"])


@example([("change", 1, 1), ("refused", 1, 2), ("change", 1, 3)])
@example([("change", 1, 1), ("change", 1, 2), ("reopen", 0, 0), ("change", 1, 3), ("change", 2, 1), ("change", 2, 2)])
@given(st.lists(st.tuples(DEED, st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_whatever_happens_between_deltas_they_lead_to_the_same_value(deeds):
    """Names that a block gave which was never stored, or that another life gave, mean nothing to what follows."""

    async def main():
        session, expected = await rig(), {"n": 0, "list": [], "a": {"x": 0}}
        async with session.commit() as tx:
            (await tx.doc(CountDoc)).update(expected)
            await tx.doc(FailingDoc)  # a new one is stored without asking
        for deed, where, value in deeds:
            if deed == "reopen":
                session = await session.reopened()
            elif deed == "forget":
                session.core.documents.clear()
            else:
                with contextlib.suppress(ZeroDivisionError, KeyError):
                    async with session.commit() as tx:
                        _put(await tx.doc(BaseDoc if deed == "base" else CountDoc), where, value)
                        if deed == "refused":
                            (await tx.doc(FailingDoc))["n"] += 1
                        if deed == "raises":
                            raise KeyError
                if deed in ("change", "base"):
                    _put(expected, where, value)
            assert await snapshot(session.core, CountDoc) == expected
            assert await snapshot((await session.reopened()).core, CountDoc) == expected

    asyncio.run(main())


def _put(document, where, value):
    if where == 3:
        document["list"].append(value)
    else:
        node, name = [(document, "n"), (document["a"], "x"), (document["a"], "y")][where]
        node[name] = value
