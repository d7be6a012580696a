"""Idle sessions leave memory and come back when they are needed: nobody who uses one can tell."""

import asyncio
import gc

import pytest
from perdure import (
    Doc,
    Extension,
    MemoryStorage,
    SessionClosed,
    SessionFailed,
    Settings,
    System,
    VirtualClock,
)
from perdure.actors.session.core import SessionCore
from perdure.storage.faulty import FaultyStorage

from ..task.support import Script, Scripted, home, start, turns, until

IDLE_S = 60
HOUR = 3_600_000
CountDoc = Doc("test.count", initial=lambda: {"n": 0})


class Leisurely(FaultyStorage):
    """Every question takes a few turns of the loop, so that there is a moment between any two steps."""

    def __init__(self, inner=None):
        super().__init__(inner or MemoryStorage())

    async def _read(self, query, *args):
        await turns(3)
        return await super()._read(query, *args)


def house(store, script=None, *, clock=None, idle_after_s=IDLE_S):
    """Make a system that runs scripted tasks and whose sessions become idle."""
    system = System.open(
        store,
        extensions=[Extension(name="test", tasks=[Scripted])],
        settings=Settings(idle_after_s=idle_after_s),
        clock=clock or VirtualClock(),
    )
    system.services.provide(Script, script or Script())
    return system


async def note(conversation, text):
    async with conversation.commit() as tx:
        await tx.append("note", text)


async def notes(conversation):
    return [entry.data for entry in (await conversation.entries(limit=1_000, order="ascending")).items]


async def count(root, n):
    async with root.commit() as tx:
        draft = await tx.doc(CountDoc, root.id)
        draft["n"] = n


def active(system):
    return sorted(system.inspect().sessions)


async def idle(system):
    """Return once nobody is inside of any session."""
    await until(lambda: all(core.idle for core in system._sessions.active()))


async def passed(system, clock, seconds=IDLE_S):
    """Let time pass, and everything happen that then happens."""
    clock.advance(seconds)
    await turns(60)


def cores():
    gc.collect()
    return sum(1 for one in gc.get_objects() if type(one) is SessionCore)


# --- leaving and coming back


def test_a_session_that_nobody_uses_leaves_memory_and_a_handle_brings_it_back(place):
    """B047."""

    async def main():
        clock = VirtualClock()
        before = cores()
        async with house(place.store(), clock=clock) as system:
            _, root = await home(system)
            await note(root, 1)
            await idle(system)
            await passed(system, clock, IDLE_S - 1)
            assert active(system) == ["s"]
            await passed(system, clock, 1)
            await until(lambda: not active(system))
            assert "s" not in str(system.inspect().actors[0]["children"][-1]["children"])
            assert cores() == before
            await note(root, 2)
            assert await notes(root) == [1, 2]

    asyncio.run(main())


def test_the_time_is_a_setting_that_can_be_changed_while_running():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock, idle_after_s=None) as system:
            _, root = await home(system)
            await passed(system, clock, 1_000_000)
            assert active(system) == ["s"]
            system.services.provide(Settings, Settings(idle_after_s=1))
            await note(root, 1)
            await passed(system, clock, 1)
            assert active(system) == []

    asyncio.run(main())


def test_no_rounding_of_time_has_an_idle_session_looked_at_without_end():
    """(0.1 + 5) - 5 is less than 0.1: at that moment the session seems to be used still, and the next look comes later."""

    async def main():
        clock = VirtualClock()
        clock.advance(0.1)
        async with house(MemoryStorage(), clock=clock, idle_after_s=5) as system:
            await home(system)
            await idle(system)
            await passed(system, clock, 5)
            assert active(system) == ["s"]
            assert clock._timers.next_due() > clock._elapsed_ms
            await passed(system, clock, 0.002)
            assert active(system) == []

    asyncio.run(main())


def test_each_session_leaves_after_its_own_idle_time():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock) as system:
            roots = {}
            for key in ("a", "b", "c"):
                roots[key] = (await home(system, key))[1]
                await passed(system, clock, 20)
            await passed(system, clock, 0)
            assert active(system) == ["b", "c"]
            await note(roots["b"], 1)
            await passed(system, clock, 20)
            assert active(system) == ["b", "c"]
            await passed(system, clock, 20)
            assert active(system) == ["b"]
            await passed(system, clock, 20)
            assert active(system) == []

    asyncio.run(main())


def test_an_idle_system_has_one_timer_and_an_empty_one_has_none():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock) as system:
            for number in range(50):
                await home(system, str(number))
            await passed(system, clock, 1)
            assert len(clock._timers) == 1
            await passed(system, clock, IDLE_S)
            assert active(system) == []
            assert len(clock._timers) == 0

    asyncio.run(main())


def test_three_hundred_short_sessions_leave_nothing_behind(place):
    """B047: a later prompt wakes a session with the same state."""

    async def main():
        clock = VirtualClock()
        before = cores()
        async with house(place.store(), clock=clock) as system:
            for number in range(300):
                _, root = await home(system, str(number))
                await note(root, number)
            await idle(system)
            await passed(system, clock)
            await until(lambda: not active(system))
            assert system._actors.live_actors == 4
            assert cores() == before
            assert await notes((await home(system, "7"))[1]) == [7]

    asyncio.run(main())


# --- what keeps a session in memory


def test_work_that_runs_keeps_its_session_in_memory():
    async def main():
        clock, script = VirtualClock(), Script()
        script.gate("run:a")
        async with house(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            await passed(system, clock, 10 * IDLE_S)
            assert active(system) == ["s"]
            script.open("run:a")
            await task.result()
            await turns()
            await passed(system, clock, IDLE_S)
            assert active(system) == []

    asyncio.run(main())


@pytest.mark.parametrize("wait", ["settled", "idle"])
def test_whoever_waits_for_a_sleeping_task_keeps_its_session_and_gives_it_free_by_going(wait):
    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=lambda run: run.wait(then=Scripted.Resume(), until=clock.now() + HOUR))
        async with house(MemoryStorage(), script, clock=clock) as system:
            session, root = await home(system)
            task = await start(root, "a")
            await script.began("run:a")
            waiting = asyncio.create_task(task.settled() if wait == "settled" else session.wait_for_idle())
            await passed(system, clock, 2 * IDLE_S)
            assert active(system) == ["s"]
            waiting.cancel()
            await passed(system, clock, 0)
            await passed(system, clock, IDLE_S)
            assert active(system) == []

    asyncio.run(main())


def test_an_open_commit_block_keeps_its_session():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock) as system:
            _, root = await home(system)
            async with root.commit() as tx:
                await passed(system, clock, 3 * IDLE_S)
                await tx.append("note", 1)
            assert await notes(root) == [1]
            with pytest.raises(ZeroDivisionError):
                async with root.commit():
                    await passed(system, clock, 3 * IDLE_S)
                    raise ZeroDivisionError
            await passed(system, clock, IDLE_S)
            assert active(system) == []

    asyncio.run(main())


def test_a_commit_that_is_not_durable_keeps_its_session():
    """Also when its caller has gone."""

    async def main():
        clock, storage = VirtualClock(), FaultyStorage(MemoryStorage())
        async with house(storage, clock=clock) as system:
            _, root = await home(system)
            release = storage.hold(storage.writes + 1)
            writing = asyncio.create_task(note(root, 1))
            await turns()
            writing.cancel()
            await passed(system, clock, 3 * IDLE_S)
            assert active(system) == ["s"]
            release.set()
            await turns()
            await passed(system, clock, IDLE_S)
            assert active(system) == []
            assert await notes(root) == [1]

    asyncio.run(main())


def test_a_task_that_waits_for_code_keeps_its_session_and_goes_on_when_it_comes():
    async def main():
        clock, script = VirtualClock(), Script()
        async with house(MemoryStorage(), script, clock=clock) as system:
            _, root = await home(system)
            script.gate("run:a")
            task = await start(root, "a")
            await script.began("run:a")
            system.registry.uninstall("test")
            script.on("a", run=lambda run: run.goto(Scripted.Resume()))
            system.kill("session:s")
            await until(lambda: not system.inspect().sessions)
            await passed(system, clock, 1)
            await passed(system, clock, 3 * IDLE_S)
            assert active(system) == ["s"]
            script.open("run:a")
            system.registry.install(Extension(name="test", tasks=[Scripted]))
            assert await task.result() == "a"
            await turns()
            await passed(system, clock, IDLE_S)
            assert active(system) == []

    asyncio.run(main())


# --- time


def test_a_sleeping_session_is_woken_by_its_deadline_and_leaves_again(place):
    """B071: its deadline is storage's to know while it is away."""

    async def main():
        clock, script = VirtualClock(), Script()
        script.on("a", run=lambda run: run.wait(then=Scripted.Resume(), until=clock.now() + HOUR))
        async with house(place.store(), script, clock=clock) as system:
            session, root = await home(system)
            await start(root, "a")
            await script.began("run:a")
            await idle(system)
            due = clock.now() + HOUR
            assert await system.next_deadline() == due
            await passed(system, clock)
            await until(lambda: not active(system))
            assert await system.next_deadline() == due
            assert len(system._actors.ref("timer")._incarnation.actor._told) == 0
            await passed(system, clock, 3_600 - IDLE_S)
            await script.began("resume:a")
            await session.wait_for_idle()
            await idle(system)
            assert await system.next_deadline() is None
            await passed(system, clock)
            await until(lambda: not active(system))

    asyncio.run(main())


def test_a_deadline_that_comes_as_its_session_leaves_is_kept():
    """B035."""

    async def main():
        for lead in range(12):
            clock, script = VirtualClock(), Script()
            script.on("a", run=lambda run: run.wait(then=Scripted.Resume(), until=clock.now() + 1_000 * IDLE_S))  # noqa: B023
            async with house(Leisurely(), script, clock=clock) as system:
                _, root = await home(system)
                await start(root, "a")
                await script.began("run:a")
                await turns(60)
                clock.advance(IDLE_S - 0.001)  # idle for long enough in the moment in which the task is due
                await turns(lead)
                clock.advance(0.001)
                await script.began("resume:a")

    asyncio.run(main())


# --- races: at every step of the one, the other begins


async def commits(session, root):
    await note(root, "new")
    assert (await notes(root))[-1] == "new"


async def reads(session, root):
    assert (await notes(root))[0] == "old"
    assert (await root.snapshot(CountDoc)) == {"n": 1}
    assert await session.tasks() == []


async def runs(session, root):
    assert await (await start(root, "a")).result() == "a"
    await session.wait_for_idle()


async def opens(session, root):
    other = await session.create_conversation()
    await note(other, "there")
    assert await (await session.conversation(other.id)).context()
    assert await session.root() == root


async def watches(session, root):
    async with await root.watch_doc(CountDoc) as watch:
        await count(root, 2)
        async for value, ops in watch:
            assert (value, ops) == ({"n": 2}, [["s", ["n"], 2]])
            return


USES = [commits, reads, runs, opens, watches]


@pytest.mark.parametrize("use", USES)
def test_whatever_begins_while_a_session_is_passivated_is_done_once(use):
    """At every step of the passivation."""

    async def main():
        met = set()
        for lead in range(40):
            clock = VirtualClock()
            async with house(Leisurely(), clock=clock) as system:
                session, root = await home(system)
                await note(root, "old")
                await count(root, 1)
                core = await system.core("s")
                clock.advance(IDLE_S)
                await turns(lead)
                met.add((core.usable, bool(active(system))))
                await use(session, root)
        assert met >= {(True, True), (False, True), (False, False)}, "some step was never met"

    asyncio.run(main())


@pytest.mark.parametrize("use", USES)
def test_a_session_whose_idle_time_is_over_at_any_step_of_its_use_takes_nothing_from_it(use):
    async def main():
        for lead in range(60):
            clock = VirtualClock()
            async with house(Leisurely(), clock=clock) as system:
                session, root = await home(system)
                await note(root, "old")
                await count(root, 1)
                using = asyncio.create_task(use(session, root))
                await turns(lead)
                clock.advance(IDLE_S)
                await using

    asyncio.run(main())


@pytest.mark.parametrize("use", USES)
def test_sessions_that_leave_at_every_moment_in_which_nobody_is_inside_take_nothing_from_anybody(use):
    """With no idle time at all a sweep follows every step."""

    async def main():
        async with house(Leisurely(), idle_after_s=0, clock=VirtualClock(autojump=True)) as system:
            session, root = await home(system)
            await note(root, "old")
            for _ in range(20):
                await count(root, 1)
                await use(session, root)

    asyncio.run(main())


def test_many_who_use_many_sessions_that_come_and_go_find_everything_done_once(place):
    async def main():
        async with house(place.store(), idle_after_s=0, clock=VirtualClock(autojump=True)) as system:

            async def person(number):
                for step in range(10):
                    _, root = await home(system, str((number + step) % 4))
                    await note(root, [number, step])
                    await turns(number)

            await asyncio.gather(*(person(number) for number in range(8)))
            found = [one for key in "0123" for one in await notes((await home(system, key))[1])]
            assert sorted(found) == [[number, step] for number in range(8) for step in range(10)]

    asyncio.run(main())


# --- crashes beside it


@pytest.mark.parametrize("actor", ["guard:s", "session:s", "sessions", "storage", "timer"])
def test_whatever_actor_dies_at_any_step_of_a_passivation_the_session_can_be_used_again(actor):
    async def main():
        for lead in range(16):
            clock = VirtualClock(autojump=True)
            async with house(Leisurely(), clock=clock) as system:
                _, root = await home(system)
                await note(root, 1)
                clock.advance(IDLE_S)
                await turns(lead)
                system.kill(actor)
                try:
                    await note(root, 2)
                except SessionFailed:  # it died in the middle of that, and nobody could say what became of it
                    if await notes(root) == [1]:
                        await note(root, 2)
                assert await notes(root) == [1, 2]
                await until(lambda: "guard:s" not in waiting_guards(system))

    asyncio.run(main())


def waiting_guards(system):
    """Guards without a living session below."""
    (root,) = system.inspect().actors
    return [one["id"] for child in root["children"] for one in child["children"] if not one["children"]]


def test_a_session_that_is_deleted_at_any_step_of_its_passivation_is_gone():
    async def main():
        for lead in range(30):
            clock, storage = VirtualClock(), Leisurely()
            async with house(storage, clock=clock) as system:
                session, root = await home(system)
                await note(root, 1)
                watch = await root.watch()
                clock.advance(IDLE_S)
                await turns(lead)
                assert await system.delete_session("s")
                assert watch.ended.reason == "closed"
                assert (await storage.sessions(9)).items == []
                assert await notes(await session.root()) == []

    asyncio.run(main())


def test_a_system_that_closes_at_any_step_of_a_passivation_leaves_all_that_was_stored():
    async def main():
        for lead in range(30):
            clock, storage = VirtualClock(), Leisurely()
            async with house(storage, clock=clock) as system:
                _, root = await home(system)
                await note(root, 1)
                watch = await root.watch()
                clock.advance(IDLE_S)
                await turns(lead)
            assert watch.ended.reason == "closed"
            with pytest.raises(SessionClosed):
                await note(root, 2)
            async with house(storage) as system:
                assert await notes((await home(system))[1]) == [1]

    asyncio.run(main())


# --- watchers


def test_watchers_outlive_passivation_keep_no_session_and_miss_nothing(place):
    async def main():
        clock = VirtualClock()
        before = cores()
        async with house(place.store(), clock=clock) as system:
            _, root = await home(system)
            await note(root, 1)
            await count(root, 1)
            doc, view = await root.watch_doc(CountDoc), await root.watch()
            await idle(system)
            await passed(system, clock)
            await until(lambda: not active(system))
            assert cores() == before
            await count(root, 2)
            await note(root, 2)
            assert await anext(doc) == ({"n": 2}, [["s", ["n"], 2]])
            value, ops = await anext(view)
            assert [op[:4] for op in ops] == [["p", ["entries"], 1, 0]]
            assert [entry["data"] for entry in value["entries"]] == [1, 2]
            assert value == (await root.watch()).value

    asyncio.run(main())


def test_those_who_follow_events_outlive_passivation_too_and_hear_of_every_commit():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock) as system:
            _, root = await home(system)
            await note(root, 1)
            stream = await root.watch_events()
            snapshot = await anext(stream)
            await idle(system)
            await passed(system, clock)
            await until(lambda: not active(system))
            await note(root, 2)
            event = await anext(stream)
            assert (event.entry.data, event.seq) == (2, snapshot.seq + 1)

    asyncio.run(main())


def test_a_stream_of_events_goes_on_when_its_session_comes_back():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock) as system:
            _, root = await home(system)
            await note(root, 1)
            events = await root.watch_events()
            first = await anext(events)
            await passed(system, clock)
            assert active(system) == []
            await note(root, 2)
            appended = await anext(events)
            assert type(appended) is not type(first), "a snapshot says that something was missed"
            assert appended.entry.data == 2

    asyncio.run(main())


def test_a_view_that_comes_back_is_the_one_that_later_watchers_share():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock) as system:
            _, root = await home(system)
            first = await root.watch()
            await passed(system, clock)
            second = await root.watch()
            assert second.value is first.value
            await note(root, 1)
            assert (await anext(second))[0] is (await anext(first))[0]

    asyncio.run(main())


def test_the_last_watcher_that_goes_while_its_session_is_away_leaves_nothing():
    async def main():
        clock = VirtualClock()
        async with house(MemoryStorage(), clock=clock) as system:
            _, root = await home(system)
            await count(root, 1)
            doc, views = await root.watch_doc(CountDoc), [await root.watch() for _ in range(2)]
            await passed(system, clock)
            dormant = system._sessions._dormant
            assert len(dormant) == 1
            for watch in (views[0], doc, views[1]):
                assert len(dormant) == 1
                watch.stop()
            assert len(dormant) == 0

    asyncio.run(main())


def test_watchers_of_a_session_that_is_away_end_with_all_sessions():
    async def main():
        clock = VirtualClock(autojump=True)
        async with house(MemoryStorage(), clock=clock) as system:
            _, root = await home(system)
            watch = await root.watch()
            clock.advance(IDLE_S)
            await until(lambda: not active(system))
            assert watch.ended is None
            system.kill("storage")
            assert (await watch.closed).reason == "closed"
            await note(root, 1)

    asyncio.run(main())


# --- conversations


def test_what_is_kept_of_an_idle_conversation_leaves_an_active_session():
    async def main():
        clock, script = VirtualClock(), Script()
        script.gate("run:busy")
        async with house(MemoryStorage(), script, clock=clock) as system:
            session, root = await home(system)
            idle = await session.create_conversation()
            await start(root, "busy")
            await note(idle, 1)
            await idle.context()
            watch = await idle.watch()
            core = await system.core("s")
            kept = kept_entries(core)
            assert kept() == [1, 1]
            await passed(system, clock, 0)
            await passed(system, clock, IDLE_S)
            assert kept() == [0, 0]
            assert active(system) == ["s"]
            await note(idle, 2)
            assert [entry["data"] for entry in (await anext(watch))[0]["entries"]] == [1, 2]
            assert len((await idle.context()).entries) == 2
            script.open("run:busy")

    asyncio.run(main())


def kept_entries(core):
    """How many transcripts, and mounted views' entries, a session keeps."""
    parts = {kind.__name__: part for kind, part in core._parts.items()}

    def count():
        mounts = parts["Mounts"]._mounts.values()
        return [len(parts["Transcripts"]._kept), sum(mount._entries is not None for mount in mounts)]

    return count
