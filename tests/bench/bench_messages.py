"""Messages, lives and memory of the actor runtime beside ``pykka.ThreadingActor``, measured in the same run.

    python tests/bench/bench_messages.py

Each rate is the best of many short rounds, the two runtimes taking turns, so that a busy machine disturbs both alike
and as little as it can. The last column says what is wanted.
"""

import asyncio
import gc
import threading
import time
import tracemalloc

import pykka
from perdure.actors.runtime import Actor, ActorSystem

ROUNDS = 11
TELLS = 10_000
ASKS = 2_000
ACTORS = 20_000
THREAD_ACTORS = 500


class ThreadPlayer(pykka.ThreadingActor):
    def __init__(self, done):
        super().__init__()
        self.done = done
        self.other = None

    def on_receive(self, message):
        if message == 0:
            self.done.set()
        else:
            self.other.tell(message - 1)


class ThreadEcho(pykka.ThreadingActor):
    def on_receive(self, message):
        return message


class ThreadAsker(pykka.ThreadingActor):
    def __init__(self, echo):
        super().__init__()
        self.echo = echo

    def on_receive(self, message):
        for _ in range(message):
            self.echo.ask(1)


class Player(Actor):
    def __init__(self, done):
        self.done = done
        self.other = None

    def on_receive(self, message):
        if message == 0:
            self.done.set_result(None)
        else:
            self.other.tell(message - 1)


class Echo(Actor):
    def on_receive(self, message):
        return message


class AsyncEcho(Actor):
    async def on_receive(self, message):
        return message


class Asker(Actor):
    def __init__(self, echo):
        self.echo = echo

    async def on_receive(self, message):
        for _ in range(message):
            await self.echo.ask(1, block=False)


def thread_tells():
    done = threading.Event()
    one, two = (ThreadPlayer.start(done) for _ in range(2))
    one._actor_weakref().other, two._actor_weakref().other = two, one
    began = time.perf_counter()
    one.tell(TELLS)
    done.wait()
    rate = TELLS / (time.perf_counter() - began)
    pykka.ActorRegistry.stop_all()
    return rate


async def loop_tells(system):
    done = asyncio.get_running_loop().create_future()
    one, two = (system.spawn(Player, done) for _ in range(2))
    one._actor_weakref().other, two._actor_weakref().other = two, one
    began = time.perf_counter()
    one.tell(TELLS)
    await done
    return TELLS / (time.perf_counter() - began)


def thread_asks():
    asker = ThreadAsker.start(ThreadEcho.start())
    began = time.perf_counter()
    asker.ask(ASKS)
    rate = ASKS / (time.perf_counter() - began)
    pykka.ActorRegistry.stop_all()
    return rate


async def loop_asks(system, echo=Echo):
    asker = system.spawn(Asker, system.spawn(echo))
    began = time.perf_counter()
    await asker.ask(ASKS, block=False)
    return ASKS / (time.perf_counter() - began)


async def loop_asks_async(system):
    return await loop_asks(system, AsyncEcho)


async def loop_asks_100(system):
    echo = system.spawn(Echo)
    began = time.perf_counter()
    for _ in range(ASKS // 100):
        for future in [echo.ask(1, block=False) for _ in range(100)]:
            await future
    return ASKS / (time.perf_counter() - began)


def thread_asks_from_main():
    echo = ThreadEcho.start()
    began = time.perf_counter()
    for _ in range(ASKS):
        echo.ask(1)
    rate = ASKS / (time.perf_counter() - began)
    pykka.ActorRegistry.stop_all()
    return rate


async def loop_asks_from_thread(system):
    echo = system.spawn(Echo)

    def ask_all():
        began = time.perf_counter()
        for _ in range(ASKS // 2):
            echo.ask(1)
        return ASKS // 2 / (time.perf_counter() - began)

    return await asyncio.to_thread(ask_all)


def thread_lives():
    began = time.perf_counter()
    refs = [ThreadEcho.start() for _ in range(THREAD_ACTORS)]
    for future in [ref.stop(block=False) for ref in refs]:
        future.get()
    return THREAD_ACTORS / (time.perf_counter() - began)


async def loop_lives(system):
    began = time.perf_counter()
    refs = [system.spawn(Echo) for _ in range(ACTORS)]
    created = time.perf_counter() - began
    for future in [ref.stop(block=False) for ref in refs]:
        await future
    total = time.perf_counter() - began
    loop_lives.seconds.append((created, total))
    return ACTORS / total


loop_lives.seconds = []


async def bytes_per_actor():
    async with ActorSystem() as system:
        warm = [system.spawn(Echo) for _ in range(200)]
        await warm[-1].ask(1, block=False)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        refs = [system.spawn(Echo) for _ in range(5_000)]
        await refs[-1].ask(1, block=False)
        gc.collect()
        size = (tracemalloc.get_traced_memory()[0] - before) / len(refs)
        tracemalloc.stop()
        return size


def rate_of(measure):
    async def main():
        async with ActorSystem() as system:
            return await measure(system)

    return asyncio.run(main())


def compare(name, thread_measure, loop_measure, wanted=""):
    pairs = [(thread_measure(), rate_of(loop_measure)) for _ in range(ROUNDS)]
    theirs, ours = (max(column) for column in zip(*pairs, strict=True))
    print(f"{name:<44}{theirs:>12,.0f}{ours:>12,.0f}{ours / theirs:>8.1f}x  {wanted}")


def main():
    print(f"{'per second':<44}{'Threading':>12}{'perdure':>12}{'ratio':>9}  wanted")
    compare("tells between two actors", thread_tells, loop_tells, ">= 5x")
    compare("asks from actor to actor, one at a time", thread_asks, loop_asks, ">= 3x")
    compare("  ... answered by an async handler", thread_asks, loop_asks_async)
    compare("  ... 100 in flight", thread_asks, loop_asks_100)
    compare("asks from another thread, blocking", thread_asks_from_main, loop_asks_from_thread)
    compare("actors created and stopped", thread_lives, loop_lives)
    created, total = (min(column) for column in zip(*loop_lives.seconds, strict=True))
    print(f"\n{ACTORS:,} actors: created in {created:.2f} s, created and stopped in {total:.2f} s  (wanted: < 1 s)")
    print(f"an idle actor: {asyncio.run(bytes_per_actor()):,.0f} bytes  (wanted: < 2,000)")


if __name__ == "__main__":
    main()
