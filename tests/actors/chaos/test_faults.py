"""What goes wrong goes wrong as the seed says, on either side of the moment that counts, and as a real one would."""

import asyncio
from random import Random

import pytest
from perdure import MemoryStorage, ScriptedModel, VirtualClock
from perdure.actors.chaos.faults import Faults, FlakyModel, SimStorage
from perdure.actors.chaos.loop import SimLoop
from perdure.actors.chaos.trace import Committed, Trace
from perdure.actors.models import ModelRequest, UserMessage
from perdure.storage.errors import StorageClosed
from perdure.storage.faulty import InjectedFailure
from perdure.storage.records import Batch, ConversationRecord

CALM = Faults(storage_error=0, slow_write=0, slow_read=0, model_error=0)
BATCH = Batch(session="s", seq=1, last_id=1, writes=[ConversationRecord(id=1)])


def run(main, seed=1):
    """Run ``main(clock, dice)`` on a simulated loop."""
    clock, dice = VirtualClock(), Random(seed)
    loop = SimLoop(dice, clock)
    try:
        return loop.run_until_complete(main(clock, dice))
    finally:
        loop.close()


def writing(faults):
    """Give what writes one batch, and tells how that ended, whether it is stored, and how long it took in ms."""

    async def main(clock, dice):
        trace, begun = Trace(), clock.monotonic()
        storage = SimStorage(MemoryStorage(), trace, dice, faults, clock)
        await storage.open()
        try:
            await storage.write([BATCH])
            ended = "written"
        except InjectedFailure:
            ended = "failed"
            with pytest.raises(StorageClosed):
                await storage.write([BATCH])
        stored = await storage.session("s") is not None
        assert stored == bool(trace.of(Committed))
        return ended, stored, round((clock.monotonic() - begun) * 1_000)

    return main


def test_a_write_fails_before_or_after_it_is_stored():
    ends = {run(writing(Faults(storage_error=0.5, slow_write=0, slow_read=0)), seed)[:2] for seed in range(30)}
    assert ends == {("written", True), ("failed", True), ("failed", False)}


def test_a_write_takes_its_time():
    times = [run(writing(Faults(storage_error=0, slow_write=0.5, slow_ms=100)), seed)[2] for seed in range(30)]
    assert 0 in times
    assert 100 < max(times) <= 200


def test_a_calm_storage_neither_waits_nor_fails():
    async def main(clock, dice):
        storage = SimStorage(MemoryStorage(), Trace(), dice, Faults(storage_error=1, slow_write=1, slow_read=1), clock)
        storage.calm = True
        await storage.open()
        await storage.write([BATCH])
        return clock.monotonic()

    assert run(main) == 0


def test_reads_let_others_have_their_turns():
    async def main(clock, dice):
        storage = SimStorage(MemoryStorage(), Trace(), dice, Faults(slow_read=0.9), clock)
        await storage.open()
        turns, over = [], asyncio.Event()
        other = asyncio.ensure_future(have_turns(turns, over))
        await storage.session("s")
        over.set()
        await other
        return len(turns)

    async def have_turns(turns, over):
        while not over.is_set():
            turns.append("a turn")
            await asyncio.sleep(0)

    assert max(run(main, seed) for seed in range(20)) >= 2


def answering(faults):
    """Give what asks a model, and returns the message that its answer ends with."""

    async def main(clock, dice):
        model = FlakyModel(ScriptedModel(lambda _: "a long answer", clock=clock), dice, faults, clock)
        events = [event async for event in model.stream(ModelRequest(messages=[UserMessage(content="?")]))]
        return len(events), events[-1].message

    return main


def test_an_answer_fails_at_once_or_in_its_middle_for_good_or_for_now():
    ends = [run(answering(Faults(model_error=0.8, fatal=0.5)), seed) for seed in range(60)]
    failed = [(length, message.error.kind) for length, message in ends if message.stop_reason == "error"]
    assert {kind for _, kind in failed} == {"auth", "overloaded"}
    assert len({length for length, _ in failed}) > 3
    assert any(message.stop_reason == "stop" for _, message in ends)


def test_a_model_without_faults_is_the_model():
    assert run(answering(CALM))[1].stop_reason == "stop"
