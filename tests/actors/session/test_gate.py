"""The output gate: one watermark, and nobody waits for ever."""

import asyncio

import pytest
from perdure import SessionFailed
from perdure.actors.session.gate import Gate

from .support import turns


def failure():
    return SessionFailed("s")


def test_a_durable_commit_is_not_waited_for():
    with pytest.raises(StopIteration):
        Gate(3).wait(3).send(None)


def test_waits_end_when_their_commit_is_durable_and_not_before():
    async def main():
        gate, passed = Gate(0), []

        async def wait(seq):
            await gate.wait(seq)
            passed.append(seq)

        waits = [asyncio.create_task(wait(seq)) for seq in (3, 1, 2, 1)]
        await turns()
        gate.advance(1)
        await turns()
        assert passed == [1, 1]
        gate.advance(3)
        await asyncio.gather(*waits)
        assert sorted(passed) == [1, 1, 2, 3]
        assert gate._waiting == {}

    asyncio.run(main())


def test_a_failure_ends_waits_for_what_is_not_durable_now_and_later():
    async def main():
        gate = Gate(1)
        waits = [asyncio.create_task(gate.wait(seq)) for seq in (2, 2, 3)]
        await turns()
        gate.fail(failure)
        errors = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in errors] == [SessionFailed] * 3
        assert len({id(error) for error in errors}) == 3  # each its own: tracebacks do not mix
        with pytest.raises(SessionFailed):
            await gate.wait(2)
        await gate.wait(1)

    asyncio.run(main())


def test_a_cancelled_wait_disturbs_nobody():
    async def main():
        gate = Gate(0)
        first, second = (asyncio.create_task(gate.wait(1)) for _ in range(2))
        await turns()
        first.cancel()
        await turns()
        gate.advance(1)
        await second
        assert first.cancelled()

    asyncio.run(main())


def test_a_callback_is_called_at_once_or_when_its_commit_is_durable():
    async def main():
        gate, called = Gate(1), []
        gate.call(1, lambda: called.append(1))
        assert called == [1]
        for seq in (3, 2, 3):
            gate.call(seq, lambda seq=seq: called.append(seq))
        waits = asyncio.create_task(gate.wait(2))
        await turns()
        gate.advance(2)
        assert called == [1, 2]
        gate.advance(4)
        assert called == [1, 2, 3, 3]
        await waits

    asyncio.run(main())


def test_a_callback_is_never_called_when_the_gate_has_failed():
    gate, called = Gate(0), []
    gate.call(1, lambda: called.append(1))
    gate.fail(failure)
    gate.call(2, lambda: called.append(2))
    gate.advance(3)
    assert called == []
