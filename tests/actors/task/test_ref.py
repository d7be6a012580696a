"""Handles on tasks: ids only, so they outlive everything but the record."""

import asyncio

import msgspec
import pytest
from perdure import (
    Failed,
    MemoryStorage,
    Phase,
    SessionFailed,
    Task,
    TaskRef,
    TaskUnsuccessful,
    UnknownRecord,
    VirtualClock,
)

from .support import Script, home, opened, scene, start, turns


@scene
async def test_a_result_is_given_as_the_declared_type(script, session, root):
    class Receipt(msgspec.Struct):
        amount: int

    class Pay(Task[int, Receipt], name="test.pay"):
        class Run(Phase):
            pass

        async def run(self, run, state):
            await run.complete(Receipt(run.input))

    session._services.get(type((await session._core()).scheduler.definitions)).install(Pay)
    task = await start(root, 5, kind=Pay)
    assert await task.result() == Receipt(5)
    assert await (await session.task(task.id)).result() == {"amount": 5}


@scene
async def test_a_task_that_did_not_complete_has_no_result_but_a_reason(script, session, root):
    script.on("a", run=lambda run: run.fail("out of stock"))
    task = await start(root, "a")
    with pytest.raises(TaskUnsuccessful, match="out of stock") as unsuccessful:
        await task.result()
    assert isinstance(unsuccessful.value.outcome, Failed)
    assert unsuccessful.value.task_id == task.id


@scene
async def test_an_unknown_task_is_an_error_for_every_question(script, session, root):
    """TS-10."""
    unknown = TaskRef(session._services, "s", 99)
    for call in (unknown.record, unknown.settled, unknown.result, unknown.abort):
        with pytest.raises(UnknownRecord):
            await call()
    with pytest.raises(UnknownRecord):
        await TaskRef(session._services, "s", root.id).settled()


@scene
async def test_aborting_says_whether_the_task_was_live(script, session, root):
    """TS-10."""
    script.gate("run:a")
    task = await start(root, "a")
    assert await task.abort()
    await task.settled()
    assert not await task.abort()


@scene
async def test_handles_are_compared_by_session_and_id(script, session, root):
    task = await start(root, "a")
    same = TaskRef(session._services, "s", task.id)
    assert task == same
    assert hash(task) == hash(same)
    assert task != TaskRef(session._services, "t", task.id)
    assert task != task.id
    assert repr(task) == f"TaskRef('s', {task.id})"


@scene
async def test_a_cancelled_wait_does_not_touch_the_task(script, session, root):
    script.gate("run:a")
    task = await start(root, "a")
    waiting = asyncio.create_task(task.result())
    await script.began("run:a")
    waiting.cancel()
    await turns()
    script.open("run:a")
    assert await task.result() == "a"


def test_a_handle_works_over_crashes_and_restarts(place):
    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(place.store(), script, clock=VirtualClock(autojump=True)) as system:
            _, root = await home(system)
            task = await start(root, "a")
            waiting = asyncio.create_task(task.result())
            await script.began("run:a")
            await turns()
            system.kill("session:s")
            with pytest.raises(SessionFailed):
                await waiting
            script.open("run:a")
            assert await task.result() == "a"
        async with opened(place.store(), script) as system:
            again = TaskRef(system.services, task.session, task.id, str)
            assert await again.result() == "a"

    asyncio.run(main())


def test_many_who_wait_for_one_task_all_hear_of_its_end():
    async def main():
        script = Script()
        script.gate("run:a")
        async with opened(MemoryStorage(), script) as system:
            session, root = await home(system)
            task = await start(root, "a")
            waits = [asyncio.create_task(task.result()) for _ in range(20)]
            await script.began("run:a")
            script.open("run:a")
            assert await asyncio.gather(*waits) == ["a"] * 20
            assert (await session._core())._waiting == {}

    asyncio.run(main())
