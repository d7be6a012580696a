"""Conformance: documents, their revisions, incarnations and copies."""

from .conformance_rig import (
    ENDED,
    ROOT,
    Rig,
    Suite,
    base,
    conversation,
    delta,
    document,
    entry,
    fails,
    ids,
    pages,
    scenario,
    set_n,
    task,
)
from .contract import DocumentQuery
from .errors import StorageCorrupt, StorageRejected
from .records import (
    ConversationScope,
    DocumentRetire,
    Scope,
    SessionScope,
    TaskScope,
)


class DocumentConformance(Suite):
    """Bases and deltas, lifetimes, addresses and copies."""

    # --- values

    @scenario
    async def test_deltas_apply_on_the_newest_base(self, rig: Rig) -> None:
        """ST-62, ST-64: value and number of deltas, through bases, deltas and a restart."""
        doc = rig.id()
        await rig.commit(document(doc, {"n": 0}))
        assert await rig.value(doc) == ({"n": 0}, 0)
        for n in range(1, 4):
            await rig.commit(set_n(doc, n))
            assert await rig.value(doc) == ({"n": n}, n)
        await rig.commit(base(doc, {"n": 9}))
        await rig.write(rig.batch(set_n(doc, 10)), rig.batch(set_n(doc, 11)))
        await rig.restart()
        assert await rig.value(doc) == ({"n": 11}, 2)
        found = await rig.storage.document("session", doc)
        assert found is not None
        assert found.record == (await rig.storage.find_document("session", "doc", SessionScope()))
        assert (found.record.created_at, found.record.retired_at, found.version) == (1, None, 1)

    @scenario
    async def test_a_group_may_create_change_and_replace_a_document(self, rig: Rig) -> None:
        """Several commits in one group count as they would one by one."""
        doc = rig.id()
        await rig.write(
            rig.batch(document(doc, {"n": 0})),
            rig.batch(set_n(doc, 1)),
            rig.batch(base(doc, {"n": 2}, version=2)),
            rig.batch(delta(doc, ["s", ["n"], 3], version=2)),
        )
        assert await rig.value(doc) == ({"n": 3}, 1)
        await rig.write(rig.batch(base(doc, {"n": 4}, version=3)), rig.batch(delta(doc, ["s", ["n"], 5], version=3)))
        assert await rig.value(doc) == ({"n": 5}, 1)

    @scenario
    async def test_a_root_replacement_is_a_delta_like_any_other(self, rig: Rig) -> None:
        """ST-23: a long tail with a root replacement in it replays right, and does not count as a base."""
        doc = rig.id()
        await rig.commit(document(doc, {"n": 0}))
        for n in range(1, 40):
            await rig.commit(set_n(doc, n) if n != 20 else delta(doc, ["r", {"n": 20, "fresh": True}]))
        assert await rig.value(doc) == ({"n": 39, "fresh": True}, 39)

    @scenario
    async def test_a_version_changes_with_a_base_only(self, rig: Rig) -> None:
        """ST-25: a delta of another version is refused, in a later group and in the same one."""
        doc = rig.id()
        await rig.commit(document(doc, {"n": 0}))
        await rig.refuse(delta(doc, ["s", ["n"], 1], version=2))
        await rig.commit(base(doc, {"n": 2}, version=2))
        await rig.refuse(set_n(doc, 3))
        error = await fails(
            StorageRejected, rig.storage.write([rig.batch(base(doc, {}, version=5)), rig.batch(set_n(doc, 3))])
        )
        assert error.index == 1
        found = await rig.storage.document("session", doc)
        assert found is not None
        assert (found.version, found.value) == (2, {"n": 2})

    @scenario
    async def test_a_delta_that_does_not_fit_is_corruption(self, rig: Rig) -> None:
        """A read never gives a value that the records do not add up to."""
        doc = rig.id()
        await rig.commit(document(doc, {"n": 0}))
        await rig.commit(delta(doc, ["s", ["missing", "deep"], 1]))
        await fails(StorageCorrupt, rig.storage.document("session", doc))
        await rig.commit(base(doc, {"n": 1}))
        assert await rig.value(doc) == ({"n": 1}, 0)

    @scenario
    async def test_one_content_and_one_retirement_a_batch(self, rig: Rig) -> None:
        """Two contents of one incarnation in one batch contradict each other; unknown incarnations take none."""
        doc = rig.id()
        await rig.commit(document(doc, {"n": 0}))
        await rig.refuse(set_n(doc, 1), set_n(doc, 2))
        await rig.refuse(DocumentRetire(id=doc), DocumentRetire(id=doc))
        fresh = rig.id()
        await rig.refuse(document(fresh, {}, kind="x"), set_n(fresh, 1))
        for unknown in (fresh, 99, -1, 2**33 + doc):
            await rig.refuse(base(unknown, {}))
            await rig.refuse(DocumentRetire(id=unknown))

    # --- history

    @scenario
    async def test_a_rewindable_document_is_rebuilt_at_every_point(self, rig: Rig) -> None:
        """ST-22, ST-62: at each sequence of its lifetime, which ends before its retirement."""
        await rig.commit(conversation(rig.id()))
        doc = rig.id()
        await rig.commit(document(doc, {"n": 2}, scope=ROOT, history="rewindable", fork="asOf"))
        for n in range(3, 30):
            if n == 20:
                await rig.commit(base(doc, {"n": n}))
            elif n % 3:
                await rig.commit(set_n(doc, n))
            else:
                await rig.commit(entry(rig.id()))
        await rig.commit(set_n(doc, 30), DocumentRetire(id=doc))
        assert await rig.value(doc, 1) is None
        for at in range(2, 30):
            n = at if at == 20 or at % 3 else at - 1
            found = await rig.value(doc, at)
            assert found is not None
            assert found[0] == {"n": n if at > 2 else 2}
        assert await rig.value(doc, 19) == ({"n": 19}, 11)
        assert await rig.value(doc, 22) == ({"n": 22}, 1)
        for outside in (None, 30, 31, 99):
            assert await rig.value(doc, outside) is None

    @scenario
    async def test_only_rewindable_documents_have_past_points(self, rig: Rig) -> None:
        """ST-25: a numeric point of any other document is refused, retired or not; unknown ones are absent."""
        await rig.commit(conversation(rig.id()))
        latest, session, own = rig.id(), rig.id(), rig.id()
        await rig.commit(
            document(latest, {}, scope=ROOT), document(session, {}), document(own, {}, scope=TaskScope(task_id=9))
        )
        await rig.commit(DocumentRetire(id=own))
        for doc in (latest, session, own):
            await fails(StorageRejected, rig.storage.document("session", doc, 2))
        assert await rig.value(99, 2) is None
        assert await rig.value(99) is None
        assert await rig.value(2**33 + latest) is None

    # --- incarnations

    @scenario
    async def test_an_address_passes_from_incarnation_to_incarnation(self, rig: Rig) -> None:
        """ST-22, ST-51: membership stays known for every past point, also of retired documents without content."""
        one, two, three = rig.id(), rig.id(), rig.id()
        await rig.commit(document(one, {"n": 1}))
        await rig.commit()
        await rig.commit(DocumentRetire(id=one))
        await rig.commit()
        await rig.commit(document(two, {"n": 2}))
        await rig.commit(document(three, {"n": 3}), DocumentRetire(id=two))
        right: dict[int | None, int | None] = {
            0: None,
            1: one,
            2: one,
            3: None,
            4: None,
            5: two,
            6: three,
            7: three,
            None: three,
        }
        for at, doc in right.items():
            found = await rig.storage.find_document("session", "doc", SessionScope(), at=at)
            assert (found and found.id) == doc, at
            page = await rig.storage.scan_documents("session", DocumentQuery(scope=SessionScope(), at=at), 9)
            assert ids(page.items) == ([] if doc is None else [doc])
        past = await rig.storage.find_document("session", "doc", SessionScope(), at=1)
        assert past is not None
        assert (past.created_at, past.retired_at) == (1, 3)
        assert await rig.value(one) is None
        assert await rig.value(three) == ({"n": 3}, 0)
        await rig.refuse(set_n(two, 1))
        await rig.refuse(DocumentRetire(id=two))

    @scenario
    async def test_one_address_has_one_live_document(self, rig: Rig) -> None:
        """A second one is refused until the first has retired, in one batch, one group, or later."""
        one, two = rig.id(), rig.id()
        await rig.refuse(document(one, {}), document(two, {}))
        await rig.commit(document(one, {}))
        await rig.refuse(document(two, {}))
        error = await fails(
            StorageRejected, rig.storage.write([rig.batch(document(two, {})), rig.batch(DocumentRetire(id=one))])
        )
        assert error.index == 0
        rig.seq = 1
        await rig.write(rig.batch(DocumentRetire(id=one)), rig.batch(document(two, {"n": 2})))
        assert await rig.value(two) == ({"n": 2}, 0)

    @scenario
    async def test_created_and_retired_in_one_batch_is_an_empty_lifetime(self, rig: Rig) -> None:
        """ST-27: the document was never alive, but its id is taken."""
        await rig.commit(conversation(rig.id()))
        one, two, next_one = rig.id(), rig.id(), rig.id()
        await rig.commit(
            DocumentRetire(id=one),
            document(one, {"n": 1}),
            document(two, {"n": 2}, scope=ROOT, history="rewindable", fork="current"),
            DocumentRetire(id=two),
        )
        for scope in (SessionScope(), ROOT):
            for at in (None, 1, 2, 3):
                assert await rig.storage.find_document("session", "doc", scope, at=at) is None
        assert await rig.value(one) is None
        assert await rig.value(two, 2) is None
        await rig.refuse(document(one, {}))
        await rig.commit(document(next_one, {}))

    @scenario
    async def test_a_change_and_a_retirement_in_one_batch_are_stored_in_that_order(self, rig: Rig) -> None:
        """Whatever order they come in: the last content of a rewindable document is readable up to the retirement."""
        await rig.commit(conversation(rig.id()))
        doc = rig.id()
        await rig.commit(document(doc, {"n": 0}, scope=ROOT, history="rewindable", fork="current"))
        await rig.commit(DocumentRetire(id=doc), set_n(doc, 3))
        assert await rig.value(doc) is None
        assert await rig.value(doc, 2) == ({"n": 0}, 0)
        await rig.refuse(set_n(doc, 4))

    @scenario
    async def test_a_document_may_end_in_the_group_that_made_it(self, rig: Rig) -> None:
        """DF-01: a task's document dies with its task, whether or not a commit in between became durable alone."""
        work, doc, again = rig.id(), rig.id(), rig.id()
        scope = TaskScope(task_id=work)
        await rig.write(
            rig.batch(task(work), document(doc, {"n": 1}, scope=scope)),
            rig.batch(set_n(doc, 2)),
            rig.batch(task(work, ENDED), DocumentRetire(id=doc)),
            rig.batch(document(again, {"n": 4}, scope=scope)),
        )
        assert await rig.value(doc) is None
        assert await rig.value(again) == ({"n": 4}, 0)
        for at, right in ((1, doc), (2, doc), (3, None), (4, again)):
            found = await rig.storage.find_document("session", "doc", scope, at=at)
            assert (found and found.id) == right
        error = await fails(
            StorageRejected, rig.storage.write([rig.batch(DocumentRetire(id=again)), rig.batch(set_n(again, 5))])
        )
        assert error.index == 1

    # --- addresses

    @scenario
    async def test_addresses_never_collide(self, rig: Rig) -> None:
        """ST-26: scopes with one number, documents without key, and keys that look like something else are apart."""
        rig.last_id = 30
        scopes: list[Scope] = [
            SessionScope(),
            ConversationScope(conversation_id=1),
            TaskScope(task_id=1),
            TaskScope(task_id=2),
        ]
        keys = [None, "", "0", "doc"]
        places = [
            (scope, kind, key) for scope in scopes for kind in ("doc", "x") for key in keys[: 2 + 2 * (kind == "doc")]
        ]
        rig.last_id = 100
        made = {10 + n: place for n, place in enumerate(places)}
        await rig.commit(*(document(n, {}, scope=s, kind=kind, key=key) for n, (s, kind, key) in made.items()))
        for number, (scope, kind, key) in made.items():
            found = await rig.storage.find_document("session", kind, scope, key)
            assert found is not None
            assert (found.id, found.scope, found.kind, found.key) == (number, scope, kind, key)
        for scope in scopes:
            for wanted in (None, "doc", "x", "none"):
                for at in (None, 1, 0):
                    query = DocumentQuery(scope=scope, kind=wanted, at=at)
                    right = [n for n, (s, kind, _) in made.items() if s == scope and wanted in {None, kind} and at != 0]
                    assert ids(await pages(rig.storage.scan_documents, "session", query)) == right
        assert await rig.storage.find_document("other", "doc", SessionScope()) is None

    @scenario
    async def test_history_and_fork_policy_belong_to_conversation_documents(self, rig: Rig) -> None:
        """A definition that contradicts itself is refused."""
        await rig.commit(conversation(rig.id()))
        doc = rig.id()
        await rig.refuse(document(doc, {}, history="latest"))
        await rig.refuse(document(doc, {}, scope=TaskScope(task_id=1), fork="current"))
        await rig.refuse(document(doc, {}, scope=ROOT, history="latest", fork="asOf"))
        await rig.refuse(document(doc, {}, scope=ConversationScope(conversation_id=2**33)))
