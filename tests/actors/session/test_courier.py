"""Mail between sessions: in order, once, past receivers that are away, and without anybody waiting in a circle."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from perdure import (
    Extension,
    MemoryStorage,
    MessageQuery,
    OutboxFull,
    Phase,
    Settings,
    StorageError,
    System,
    Task,
    TaskRef,
    VirtualClock,
)
from perdure.actors.session import courier as couriers
from perdure.actors.session import mail as session_mail
from perdure.storage.faulty import FaultyStorage
from structlog.testing import capture_logs


class Box(Task[None, list], name="test.box"):
    """Collects what it is sent; gives it as its result when told to end. ``take`` says how many it receives at once."""

    take = None

    class Listen(Phase):
        got: list = []

    async def listen(self, run, state):
        async with run.commit() as tx:
            got = [*state.got, *(letter.body for letter in await tx.receive(limit=self.take))]
            if "end" in got:
                tx.complete(got[:-1])
            else:
                await tx.wait(then=self.Listen(got=got), mail=True)


class Away(FaultyStorage):
    """A store that cannot give the tasks of some sessions."""

    def __init__(self, inner=None):
        super().__init__(inner or MemoryStorage())
        self.away = set()
        self.asked = 0

    async def live_tasks(self, session):
        if session in self.away:
            self.asked += 1
            raise StorageError(f"the tasks of {session} cannot be read")
        return await super().live_tasks(session)


@asynccontextmanager
async def opened(storage, clock=None, settings=None):
    extension, clock = Extension(name="test", tasks=[Box]), clock or VirtualClock(autojump=True)
    async with System.open(storage, extensions=[extension], clock=clock, settings=settings) as system:
        yield system


async def box(system, key, kind=Box):
    async with (await (await system.session(key)).root()).commit() as tx:
        return await tx.create_task(kind)


def in_system(system, task):
    """The handle on a task in the next system."""
    return TaskRef(system.services, task.session, task.id)


async def send(system, key, *letters):
    """Send from a session, in one commit: targets and bodies by turns."""
    session = await system.session(key)
    await session.root()
    async with session.commit() as tx:
        for target, body in zip(letters[::2], letters[1::2], strict=True):
            await tx.tell(target, body)
    return session


async def outbox(system, key):
    return (await (await system.session(key)).messages(MessageQuery(status="outgoing"))).items


async def emptied(system, key):
    """Return when a session's outbox is empty."""
    while await outbox(system, key):
        await system._actors.clock.sleep(0.01)


def courier_of(system, key):
    return system._actors.ref(f"session:{key}")._incarnation.actor._courier


def run(test):
    def sync():
        asyncio.run(test())

    sync.__name__, sync.__doc__ = test.__name__, test.__doc__
    return sync


@run
async def test_messages_arrive_in_the_order_in_which_they_were_sent_and_leave_nothing_behind():
    async with opened(storage := MemoryStorage()) as system:
        one, two = await box(system, "there"), await box(system, "there")
        for n in range(0, 3 * couriers.BUNDLE, 3):
            await send(system, "here", one, n, two, n + 1, one, n + 2)
        await send(system, "here", one, "end", two, "end")
        count = 3 * couriers.BUNDLE
        assert await one.result() == [n for n in range(count) if n % 3 != 1]
        assert await two.result() == [n for n in range(count) if n % 3 == 1]
        await emptied(system, "here")
        assert not courier_of(system, "here").busy
        for key in ("here", "there"):
            assert (await storage.scan_messages(key, MessageQuery(), 9)).items == []
        assert (await storage.session("here")).wake is None


@run
async def test_mail_to_a_session_that_does_not_exist_is_a_dead_letter_of_its_sender():
    """B062: the sender goes on, nobody waits, and no session comes into being."""
    async with opened(storage := MemoryStorage()) as system:
        there = await box(system, "there")
        with capture_logs() as logs:
            nobody = TaskRef(system.services, "nobody", 5)
            here = await send(system, "here", nobody, "lost", there, "kept", there, "end")
            assert await there.result() == ["kept"]
            await emptied(system, "here")
        (dead,) = (await here.dead_letters()).items
        assert (dead.body, dead.session, dead.task_id, dead.reason) == ("lost", "nobody", 5, "unknown_session")
        assert await storage.session("nobody") is None
        assert await system.dead_letters() == {"here": 1}
        (told,) = [one for one in logs if one["event"] == "dead_letter"]
        assert (told["session"], told["task"], told["reason"]) == ("here", 5, "unknown_session")


@run
async def test_mail_to_a_task_that_is_over_is_a_dead_letter_of_its_session():
    async with opened(MemoryStorage()) as system:
        over = await box(system, "there")
        await over.tell("end")
        await over.result()
        await send(system, "here", over, "late", TaskRef(system.services, "there", 999), "astray")
        await emptied(system, "here")
        dead = (await (await system.session("there")).dead_letters()).items
        assert [(one.body, one.reason) for one in dead] == [("late", "ended"), ("astray", "unknown_task")]
        assert [one.sender.session for one in dead] == ["here", "here"]


@run
async def test_a_receiver_that_cannot_be_opened_holds_up_nobody_elses_mail():
    """B041: it is tried again, less and less often, until its mail has arrived, once. Whoever reads the log is told once."""
    storage = Away()
    async with opened(storage) as system:
        away, there = await box(system, "away"), await box(system, "there")
    storage.away = {"away"}
    with capture_logs() as logs:
        await send_past(storage, away, there)
    (told,) = [one for one in logs if one["event"] == "mail_not_delivered"]
    assert (told["session"], told["receiver"], told["attempt"]) == ("here", "away", 1)
    (told,) = [one for one in logs if one["event"] == "session_given_up"]
    assert told["session"] == "away"


async def send_past(storage, away, there):
    async with opened(storage) as system:
        clock = system._actors.clock
        away, there = in_system(system, away), in_system(system, there)
        await send(system, "here", away, 1, there, 1, away, 2, there, "end")
        assert await there.result() == [1]
        assert [one.body for one in await outbox(system, "here")] == [1, 2]
        await clock.sleep(120)
        asked = storage.asked
        await clock.sleep(120)
        assert asked < storage.asked <= asked + 6 * (120 / couriers.BACKOFF.max_s + 1)
        assert courier_of(system, "here").busy
        storage.away = set()
        await emptied(system, "here")
        await send(system, "here", away, "end")
        assert await away.result() == [1, 2]


@run
async def test_a_full_inbox_keeps_mail_in_its_senders_outbox_until_there_is_room():
    """B073: nothing is lost, nothing overtakes, and the sender's commits go through."""
    limit, session_mail.MAX_INBOX = session_mail.MAX_INBOX, 3
    try:
        clock = VirtualClock()
        async with opened(MemoryStorage(), clock=clock) as system:
            system.registry.install(Extension(name="slow", tasks=[Slow]))
            for key in ("there", "here"):  # in another session, and in the sender's own
                Slow.gate = asyncio.Event()
                slow = await box(system, key, Slow)
                for n in range(10):
                    await send(system, "here", slow, n)
                await send(system, "here", slow, "end")
                for _ in range(200):
                    await asyncio.sleep(0)
                assert [one.body for one in await outbox(system, "here")] == [*range(3, 10), "end"]
                Slow.gate.set()
                assert await slow.result() == list(range(10)), "room is noticed without any passing of time"
    finally:
        session_mail.MAX_INBOX = limit


@run
async def test_an_outbox_that_nobody_empties_refuses_more_and_goes_on_when_there_is_room():
    """P11: the sender is told by its own commit, of another session and of its own; mail to others is not held up."""
    limit, session_mail.MAX_INBOX = session_mail.MAX_INBOX, 2
    settings = Settings(max_outgoing_messages=3)
    try:
        async with opened(MemoryStorage(), clock=VirtualClock(), settings=settings) as system:
            system.registry.install(Extension(name="slow", tasks=[Slow]))
            other = await box(system, "other")
            for key in ("there", "here"):
                Slow.gate = asyncio.Event()
                slow = await box(system, key, Slow)
                for n in range(2):
                    await send(system, "here", slow, n)
                while key == "there" and await outbox(system, "here"):
                    await asyncio.sleep(0)
                await send(system, "here", slow, 2, slow, 3)
                with pytest.raises(OutboxFull) as full:
                    await send(system, "here", other, "rolled back", slow, 4, slow, "too much")
                assert (full.value.session, full.value.receiver, full.value.count) == ("here", key, 3)
                async with (await system.session("here")).commit() as tx:
                    await tx.tell(slow, 4)
                    with pytest.raises(OutboxFull):
                        await tx.tell(slow, "too much")
                    await tx.tell(other, f"past {key}")
                assert [one.body for one in await outbox(system, "here") if one.body != f"past {key}"] == [2, 3, 4]
                Slow.gate.set()
                while await outbox(system, "here"):
                    await asyncio.sleep(0)
                await send(system, "here", slow, "end")
                assert await slow.result() == list(range(5))
            await send(system, "here", other, "end")
            assert await other.result() == ["past there", "past here"]
    finally:
        session_mail.MAX_INBOX = limit


class Slow(Box, name="test.slow"):
    """Receives two at a time, once its gate is open."""

    take = 2

    class Listen(Phase):
        got: list = []

    async def listen(self, run, state):
        await Slow.gate.wait()
        await Box.listen(self, run, state)


@run
async def test_nobody_holds_one_line_while_waiting_for_another():
    """Both sessions are inside of commit blocks and write to each other; either block may wait for the other's end."""
    async with opened(MemoryStorage()) as system:
        boxes = {key: await box(system, key) for key in ("a", "b")}
        begun = {key: asyncio.Event() for key in boxes}

        async def block(key, other):
            await send(system, key, boxes[other], 1)
            async with (await system.session(key)).commit() as tx:
                begun[key].set()
                await begun[other].wait()
                for _ in range(50):  # both couriers are at the other's line by now
                    await asyncio.sleep(0)
                await tx.tell(boxes[other], 2)
                await tx.tell(boxes[other], "end")

        await asyncio.gather(block("a", "b"), block("b", "a"))
        assert [await one.result() for one in boxes.values()] == [[1, 2], [1, 2]]


@run
async def test_a_receiver_that_is_busy_does_not_hold_up_its_sender():
    """What is sent while a bundle is on its way follows it."""
    async with opened(MemoryStorage()) as system:
        there = await box(system, "there")
        async with (await system.session("there")).commit():
            await send(system, "here", there, 1)
            for _ in range(50):
                await asyncio.sleep(0)
            assert courier_of(system, "here").busy
            await send(system, "here", there, 2, there, "end")
        assert await there.result() == [1, 2]


def test_closing_with_mail_under_way_loses_nothing(place):
    """What was sent is delivered by the next owner, who need not be asked: the sender's session is due."""

    async def main():
        store = place.store()
        async with System.open(store, extensions=[Extension(name="test", tasks=[Box])]) as system:
            there = await box(system, "there")
            for n in range(20):
                await send(system, "here", there, n)
            await send(system, "here", there, "end")
        store = place.store()
        async with System.open(store, extensions=[Extension(name="test", tasks=[Box])]) as system:
            assert await in_system(system, there).result() == list(range(20))

    asyncio.run(main())


@run
async def test_mail_that_is_sent_while_the_system_drains_is_delivered_then_or_by_the_next_owner():
    """B046: whoever closes with a grace loses nothing either."""
    store = MemoryStorage()
    with capture_logs() as logs:
        async with opened(store) as system:
            there = await box(system, "there")
            system.registry.install(Extension(name="late", tasks=[Late]))
            root = await (await system.session("here")).root()
            Late.gate = asyncio.Event()
            async with root.commit() as tx:
                await tx.create_task(Late, there.id)
            closing = asyncio.ensure_future(system.close(grace_s=60))
            await asyncio.sleep(0)
            Late.gate.set()
            await closing
        async with opened(store) as system:
            assert await in_system(system, there).result() == ["late"]
    assert "mail_not_delivered" not in {one["event"] for one in logs}


class Late(Task[int, None], name="test.late"):
    """Sends its mail when its gate is open."""

    class Send(Phase):
        pass

    async def send(self, run, state):
        await Late.gate.wait()
        async with run.commit() as tx:
            await tx.tell(run.input, "late", session="there")
            await tx.tell(run.input, "end", session="there")
            tx.complete()


@run
async def test_sessions_that_have_left_memory_come_back_for_their_mail_and_stay_while_they_have_some_to_send():
    storage = Away()
    clock = VirtualClock(autojump=True)
    async with opened(storage, clock) as system:
        there, away = await box(system, "there"), await box(system, "away")
        await clock.sleep(1_000)
        assert system.inspect().sessions == {}
        await send(system, "here", there, 1)
        await clock.sleep(1_000)
        assert system.inspect().sessions == {}, "what has arrived keeps nobody in memory"
        storage.away = {"away"}
        with capture_logs():
            await send(system, "here", there, "end", away, 1)
            assert await there.result() == [1]
            await clock.sleep(100)
            assert "here" in system.inspect().sessions
            storage.away = set()
            await send(system, "here", away, "end")
            assert await away.result() == [1]
        await clock.sleep(1_000)
        assert system.inspect().sessions == {}


@run
async def test_after_a_crash_a_session_with_mail_to_send_is_active_again_by_itself():
    """B062: though it has no other work."""
    storage = Away()
    async with opened(storage) as system:
        there = await box(system, "there")
    storage.away = {"there"}
    async with opened(storage) as system:
        await send(system, "here", there, 1, there, "end")
        system.kill("root")
    storage.away = set()
    async with opened(storage) as system:
        assert await in_system(system, there).result() == [1]


@run
async def test_mail_to_a_session_that_is_deleted_meanwhile_is_a_dead_letter():
    storage = Away()
    async with opened(storage) as system:
        there = await box(system, "there")
    storage.away = {"there"}
    async with opened(storage) as system:
        await send(system, "here", there, 1)
        storage.away = set()
        await system.delete_session("there")
        await emptied(system, "here")
        (dead,) = (await (await system.session("here")).dead_letters()).items
        assert (dead.body, dead.reason) == (1, "unknown_session")


@run
async def test_a_sender_that_is_deleted_and_begun_anew_is_heard_again():
    """Its message ids begin anew: they are no duplicates of the old one's."""
    async with opened(MemoryStorage()) as system:
        there = await box(system, "there")
        for life in ("first", "second", "third"):
            await send(system, "here", there, life)
            await emptied(system, "here")
            await system.delete_session("here")
        await there.tell("end")
        assert await there.result() == ["first", "second", "third"]


@run
async def test_killing_sender_and_receiver_while_mail_is_on_its_way_repeats_and_loses_nothing():
    """B044, B064: at each turn of the loop."""
    for turn in range(0, 60, 3):
        async with opened(MemoryStorage()) as system:
            there = await box(system, "there")
            await send(system, "here", there, 1, there, 2)
            for _ in range(turn):
                await asyncio.sleep(0)
            for key in ("here", "there"):
                system.kill(f"session:{key}")
            await send(system, "here", there, 3, there, "end")
            core = await system.core("there")
            assert await there.result() == [1, 2, 3], f"killed after {turn} turns"
            assert core.usable
