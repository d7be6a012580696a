"""What a session's death means for those who wait for it, wherever they wait."""

import asyncio

import perdure
import pytest


def play(main):
    return asyncio.run(asyncio.wait_for(main(), 20))


def test_whoever_waits_for_the_line_learns_of_the_sessions_death_though_the_holder_is_stuck():
    async def main():
        async with perdure.System.open(perdure.MemoryStorage()) as system:
            root = await (await system.session("s")).root()
            held, never = asyncio.Event(), asyncio.Event()

            async def hold():
                async with root.commit():
                    held.set()
                    await never.wait()

            async def wait():
                async with root.commit() as tx:
                    await tx.append("app.note")

            holding = asyncio.ensure_future(hold())
            await held.wait()
            waiting = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            system.kill("session:s")
            with pytest.raises(perdure.SessionFailed):
                await waiting
            never.set()
            with pytest.raises(perdure.SessionFailed):
                await holding
            await wait()
            return [entry.kind for entry in (await root.entries()).items]

    assert play(main) == ["app.note"]


class Held(perdure.MemoryStorage):
    """Lets a reader wait in the middle of reading a document."""

    def __init__(self):
        super().__init__()
        self.reading, self.go_on = asyncio.Event(), asyncio.Event()
        self.armed = False

    async def find_document(self, *args, **kwargs):
        if self.armed:
            self.reading.set()
            await self.go_on.wait()
        return await super().find_document(*args, **kwargs)


Note = perdure.Doc("app.note", scope="session")


def test_a_watch_that_was_being_made_while_its_session_died_ends_or_is_refused():
    async def main():
        store = Held()
        async with perdure.System.open(store) as system:
            session = await system.session("s")
            async with session.commit() as tx:
                await tx.doc(Note)
            system.kill("session:s")  # the next life has not read the document yet
            core = await system.core("s")
            store.armed = True
            from perdure.actors.session.watch import watch_document

            making = asyncio.ensure_future(watch_document(core, Note))
            await store.reading.wait()
            system.kill("session:s")
            store.armed = False
            store.go_on.set()
            try:
                watch = await making
            except perdure.SessionFailed:
                return "refused"
            return (await watch.closed).reason

    assert play(main) in ("refused", "closed")
