"""Durable messages as tasks and applications see them."""

import asyncio
import random
import threading

import msgspec
import perdure
import pytest
from perdure import (
    Backoff,
    InboxFull,
    InvalidValue,
    Letter,
    LineReentry,
    MemoryStorage,
    MessageQuery,
    Phase,
    Restart,
    SessionFailed,
    System,
    Task,
    TaskRef,
    Undeliverable,
    VirtualClock,
)
from perdure.actors.session import mail as session_mail
from perdure.actors.task.definition import Definitions
from perdure.chord.errors import InvalidJson
from perdure.storage.errors import StorageError
from perdure.storage.faulty import FaultyStorage
from structlog.testing import capture_logs

from .support import Script, Scripted, home, opened, outcome, scene, scripted, start, turns, until


class Clerk(Task[str, list], name="test.clerk"):
    """Writes down what it receives until it is told to stop; answers whoever asks."""

    class Listen(Phase):
        heard: list = []

    async def listen(self, run, state):
        async with run.commit() as tx:
            letters = await tx.receive()
            heard = [*state.heard, *(letter.body for letter in letters)]
            for letter in letters:
                if letter.sender is not None:
                    await tx.tell(letter.sender, {"answer": letter.body})
            if "stop" in heard:
                tx.complete(heard[:-1])
            else:
                await tx.wait(then=self.Listen(heard=heard), mail=True)


async def clerk(place):
    place._services.get(Definitions).install(Clerk)
    async with place.commit() as tx:
        return await tx.create_task(Clerk, "c")


# --- receiving


@scene
async def test_a_letter_says_what_was_sent_and_by_whom(script, session, root):
    got = []

    async def run(run):
        async with run.commit() as tx:
            got.extend(await tx.receive())
            await tx.wait(then=Scripted.Resume(), mail=True)

    async def resume(run):
        async with run.commit() as tx:
            got.extend(await tx.receive())
            tx.complete("heard")

    script.on("a", run=run, resume=resume)

    class Note(msgspec.Struct):
        n: int

    async def write(run):
        async with run.commit() as tx:
            await tx.tell(task, Note(n=3))
            tx.complete("sent")

    script.on("b", run=write)
    task = await start(root, "a")
    await script.began("run:a")
    sender = await start(root, "b")
    assert (await sender.result(), await task.result()) == ("sent", "heard")
    (letter,) = got
    assert (letter.sender, letter.session) == (sender, "s")
    assert letter.decode(Note) == Note(n=3)
    with pytest.raises(msgspec.ValidationError):
        letter.decode(int)
    assert isinstance(letter, Letter)


@scene
async def test_a_message_from_a_commit_of_the_application_names_its_session_and_no_task(script, session, root):
    got = []

    async def run(run):
        async with run.commit() as tx:
            got.extend(await tx.receive())
            tx.complete("done")

    script.on("a", run=run)
    script.gate("run:a")
    task = await start(root, "a")
    async with session.commit() as tx:
        await tx.tell(task, "from the application")
        await tx.tell(task.id, "by id")
    await task.tell("from outside")
    script.open("run:a")
    await task.result()
    assert [(one.body, one.sender, one.session) for one in got] == [
        ("from the application", None, "s"),
        ("by id", None, "s"),
        ("from outside", None, None),
    ]


@scene
async def test_taking_a_message_and_acting_on_it_are_one(script, session, root):
    """P9, B064: a phase that fails after it has received, receives again; one that has committed does not."""

    async def run(run):
        with pytest.raises(InvalidJson):
            async with run.commit() as tx:
                assert [one.body for one in await tx.receive()] == ["once"]
                await tx.append("heard", object())
        async with run.commit() as tx:
            (letter,) = await tx.receive(limit=5)
            await tx.append("heard", letter.body)
        async with run.commit() as tx:
            assert await tx.receive() == []
            tx.complete("done")

    script.on("a", run=run)
    script.gate("run:a")
    task = await start(root, "a")
    await task.tell("once")
    script.open("run:a")
    assert await task.result() == "done"
    assert [entry.data for entry in (await root.entries()).items] == ["once"]


@scene
async def test_bad_limits_and_bad_addresses_are_refused(script, session, root):
    """P11: nothing is sent, nothing is consumed."""

    async def run(run):
        for limit in (-1, "3", 1.5):
            with pytest.raises(InvalidValue):
                async with run.commit() as tx:
                    await tx.receive(limit=limit)
        await run.complete("done")

    script.on("a", run=run)
    script.gate("run:a")
    task = await start(root, "a")
    await task.tell(1)
    for target, more in ((0, {}), (2**32, {}), (True, {}), ("x", {}), (task, {"session": "t"}), (5, {"session": ""})):
        with pytest.raises(InvalidValue):
            async with session.commit() as tx:
                await tx.tell(target, "x", **more)
    with pytest.raises(InvalidJson):
        await task.tell(object())
    with pytest.raises(InvalidValue):
        await task.tell("x", request_id=7)
    assert len((await session.messages()).items) == 1
    script.open("run:a")
    assert await task.result() == "done"


Shaky = scripted(name="test.shaky", restart=Restart(max=2, within=600.0, backoff=Backoff(first_s=1.0)))


def test_a_phase_that_crashes_over_a_message_finds_it_again_until_the_task_is_given_up():
    """B064: handled once in the end, or kept as a dead letter; never half."""

    async def main(crashes):
        script = Script()
        async with opened(MemoryStorage(), script, Shaky, clock=VirtualClock(autojump=True)) as system:
            session, root = await home(system)

            async def run(run):
                async with run.commit() as tx:
                    (letter,) = await tx.receive()
                    await tx.append("heard", letter.body)
                    if script.log.count("run:a") <= crashes:
                        raise ZeroDivisionError
                    tx.complete("done")

            script.on("a", run=run)
            script.gate("run:a")
            task = await start(root, "a", kind=Shaky)
            await task.tell("poison")
            script.open("run:a")
            ended = (await outcome(task)).__struct_config__.tag
            heard = [entry.data for entry in (await root.entries()).items if entry.kind == "heard"]
            return ended, heard, [one.body for one in (await session.dead_letters()).items]

    with capture_logs():
        assert asyncio.run(main(crashes=2)) == ("completed", ["poison"], [])
        assert asyncio.run(main(crashes=3)) == ("faulted", [], ["poison"])


# --- waiting


@scene
async def test_a_task_that_waits_for_mail_has_no_actor_and_runs_on_with_the_next_message(script, session, root):
    """P10: a parked task is a record."""
    task = await clerk(root)
    core = await session._core()
    await until(lambda: (record := core.forest.kept(task.id)) and record.state.__class__.__name__ == "Waiting")
    await until(lambda: not core.scheduler.invocations)
    await task.tell("a")
    await task.tell("b")
    await task.tell("stop")
    assert await task.result() == ["a", "b"]


@scene
async def test_mail_that_is_there_already_ends_a_wait_at_once(script, session, root):
    async def run(run):
        await run.wait(then=Scripted.Resume(), mail=True)

    async def resume(run):
        async with run.commit() as tx:
            tx.complete((await tx.receive())[0].body)

    script.on("a", run=run, resume=resume)
    script.gate("run:a")
    task = await start(root, "a")
    await task.tell("early")
    script.open("run:a")
    assert await task.result() == "early"


def test_however_sending_and_parking_interleave_no_message_is_stranded_or_received_twice():
    """B059, B064, B067: each message comes at another turn of the loop, and nothing comes after the last."""

    async def main():
        dice = random.Random(59)
        async with opened(MemoryStorage(), Script(), Clerk) as system:
            session, root = await home(system)
            other, _ = await home(system, "t")
            task = await clerk(root)

            async def write(place, name):
                for n in range(150):
                    await turns(dice.randrange(12))
                    if dice.random() < 0.5:
                        await task.tell([name, n])
                    else:
                        async with place.commit() as tx:
                            await tx.tell(task, [name, n])
                        await emptied(place)

            await asyncio.gather(write(session, "a"), write(session, "b"), write(other, "c"))
            await task.tell("stop")
            heard = await task.result()
            for name in "abc":
                assert [n for who, n in heard if who == name] == list(range(150))

    asyncio.run(main())


async def emptied(session):
    """Return when nothing is in a session's outbox."""
    while (await session.messages(MessageQuery(status="outgoing"))).items:
        await asyncio.sleep(0)


@scene
async def test_what_a_sender_is_told_is_what_is_stored(script, session, root):
    """B061: accepted means queued on the disk; the receipt says when it was received."""
    script.gate("run:a")

    async def run(run):
        async with run.commit() as tx:
            await tx.receive()
        await run.wait(then=Scripted.Resume(), mail=True)

    script.on("a", run=run)
    task = await start(root, "a")
    await task.tell("x", request_id="r")
    storage = (await session._core()).storage
    stored = await storage.message_by_request("s", task.id, "r")
    assert (stored.status, stored.body) == ("queued", "x")
    script.open("run:a")
    while (stored := await storage.message_by_request("s", task.id, "r")).status == "queued":
        await asyncio.sleep(0)
    assert (stored.status, stored.body) == ("consumed", None)
    await task.tell("go on")
    assert await task.result() == "a"


def test_mail_the_awaited_tasks_and_the_deadline_are_alternatives():
    """B068: whatever comes first, the task reacts; what it did not wait out goes on."""

    async def main():
        script, clock = Script(), VirtualClock()
        async with opened(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)

            async def run(run):
                async with run.commit() as tx:
                    child = await tx.create_task(Scripted, f"child-of-{run.input}", owner=run.id)
                    await tx.wait([child], then=Scripted.Resume(), until=run.now() + 5_000, mail=True)

            async def resume(run):
                async with run.commit() as tx:
                    await tx.receive()
                    tx.complete("resumed")

            for name in ("mail", "task", "time"):
                script.on(name, run=run, resume=resume)
                script.gate(f"run:child-of-{name}")
            tasks = {name: await start(root, name) for name in ("mail", "task", "time")}
            await script.began(*(f"run:child-of-{name}" for name in tasks))
            assert not any(what.startswith("resume:") for what in script.log)
            await tasks["mail"].tell("now")
            await script.began("resume:mail")
            script.open("run:child-of-task")
            await script.began("resume:task")
            assert "resume:time" not in script.log
            clock.advance(5)
            await script.began("resume:time")
            for name in ("mail", "time"):
                script.open(f"run:child-of-{name}")
            assert [await task.result() for task in tasks.values()] == ["resumed"] * 3

    asyncio.run(main())


@scene
async def test_an_aborted_task_that_waits_for_mail_ends_and_its_mail_is_kept(script, session, root):
    script.on("a", run=lambda run: run.wait(then=Scripted.Resume(), mail=True))
    task = await start(root, "a")
    script.gate("abort:a")
    await task.abort()
    await script.began("abort:a")
    await task.tell("too late?")
    script.open("abort:a")
    assert (await outcome(task)).__struct_config__.tag == "aborted"
    assert [one.body for one in (await session.dead_letters()).items] == ["too late?"]


@scene
async def test_an_abort_handler_may_receive(script, session, root):
    async def abort(run):
        async with run.commit() as tx:
            tx.abort(reason=(await tx.receive())[0].body)

    script.on("a", run=lambda run: run.wait([await_me.id], then=Scripted.Resume()), abort=abort)
    script.gate("run:other")
    await_me = await start(root, "other")
    task = await start(root, "a")
    await script.began("run:a")
    await task.tell("last words")
    await task.abort()
    assert (await outcome(task)).reason == "last words"
    script.open("run:other")


# --- senders outside


@scene
async def test_sending_again_with_the_same_request_id_is_harmless(script, session, root):
    """B064: whether it waits, was received, or the receiver is over."""
    task = await clerk(root)
    await asyncio.gather(*(task.tell("a", request_id="r1") for _ in range(5)))
    await task.tell("b", request_id="r2")
    core = await session._core()
    await until(lambda: not core.forest.mail(task.id) and not core.scheduler.invocations)
    assert [one.status for one in (await session.messages()).items] == ["consumed", "consumed"]
    await task.tell("a", request_id="r1")
    await task.tell("stop")
    assert await task.result() == ["a", "b"]
    assert (await session.messages()).items == []


@scene
async def test_whoever_sends_to_a_task_that_is_over_is_told_and_the_message_is_kept(script, session, root):
    """B065: a typed refusal, and recorded."""
    task = await start(root, "a")
    await task.result()
    for target, reason in ((task, "ended"), (TaskRef(session._services, "s", 9_999), "unknown_task")):
        with pytest.raises(Undeliverable) as refusal:
            await target.tell({"late": True}, request_id="r")
        assert (refusal.value.reason, refusal.value.task, refusal.value.session) == (reason, target.id, "s")
        with pytest.raises(Undeliverable):
            await target.tell({"late": True}, request_id="r")
    dead = (await session.dead_letters()).items
    assert [(one.task_id, one.reason, one.body) for one in dead] == [
        (task.id, "ended", {"late": True}),
        (9_999, "unknown_task", {"late": True}),
    ]
    assert await session.drop_dead_letters([dead[0].id, dead[0].id, 12_345, task.id]) == 1
    assert [one.id for one in (await session.dead_letters()).items] == [dead[1].id]
    assert await session.drop_dead_letters([dead[0].id]) == 0


@scene
async def test_a_full_inbox_tells_its_senders(script, session, root):
    """B073: nothing crashes, nothing that was taken is lost."""
    script.gate("run:a")
    task = await start(root, "a")
    limit, session_mail.MAX_INBOX = session_mail.MAX_INBOX, 3
    try:
        sent = await asyncio.gather(*(task.tell(n) for n in range(5)), return_exceptions=True)
    finally:
        session_mail.MAX_INBOX = limit
    assert [type(one) for one in sent] == [type(None)] * 3 + [InboxFull] * 2
    assert [one.body for one in (await session.messages(MessageQuery(status="queued"))).items] == [0, 1, 2]
    script.open("run:a")
    await task.result()


@scene
async def test_telling_from_outside_inside_of_a_commit_is_refused(script, session, root):
    """It could only end after the commit that it would have to wait for."""
    task = await clerk(root)
    async with session.commit():
        with pytest.raises(LineReentry):
            await task.tell("x")


def test_a_message_that_wakes_a_cold_session_survives_its_first_failed_recovery():
    """B041: it is handled once, without being sent again."""

    class Failing(FaultyStorage):
        failures = 0

        async def live_tasks(self, session):
            if self.failures > 0:
                self.failures -= 1
                raise StorageError("a block cannot be read")
            return await super().live_tasks(session)

    async def main():
        storage = Failing(MemoryStorage())
        script = Script()
        async with opened(storage, script, Clerk) as system:
            _, root = await home(system)
            task = await clerk(root)
            core = await system.core("s")
            await until(lambda: not core.scheduler.invocations and not core.forest.wake())
            await turns()
        async with opened(storage, script, Clerk, clock=VirtualClock(autojump=True)) as system:
            assert "s" not in system.inspect().sessions, "a parked task keeps no session awake"
            storage.failures = 2
            await system.tell("s", task.id, "hello")
            await system.tell("s", task.id, "stop")
            assert storage.failures == 0
            assert await TaskRef(system.services, "s", task.id).result() == ["hello"]

    asyncio.run(main())


def test_a_message_to_a_session_that_does_not_exist_makes_none():
    async def main():
        async with System.open(storage := MemoryStorage()) as system:
            with pytest.raises(Undeliverable) as refusal:
                await system.tell("nobody", 5, "x")
            assert refusal.value.reason == "unknown_session"
            with pytest.raises(InvalidValue):
                await system.tell("", 5, "x")
            assert (await storage.sessions(9)).items == []

    asyncio.run(main())


def test_a_caller_whose_session_dies_meanwhile_may_send_again():
    """B062: it is told that the outcome is unknown, and a request id makes that harmless."""

    async def main(when):
        storage = FaultyStorage(MemoryStorage())
        async with opened(storage, Script(), Clerk, clock=VirtualClock(autojump=True)) as system:
            _, root = await home(system)
            task = await clerk(root)
            core = await system.core("s")
            await until(lambda: not core.scheduler.invocations)
            storage.fail(storage.writes + 1, when)
            with pytest.raises(SessionFailed):
                await task.tell("a", request_id="r")
            await task.tell("a", request_id="r")
            await task.tell("stop")
            assert await task.result() == ["a"]

    for when in ("before", "after"):
        asyncio.run(main(when))


# --- other threads


def test_a_thread_sends_through_the_background_host_by_one_call(tmp_path):
    """Messages of one thread arrive in its order."""
    extension = perdure.Extension(name="test", tasks=[Clerk])

    async def employ(system):
        root = await (await system.session("s")).root()
        return await clerk(root)

    with System.background(tmp_path / "s.db", extensions=[extension], durability="process") as host:
        task = host.call(employ)

        def send(name):
            for n in range(20):
                host.call(System.tell, "s", task.id, [name, n], request_id=f"{name}-{n}")
                if n % 5 == 0:  # and again: a thread that is not sure
                    host.call(task_tell, task, [name, n], f"{name}-{n}")

        threads = [threading.Thread(target=send, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        host.call(System.tell, "s", task.id, "stop")
        heard = host.call(lambda _: task.result())
        assert host.call(System.dead_letters) == {}
        with pytest.raises(Undeliverable):
            host.call(System.tell, "s", task.id, "late")
        assert host.call(System.dead_letters) == {"s": 1}
    for name in "ab":
        assert [n for who, n in heard if who == name] == list(range(20))


async def task_tell(_system, task, message, request_id):
    await task.tell(message, request_id=request_id)
