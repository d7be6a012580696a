"""The same promises on uvloop, where it is installed."""

import asyncio
import threading

import pytest
from perdure.actors.runtime import (
    Actor,
    ActorCrashed,
    ActorSystem,
    ChildSpec,
    Supervisor,
    SystemClock,
    VirtualClock,
    WouldBlock,
)

uvloop = pytest.importorskip("uvloop")


class Worker(Actor):
    async def on_receive(self, message):
        await asyncio.sleep(0)
        if isinstance(message, BaseException):
            raise message
        return message


def run(coro):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coro)


def test_actors_supervisors_threads_and_clocks_work():
    class Watching(Supervisor):
        def on_child_started(self, child_id, ref):
            started.put_nowait(ref)

    started = asyncio.Queue()

    async def main():
        async with ActorSystem() as system:
            ref = system.spawn(Worker)
            assert await ref.ask(1, block=False) == 1
            assert await asyncio.to_thread(ref.ask, 2) == 2
            with pytest.raises(WouldBlock):
                ref.ask(3)
            with pytest.raises(ActorCrashed):
                await ref.ask(SystemExit(1), block=False)
            system.spawn(Watching, children=[ChildSpec("c", Worker)])
            first = await started.get()
            first.tell(ValueError("bad"))
            second = await started.get()
            assert second is not first
            assert system.ref("c") is second
            await SystemClock().sleep(0.001)
            clock = VirtualClock()
            sleeper = asyncio.create_task(clock.sleep(60))
            await asyncio.sleep(0)
            clock.advance(60)
            await sleeper
            with pytest.raises(RuntimeError, match="selector"):
                await VirtualClock(autojump=True).sleep(1)

    run(main())


def test_the_end_of_the_loop_stops_the_system_and_answers_threads():
    stopped = []

    class Last(Worker):
        def on_stop(self):
            stopped.append(self.id)

    async def main():
        system = ActorSystem()
        return system.spawn(Last, id="last")

    ref = run(main())
    assert stopped == ["last"]
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ref.ask(1, block=False)))
    thread.start()
    thread.join()
    assert answers[0].done()
