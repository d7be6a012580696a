"""Crashes of a session's actors: who is told what, what comes back, and what is left alone."""

import asyncio

import pytest
from perdure import (
    InvalidValue,
    MemoryStorage,
    SessionClosed,
    SessionFailed,
    StorageError,
    System,
    UnknownRecord,
    VirtualClock,
)
from perdure.actors.session.actors import RESTARTS
from perdure.storage.faulty import FaultyStorage
from structlog.testing import capture_logs

from ..task.support import Script, home, opened, start, turns


class Flaky(FaultyStorage):
    """Reading of chosen sessions fails a number of times."""

    def __init__(self, inner=None):
        super().__init__(inner or MemoryStorage())
        self.failing = {}
        self.asked = []

    async def session(self, session):
        self.asked.append(session)
        if self.failing.get(session, 0) > 0:
            self.failing[session] -= 1
            raise StorageError("this read failed")
        return await super().session(session)


def quick():
    return VirtualClock(autojump=True)


async def note(conversation, text):
    async with conversation.commit() as tx:
        await tx.append("note", text)


async def notes(conversation):
    return [entry.data for entry in (await conversation.entries(order="ascending")).items]


def test_a_killed_session_comes_back_with_what_is_stored_and_handles_work_again(place):
    async def main():
        async with System.open(place.store(), clock=quick()) as system:
            session, root = await home(system)
            await note(root, 1)
            assert system.kill("session:s")
            await note(root, 2)
            assert await notes(root) == [1, 2]
            assert (await session.conversation(1)) == root

    asyncio.run(main())


@pytest.mark.parametrize("actor", ["session:s", "guard:s", "sessions", "timer", "storage"])
def test_whoever_waits_for_a_session_that_dies_gets_session_failed_and_may_call_again(actor):
    """P8: whichever actor above or beside it was the one that died."""

    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(MemoryStorage(), script, clock=quick()) as system:
            session, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            waits = [asyncio.create_task(one) for one in (task.settled(), session.wait_for_idle(), root.abort())]
            waits.append(asyncio.create_task(task.result()))
            waits.pop(2).cancel()
            await turns()
            assert system.kill(actor)
            ended = await asyncio.gather(*waits, return_exceptions=True)
            assert [type(one) for one in ended] == [SessionFailed] * 3
            script.open("run:a")
            assert await task.result() == "a"

    asyncio.run(main())


@pytest.mark.parametrize("actor", ["session:s", "guard:s", "sessions", "timer", "storage"])
def test_work_goes_on_by_itself_after_every_kind_of_death(actor):
    """P8: nobody has to ask for the session."""

    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(MemoryStorage(), script, clock=quick()) as system:
            _, root = await home(system)
            await start(root, "a")
            await script.began("run:a")
            script.log.clear()
            system.kill(actor)
            await script.began("run:a")

    asyncio.run(main())


def test_a_commit_whose_block_runs_while_the_session_is_killed_is_refused_as_failed():
    async def main():
        async with System.open(MemoryStorage(), clock=quick()) as system:
            _, root = await home(system)
            with pytest.raises(SessionFailed):
                async with root.commit() as tx:
                    await tx.append("note", 1)
                    system.kill("session:s")
            assert await notes(root) == []

    asyncio.run(main())


def test_a_commit_asked_for_right_after_the_kill_waits_for_the_next_incarnation():
    """B041: it is done once, without being sent again."""

    async def main():
        async with System.open(MemoryStorage(), clock=quick()) as system:
            _, root = await home(system)
            system.kill("session:s")
            await asyncio.gather(*(note(root, number) for number in range(5)))
            assert await notes(root) == [0, 1, 2, 3, 4]

    asyncio.run(main())


def test_a_commit_on_its_way_to_storage_when_the_session_is_killed_is_not_overtaken():
    """The next incarnation reads what is stored when all that was admitted is."""

    async def main():
        storage = FaultyStorage(MemoryStorage())
        async with System.open(storage, clock=quick()) as system:
            _, root = await home(system)
            release = storage.hold(storage.writes + 1)
            writing = asyncio.create_task(note(root, 1))
            await turns()
            system.kill("session:s")
            late = asyncio.create_task(note(root, 2))
            await turns()
            release.set()
            ended = await asyncio.gather(writing, late, return_exceptions=True)
            assert [type(one) for one in ended] == [SessionFailed, type(None)]
            assert await notes(root) == [1, 2]  # the first was stored, though nobody could promise that

    asyncio.run(main())


def test_the_call_that_wakes_a_cold_session_is_kept_over_a_failed_first_start():
    """B041."""

    async def main():
        storage = Flaky()
        async with System.open(storage, clock=quick()) as system:
            _, root = await home(system)
            await note(root, 1)
        async with System.open(storage, clock=quick()) as system:
            storage.failing["s"] = 1
            storage.asked.clear()
            session = await system.session("s")
            root = await session.root()
            await note(root, 2)
            assert storage.asked == ["s", "s"]
            assert await notes(root) == [1, 2]

    asyncio.run(main())


def test_a_session_that_fails_at_every_start_is_given_up_and_the_others_never_notice():
    """B037, B038: exactly the allowed restarts, then parked with a reason."""

    async def main():
        storage = Flaky()
        async with System.open(storage, clock=quick()) as system:
            _, fine = await home(system, "fine")
            storage.failing["broken"] = 1_000
            with capture_logs() as logs:
                with pytest.raises(SessionFailed) as failed:
                    await system.session("broken")
                assert storage.asked.count("broken") == RESTARTS + 1
                assert failed.value.session == "broken"
                escalated = [log for log in logs if log["event"] == "supervisor_escalated"]
            assert [log["supervisor"] for log in escalated] == ["guard:broken"]
            assert "guard:broken" not in str(system.inspect().actors)
            await note(fine, 1)
            assert await notes(fine) == [1]
            asked = len(storage.asked)
            await turns()
            assert len(storage.asked) == asked  # nobody goes on trying
            storage.failing.clear()
            await (await system.session("broken")).root()  # until somebody asks again

    asyncio.run(main())


def test_many_sessions_that_are_given_up_do_not_end_their_supervisor():
    async def main():
        storage = Flaky()
        async with System.open(storage, clock=quick()) as system:
            _, fine = await home(system, "fine")
            for number in range(12):
                key = f"broken-{number}"
                storage.failing[key] = 1_000
                with pytest.raises(SessionFailed):
                    await system.session(key)
            await note(fine, 1)

    asyncio.run(main())


def test_everybody_who_waits_for_the_start_of_a_session_gets_the_same_answer():
    """B029."""

    async def main():
        storage = Flaky()
        async with System.open(storage, clock=quick()) as system:
            await asyncio.gather(*(system.session("s") for _ in range(50)))
            assert storage.asked == ["s"]
            storage.failing["broken"] = 1_000
            ended = await asyncio.gather(*(system.session("broken") for _ in range(50)), return_exceptions=True)
            assert {type(one) for one in ended} == {SessionFailed}

    asyncio.run(main())


def test_one_who_stops_waiting_for_the_start_disturbs_nobody():
    async def main():
        storage = Flaky()
        async with System.open(storage, clock=quick()) as system:
            storage.failing["s"] = 2
            first, second = (asyncio.create_task(system.session("s")) for _ in range(2))
            await turns(3)
            first.cancel()
            assert (await second).key == "s"

    asyncio.run(main())


def test_a_crash_of_the_sessions_own_actor_fails_its_callers_and_it_comes_back():
    """B031: a one-way message that makes the actor raise."""

    async def main():
        script = Script()
        async with opened(MemoryStorage(), script, clock=quick()) as system:
            _, root = await home(system)
            script.gate("run:a")
            waiting = asyncio.create_task((await start(root, "a")).settled())
            await turns()
            actor = system._actors.ref("session:s")._incarnation.actor

            def broken(message):
                raise ZeroDivisionError

            actor.on_receive = broken
            with capture_logs() as logs:
                actor.actor_ref.tell("anything")
                with pytest.raises(SessionFailed):
                    await waiting
                await note(root, 1)
            crashed = [log for log in logs if log["event"] == "actor_crashed"]
            assert [log["actor"] for log in crashed] == ["session:s"]

    asyncio.run(main())


def test_a_closing_system_ends_waits_as_closed_and_refuses_calls(place):
    """CR-06, CR-09."""

    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(place.store(), script) as system:
            session, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            waits = [asyncio.create_task(task.settled()), asyncio.create_task(session.wait_for_idle())]
            await turns()
        ended = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(one) for one in ended] == [SessionClosed] * 2
        for call in (lambda: note(root, 1), task.record, session.tasks, lambda: system.session("s"), root.entries):
            with pytest.raises(SessionClosed):
                await call()
        await system.close()  # again is harmless

    asyncio.run(main())


def test_a_commit_under_way_at_close_is_stored_before_close_returns():
    async def main():
        storage = FaultyStorage(MemoryStorage())
        system = System.open(storage)
        async with system:
            _, root = await home(system)
            release = storage.hold(storage.writes + 1)
            writing = asyncio.create_task(note(root, 1))
            await turns()
            closing = asyncio.create_task(system.close())
            await turns()
            assert not closing.done()
            release.set()
            await closing
            await writing
        async with System.open(storage) as system:
            assert await notes(await (await system.session("s")).root()) == [1]

    asyncio.run(main())


def test_sessions_are_not_awake_unless_somebody_asks_or_they_have_work():
    """P10: at open, only those with runnable work."""

    async def main():
        script, store = Script(), MemoryStorage()
        async with opened(store, script) as system:
            for key in "abc":
                await home(system, key)
            script.gate("run:b")
            await start((await home(system, "b"))[1], "b")
            await script.began("run:b")
        script.log.clear()
        async with opened(store, script) as system:
            await script.began("run:b")
            assert list(system.inspect().sessions) == ["b"]
            script.open("run:b")

    asyncio.run(main())


@pytest.mark.parametrize("key", ["", "a\ud800", "x" * 513, "\u00e9" * 300, 5, None])
def test_a_key_that_cannot_be_stored_is_refused(key):
    """P11."""

    async def main():
        async with System.open(MemoryStorage()) as system:
            with pytest.raises(InvalidValue):
                await system.session(key)

    asyncio.run(main())


def test_unknown_ids_are_told_apart_from_failures():
    async def main():
        async with System.open(MemoryStorage()) as system:
            session, _ = await home(system)
            for call in (session.conversation, session.task, session.submission):
                with pytest.raises(UnknownRecord):
                    await call(99)

    asyncio.run(main())


def test_killing_what_is_not_there_says_so():
    async def main():
        async with System.open(MemoryStorage()) as system:
            await home(system)
            assert not system.kill("session:other")

    asyncio.run(main())
