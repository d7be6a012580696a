"""One ready queue per loop: fair among actors, fair to the loop, and deaf to nobody."""

import asyncio
import contextvars
import threading
import time

import pytest
from perdure.actors.runtime import Actor, ActorDead, ActorSystem
from perdure.actors.runtime import scheduler as scheduler_module
from perdure.actors.runtime.scheduler import Scheduler


class Echo(Actor):
    def on_receive(self, message):
        return message


class Spinner(Actor):
    """Keeps itself busy until it is stopped."""

    def __init__(self):
        self.rounds = 0

    def on_receive(self, message):
        self.rounds += 1
        self.actor_ref.tell(message)


class Item:
    """A ready thing of the test's own."""

    def __init__(self, name, done, then=None):
        self.context = contextvars.copy_context()
        self.name = name
        self.done = done
        self.then = then

    def activate(self):
        self.done.append(self.name)
        if self.then is not None:
            self.then()

    def bury(self):
        self.done.append(f"buried {self.name}")


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_ready_things_run_in_order_in_one_turn():
    scheduler, done = Scheduler(asyncio.get_running_loop()), []
    for name in "abc":
        scheduler.wake(Item(name, done))
    assert done == []
    await asyncio.sleep(0)
    assert done == ["a", "b", "c"]


async def test_what_becomes_ready_meanwhile_runs_in_the_same_turn():
    scheduler, done = Scheduler(asyncio.get_running_loop()), []
    scheduler.wake(Item("a", done, lambda: scheduler.wake(Item("b", done))))
    await asyncio.sleep(0)
    assert done == ["a", "b"]


async def test_an_actor_that_is_never_idle_starves_neither_the_loop_nor_other_actors():
    async with ActorSystem() as system:
        spinner, echo = system.spawn(Spinner), system.spawn(Echo)
        spinner.tell("spin")
        for number in range(50):
            await asyncio.sleep(0)
            assert await echo.ask(number, block=False) == number
        assert spinner._actor_weakref().rounds > 50
        await spinner.stop(block=False)


async def test_a_flooded_actor_gives_way_after_a_batch():
    order = []

    class Noted(Actor):
        def on_receive(self, message):
            order.append((self.id, message))

    async with ActorSystem() as system:
        flooded, other = system.spawn(Noted, id="flooded"), system.spawn(Noted, id="other")
        await turns()
        for number in range(1_000):
            flooded.tell(number)
        other.tell("x")
        await flooded.ask("end", block=False)
        assert order.index(("other", "x")) <= 64


async def test_a_task_that_asks_and_asks_lets_timers_and_other_tasks_run():
    async with ActorSystem() as system:
        echo = system.spawn(Echo)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        began = time.perf_counter()
        while ticks < 5:
            await echo.ask(1, block=False)
            assert time.perf_counter() - began < 10
        ticker.cancel()


async def test_an_awaited_ask_is_answered_without_a_turn_of_the_loop():
    async with ActorSystem() as system:
        echo = system.spawn(Echo)
        await turns()
        turned = []
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(turned.append, 1)
        assert await echo.ask("at once", block=False) == "at once"
        assert turned == []


async def test_an_awaited_ask_inside_a_handler_does_not_run_the_own_actor_again():
    class Asker(Actor):
        def __init__(self, echo):
            self.echo = echo
            self.inside = False

        async def on_receive(self, message):
            assert not self.inside
            self.inside = True
            self.actor_ref.actor_inbox.scheduler.wake(self.actor_ref.actor_inbox)  # a wake-up too many
            answer = await self.echo.ask(message, block=False)
            self.inside = False
            return answer

    async with ActorSystem() as system:
        asker = system.spawn(Asker, system.spawn(Echo))
        asks = [asker.ask(number, block=False) for number in range(100)]
        assert [await ask for ask in asks] == list(range(100))


async def test_posted_callbacks_run_on_the_loops_thread_from_any_thread():
    scheduler = Scheduler(asyncio.get_running_loop())
    ran = asyncio.get_running_loop().create_future()
    context = contextvars.copy_context()
    await asyncio.to_thread(scheduler.post, context, lambda: ran.set_result(threading.get_ident()))
    assert await ran == threading.get_ident()


async def test_a_fault_of_the_runtime_itself_does_not_freeze_the_other_actors():
    reported = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    scheduler, done = Scheduler(loop), []
    scheduler.wake(Item("faulty", done, lambda: 1 / 0))
    scheduler.wake(Item("next", done))
    await turns()
    scheduler.wake(Item("later", done))
    await turns()
    assert done == ["faulty", "next", "later"]
    assert isinstance(reported[0], ZeroDivisionError)


# -- the gap for threads that work for the loop ----------------------------------------------------------------------------


class CountedTime:
    def __init__(self):
        self.gaps = []
        self.cpu_s = 0.0

    perf_counter = staticmethod(time.perf_counter)

    def thread_time(self):
        self.cpu_s += 0.0015
        return self.cpu_s

    def sleep(self, seconds):
        self.gaps.append(seconds)


@pytest.fixture
def counted(monkeypatch):
    counted = CountedTime()
    monkeypatch.setattr(scheduler_module, "time", counted)
    return counted


async def test_a_busy_loop_steps_aside_only_while_work_is_in_flight(counted):
    async with ActorSystem() as system:
        spinner = system.spawn(Spinner)
        spinner.tell("spin")
        await turns(20)
        assert counted.gaps == []

        system.scheduler.io_in_flight += 1
        await turns(20)
        gaps = len(counted.gaps)
        assert gaps >= 5
        assert set(counted.gaps) == {0.0002}

        system.scheduler.io_in_flight -= 1
        await turns(20)
        assert len(counted.gaps) == gaps
        await spinner.stop(block=False)


async def test_a_loop_that_uses_little_time_does_not_step_aside(counted):
    counted.thread_time = lambda: 0.001
    async with ActorSystem() as system:
        echo = system.spawn(Echo)
        system.scheduler.io_in_flight += 1
        for number in range(20):
            await echo.ask(number, block=False)
            await asyncio.sleep(0)
        assert counted.gaps == []


# -- the end of the loop -----------------------------------------------------------------------------------------------------


async def test_what_is_woken_after_the_end_is_buried():
    scheduler, done = Scheduler(asyncio.get_running_loop()), []
    scheduler.wake(Item("waiting", done))
    scheduler.close()
    scheduler.wake(Item("late", done))
    await asyncio.to_thread(scheduler.wake, Item("from afar", done))
    assert done[:3] == ["buried waiting", "buried late", "buried from afar"]


@pytest.mark.parametrize("first", ["here", "from afar"])
def test_what_is_woken_on_a_closed_loop_is_buried_by_any_thread(first):
    loop = asyncio.new_event_loop()
    done, scheduler = [], Scheduler(loop)
    loop.close()
    for name in (first, "here", "from afar"):
        if name == "here":
            scheduler.wake(Item(name, done))
        else:
            thread = threading.Thread(target=scheduler.wake, args=(Item(name, done),))
            thread.start()
            thread.join()
    assert done == [f"buried {first}", "buried here", "buried from afar"]


def test_refs_answer_after_the_loop_was_closed_under_them():
    """Not by asyncio.run, which stops the system first, but by a host that just closes its loop."""
    loop = asyncio.new_event_loop()

    async def make():
        system = ActorSystem()
        refs = [system.spawn(Echo) for _ in range(3)]
        await refs[0].ask(1, block=False)
        return system, refs

    system, (one, two, three) = loop.run_until_complete(make())
    event, ended = one.actor_stopped, one.when_ended()
    loop.close()

    answers = []

    def ask():
        for ref in (one, two):
            try:
                ref.ask("x", timeout=5)
            except ActorDead as exc:
                answers.append(exc)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert len(answers) == 2
    assert not one.is_alive()
    assert event.is_set()
    assert ended.get().kind == "killed"
    assert three.ask("x", block=False).done()
    assert system.stopped
