import asyncio
import threading

import perdure
import pytest
from perdure.actors.agent.pump import Pump

from ..conversation.support import go, quiet


class Flushes:
    """A flush that notes the virtual times at which it begins, and may be held."""

    def __init__(self, clock):
        self.clock = clock
        self.began = []
        self.began_at = clock.now()
        self.free = asyncio.Event()
        self.free.set()
        self.ended = 0

    async def __call__(self):
        self.began.append(self.clock.now() - self.began_at)
        await self.free.wait()
        self.ended += 1


async def step(clock, ms):
    clock.advance(ms / 1_000)
    await quiet()


def test_the_first_flush_comes_at_once_and_the_next_an_interval_later():
    """TO-25."""

    async def main():
        clock = perdure.VirtualClock()
        flushes = Flushes(clock)
        pump = Pump(clock, 100, flushes)
        pump.touch()
        await quiet()
        assert flushes.began == [0]
        for _ in range(25):
            pump.touch()
            await step(clock, 10)
        assert flushes.began == [0, 100, 200]
        await pump.stop()

    go(main)


def test_a_delay_puts_off_the_first_flush():
    """GE-24: the first partial waits one interval."""

    async def main():
        clock = perdure.VirtualClock()
        flushes = Flushes(clock)
        pump = Pump(clock, 100, flushes, delay_ms=100)
        pump.touch()
        await step(clock, 99)
        assert flushes.began == []
        await step(clock, 1)
        assert flushes.began == [100]
        await pump.stop()

    go(main)


def test_nothing_is_flushed_that_nobody_touched():
    async def main():
        clock = perdure.VirtualClock()
        flushes = Flushes(clock)
        pump = Pump(clock, 100, flushes)
        await step(clock, 1_000)
        assert flushes.began == []
        pump.touch()
        await step(clock, 0)
        await step(clock, 1_000)
        assert flushes.began == [1_000]
        await pump.stop()

    go(main)


def test_one_flush_is_in_flight_at_a_time_and_the_interval_counts_from_its_end():
    """GE-24."""

    async def main():
        clock = perdure.VirtualClock()
        flushes = Flushes(clock)
        pump = Pump(clock, 100, flushes)
        flushes.free.clear()
        pump.touch()
        await quiet()
        for _ in range(5):
            pump.touch()
            await step(clock, 100)
        assert flushes.began == [0]
        flushes.free.set()
        await quiet()
        await step(clock, 99)
        assert flushes.began == [0]
        await step(clock, 1)
        assert flushes.began == [0, 600]
        await pump.stop()

    go(main)


def test_stopping_waits_for_the_flush_in_flight_and_drops_what_was_not_flushed():
    """GE-24: nothing stale lands after what follows."""

    async def main():
        clock = perdure.VirtualClock()
        flushes = Flushes(clock)
        pump = Pump(clock, 100, flushes)
        flushes.free.clear()
        pump.touch()
        await quiet()
        pump.touch()
        stopping = asyncio.ensure_future(pump.stop())
        await quiet()
        assert not stopping.done()
        flushes.free.set()
        await stopping
        await step(clock, 1_000)
        assert (len(flushes.began), flushes.ended) == (1, 1)

    go(main)


def test_stopping_does_not_wait_for_the_interval():
    async def main():
        clock = perdure.VirtualClock()
        flushes = Flushes(clock)
        pump = Pump(clock, 100, flushes)
        pump.touch()
        await quiet()
        pump.touch()
        await quiet()
        await pump.stop()
        assert clock.next_due() is None
        assert len(flushes.began) == 1

    go(main)


def test_a_refused_flush_ends_the_pump_quietly():
    async def main():
        async def refused():
            raise perdure.InvocationEnded

        pump = Pump(perdure.VirtualClock(), 100, refused)
        pump.touch()
        await quiet()
        assert pump._task.done()
        await pump.stop()

    go(main)


def test_a_flush_that_breaks_ends_the_pump_and_not_what_is_pumped(capsys):
    async def main():
        async def broken():
            raise TypeError("not JSON")

        pump = Pump(perdure.VirtualClock(), 100, broken)
        pump.touch()
        await quiet()
        assert pump._task.exception() is None
        await pump.stop()

    go(main)
    assert "progress_failed" in capsys.readouterr().out


@pytest.mark.timeout(5)
def test_a_touch_from_another_thread_wakes_the_loop():
    async def main():
        flushed = asyncio.Event()

        async def flush():
            flushed.set()

        pump = Pump(perdure.SystemClock(), 100, flush)
        await quiet()
        thread = threading.Thread(target=pump.touch)
        thread.start()
        await flushed.wait()
        thread.join()
        await pump.stop()

    go(main)
