"""Watching a document: committed values with the exact operations between them, and how a watch ends."""

import asyncio

import pytest
from perdure import Doc, LineReentry, MemoryStorage, SessionFailed, System, VirtualClock
from perdure.actors.session.watch import watch_document
from perdure.chord import apply

from .support import Rig, rig, turns

CountDoc = Doc("test.count", scope="session", initial=lambda: {"n": 0, "list": []})


async def change(session, **values):
    async with session.commit() as tx:
        (await tx.doc(CountDoc)).update(values)


async def frames(watch, count):
    found = []
    async for value, ops in watch:
        found.append((value, ops))
        if len(found) == count:
            break
    return found


def test_every_commit_gives_its_value_and_the_operations_that_lead_to_it():
    async def main():
        session = await rig()
        await change(session)
        watch = await watch_document(session.core, CountDoc)
        start = watch.value
        for number in range(1, 5):
            async with session.commit() as tx:
                draft = await tx.doc(CountDoc)
                draft["n"] = number
                draft["list"].append(number)
        value = start
        for number, (seen, ops) in enumerate(await frames(watch, 4), 1):
            value = apply(value, ops)
            assert value == seen == {"n": number, "list": list(range(1, number + 1))}

    asyncio.run(main())


def test_nothing_is_missed_or_seen_twice_around_the_moment_of_acquisition():
    """However commits and the acquisition interleave: the watch's value and its frames meet without a gap."""

    async def main():
        for before in range(6):
            session = await rig(auto=False)
            async with session.commit(wait=False) as tx:
                await tx.doc(CountDoc)
            await session.store()
            for number in range(before):
                async with session.commit(wait=False) as tx:
                    (await tx.doc(CountDoc))["n"] = number + 1
            watching = asyncio.create_task(watch_document(session.core, CountDoc))
            await turns()
            later = asyncio.create_task(change(session, n=100))
            await turns()
            await session.store()
            watch = await watching
            await turns()
            await session.store()
            await later
            assert watch.value["n"] == before
            ((value, _),) = await frames(watch, 1)
            assert value["n"] == 100

    asyncio.run(main())


def test_a_watch_shows_durable_values_only():
    """P1."""

    async def main():
        session = await rig(auto=False)
        async with session.commit(wait=False) as tx:
            await tx.doc(CountDoc)
        watching = asyncio.create_task(watch_document(session.core, CountDoc))
        await turns()
        assert not watching.done()
        await session.store()
        watch = await watching
        async with session.commit(wait=False) as tx:
            (await tx.doc(CountDoc))["n"] = 1
        coming = asyncio.create_task(frames(watch, 1))
        await turns()
        assert not coming.done()
        await session.store()
        assert (await coming)[0][0]["n"] == 1

    asyncio.run(main())


def test_there_is_no_watch_of_what_does_not_exist_and_none_is_created():
    """DF-08."""

    async def main():
        session = await rig()
        assert await watch_document(session.core, CountDoc) is None
        assert session.core.seq == 0

    asyncio.run(main())


def test_a_watch_ends_with_its_incarnation_after_the_last_frame():
    async def main():
        session = await rig()
        await change(session)
        watch = await watch_document(session.core, CountDoc)
        await change(session, n=1)
        async with session.commit() as tx:
            await tx.retire_doc(CountDoc)
            (await tx.doc(CountDoc))["n"] = 7  # another incarnation
        seen = [value for value, _ in await frames(watch, 99)]
        assert seen[0]["n"] == 1
        assert all(value is None or value["n"] != 7 for value in seen)
        assert watch.ended.reason == "retired"
        assert len(session.core.subscribers) == 1  # the rig itself

    asyncio.run(main())


@pytest.mark.parametrize("how", ["fails", "closes"])
def test_a_watch_ends_with_its_session(how):
    async def main():
        session = await rig()
        await change(session)
        watch = await watch_document(session.core, CountDoc)
        if how == "fails":
            session.core.fail(RuntimeError())
        else:
            session.core.seal()
            await session.core.finish()
        assert (await watch.closed).reason == "closed"
        assert await frames(watch, 1) == []

    asyncio.run(main())


def test_a_stopped_watch_is_forgotten():
    async def main():
        session = await rig()
        await change(session)
        watch = await watch_document(session.core, CountDoc)
        watch.stop()
        assert len(session.core.subscribers) == 1  # the rig itself
        await change(session, n=1)
        assert await frames(watch, 1) == []

    asyncio.run(main())


def test_a_slow_consumer_gets_one_replacement_for_what_it_did_not_keep_up_with():
    """VE-08: at most 100 undelivered frames."""

    async def main():
        session = await rig()
        await change(session)
        watch = await watch_document(session.core, CountDoc)
        for number in range(1, 102):
            await change(session, n=number)
        ((value, ops),) = await frames(watch, 1)
        assert value["n"] == 101
        assert ops == [["r", value]]

    asyncio.run(main())


def test_watching_inside_a_commit_block_of_the_session_is_refused():
    async def main():
        session = await rig()
        await change(session)
        async with session.commit():
            with pytest.raises(LineReentry):
                await watch_document(session.core, CountDoc)

    asyncio.run(main())


def test_a_session_that_dies_while_somebody_waits_for_a_watch_tells_them():
    """Also when everything that it had admitted is durable."""

    async def main():
        session = await Rig().open()
        await change(session)
        inside, release = asyncio.Event(), asyncio.Event()

        async def hold_the_line():
            async with session.commit():
                inside.set()
                await release.wait()

        holder = asyncio.create_task(hold_the_line())
        await inside.wait()
        watching = asyncio.create_task(watch_document(session.core, CountDoc))
        await turns()
        session.core.fail(RuntimeError())
        release.set()
        ended = await asyncio.gather(holder, watching, return_exceptions=True)
        assert [type(one) for one in ended] == [SessionFailed] * 2

    asyncio.run(main())


def test_a_consumer_follows_a_document_over_a_restart_by_watching_again():
    async def main():
        async with System.open(MemoryStorage(), clock=VirtualClock(autojump=True)) as system:
            session = await system.session("s")
            doc = Doc("test.notes")
            root = await session.root()
            async with root.commit() as tx:
                (await tx.doc(doc, root.id))["n"] = 1
            watch = await root.watch_doc(doc)
            system.kill("session:s")
            assert (await watch.closed).reason == "closed"
            again = await root.watch_doc(doc)
            assert again.value == {"n": 1}
            async with root.commit() as tx:
                (await tx.doc(doc, root.id))["n"] = 2
            assert (await frames(again, 1))[0][0] == {"n": 2}

    asyncio.run(main())
