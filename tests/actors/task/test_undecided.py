"""Cleaning up after tasks that no code of their own could end."""

import asyncio

import perdure


class Broken(perdure.Task[None, None], name="t.broken", version=1):
    class Go(perdure.Phase): ...

    async def go(self, run, state):
        raise ValueError("the phase is broken")

    @staticmethod
    async def undecided(tx, record):
        await tx.append("t.noted", {"task": record.id}, conversation_id=record.conversation_id)
        raise RuntimeError("and so is the cleaning up")


def test_a_task_ends_even_if_cleaning_up_after_it_fails():
    async def main():
        extension = perdure.Extension(name="t", tasks=[Broken])
        async with perdure.System.open(perdure.MemoryStorage(), extensions=[extension]) as system:
            session = await system.session("s")
            root = await session.root()
            async with root.commit() as tx:
                task = await tx.create_task(Broken)
            record = await task.settled()
            entries = (await root.entries()).items
            return record.state.outcome, [entry.data for entry in entries], record.id

    outcome, noted, task = asyncio.run(main())
    assert outcome == perdure.Faulted(error=outcome.error)
    assert outcome.error.message == "the phase is broken"
    assert noted == [{"task": task}]


Refusing = perdure.Doc("t.refusing", checkpoint_when=lambda value, ops, deltas: 1 / 0)


class Worse(perdure.Task[None, None], name="t.worse", version=1):
    class Go(perdure.Phase): ...

    effects = 0

    async def go(self, run, state):
        Worse.effects += 1
        raise ValueError("the phase is broken")

    @staticmethod
    async def undecided(tx, record):
        (await tx.doc(Refusing, record.conversation_id))["x"] = 1


def test_a_task_ends_even_if_what_cleaning_up_has_staged_cannot_be_stored():
    async def main():
        extension = perdure.Extension(name="t", tasks=[Worse])
        async with perdure.System.open(perdure.MemoryStorage(), extensions=[extension]) as system:
            root = await (await system.session("s")).root()
            async with root.commit() as tx:
                await tx.doc(Refusing, root.id)
            async with root.commit() as tx:
                task = await tx.create_task(Worse)
            return (await task.settled()).state.outcome, await root.snapshot(Refusing)

    outcome, document = asyncio.run(asyncio.wait_for(main(), 20))
    assert isinstance(outcome, perdure.Faulted)
    assert (Worse.effects, document) == (1, {})
