import asyncio

import perdure
import pytest
from perdure.actors.chaos.recording import EffectRecorder, RecordingStorage
from perdure.actors.chaos.trace import Began, Committed, Deleted, Ended, Trace
from perdure.testing import FaultyStorage

from .test_backends import batch


def test_what_becomes_durable_is_written_down_and_what_fails_before_is_not():
    async def main():
        trace = Trace()
        storage = RecordingStorage(perdure.MemoryStorage(), trace)
        await storage.open()
        await storage.write([batch(1)])
        storage.fail(2, "before")
        with pytest.raises(perdure.StorageError):
            await storage.write([batch(2)])
        assert [event.batch.seq for event in trace.of(Committed)] == [1]
        await storage.close()
        await storage.open()
        storage.fail(3, "after")
        with pytest.raises(perdure.StorageError):
            await storage.write([batch(2)])
        assert [event.batch.seq for event in trace.of(Committed)] == [1, 2]
        await storage.close()
        await storage.open()
        assert await storage.delete_session("a")
        assert trace.events[-1] == Deleted(session="a")

    asyncio.run(main())


def test_a_write_is_written_down_even_if_its_caller_is_gone():
    async def main():
        trace = Trace()
        slow = FaultyStorage(perdure.MemoryStorage())
        storage = RecordingStorage(slow, trace)
        await storage.open()
        released = slow.hold(1)
        caller = asyncio.ensure_future(storage.write([batch(1)]))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert trace.of(Committed) == []
        released.set()
        await storage.drained()
        await asyncio.sleep(0)
        assert [event.batch.seq for event in trace.of(Committed)] == [1]

    asyncio.run(main())


@pytest.mark.parametrize(("error", "sides"), [(None, ["before", "after"]), (ValueError, ["before", "after"])])
def test_an_effect_has_a_beginning_and_an_end_and_a_door_on_both_sides(error, sides):
    async def main():
        trace, passed = Trace(), []

        async def door(side, effect):
            passed.append((side, len(trace.events)))

        recorder = EffectRecorder(trace, door)
        try:
            async with recorder.outside("bank", "a", 9):
                if error is not None:
                    raise error
        except ValueError:
            pass
        assert [side for side, _ in passed] == sides
        assert [length for _, length in passed] == [0, 2], "before it is written down, and after its end is"
        assert trace.events == [
            Began(number=1, kind="task", name="bank", session="a", task=9),
            Ended(number=1, raised=error and error.__name__),
        ]

    asyncio.run(main())


def test_an_effect_that_is_cancelled_has_no_door_behind_it():
    async def main():
        trace, passed = Trace(), []

        async def door(side, effect):
            passed.append(side)

        async def work():
            async with EffectRecorder(trace, door).outside("bank", "a", 9):
                await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert passed == ["before"]
        assert trace.of(Ended) == [Ended(number=1, raised="CancelledError")]

    asyncio.run(main())
