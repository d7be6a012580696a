"""The storage actor: groups, refusals, failures, and what comes back after them."""

import asyncio

import pytest
from perdure import MemoryStorage, SessionFailed, StorageRejected, System, VirtualClock
from perdure.actors.runtime import ActorSystem
from perdure.actors.session.storage_actor import CatchUp, StorageActor, Store
from perdure.storage.faulty import FaultyStorage, InjectedFailure
from perdure.storage.records import Batch, ConversationRecord

from .support import turns, until


class Faulty(FaultyStorage):
    """Also counts how often storage was opened and told to use a quiet moment."""

    def __init__(self):
        super().__init__(MemoryStorage())
        self.opened = self.idled = 0

    async def open(self):
        self.opened += 1
        await super().open()

    async def idle(self):
        self.idled += 1


def opened(storage, **options):
    return System.open(storage, **options)


async def homes(system, *keys):
    """A root conversation in each session."""
    return [await (await system.session(key)).root() for key in keys]


async def note(conversation, text):
    async with conversation.commit() as tx:
        await tx.append("note", text)


async def notes(conversation):
    return [entry.data for entry in (await conversation.entries(order="ascending")).items]


def sessions_of(group):
    return [batch.session for batch in group]


def test_batches_that_come_while_a_group_is_written_form_the_next_group():
    async def main():
        storage = Faulty()
        async with opened(storage) as system:
            roots = await homes(system, *"abcdef")
            written = len(storage.groups)
            release = storage.hold(storage.writes + 1)
            writing = [asyncio.create_task(note(roots[0], 0))]
            await turns()
            for number in (1, 2):
                writing += [asyncio.create_task(note(root, number)) for root in roots]
                await turns()
            assert not any(one.done() for one in writing)
            release.set()
            await asyncio.gather(*writing)
            groups = storage.groups[written:]
            assert [sessions_of(group) for group in groups] == [["a"], list("abcdef") * 2]
            assert await notes(roots[0]) == [0, 1, 2]

    asyncio.run(main())


def test_an_actor_that_has_ended_admits_nothing_and_says_so():
    """P1: a batch that nobody will store is refused to its session, and does not wait for ever."""

    async def main():
        storage = Faulty()
        store = Store(storage)
        await store.open()
        async with ActorSystem() as system:
            ref = system.spawn(StorageActor, store)
            actor = ref._incarnation.actor
            await ref.ask(CatchUp("s"), block=False)
            await ref.stop(block=False)
            batch = Batch(session="s", seq=1, last_id=1, writes=[ConversationRecord(id=1)])
            assert not actor.admit(None, batch)
            await turns()
        assert storage.groups == []
        await storage.close()

    asyncio.run(main())


def test_a_group_is_not_larger_than_its_limit(monkeypatch):
    monkeypatch.setattr("perdure.actors.session.storage_actor.MAX_GROUP_WRITES", 3)

    async def main():
        storage = Faulty()
        async with opened(storage) as system:
            (root,) = await homes(system, "a")
            written = len(storage.groups)
            await asyncio.gather(*(note(root, number) for number in range(8)))
            assert [len(group) for group in storage.groups[written:]] == [3, 3, 2]
            assert await notes(root) == list(range(8))

    asyncio.run(main())


def test_commits_of_a_session_are_stored_in_order_without_gaps():
    async def main():
        storage = Faulty()
        async with opened(storage) as system:
            (root,) = await homes(system, "a")
            await asyncio.gather(*(note(root, number) for number in range(100)))
            seqs = [batch.seq for group in storage.groups for batch in group]
            assert seqs == list(range(1, len(seqs) + 1))
            assert await notes(root) == list(range(100))

    asyncio.run(main())


def test_a_refused_batch_fails_its_session_alone_and_the_others_are_stored():
    async def main():
        storage = Faulty()
        async with opened(storage, clock=VirtualClock(autojump=True)) as system:
            roots = await homes(system, "a", "b", "c")
            release = storage.hold(storage.writes + 1)
            writing = [asyncio.create_task(note(roots[0], "held"))]
            await turns()
            writing += [asyncio.create_task(note(root, "grouped")) for root in roots]
            await turns()
            storage.fail(storage.writes + 1, error=StorageRejected("no", index=1))  # the batch of b
            release.set()
            ended = await asyncio.gather(*writing, return_exceptions=True)
            assert [type(one) for one in ended] == [type(None), type(None), SessionFailed, type(None)]
            assert isinstance(ended[2].__cause__, StorageRejected)
            assert storage.opened == 1  # the store itself is good
            assert [await notes(root) for root in roots] == [["held", "grouped"], [], ["grouped"]]
            await note(roots[1], "again")
            assert await notes(roots[1]) == ["again"]

    asyncio.run(main())


def test_later_batches_of_a_refused_session_are_not_stored_either():
    """Each was computed on top of the one before."""

    async def main():
        storage = Faulty()
        async with opened(storage, clock=VirtualClock(autojump=True)) as system:
            (root,) = await homes(system, "a")
            release = storage.hold(storage.writes + 1)
            writing = [asyncio.create_task(note(root, 0))]
            await turns()
            writing += [asyncio.create_task(note(root, number)) for number in (1, 2, 3)]
            await turns()
            storage.fail(storage.writes + 1, error=StorageRejected("no", index=0))
            release.set()
            ended = await asyncio.gather(*writing, return_exceptions=True)
            assert [type(one) for one in ended] == [type(None)] + [SessionFailed] * 3
            assert await notes(root) == [0]
            await note(root, 4)
            assert await notes(root) == [0, 4]

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_of_unknown_outcome_fails_every_session_and_all_come_back(when):
    """P8: with what is stored, whatever that is."""

    async def main():
        storage = Faulty()
        async with opened(storage, clock=VirtualClock(autojump=True)) as system:
            roots = await homes(system, "a", "b", "idle")
            seen = []
            core = (await system.session("a"))._core
            (await core()).subscribe(seen.append)
            storage.fail(storage.writes + 1, when)
            watching = asyncio.create_task((await system.session("idle")).wait_for_idle())
            ended = await asyncio.gather(note(roots[0], 1), note(roots[1], 1), return_exceptions=True)
            await asyncio.gather(watching, return_exceptions=True)
            assert [type(one) for one in ended] == [SessionFailed] * 2
            assert isinstance(ended[0].__cause__, InjectedFailure)
            assert seen == []
            there = [1] if when == "after" else []
            assert await notes(roots[0]) == there
            assert storage.opened == 2
            await asyncio.gather(*(note(root, 2) for root in roots))
            assert [await notes(root) for root in roots] == [[*there, 2], [*there, 2], [2]]

    asyncio.run(main())


def test_every_session_with_batches_behind_a_failed_write_fails_too():
    async def main():
        storage = Faulty()
        async with opened(storage, clock=VirtualClock(autojump=True)) as system:
            roots = await homes(system, "a", "b")
            release = storage.hold(storage.writes + 1)
            storage.fail(storage.writes + 1, "after")
            first = asyncio.create_task(note(roots[0], 1))
            await turns()
            second = asyncio.create_task(note(roots[1], 1))
            await turns()
            release.set()
            ended = await asyncio.gather(first, second, return_exceptions=True)
            assert [type(one) for one in ended] == [SessionFailed] * 2
            assert [await notes(root) for root in roots] == [[1], []]

    asyncio.run(main())


def test_a_killed_storage_actor_fails_every_session_and_comes_back():
    async def main():
        storage = Faulty()
        async with opened(storage, clock=VirtualClock(autojump=True)) as system:
            roots = await homes(system, "a", "b")
            storage.hold(storage.writes + 1)
            writing = [asyncio.create_task(note(root, 1)) for root in roots]
            await turns()
            assert system.kill("storage")
            ended = await asyncio.gather(*writing, return_exceptions=True)
            assert [type(one) for one in ended] == [SessionFailed] * 2
            await asyncio.gather(*(note(root, 2) for root in roots))
            assert [await notes(root) for root in roots] == [[2], [2]]
            assert storage.opened == 2

    asyncio.run(main())


def test_an_io_error_that_repeats_three_times_and_heals_costs_no_acknowledged_commit():
    """B026, B014."""

    async def main():
        storage = Faulty()
        async with opened(storage, clock=VirtualClock(autojump=True)) as system:
            (root,) = await homes(system, "a")
            acknowledged, failures = [], 0
            for number in range(8):
                if number in (2, 3, 5):
                    storage.fail(storage.writes + 1, error=None)
                try:
                    await note(root, number)
                    acknowledged.append(number)
                except SessionFailed:
                    failures += 1
            assert (acknowledged, failures) == ([0, 1, 4, 6, 7], 3)
            assert await notes(root) == acknowledged

    asyncio.run(main())


def test_storage_that_cannot_be_opened_again_ends_the_system_and_everybody_is_told():
    """P11: nobody waits for ever."""

    class Gone(Faulty):
        async def open(self):
            if self.opened:
                raise OSError("no such device")
            await super().open()

    async def main():
        storage = Gone()
        async with opened(storage, clock=VirtualClock(autojump=True)) as system:
            (root,) = await homes(system, "a")
            storage.fail(storage.writes + 1)
            with pytest.raises(SessionFailed):
                await note(root, 1)
            with pytest.raises(Exception, match="the system is closed"):
                await note(root, 2)

    asyncio.run(main())


def test_a_quiet_moment_is_given_to_storage_once_nobody_waits():
    async def main():
        storage = Faulty()
        clock = VirtualClock()
        async with opened(storage, clock=clock) as system:
            (root,) = await homes(system, "a")
            for number in range(5):
                await note(root, number)
                clock.advance(0.04)
                await turns()
            assert storage.idled == 0
            clock.advance(0.06)
            await until(lambda: storage.idled == 1)
            clock.advance(10)
            await turns()
            assert storage.idled == 1

    asyncio.run(main())
