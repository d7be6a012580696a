"""Messages between sessions whose actors, storage and process die at any moment: each is handled once, in order."""

import asyncio
import random

import perdure
import pytest
from perdure.actors.session import mail as session_mail
from perdure.storage.errors import StorageError, StorageRejected

from . import mail
from .observer import FaultyStore
from .world import until

SEED = 20_261_130
COUNT = 1_000
MAKERS = {
    "memory": lambda folder: perdure.MemoryStorage(),
    "sqlite": lambda folder: perdure.SqliteStorage(folder / "s.db", durability="process"),
    "jsonl": lambda folder: perdure.JsonlStorage(folder / "store"),
}


class Post:
    """One system at a time over a store that fails as told."""

    def __init__(self, inner=None):
        self.storage = FaultyStore(inner or perdure.MemoryStorage())
        threads = not isinstance(self.storage.inner, perdure.MemoryStorage) or isinstance(
            self.storage.inner, perdure.JsonlStorage
        )
        self.clock = perdure.VirtualClock(autojump=True, quiet_s=0.001 if threads else 0)

    def open(self):
        return mail.open_system(self.storage, clock=self.clock)

    async def begin(self, count, burst=3):
        async with self.open() as system:
            await mail.begin(system, count, burst)

    async def finish(self, count):
        """Leave the system in peace until the work is done, and check it."""
        async with self.open() as system:
            await mail.finished(system)
            await self.cleared()
        await self.check(count)

    async def cleared(self):
        """Return when no message is on its way."""
        for key in mail.SESSIONS:
            while await self.storage.live_messages(key):
                await self.clock.sleep(0.05)

    async def check(self, count):
        await self.storage.open()
        await mail.check_finished(self.storage, count)
        await self.storage.close()


def tasks_of(system):
    """The ids of the actors that run tasks now."""

    def walk(actors):
        for actor in actors:
            if actor["class"] == "TaskActor":
                yield actor["id"]
            yield from walk(actor["children"])

    return list(walk(system.inspect().actors))


# --- each commit of one exchange


def exchange_with(prepare):
    """Run a small exchange for each of its writes, prepared for that one. Gives how many there were."""

    async def run(write):
        post = Post()
        await post.begin(4, burst=2)
        before = post.storage.writes
        async with post.open() as system:
            prepare(post, system, before + write)
            await mail.finished(system)
            await post.cleared()
        await post.check(4)
        return post.storage.writes - before

    for write in range(1, 100):
        if asyncio.run(run(write)) < write:
            return write - 1
    raise AssertionError("the exchange has no end")


AWAY, REFUSED = StorageError("the disk is away"), StorageRejected("not this one", index=0)


@pytest.mark.parametrize(("when", "error"), [("before", AWAY), ("after", AWAY), ("before", REFUSED)])
def test_whichever_commit_of_sending_delivering_and_receiving_fails_every_message_is_handled_once(when, error):
    """B041, B062, B064: sender and receiver may come to know of different halves."""
    assert exchange_with(lambda post, system, write: post.storage.fail(write, when, error)) >= 6


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("victim", [*(f"session:{key}" for key in mail.SESSIONS), "storage", "sessions", "a task"])
def test_whoever_dies_at_a_commit_every_message_is_handled_once(victim, when):
    def prepare(post, system, write):
        async def kill():
            for one in tasks_of(system)[:1] if victim == "a task" else [victim]:
                system.kill(one)

        post.storage.call(write, when, kill)

    assert exchange_with(prepare) >= 6


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("backend", MAKERS)
def test_when_the_process_dies_at_a_commit_the_next_one_goes_on_with_the_exchange(tmp_path, backend, when):
    """B002, B062: nothing that was sent is forgotten, nothing that was handled is handled again."""

    async def run(write):
        folder = tmp_path / f"{write}"
        folder.mkdir()
        post = Post(MAKERS[backend](folder))
        await post.begin(4, burst=2)
        reached = post.storage.writes + write
        async with post.open() as system:
            finished = asyncio.ensure_future(mail.finished(system))
            post.storage.crash(reached, when)
            await until(lambda: post.storage._crashed or finished.done())
            system.kill("root")
            finished.cancel()
        await post.storage.open()
        await mail.check_intact(post.storage)
        await post.storage.close()
        await post.finish(4)
        return post.storage.writes >= reached

    write = 1
    while asyncio.run(run(write)):
        write += 1
        if write > 8:
            break
    assert write > 6


# --- a long exchange, and everything at random


@pytest.mark.timeout(120)
@pytest.mark.parametrize("room", [session_mail.MAX_INBOX, 20])
def test_a_thousand_messages_each_way_survive_random_deaths_of_tasks_sessions_storage_and_process(monkeypatch, room):
    """B002, B041, B044, B062, B064: also when inboxes overflow all the time."""
    monkeypatch.setattr(session_mail, "MAX_INBOX", room)
    dice = random.Random(f"{SEED}-{room}")

    async def live(post, deaths):
        """One life of the process: so many deaths inside, then its own."""
        over = asyncio.Event()
        async with post.open() as system:
            finished = asyncio.ensure_future(mail.finished(system))
            write = post.storage.writes
            for _ in range(deaths):
                write += dice.randint(1, 25)
                kill_at(post, system, write, dice)
            die_at(post, write + dice.randint(1, 25), over)
            over_waits = asyncio.ensure_future(over.wait())
            await asyncio.wait([finished, over_waits], return_when=asyncio.FIRST_COMPLETED)
            over_waits.cancel()
            if finished.done():
                finished.result()
                return True
            system.kill("root")
            finished.cancel()
        return False

    async def run():
        post = Post()
        await post.begin(COUNT)
        lives = 0
        while not await live(post, deaths=dice.randint(0, 4)):
            lives += 1
            await post.storage.open()
            await mail.check_intact(post.storage)
            await post.storage.close()
        await post.finish(COUNT)
        return lives

    assert asyncio.run(run()) >= 10


def kill_at(post, system, write, dice):
    """Have somebody die at a write."""
    victim = dice.choice(["a task", "a task", *(f"session:{key}" for key in mail.SESSIONS), "storage", "guard:ann"])
    tasks = dice.random()

    async def kill():
        running = tasks_of(system)
        chosen = [running[int(tasks * len(running))]] if victim == "a task" and running else [victim]
        for one in chosen:
            system.kill(one)

    post.storage.call(write, dice.choice(["before", "after"]), kill)


def die_at(post, write, over):
    async def die():
        over.set()
        await asyncio.sleep(0)

    post.storage.call(write, "after", die)
