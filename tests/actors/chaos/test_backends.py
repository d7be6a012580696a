import asyncio

import perdure
import pytest
from perdure.actors.chaos.backends import make_backend
from perdure.storage.records import Batch


def batch(seq):
    record = perdure.ConversationRecord(id=seq)
    return Batch(session="a", seq=seq, last_id=seq, writes=[record])


@pytest.mark.parametrize("name", ["memory", "sqlite", "jsonl"])
def test_a_crash_leaves_what_was_written_before_it(name, tmp_path):
    async def main():
        clock = perdure.VirtualClock()
        backend = make_backend(name, tmp_path / "run")
        first = backend.store(clock)
        await first.open()
        await first.write([batch(1)])
        backend.crash()
        if name != "memory":  # what the remains of the old process do reaches nobody
            await first.write([batch(2)])
        await first.close()
        second = backend.store(clock)
        await second.open()
        assert (await second.session("a")).seq == 1
        assert (await second.session("a")).created_at == clock.now()
        await second.write([batch(2)])
        await second.close()

    asyncio.run(main())
