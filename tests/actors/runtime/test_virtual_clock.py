"""Time under the test's control: by hand, or by jumping when nothing else can happen."""

import asyncio
import sqlite3
import threading
import time

import pytest
from perdure.actors.runtime import Actor, ActorSystem, VirtualClock


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def test_time_stands_still_until_it_is_moved():
    clock = VirtualClock(5_000)
    assert clock.now() == 5_000
    assert clock.monotonic() == 0
    clock.advance(1.5)
    assert clock.now() == 6_500
    assert clock.monotonic() == 1.5
    assert isinstance(clock.now(), int)


def test_advancing_runs_timers_in_order_each_at_its_own_time():
    clock, ran = VirtualClock(0), []
    for delay in (3, 1, 2, 1):
        clock.call_later(delay, lambda delay=delay: ran.append((delay, clock.monotonic())))
    clock.call_at(2_500, lambda: ran.append(("at", clock.now())))
    clock.advance(0.5)
    assert ran == []
    clock.advance(2.5)
    assert ran == [(1, 1.0), (1, 1.0), (2, 2.0), ("at", 2_500), (3, 3.0)]
    assert clock.monotonic() == 3.0


def test_a_timer_set_by_a_timer_runs_in_the_same_advance_if_it_falls_due():
    clock, ran = VirtualClock(0), []
    clock.call_later(1, lambda: clock.call_later(1, lambda: ran.append(clock.monotonic())))
    clock.advance(5)
    assert ran == [2.0]


def test_a_cancelled_timer_does_not_run():
    clock, ran = VirtualClock(0), []
    timer = clock.call_later(1, lambda: ran.append("x"))
    timer.cancel()
    assert clock.next_due() is None
    clock.advance(5)
    assert ran == []
    assert not clock.jump()


def test_the_next_timer_can_be_asked_for_and_jumped_to():
    clock = VirtualClock(1_000)
    clock.call_later(60, lambda: None)
    assert clock.next_due() == 61_000
    assert clock.jump()
    assert clock.now() == 61_000


def test_tiny_delays_keep_their_order_after_years():
    clock, ran = VirtualClock(), []
    clock.advance(3.15e8)
    clock.call_later(0.002, lambda: ran.append("b"))
    clock.call_later(0.001, lambda: ran.append("a"))
    clock.advance(0.0015)
    assert ran == ["a"]


async def test_a_sleeper_wakes_when_time_is_moved_and_a_due_timer_runs_in_the_next_turn():
    clock = VirtualClock()
    sleeper = asyncio.create_task(clock.sleep(60))
    await turns()
    assert not sleeper.done()
    clock.advance(60)
    await sleeper
    await clock.sleep_until(clock.now() - 1_000)
    await clock.sleep(0)


# -- autojump ------------------------------------------------------------------------------------------------------------


async def test_sleeping_for_years_takes_no_time_when_nothing_else_happens():
    clock = VirtualClock(autojump=True)
    began = time.monotonic()
    await clock.sleep(10 * 365 * 86_400)
    assert time.monotonic() - began < 5
    assert clock.monotonic() == pytest.approx(10 * 365 * 86_400)


async def test_sleepers_wake_in_the_order_of_their_times_and_see_them():
    clock, seen = VirtualClock(0, autojump=True), []

    async def tick(name, period, times):
        for _ in range(times):
            await clock.sleep(period)
            seen.append((clock.monotonic(), name))

    await asyncio.gather(tick("slow", 3, 2), tick("fast", 2, 3))
    assert seen == [(2.0, "fast"), (3.0, "slow"), (4.0, "fast"), (6.0, "slow"), (6.0, "fast")] or seen == [
        (2.0, "fast"),
        (3.0, "slow"),
        (4.0, "fast"),
        (6.0, "fast"),
        (6.0, "slow"),
    ]


async def test_the_clock_does_not_jump_while_tasks_have_something_to_do():
    clock = VirtualClock(autojump=True)
    sleeper = asyncio.create_task(clock.sleep(1))
    for _ in range(2_000):
        await asyncio.sleep(0)
    assert not sleeper.done()
    assert clock.monotonic() == 0
    await sleeper


async def test_what_a_thread_completes_in_time_comes_before_the_jump():
    clock = VirtualClock(autojump=True, quiet_s=0.2)
    loop, order = asyncio.get_running_loop(), []
    work = loop.create_future()

    def finish():
        order.append("thread")
        work.set_result(None)

    threading.Timer(0.01, loop.call_soon_threadsafe, (finish,)).start()
    clock.call_later(60, lambda: order.append("timer"))
    await work
    await clock.sleep(61)
    assert order == ["thread", "timer"]


async def test_a_held_clock_waits_for_a_sqlite_thread_however_long_it_takes():
    """As the storage actor does: the batch is in flight for longer than the clock's patience."""
    clock = VirtualClock(autojump=True, quiet_s=0.001)

    class Storage(Actor):
        async def on_receive(self, message):
            self.system.scheduler.io_in_flight += 1
            try:
                return await asyncio.to_thread(self.write)
            finally:
                self.system.scheduler.io_in_flight -= 1

        def write(self):
            with sqlite3.connect(":memory:", check_same_thread=False) as connection:
                connection.execute("create table t (x)")
                slow.wait(0.05)
                count = connection.execute("select count(*) from t").fetchone()
            connection.close()
            return count

    slow = threading.Event()
    async with ActorSystem(clock=clock) as system:
        fired = []
        clock.call_later(60, lambda: fired.append(clock.monotonic()))
        assert await system.spawn(Storage).ask("write", block=False, timeout=30) == (0,)
        assert fired == []
        await clock.sleep(61)
        assert fired == [60.0]


async def test_a_stopped_system_holds_the_clock_no_longer():
    clock = VirtualClock()
    for _ in range(3):
        async with ActorSystem(clock=clock) as system:
            system.scheduler.io_in_flight += 1
    assert clock._holds == []


async def test_io_that_is_ready_is_served_before_the_jump():
    clock = VirtualClock(autojump=True)
    order = []

    async def serve(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    clock.call_later(60, lambda: order.append("timer"))
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n")
    order.append(await reader.readline())
    await clock.sleep(61)
    assert order == [b"hello\n", "timer"]
    writer.close()
    server.close()
    await server.wait_closed()


def test_autojump_on_a_loop_without_a_selector_is_refused():
    class Foreign:
        def call_soon(self, *args):
            raise AssertionError

    with pytest.raises(RuntimeError, match="selector"):
        VirtualClock(autojump=True)._watch(Foreign())


def test_a_jumping_clock_may_serve_one_loop_after_another():
    clock = VirtualClock(0, autojump=True)
    for _ in range(2):
        asyncio.run(clock.sleep(10))
    assert clock.monotonic() == 20


async def test_two_jumping_clocks_may_share_a_loop():
    one, two = VirtualClock(autojump=True), VirtualClock(autojump=True)
    await asyncio.gather(one.sleep(5), two.sleep(7), one.sleep(9))
    assert one.monotonic() == 9
    assert two.monotonic() == 7
