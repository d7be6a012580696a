"""The machine's clock, with its own clocks replaced so that nothing waits."""

import asyncio
import time

import pytest
from perdure.actors.runtime import SystemClock
from perdure.actors.runtime import clock as clock_module
from perdure.actors.runtime.clock import LONGEST_NAP_S, TimerQueue


class FakeTime:
    def __init__(self):
        self.ms = 1_000_000

    def time_ns(self):
        return self.ms * 1_000_000

    monotonic = staticmethod(time.monotonic)


@pytest.fixture
def wall(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(clock_module, "time", fake)
    return fake


class FakeLoop:
    """Collects what would sleep."""

    def __init__(self):
        self.naps = []

    def call_later(self, delay, callback, *args):
        nap = Nap(delay, lambda: callback(*args))
        self.naps.append(nap)
        return nap

    @property
    def nap(self):
        return next(nap for nap in reversed(self.naps) if not nap.cancelled)


class Nap:
    def __init__(self, delay, wake):
        self.delay, self.wake, self.cancelled = delay, wake, False

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def loop(monkeypatch):
    fake = FakeLoop()
    monkeypatch.setattr(clock_module.asyncio, "get_running_loop", lambda: fake)
    return fake


def test_now_is_milliseconds_since_the_epoch():
    before = time.time()
    assert before * 1000 - 1 <= SystemClock().now() <= time.time() * 1000
    assert abs(SystemClock().monotonic() - time.monotonic()) < 1


def test_timers_run_in_the_order_of_their_times_then_of_their_calls(wall, loop):
    clock, ran = SystemClock(), []
    for when, name in [(1_000_300, "c"), (1_000_100, "a"), (1_000_300, "d"), (1_000_200, "b")]:
        clock.call_at(when, lambda name=name: ran.append(name))
    assert loop.nap.delay == pytest.approx(0.1)
    wall.ms = 1_000_100
    loop.nap.wake()
    assert ran == ["a"]
    assert loop.nap.delay == pytest.approx(0.1)
    wall.ms = 1_000_400
    loop.nap.wake()
    assert ran == ["a", "b", "c", "d"]


def test_a_deadline_in_the_past_is_due_at_once(wall, loop):
    SystemClock().call_at(5, lambda: None)
    assert loop.nap.delay == 0


def test_a_far_deadline_is_looked_at_every_minute_so_that_a_set_clock_is_noticed(wall, loop):
    clock, ran = SystemClock(), []
    clock.call_at(wall.ms + 3_600_000, lambda: ran.append("late"))
    assert loop.nap.delay == LONGEST_NAP_S
    wall.ms += 60_000
    loop.nap.wake()
    assert ran == []
    wall.ms += 10_000_000  # the machine slept
    loop.nap.wake()
    assert ran == ["late"]


def test_a_wall_clock_set_back_does_not_fire_timers_early(wall, loop):
    clock, ran = SystemClock(), []
    clock.call_at(wall.ms + 100, lambda: ran.append("x"))
    wall.ms -= 50_000
    loop.nap.wake()
    assert ran == []
    assert loop.nap.delay == pytest.approx(50.1)


def test_a_cancelled_timer_does_not_run_and_cancelling_twice_is_harmless(wall, loop):
    clock, ran = SystemClock(), []
    timer = clock.call_at(wall.ms + 100, lambda: ran.append("x"))
    clock.call_at(wall.ms + 100, lambda: ran.append("y"))
    timer.cancel()
    timer.cancel()
    wall.ms += 100
    loop.nap.wake()
    timer.cancel()
    assert ran == ["y"]


def test_an_error_in_a_timer_is_logged_and_the_next_one_runs(wall, loop, logs):
    clock, ran = SystemClock(), []
    clock.call_at(wall.ms, lambda: 1 / 0)
    clock.call_at(wall.ms, lambda: ran.append("next"))
    loop.nap.wake()
    assert ran == ["next"]
    assert [log["event"] for log in logs] == ["callback_failed"]


def test_a_timer_that_exits_the_program_is_let_through(wall, loop):
    SystemClock().call_at(wall.ms, lambda: exec("raise SystemExit(1)"))
    with pytest.raises(SystemExit):
        loop.nap.wake()


def test_a_timer_may_set_and_cancel_timers(wall, loop):
    clock, ran = SystemClock(), []
    clock.call_at(wall.ms, lambda: (later.cancel(), clock.call_at(wall.ms, lambda: ran.append("new"))))
    later = clock.call_at(wall.ms, lambda: ran.append("cancelled"))
    loop.nap.wake()
    assert ran == ["new"]


async def test_sleeps_end_and_can_be_cancelled():
    clock = SystemClock()
    began = clock.monotonic()
    await clock.sleep(0.002)
    await clock.sleep_until(clock.now() + 2)
    await clock.sleep(0)
    await clock.sleep_until(0)
    assert clock.monotonic() - began >= 0.002

    sleeper = asyncio.create_task(clock.sleep_until(clock.now() + 3_600_000))
    await asyncio.sleep(0)
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    assert len(clock._timers) == 0


async def test_a_short_timer_comes_before_a_long_one_that_was_set_first():
    clock, ran = SystemClock(), []
    clock.call_at(clock.now() + 3_600_000, lambda: ran.append("long"))
    clock.call_at(clock.now() + 1, lambda: ran.append("short"))
    while not ran:
        await clock.sleep(0.001)
    assert ran == ["short"]


def test_a_clock_may_serve_one_loop_after_another():
    clock = SystemClock()

    async def sleep():
        clock.call_at(clock.now() + 3_600_000, lambda: None)
        await clock.sleep_until(clock.now() + 1)

    asyncio.run(sleep())
    asyncio.run(sleep())


def test_cancelled_timers_do_not_pile_up():
    queue = TimerQueue()
    keep = [queue.add(number, lambda: None) for number in range(10)]
    for number in range(10_000):
        queue.add(1_000 + number, lambda: None).cancel()
    assert len(queue) == 10
    assert len(queue._heap) < 200
    for timer in keep:
        timer.cancel()
    assert queue.next_due() is None
