"""Conformance: sessions, batches, and what is refused."""

import asyncio
from collections.abc import Callable

from .conformance_rig import (
    ENDED,
    Rig,
    Suite,
    conversation,
    document,
    entry,
    fails,
    ids,
    pages,
    scenario,
    submission,
    task,
)
from .contract import EntryQuery, TaskQuery
from .errors import StorageClosed, StorageRejected
from .records import (
    MAX_ID,
    Batch,
    ContextEdit,
    ConversationOwner,
    ConversationRecord,
    DocumentRetire,
    EntryRecord,
    Pending,
    SessionScope,
    Write,
)


class BatchConformance(Suite):
    """Atomicity, counters, ids, and detached values."""

    # --- counters

    @scenario
    async def test_a_session_begins_with_its_first_batch(self, rig: Rig) -> None:
        """ST-01: the root conversation's commit is number 1, the next one 2; both counters survive a restart."""
        assert await rig.storage.session("session") is None
        await rig.commit(conversation(rig.id()))
        await rig.commit(entry(rig.id()))
        await rig.restart()
        record = await rig.storage.session("session")
        assert record is not None
        assert (record.key, record.seq, record.last_id, record.wake) == ("session", 2, 2, None)

    @scenario
    async def test_handed_out_ids_are_remembered_though_unused(self, rig: Rig) -> None:
        """ST-02: the next id after a restart follows the highest one handed out."""
        await rig.commit(conversation(rig.id()))
        rig.last_id = 9
        await rig.commit()
        await rig.restart()
        record = await rig.storage.session("session")
        assert record is not None
        assert record.last_id == 9
        await rig.commit(entry(5))
        assert await rig.storage.entry("session", 5) == (entry(5), 3)

    @scenario
    async def test_an_empty_batch_takes_a_sequence_number(self, rig: Rig) -> None:
        """ST-03: an empty batch is a commit like any other; an empty group is nothing."""
        await rig.commit(conversation(rig.id()))
        await rig.commit()
        await rig.write()
        await rig.commit()
        record = await rig.storage.session("session")
        assert record is not None
        assert record.seq == 3

    @scenario
    async def test_sequence_numbers_may_leave_gaps_but_must_grow(self, rig: Rig) -> None:
        """ST-07: sequences strictly increase."""
        rig.seq = 6
        await rig.commit(conversation(rig.id()))
        for seq in (7, 6, 0, -1):
            rig.seq = seq - 1
            await rig.refuse(entry(1))
        rig.seq = 7
        assert await rig.commit(entry(rig.id())) == 8
        assert await rig.storage.entry("session", 2) == (entry(2), 8)

    @scenario
    async def test_ids_stay_within_what_was_handed_out(self, rig: Rig) -> None:
        """ST-28: an id above last_id, below 1 or beyond the id space is refused, and last_id never shrinks."""
        await rig.commit(conversation(rig.id()), entry(rig.id()))
        for bad in (0, -1, 3, MAX_ID + 1, 2**64):
            await rig.refuse(entry(bad))
        for last_id in (1, MAX_ID + 1):
            rig.last_id = last_id
            await rig.refuse()
        rig.last_id = MAX_ID
        await rig.commit(entry(MAX_ID))
        assert await rig.storage.entry("session", MAX_ID) == (entry(MAX_ID), 2)

    @scenario
    async def test_an_id_belongs_to_one_record_for_ever(self, rig: Rig) -> None:
        """ST-02: one namespace of ids for all record types, old and new ones, in one batch and across batches."""
        await rig.commit(conversation(rig.id()))
        made: list[Write] = [
            entry(rig.id()),
            task(rig.id()),
            task(rig.id(), ENDED),
            submission(rig.id()),
            document(rig.id(), {}),
        ]
        await rig.commit(*made)
        makers: list[Callable[[int], Write]] = [
            conversation,
            entry,
            task,
            lambda n: task(n, ENDED),
            submission,
            lambda n: document(n, {}, kind="x"),
        ]
        allowed = {(3, 2), (3, 3), (5, 4)}  # a live task may change or end, an open submission may change
        for taken in range(1, 7):
            for number, make in enumerate(makers):
                if (taken, number) not in allowed:
                    await rig.refuse(make(taken))
        fresh = rig.id()
        await rig.refuse(entry(fresh), task(fresh))
        await rig.refuse(entry(fresh), entry(fresh))

    # --- atomicity

    @scenario
    async def test_a_group_lands_whole_or_not_at_all(self, rig: Rig) -> None:
        """ST-07: the bad batch is named; nothing of the group is stored, of other sessions neither."""
        other = rig.other("other")
        await rig.commit(conversation(rig.id()))
        good = other.batch(conversation(other.id()), wake=3)
        first = rig.batch(entry(rig.id()), task(rig.id()), submission(rig.id()), document(rig.id(), {}))
        bad = rig.batch(entry(rig.id()), conversation(1))
        error = await fails(StorageRejected, rig.storage.write([good, first, bad]))
        assert error.index == 2
        assert await rig.storage.session("other") is None
        assert await rig.storage.next_wake() is None
        assert await rig.storage.entry("session", 2) is None
        assert await rig.storage.task("session", 3) is None
        assert await rig.storage.submission("session", 4) is None
        assert await rig.storage.find_document("session", "doc", SessionScope()) is None
        await rig.write(good, first)
        assert await rig.storage.entry("session", 2) == (entry(2), 2)
        assert await rig.storage.next_wake() == 3

    @scenario
    async def test_what_a_refused_batch_wrote_can_be_written_again(self, rig: Rig) -> None:
        """ST-27, ST-35: a document command that fails takes the batch's rows with it; ids and sequence stay free."""
        await rig.commit(conversation(rig.id()))
        e = rig.id()
        await rig.refuse(entry(e), DocumentRetire(id=99))
        assert await rig.storage.entry("session", e) is None
        assert await rig.commit(entry(e)) == 2

    @scenario
    async def test_a_group_of_many_batches_of_one_session_keeps_their_order(self, rig: Rig) -> None:
        """ST-32: a record replaced within one batch, or one group, is the last one written."""
        await rig.commit(conversation(rig.id()))
        t = rig.id()
        states = [Pending(checkpoint={"n": n}) for n in range(4)]
        await rig.write(
            rig.batch(task(t, states[0]), task(t, states[1])),
            rig.batch(task(t, states[2]), entry(rig.id())),
            rig.batch(task(t, states[3])),
        )
        assert await rig.storage.task("session", t) == task(t, states[3])
        assert await rig.storage.entry("session", 3) == (entry(3), 3)
        await rig.write(rig.batch(task(t, states[0])), rig.batch(task(t, ENDED)))
        assert await rig.storage.task("session", t) == task(t, ENDED)
        assert await rig.storage.live_tasks("session") == []

    @scenario
    async def test_cancelling_a_write_leaves_all_or_nothing(self, rig: Rig) -> None:
        """ST-07: the caller of a cancelled write learns nothing, but the group is whole and the store goes on."""
        await rig.commit(conversation(rig.id()))
        batch = rig.batch(*(entry(rig.id()) for _ in range(500)))
        writing = asyncio.ensure_future(rig.storage.write([batch]))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        await rig.commit()
        found = await pages(rig.storage.scan_entries, "session", EntryQuery(conversation_id=1), limit=200)
        assert len(found) in {0, 500}

    # --- values

    @scenario
    async def test_stored_values_are_detached(self, rig: Rig) -> None:
        """ST-05, ST-08: changing what was written, or what was read, changes nothing that is stored."""
        data = {"list": [1]}
        checkpoint = {"list": [1]}
        value = {"list": [1]}
        record = EntryRecord(id=2, conversation_id=1, kind="note", data=data, model=[{"role": "user", "list": [1]}])
        rig.last_id = 4
        await rig.commit(conversation(1), record, task(3, Pending(checkpoint=checkpoint)), document(4, value))
        for written in (data, checkpoint, value):
            written["list"].append(2)
        for _ in range(2):
            found = await rig.storage.entry("session", 2)
            stored = await rig.storage.task("session", 3)
            doc = await rig.storage.document("session", 4)
            assert found is not None
            assert stored is not None
            assert doc is not None
            assert isinstance(stored.state, Pending)
            for read in (found[0].data, stored.state.checkpoint, doc.value):
                assert read == {"list": [1]}
                read["list"].append(3)

    @scenario
    async def test_every_field_of_every_record_comes_back(self, rig: Rig) -> None:
        """ST-04: what is read is what was written, with an entry's commit sequence beside it."""
        rig.last_id = 5
        owned = ConversationRecord(id=2, owner=ConversationOwner(conversation_id=1, task_id=4))
        full = EntryRecord(
            id=3,
            conversation_id=2,
            kind="pi.user",
            model=[{"role": "user", "content": "é \U0001f600"}],
            data=[None, True, 1.5, -(2**53), "x", {}],
            head=3,
            edits=[ContextEdit(target=3, action="replace", messages=[{"a": 1}])],
            by_task_id=4,
        )
        work = task(4, owner=3, input={"a": [1]}, memos={"m": 1}, started_at=5, ended_at=6, background=True)
        sent = submission(5, request_id="r", entry=3, answer=3, status="done", detail={"d": 1}, reason="why")
        await rig.commit(conversation(1), owned, full, work, sent)
        assert await rig.storage.conversation("session", 2) == owned
        assert await rig.storage.entry("session", 3) == (full, 1)
        assert await rig.storage.task("session", 4) == work
        assert await rig.storage.submission("session", 5) == sent
        for read in (rig.storage.conversation, rig.storage.entry, rig.storage.task, rig.storage.submission):
            for unknown in (0, -1, 9, 2**32, 2**33 + 1):
                assert await read("session", unknown) is None

    @scenario
    async def test_awkward_keys_and_texts_survive(self, rig: Rig) -> None:
        """ST-09, ST-28: keys that mean something elsewhere are plain keys; indexed texts are any Unicode text."""
        keys = [
            "__proto__",
            "constructor",
            "toString",
            "",
            " ",
            "a\0b",
            "'; --",
            "\U0001f600",
            "\ud7ff\ue000",
            "ÿ" * 300,
        ]
        value = {key: {key: 1} for key in keys}
        await rig.commit(conversation(rig.id()))
        for key in keys:
            doc = rig.id()
            sent = submission(rig.id(), request_id=key)
            await rig.commit(document(doc, value, kind=key, key=key), sent, task(rig.id(), ENDED, kind=key))
            found = await rig.storage.find_document("session", key, SessionScope(), key)
            assert found is not None
            assert found.id == doc
            stored = await rig.storage.document("session", doc)
            assert stored is not None
            assert stored.value == value
            assert await rig.storage.submission_by_request("session", 1, key) == sent
            page = await rig.storage.scan_tasks("session", TaskQuery(kind=key), 9)
            assert ids(page.items) == [rig.last_id]
            named = rig.other(key)
            await named.commit(conversation(named.id()))
            assert await rig.storage.conversation(key, 1) == conversation(1)

    @scenario
    async def test_what_is_no_json_is_refused(self, rig: Rig) -> None:
        """ST-35: a value that cannot be stored is refused without a trace; half a surrogate pair is none either."""
        await rig.commit(conversation(rig.id()))
        e = rig.id()
        circle: list[object] = []
        circle.append(circle)
        for bad in (circle, object(), "\ud800", {"\udfff": 1}):
            await rig.refuse(EntryRecord(id=e, conversation_id=1, kind="note", data=bad))
        await rig.refuse(document(e, {}, kind="\ud800"))
        await rig.refuse(submission(e, request_id="\udc00"))
        await fails(StorageRejected, rig.storage.write([Batch(session="\ud800", seq=1, last_id=0, writes=[])]))
        await fails(StorageRejected, rig.storage.session("\ud800"))
        assert await rig.commit(entry(e)) == 2

    # --- sessions

    @scenario
    async def test_sessions_are_listed_in_the_order_of_their_creation(self, rig: Rig) -> None:
        """Each session has its own ids and records; listing pages through all of them."""
        names = ["b", "a", "d", "c", "e"]
        for number, name in enumerate(names):
            made = rig.other(name)
            await made.commit(conversation(made.id()), wake=number)
        assert [record.key for record in await pages(rig.storage.sessions)] == names
        assert (await rig.storage.sessions(5)).next is None
        extra = rig.other("a")
        extra.seq, extra.last_id = 1, 1
        await extra.commit(entry(extra.id()))
        assert await rig.storage.entry("a", 2) == (entry(2), 2)
        assert await rig.storage.entry("b", 2) is None
        assert await rig.storage.conversation("nobody", 1) is None

    @scenario
    async def test_due_sessions_come_earliest_first(self, rig: Rig) -> None:
        """A wake is replaced by each batch: 0 is due at once, None never."""
        for name, wake in (("late", 30), ("never", None), ("early", 10), ("now", 0), ("moved", 5)):
            made = rig.other(name)
            await made.commit(wake=wake)
        moved = rig.other("moved")
        moved.seq = 1
        await moved.commit(wake=20)
        assert await rig.storage.next_wake() == 0
        assert [await rig.storage.next_wake(after) for after in (0, 9, 10, 20, 30)] == [10, 10, 20, 30, None]
        assert await rig.storage.due(20, 9) == ["now", "early", "moved"]
        assert await rig.storage.due(20, 2) == ["now", "early"]
        moved.seq = 2
        await moved.commit()
        assert await rig.storage.due(99, 9) == ["now", "early", "late"]

    # --- life

    @scenario
    async def test_a_closed_store_refuses_every_call(self, rig: Rig) -> None:
        """ST-28: every call after close is refused; close may be repeated, and open brings everything back."""
        await rig.commit(conversation(rig.id()))
        await rig.storage.close()
        await rig.storage.close()
        await fails(StorageClosed, rig.storage.write([Batch(session="session", seq=2, last_id=1, writes=[])]))
        await fails(StorageClosed, rig.storage.session("session"))
        await fails(StorageClosed, rig.storage.conversation("session", 1))
        await fails(StorageClosed, rig.storage.live_tasks("session"))
        await fails(StorageClosed, rig.storage.idle())
        await rig.storage.open()
        await rig.storage.open()
        assert await rig.storage.conversation("session", 1) == conversation(1)
        await rig.storage.idle()

    @scenario
    async def test_many_sessions_written_and_read_at_once_stay_apart(self, rig: Rig) -> None:
        """B001: a reader sees whole commits of its own session only, in order and without gaps."""
        sessions = [rig.other(f"s{number}") for number in range(4)]
        for one in sessions:
            await one.commit(conversation(one.id()))

        async def read(one: Rig) -> None:
            for _ in range(200):  # not for ever: that alone could keep a storage thread from its turn
                page = await rig.storage.scan_entries(one.key, EntryQuery(conversation_id=1), 200)
                found = sorted(ids(page.items))
                assert found == list(range(2, 2 + len(found)))
                assert len(found) % 2 == 0, "half a commit was visible"
                await asyncio.sleep(0)

        readers = [asyncio.ensure_future(read(one)) for one in sessions]
        for _ in range(20):
            await rig.storage.write([one.batch(entry(one.id()), entry(one.id())) for one in sessions])
        for reader in readers:
            reader.cancel()
        for outcome in await asyncio.gather(*readers, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
