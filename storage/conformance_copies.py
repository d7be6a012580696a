"""Conformance: copies of documents, as forks make them."""

from typing import Any

from .conformance_rig import ROOT, Rig, Suite, base, conversation, delta, document, entry, scenario, set_n
from .records import ConversationScope, DocumentCopy, DocumentRetire


class CopyConformance(Suite):
    """What a copy takes over, from when, and from what."""

    def _copy(self, id: int, source: int, at: int | None = None, **fields: Any) -> DocumentCopy:
        """Make the copy of a rewindable document of conversation 1 into conversation 2."""
        defaults: dict[str, Any] = {
            "scope": ConversationScope(conversation_id=2),
            "history": "rewindable",
            "fork": "asOf",
        }
        return DocumentCopy(record=document(id, {}, **(defaults | fields)).record, source=source, at=at)

    async def _source(self, rig: Rig) -> int:
        """Commit a rewindable document with n = 1, 2, 3 at sequences 1, 2, 3, and a version of 7."""
        root = rig.id()
        doc = rig.id()
        rig.last_id = 20
        made = document(doc, {"n": 1}, scope=ROOT, history="rewindable", fork="asOf", version=7)
        await rig.commit(conversation(root), made)
        await rig.commit(delta(doc, ["s", ["n"], 2], version=7))
        await rig.commit(delta(doc, ["s", ["n"], 3], version=7))
        return doc

    @scenario
    async def test_a_copy_is_a_base_of_the_sources_value(self, rig: Rig) -> None:
        """DF-09: now or at a past point, with the stored version, and independent of the source from then on."""
        source = await self._source(rig)
        await rig.commit(
            conversation(10),
            self._copy(11, source),
            self._copy(12, source, 2, key=None, scope=ConversationScope(conversation_id=10)),
        )
        await rig.commit(base(source, {"n": 9}, version=8))
        await rig.commit(DocumentRetire(id=source))
        await rig.restart()
        for doc, n in ((11, 3), (12, 2)):
            found = await rig.storage.document("session", doc)
            assert found is not None
            assert (found.value, found.version, found.deltas_since_base) == ({"n": n}, 7, 0)
            assert found.record.created_at == 4
        await rig.commit(delta(11, ["s", ["n"], 4], version=7))
        assert await rig.value(11) == ({"n": 4}, 1)

    @scenario
    async def test_a_copy_reads_what_the_batches_before_it_left(self, rig: Rig) -> None:
        """Also when they are in the same group; what its own batch writes to the source is a contradiction."""
        source = await self._source(rig)
        await rig.write(
            rig.batch(delta(source, ["s", ["n"], 4], version=7)),
            rig.batch(self._copy(10, source)),
            rig.batch(delta(source, ["s", ["n"], 5], version=7), delta(10, ["s", ["m"], 1], version=7)),
        )
        assert await rig.value(10) == ({"n": 4, "m": 1}, 1)
        assert await rig.value(source) == ({"n": 5}, 4)
        for change in (set_n(source, 6), DocumentRetire(id=source)):
            await rig.refuse(self._copy(11, source, kind="doc"), change)

    @scenario
    async def test_a_copy_needs_a_live_source_of_its_own_kind(self, rig: Rig) -> None:
        """A source that is unknown, elsewhere, of another definition, or without a value at that point is refused."""
        source = await self._source(rig)
        await rig.commit(document(10, {"n": 0}), document(11, {}, scope=ROOT, kind="latest"))
        await rig.refuse(self._copy(12, 99))
        await rig.refuse(self._copy(12, 2**33 + source))
        await rig.refuse(self._copy(12, 10))
        await rig.refuse(self._copy(12, source, 0))
        wrongs: list[dict[str, Any]] = [
            {"kind": "x"},
            {"key": "x"},
            {"history": "latest", "fork": "current"},
            {"fork": "current"},
        ]
        for wrong in wrongs:
            await rig.refuse(self._copy(12, source, **wrong))
        await rig.refuse(self._copy(12, 11, 4, kind="latest", history="latest", fork="current"))
        await rig.commit(self._copy(13, 11, kind="latest", history="latest", fork="current"))
        await rig.commit(DocumentRetire(id=source))
        await rig.refuse(self._copy(12, source))
        await rig.refuse(self._copy(12, source, 6))
        await rig.refuse(self._copy(12, source, 7))
        await rig.commit(self._copy(12, source, 5))
        assert await rig.value(12) == ({"n": 3}, 0)

    @scenario
    async def test_a_copy_of_a_broken_source_is_refused(self, rig: Rig) -> None:
        """The batch rolls back for certain; nothing else is affected."""
        source = await self._source(rig)
        await rig.commit(delta(source, ["s", ["missing", "deep"], 1], version=7))
        await rig.refuse(entry(10), self._copy(11, source))
        assert await rig.storage.entry("session", 10) is None
        await rig.commit(self._copy(11, source, 3))
