"""A loop in a thread of its own: a bridge for synchronous hosts that cannot hold their process up."""

import asyncio
import contextlib
import threading

import pytest
from perdure.actors.runtime import Actor, ActorSystem, AskTimeout, BackgroundThread, SystemStopped, WouldBlock
from perdure.chord.errors import PerdureError


class Echo(Actor):
    def on_receive(self, message):
        return message


async def spawn(system, *args, **options):
    return system.spawn(*args, **options)


def test_a_synchronous_host_calls_into_the_loop_and_asks_by_blocking():
    with ActorSystem.in_background_thread(ActorSystem) as background:
        ref = background.call(spawn, Echo, id="e")
        assert ref.ask("hello") == "hello"
        assert background.call(lambda system: system.ref("e")) is ref
        assert background.call(ActorSystem.tree)[0]["id"] == "e"
    assert not ref.is_alive()


def test_what_the_function_raises_is_raised_to_the_caller():
    async def fail(system):
        raise PerdureError("no")

    with ActorSystem.in_background_thread(ActorSystem) as background:
        with pytest.raises(PerdureError, match="no"):
            background.call(fail)
        with pytest.raises(ZeroDivisionError):
            background.call(lambda system: 1 / 0)


def test_many_threads_may_call_at_the_same_time():
    async def add(system, number):
        await asyncio.sleep(0)
        return number + 1

    results = []
    with ActorSystem.in_background_thread(ActorSystem) as background:
        threads = [
            threading.Thread(target=lambda number=number: results.append(background.call(add, number)))
            for number in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == list(range(1, 21))


def test_a_failure_to_open_is_raised_where_it_was_opened():
    @contextlib.asynccontextmanager
    async def broken():
        raise PerdureError("in use")
        yield

    with pytest.raises(PerdureError, match="in use"):
        BackgroundThread(broken)
    with pytest.raises(TypeError):
        BackgroundThread(lambda: 3)


def test_a_failure_to_close_is_raised_by_close_once():
    @contextlib.asynccontextmanager
    async def dirty():
        yield "value"
        raise PerdureError("left dirty")

    background = BackgroundThread(dirty)
    assert background.value == "value"
    with pytest.raises(PerdureError, match="left dirty"):
        background.close()
    background.close()


def test_a_closed_bridge_says_so():
    background = BackgroundThread(ActorSystem)
    background.close()
    background.close()
    with pytest.raises(SystemStopped):
        background.call(spawn, Echo)


def test_a_call_that_is_under_way_when_the_bridge_closes_is_told():
    started = threading.Event()

    async def forever(system):
        started.set()
        await asyncio.Event().wait()

    background = BackgroundThread(ActorSystem)
    outcome = []

    def call():
        try:
            background.call(forever)
        except SystemStopped as exc:
            outcome.append(exc)

    caller = threading.Thread(target=call)
    caller.start()
    started.wait()
    background.close()
    caller.join()
    assert len(outcome) == 1


def test_closing_within_a_time_that_is_too_short_goes_on():
    gate = threading.Event()

    @contextlib.asynccontextmanager
    async def slow():
        yield
        await asyncio.to_thread(gate.wait)

    background = BackgroundThread(slow)
    with pytest.raises(AskTimeout):
        background.close(0.01)
    gate.set()
    background.close()


async def test_on_a_thread_with_a_loop_it_is_refused():
    with pytest.raises(WouldBlock):
        BackgroundThread(ActorSystem)
    background = await asyncio.to_thread(BackgroundThread, ActorSystem)
    with pytest.raises(WouldBlock):
        background.call(spawn, Echo)
    with pytest.raises(WouldBlock):
        background.close()
    await asyncio.to_thread(background.close)


HEAD = """
import asyncio, contextlib, sys, threading, time
from perdure.actors.runtime import Actor, ActorSystem
class Worker(Actor):
    async def on_receive(self, message):
        await asyncio.Event().wait()
    def on_stop(self):
        print("stopped", flush=True)
@contextlib.asynccontextmanager
async def with_thread():
    # as aiosqlite does: a thread that ends only when it is told to
    gate = threading.Event()
    threading.Thread(target=gate.wait).start()
    try:
        async with ActorSystem() as system:
            yield system
    finally:
        gate.set()
        print("closed", flush=True)
background = ActorSystem.in_background_thread(with_thread)
ref = background.call(lambda system: system.spawn(Worker))
"""
READY = "print('ready')\n"
SCRIPTS = {
    "forgets to close": READY,
    "raises": READY + "raise ValueError('x')",
    "exits": READY + "sys.exit(3)",
    "is interrupted": READY + "time.sleep(60)",
    "leaves a handler running": "ref.tell(1)\n" + READY,
    "is interrupted in a call": READY + "background.call(lambda system: asyncio.sleep(60))",
}


@pytest.fixture(scope="module")
def hosts(run_scripts):
    return run_scripts({name: HEAD + script for name, script in SCRIPTS.items()})


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_host_ends_within_five_seconds_and_closes_though_it(name, hosts):
    assert hosts[name].seconds < 5
    assert "closed" in hosts[name].output
    assert "Fatal" not in hosts[name].output
