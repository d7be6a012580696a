"""A disk that is really full: typed errors, nothing half-written, and going on afterwards in the same process."""

import asyncio

import pytest
from perdure.storage.conformance_rig import base, conversation, document, entry, fails, ids, pages
from perdure.storage.contract import EntryQuery
from perdure.storage.errors import StorageClosed, StorageFull
from perdure.storage.records import EntryRecord

from .jsonl_support import catch_up, opened
from .support import disk


async def entries(rig):
    return ids(await pages(rig.storage.scan_entries, "s", EntryQuery(conversation_id=1, order="ascending"), limit=999))


async def fill(rig, size):
    """Commit until the disk is full; give the ids that were acknowledged."""
    acknowledged = []
    while True:
        big = EntryRecord(id=rig.id(), conversation_id=1, kind="note", data="x" * size)
        try:
            await rig.commit(big, base(2, {"n": big.id, "x": "y" * size}))
        except StorageFull:
            return acknowledged
        acknowledged.append(big.id)


@pytest.mark.parametrize("fsync", [False, True])
def test_a_full_disk_is_a_typed_error_and_the_same_store_goes_on_when_there_is_room(tmp_path, fsync):  # B013, P11
    async def main(folder):
        filler = folder / "filler"
        filler.write_bytes(bytes(300_000))
        async with opened(folder / "store", fsync=fsync) as rig:
            await rig.commit(conversation(rig.id()), document(rig.id(), {"n": 0}))
            kept = await fill(rig, 20_000)
            assert len(kept) > 3
            await fails(StorageClosed, rig.storage.write([rig.batch(entry(rig.id()))]))
            assert await entries(rig) == kept, "a store that is full can still be read"
            for size in (5_000, 100):
                await rig.restart()
                await catch_up(rig)
                assert await entries(rig) == kept
                assert (await rig.value(2))[0]["n"] == kept[-1]
                kept += await fill(rig, size)
            filler.unlink()
            await rig.restart()
            await catch_up(rig)
            await rig.commit(entry(rig.id()))
            assert await entries(rig) == [*kept, rig.last_id]

    with disk(tmp_path / "disk", 2**20) as folder:
        asyncio.run(main(folder))
