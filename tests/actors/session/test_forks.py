"""What a fork shares and what it copies, at the level of commits."""

import asyncio

import pytest
from perdure import Doc, DocumentMismatch, EntryNotVisible, InvalidValue, OwnershipRefused, UnknownRecord
from perdure.actors.session.forks import Source, copied
from perdure.actors.session.read import snapshot, snapshot_as_of
from perdure.storage.records import (
    ConversationScope,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
)

from .support import rig, turns
from .test_tx import Quiet

Then = Doc("test.then", history="rewindable", fork="asOf", initial=lambda: {"n": 0})
Now = Doc("test.now", fork="current", initial=lambda: {"n": 0})
Anew = Doc("test.anew", fork="initial", initial=lambda: {"n": 0})
ALL = (Then, Now, Anew)


async def talk(r, conversation=1, count=3):
    """Append entries, and set every document to the number of its entry, in one commit each; gives the entries' ids."""
    written = []
    for number in range(1, count + 1):
        async with r.commit(conversation) as tx:
            written.append((await tx.append("note", number)).id)
            for doc in ALL:
                (await tx.doc(doc, conversation))["n"] = number
    return written


async def values(r, conversation):
    return [(await snapshot(r.core, doc, conversation) or {}).get("n") for doc in ALL]


def go(main):
    asyncio.run(main())


# --- what is copied


def document(id, fork, *, kind="k", key=None):
    return DocumentRecord(
        id=id,
        kind=kind,
        scope=ConversationScope(conversation_id=1),
        key=key,
        history="rewindable",
        fork=fork,
        created_at=1,
    )


def test_each_document_is_copied_by_its_policy():
    """DF-09."""
    then, now, anew = (document(n, fork, kind=fork) for n, fork in enumerate(("asOf", "current", "initial")))
    assert copied([then, now, anew], [then, now, anew], 7) == [Source(then, 7), Source(now, None)]


def test_what_was_made_after_the_entry_is_copied_if_it_is_current_only():
    """DF-09."""
    then, now = document(1, "asOf", kind="a"), document(2, "current", kind="b")
    assert copied([then, now], [], 7) == [Source(now, None)]


def test_what_has_been_retired_since_is_copied_as_of_the_entry_only():
    """DF-09."""
    then, now = document(1, "asOf", kind="a"), document(2, "current", kind="b")
    assert copied([], [then, now], 7) == [Source(then, 7)]


@pytest.mark.parametrize(("fork", "expected"), [("current", [Source(document(2, "current"), None)]), ("initial", [])])
def test_an_address_follows_the_policy_that_it_has_now(fork, expected):
    """Unlike anything the reference says: a definition that has changed its policy could not read the older copy."""
    assert copied([document(2, fork)], [document(1, "asOf")], 7) == expected


def test_members_of_a_family_are_told_apart():
    one, two = document(1, "asOf", key="a"), document(2, "current", key="b")
    assert copied([two], [one], 7) == [Source(one, 7), Source(two, None)]


# --- forks


def test_a_fork_gets_values_as_of_the_entry_current_ones_and_nothing():
    """DF-09, DF-11."""

    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r)
        async with r.commit(1) as tx:
            fork = await tx.fork(at=entries[1])
        assert (fork.parent.conversation_id, fork.parent.at, fork.owner) == (1, entries[1], None)
        assert await values(r, fork.id) == [2, 3, None]
        assert await values(await r.reopened(), fork.id) == [2, 3, None]
        assert await values(r, 1) == [3, 3, 3]

    go(main)


def test_state_as_of_an_entry_is_that_of_its_whole_commit():
    """DF-11: also when that commit appended later entries, and changed documents after them."""

    async def main():
        r = await rig()
        await r.root()
        async with r.commit(1) as tx:
            first = await tx.append("note")
            (await tx.doc(Then, 1))["n"] = 1
            await tx.append("note")
            (await tx.doc(Then, 1))["n"] = 2
        async with r.commit(1) as tx:
            (await tx.doc(Then, 1))["n"] = 3
            fork = await tx.fork(at=first.id)
        assert await snapshot(r.core, Then, fork.id) == {"n": 2}
        assert await snapshot_as_of(r.core, Then, 1, first.id) == {"n": 2}

    go(main)


def test_kinds_that_nobody_here_knows_are_copied_with_their_stored_version():
    """DF-09."""
    old = Doc("test.then", history="rewindable", fork="asOf", version=1)
    new = Doc(
        "test.then",
        history="rewindable",
        fork="asOf",
        version=2,
        migrate=lambda value, _: {"renamed": value["n"]},
    )

    async def main():
        r = await rig()
        await r.root()
        async with r.commit(1) as tx:
            entry = await tx.append("note")
            (await tx.doc(old, 1))["n"] = 1
        r = await r.reopened()
        async with r.commit(1) as tx:
            fork = await tx.fork(at=entry.id)
        [copy] = [write for write in r.last_batch.writes if isinstance(write, DocumentCopy)]
        stored = await r.storage.document("s", copy.record.id)
        assert (stored.version, stored.value) == (1, {"n": 1})
        assert await snapshot(r.core, new, fork.id) == {"renamed": 1}
        assert await snapshot_as_of(r.core, new, 1, entry.id) == {"renamed": 1}

    go(main)


def test_documents_of_tasks_and_tasks_themselves_are_never_copied():
    """DF-09."""
    mine = Doc("test.mine", scope="task")

    async def main():
        r = await rig()
        await r.root()
        async with r.commit(1) as tx:
            entry = await tx.append("note")
            task = await tx.create_task(Quiet)
            (await tx.doc(mine, task.id))["n"] = 1
        async with r.commit(1) as tx:
            fork = await tx.fork(at=entry.id)
        assert [type(write).__name__ for write in r.last_batch.writes] == ["ConversationRecord"]
        assert not r.core.forest.ownership.has_work(fork.id)

    go(main)


def test_a_fork_is_written_as_copies_and_costs_its_documents():
    """P10: no value is read to make one."""

    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r, count=5)
        async with r.commit(1) as tx:
            await tx.fork(at=entries[0])
        kinds = [type(write).__name__ for write in r.last_batch.writes]
        assert kinds == ["ConversationRecord", "DocumentCopy", "DocumentCopy"]
        assert [(write.record.kind, write.at is None) for write in r.last_batch.writes[1:]] == [
            ("test.then", False),
            ("test.now", True),
        ]

    go(main)


def test_the_block_that_forks_may_change_the_copies():
    """DF-05: what a new conversation starts with is edited in the commit that makes it."""

    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r)
        async with r.commit(1) as tx:
            fork = await tx.fork(at=entries[0])
            assert (await tx.doc(Then, fork.id))["n"] == 1
            (await tx.doc(Then, fork.id))["more"] = True
            (await tx.doc(Anew, fork.id))["n"] = 9
        assert await snapshot(r.core, Then, fork.id) == {"n": 1, "more": True}
        assert await values(await r.reopened(), fork.id) == [1, 3, 9]
        async with r.commit(fork.id) as tx:
            (await tx.doc(Then, fork.id))["n"] = 5
        assert await snapshot((await r.reopened()).core, Then, fork.id) == {"n": 5, "more": True}

    go(main)


def test_the_block_that_forks_may_change_the_source_which_is_copied_as_it_was():
    """DF-09: the committed value. Storage refuses to copy what the same batch writes, so the value is written out."""

    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r)
        async with r.commit(1) as tx:
            (await tx.doc(Now, 1))["n"] = 7
            fork = await tx.fork(at=entries[0])
            (await tx.doc(Then, 1))["n"] = 8
        async with r.commit(1) as tx:
            other = await tx.fork(at=entries[0])
            await tx.retire_doc(Now, 1)
        assert await values(r, fork.id) == [1, 3, None]
        assert await values(r, other.id) == [1, 7, None]
        assert await values(r, 1) == [8, None, 3]

    go(main)


def test_a_copy_may_be_retired_in_the_block_that_makes_it():
    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r)
        async with r.commit(1) as tx:
            fork = await tx.fork(at=entries[0])
            await tx.retire_doc(Now, fork.id)
            await tx.doc(Then, fork.id)
            await tx.retire_doc(Then, fork.id)
        assert await values(r, fork.id) == [None, None, None]

    go(main)


def test_copies_that_are_not_durable_yet_are_waited_for():
    """P1: the next block finds the copy, and does not make a document of its own."""

    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r)
        r.auto = False
        async with r.commit(1, wait=False) as tx:
            fork = await tx.fork(at=entries[0])

        async def change():
            async with r.commit(fork.id) as tx:
                (await tx.doc(Now, fork.id))["more"] = True

        changing = asyncio.ensure_future(change())
        reading = asyncio.ensure_future(snapshot(r.core, Then, fork.id))
        await turns()
        assert not changing.done()
        assert not reading.done()
        await r.store()
        assert await reading == {"n": 1}
        await turns()
        await r.store()
        await changing
        assert await snapshot(r.core, Now, fork.id) == {"n": 3, "more": True}

    go(main)


def test_a_block_that_fails_leaves_no_fork_behind():
    """P11."""

    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r)
        last_id = r.core.last_id
        with pytest.raises(KeyError):
            async with r.commit(1) as tx:
                fork = await tx.fork(at=entries[0])
                raise KeyError
        assert r.core.last_id == last_id
        assert await r.core.storage.conversation("s", fork.id) is None
        async with r.commit(1) as tx:
            again = await tx.fork(at=entries[0])
        assert await values(r, again.id) == [1, 3, None]

    go(main)


# --- where a fork can begin


def test_a_fork_begins_at_any_visible_entry_and_nowhere_else():
    """DF-07."""

    async def main():
        r = await rig()
        await r.root()
        entries = await talk(r)
        async with r.commit(1) as tx:
            child = await tx.fork(at=entries[1])
        own = await talk(r, child.id, 1)
        for conversation, unseen in ((1, own[0]), (child.id, entries[2]), (1, 999), (1, child.id), (1, 0)):
            with pytest.raises(EntryNotVisible, match=f"entry {unseen} is not visible in conversation {conversation}"):
                async with r.commit(conversation) as tx:
                    await tx.fork(at=unseen)
        async with r.commit(child.id) as tx:
            grandchild = await tx.fork(at=entries[0])
        assert (grandchild.parent.conversation_id, grandchild.parent.at) == (child.id, entries[0])
        assert await snapshot(r.core, Then, grandchild.id) == {"n": 1}  # as the ancestor had it
        assert await snapshot(r.core, Now, grandchild.id) == {"n": 1}  # as the forked conversation has it

    go(main)


def test_without_an_entry_a_fork_begins_at_the_newest_stored_one():
    async def main():
        r = await rig()
        await r.root()
        with pytest.raises(InvalidValue):
            async with r.commit(1) as tx:
                await tx.fork()
        entries = await talk(r)
        async with r.commit(1) as tx:
            await tx.append("note")
            fork = await tx.fork()
        assert fork.parent.at == entries[-1]

    go(main)


def test_what_is_not_there_cannot_be_forked():
    """P11."""

    async def main():
        r = await rig()
        await r.root()
        [entry] = await talk(r, count=1)
        for refused, options in (
            (UnknownRecord, {"conversation_id": 99}),
            (OwnershipRefused, {"at": entry, "owner": 99}),
            (InvalidValue, {"at": "1"}),
            (InvalidValue, {"at": -1}),
            (InvalidValue, {"at": True}),
        ):
            with pytest.raises(refused):
                async with r.commit(1) as tx:
                    await tx.fork(**options)
        with pytest.raises(InvalidValue):
            async with r.commit() as tx:
                await tx.fork(at=entry)
        with pytest.raises(InvalidValue):
            async with r.commit() as tx:
                new = await tx.create_conversation()
                await tx.fork(new.id, at=entry)

    go(main)


# --- reading the past


def test_the_past_of_a_document_reads_as_a_fork_would_get_it():
    """CX-10, DF-08: it is none where there was none, and never stored."""

    async def main():
        r = await rig()
        await r.root()
        async with r.commit(1) as tx:
            before = await tx.append("note")
        entries = await talk(r)
        async with r.commit(1) as tx:
            await tx.retire_doc(Then, 1)
        async with r.commit(1) as tx:
            after = await tx.append("note")
            child = await tx.fork(at=entries[1])
        admitted = r.core.seq
        assert [await snapshot_as_of(r.core, Then, 1, at) for at in (before.id, *entries, after.id)] == [
            None,
            {"n": 1},
            {"n": 2},
            {"n": 3},
            None,
        ]
        assert await snapshot_as_of(r.core, Then, child.id, entries[0]) == {"n": 1}
        assert r.core.seq == admitted
        with pytest.raises(EntryNotVisible):
            await snapshot_as_of(r.core, Then, child.id, entries[2])
        for doc in (Now, Anew, Doc("test.session", scope="session")):
            with pytest.raises(InvalidValue):
                await snapshot_as_of(r.core, doc, 1, entries[0])
        with pytest.raises(DocumentMismatch):
            await snapshot_as_of(r.core, Doc("test.then", history="rewindable"), 1, entries[0])

    go(main)


def test_written_out_copies_are_documents_like_any_other():
    async def main():
        r = await rig()
        await r.root()
        [entry] = await talk(r, count=1)
        async with r.commit(1) as tx:
            (await tx.doc(Now, 1))["n"] = 5
            fork = await tx.fork(at=entry)
        made = [write for write in r.last_batch.writes if isinstance(write, DocumentCreate)]
        assert [(write.record.kind, write.content.value) for write in made] == [("test.now", {"n": 1})]
        async with r.commit(fork.id) as tx:
            (await tx.doc(Now, fork.id))["n"] = 6
        assert await values(r, fork.id) == [1, 6, None]
        assert await values(r, 1) == [1, 5, 1]

    go(main)
