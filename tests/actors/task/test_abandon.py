"""Code that does not stop when it is told to (B101)."""

import asyncio

import perdure


class Deaf(perdure.Task[None, None], name="t.deaf", version=1):
    class Go(perdure.Phase): ...

    heard: asyncio.Event
    late: list

    async def go(self, run, state):
        await run.memo("began", value=True)
        while len(Deaf.late) < 2:  # the end of the loop cancels it once more
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                Deaf.heard.set()
                Deaf.late.append(run)


def test_a_task_whose_code_ignores_cancel_is_aborted_after_a_grace_and_its_code_can_store_nothing_more():
    async def main():
        Deaf.heard, Deaf.late = asyncio.Event(), []
        clock = perdure.VirtualClock()
        extension = perdure.Extension(name="t", tasks=[Deaf])
        async with perdure.System.open(perdure.MemoryStorage(), extensions=[extension], clock=clock) as system:
            root = await (await system.session("s")).root()
            async with root.commit() as tx:
                task = await tx.create_task(Deaf)
            while not (await task.record()).memos:
                await asyncio.sleep(0)
            await task.abort()
            await Deaf.heard.wait()
            ended = asyncio.ensure_future(task.settled())
            while not ended.done():
                clock.advance(1)
                await asyncio.sleep(0)
            try:
                await Deaf.late[0].complete()
            except perdure.InvocationEnded:
                refused = True
            return ended.result().state.outcome, refused

    outcome, refused = asyncio.run(asyncio.wait_for(main(), 20))
    assert isinstance(outcome, perdure.Aborted)
    assert refused


def test_a_result_may_hold_tuples_and_is_given_back_as_the_type_says():
    class Pair(perdure.Task[tuple[int, str], tuple[int, str]], name="t.pair", version=1):
        class Go(perdure.Phase):
            seen: tuple[int, ...] = (1, 2)

        async def go(self, run, state):
            assert state.seen == (1, 2)
            await run.complete((run.input[0] + 1, run.input[1]))

    async def main():
        async with perdure.System.open(
            perdure.MemoryStorage(), extensions=[perdure.Extension(name="t", tasks=[Pair])]
        ) as system:
            root = await (await system.session("s")).root()
            async with root.commit() as tx:
                task = await tx.create_task(Pair, (1, "a"))
            return await task.result()

    assert asyncio.run(main()) == (2, "a")


def test_an_entry_whose_messages_no_model_could_read_is_refused():
    async def main():
        async with perdure.System.open(perdure.MemoryStorage()) as system:
            root = await (await system.session("s")).root()
            try:
                async with root.commit() as tx:
                    await tx.append("app.note", model=[{"role": "nobody"}])
            except perdure.PerdureError as error:
                return str(error), (await root.entries()).items
            return None

    error, entries = asyncio.run(main())
    assert "role" in error
    assert entries == []
