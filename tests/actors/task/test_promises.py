"""What a task's code may rely on, and what the outside may rely on, at the edges of an invocation."""

import asyncio

import perdure
import pytest
from perdure import Extension, MemoryStorage, Phase, System, Task
from perdure.testing import FaultyStorage

from .support import turns, until

seen = []


@pytest.fixture(autouse=True)
def forget():
    seen.clear()


def play(main):
    return asyncio.run(asyncio.wait_for(main(), 20))


async def started(system, kind, given=None, key="s"):
    root = await (await system.session(key)).root()
    async with root.commit() as tx:
        return await tx.create_task(kind, given)


class Steps(Task[None, None], name="p.steps", version=1):
    class Prepare(Phase): ...

    class Charge(Phase):
        key: str

    async def prepare(self, run, state):
        await run.goto(self.Charge(key="k1"))

    async def charge(self, run, state):
        seen.append(state.key)
        await asyncio.get_running_loop().create_future()


def test_no_phase_begins_before_its_checkpoint_is_stored_not_even_after_a_crash_of_the_tasks_actor():
    async def main():
        store = FaultyStorage(MemoryStorage())
        async with System.open(store, extensions=[Extension(name="p", tasks=[Steps])]) as system:
            await (await system.session("s")).root()
            gate = store.hold(store.writes + 2)
            task = await started(system, Steps)
            await until(lambda: store.writes == 3)
            assert system.kill(f"task:s/{task.id}")
            await turns(300)
            before = list(seen)
            gate.set()
            await until(lambda: seen)
            return before

    assert play(main) == []
    assert seen == ["k1"]


class Child(Task[None, int], name="p.child", version=1):
    class Work(Phase): ...

    go: asyncio.Event

    async def work(self, run, state):
        await Child.go.wait()
        await run.complete(42)


class Looker(Task[int, None], name="p.looker", version=1):
    class Look(Phase): ...

    async def look(self, run, state):
        while (await run.task(run.input)).live:
            await asyncio.sleep(0)
        seen.append((await run.outcomes([run.input]))[0].result)
        await run.complete()


def test_what_a_run_reads_is_stored():
    async def main():
        store = FaultyStorage(MemoryStorage())
        Child.go = asyncio.Event()
        async with System.open(store, extensions=[Extension(name="p", tasks=[Child, Looker])]) as system:
            child = await started(system, Child)
            looker = await started(system, Looker, child.id)
            await turns(100)
            gate = store.hold(store.writes + 1)
            Child.go.set()
            await turns(300)
            before = list(seen)
            gate.set()
            await looker.settled()
            return before

    assert play(main) == []
    assert seen == [42]


class Waits(Task[None, None], name="p.waits", version=1):
    class Go(Phase): ...

    async def go(self, run, state):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("told")
            await turns(50)
            seen.append("cleaned")
            raise


def test_code_is_told_to_stop_once_and_only_when_the_mark_is_stored():
    async def main():
        store = FaultyStorage(MemoryStorage())
        async with System.open(store, extensions=[Extension(name="p", tasks=[Waits])]) as system:
            task = await started(system, Waits)
            await turns(100)
            gate = store.hold(store.writes + 1)
            aborting = asyncio.ensure_future(task.abort())
            await turns(200)
            before = list(seen)
            gate.set()
            await aborting
            await task.abort()
            return before, (await task.settled()).state.outcome

    assert play(main) == ([], perdure.Aborted())
    assert seen == ["told", "cleaned"]


class Leaks(Task[None, None], name="p.leaks", version=1):
    class Go(Phase): ...

    async def go(self, run, state):
        seen.append("effect")
        raise perdure.SessionFailed("another-session")


class CancelsItself(Task[None, None], name="p.cancels", version=1):
    class Go(Phase): ...

    async def go(self, run, state):
        seen.append("effect")
        asyncio.current_task().cancel()
        await asyncio.sleep(0)


@pytest.mark.parametrize(("kind", "runs"), [(Leaks, 1), (CancelsItself, 2)])
def test_code_that_lets_another_sessions_end_out_or_cancels_itself_has_failed_and_does_not_run_for_ever(kind, runs):
    async def main():
        async with System.open(MemoryStorage(), extensions=[Extension(name="p", tasks=[kind])]) as system:
            return (await (await started(system, kind)).settled()).state.outcome

    assert isinstance(play(main), perdure.Faulted)
    assert seen == ["effect"] * runs


class Tidies(Task[bool, None], name="p.tidies", version=1):
    class Begin(Phase): ...

    class Resume(Phase): ...

    async def begin(self, run, state):
        await run.wait([await run.spawn(Quick)], then=self.Resume())
        await asyncio.get_running_loop().create_future()  # tidies up for ever, until the process is gone

    async def resume(self, run, state):
        seen.append("resumed")
        await run.complete()


class Quick(Task[None, None], name="p.quick", version=1):
    class Go(Phase): ...

    async def go(self, run, state):
        await run.complete()


def test_a_wait_that_ended_while_nobody_could_resume_it_wakes_its_session_in_the_next_process():
    async def main():
        store = MemoryStorage()
        kinds = [Extension(name="p", tasks=[Tidies, Quick])]
        async with System.open(store, extensions=kinds) as system:
            task = await started(system, Tidies, given=False)
            await until(lambda: len(system.inspect().sessions.get("s", ())) == 1 and task is not None)
            await turns(200)
            await store.close()  # nothing more is written: the process is as good as gone
        async with System.open(store, extensions=kinds):
            await until(lambda: seen)

    play(main)
    assert seen == ["resumed"]


def test_sessions_whose_keys_look_like_each_others_actors_do_not_meet():
    async def main():
        async with System.open(MemoryStorage(), extensions=[Extension(name="p", tasks=[Waits])]) as system:
            task = await started(system, Waits, key="session:y")
            for key in (f"y/{task.id}", f"session:y/{task.id}", "guard:y", "y"):
                await (await system.session(key)).root()
            return await system.core("session:y") is not None

    assert play(main)


def test_closing_a_system_stores_no_outcome_for_what_was_running():
    """CR-07."""

    async def main():
        store = MemoryStorage()
        kinds = [Extension(name="p", tasks=[Steps, Quick])]
        for steps in range(0, 60, 3):
            async with System.open(store, extensions=kinds) as system:
                task = await started(system, Steps, key=f"s{steps}")
                await turns(steps)
            await store.open()
            record = await store.task(f"s{steps}", task.id)
            await store.close()
            assert record.live

    play(main)
