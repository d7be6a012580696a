import asyncio

import perdure
import pytest
from perdure.actors.conversation import context
from perdure.actors.conversation import transcripts as transcripts_module
from perdure.actors.conversation.context import derive
from perdure.actors.conversation.transcripts import MAX_KEPT, PAGE, Transcripts
from perdure.actors.models import MessageInvalid, from_json, to_json
from perdure.storage.faulty import FaultyStorage
from perdure.storage.records import ContextEdit

from .support import go, history, quiet, scene, user


class HeldReads(FaultyStorage):
    """Scans of entries wait until they are let go: before they read, or between reading and returning."""

    def __init__(self):
        super().__init__(perdure.MemoryStorage())
        self.before = asyncio.Event()
        self.after = asyncio.Event()
        self.waiting = asyncio.Event()
        self.scans = 0
        self.firsts = []
        self.let_go()

    def hold(self, when):
        self.waiting.clear()
        getattr(self, when).clear()

    def let_go(self):
        self.before.set()
        self.after.set()

    async def next_wake(self, after=-1):
        return await self.inner.next_wake(after)

    async def scan_entries(self, session, query, limit, cursor=None):
        self.scans += 1
        self.firsts.append(query.min_entry_id)
        await self._pass(self.before)
        page = await super().scan_entries(session, query, limit, cursor)
        await self._pass(self.after)
        return page

    async def _pass(self, event):
        if not event.is_set():
            self.waiting.set()
            await event.wait()


async def transcripts(s):
    return (await s.system.core("s")).part(Transcripts, Transcripts)


async def add(conversation, count=1, **options):
    """Append notes and give the id of the last."""
    async with conversation.commit() as tx:
        for _ in range(count):
            entry = await tx.append("note", **options)
    return entry.id


def ids(entries):
    return [entry.id for entry in entries]


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_published_while_a_transcript_is_read_is_in_it_once(when):
    """CX-12: late loads race with publications, whichever of them is faster."""

    async def main():
        storage = HeldReads()
        async with scene(storage=storage) as s:
            first = await add(s.root)
            kept = await transcripts(s)
            storage.hold(when)
            reading = asyncio.ensure_future(kept.active(1))
            await storage.waiting.wait()
            second = await add(s.root)
            storage.let_go()
            assert ids(await reading) == [first, second]
            third = await add(s.root)
            assert ids(await kept.active(1)) == [first, second, third]

    go(main)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_head_that_comes_while_a_transcript_is_read_is_applied(when):
    async def main():
        storage = HeldReads()
        async with scene(storage=storage) as s:
            await add(s.root, 2)
            kept = await transcripts(s)
            storage.hold(when)
            reading = asyncio.ensure_future(kept.active(1))
            await storage.waiting.wait()
            marker = await add(s.root, head="self")
            tail = await add(s.root)
            storage.let_go()
            assert ids(await reading) == [marker, tail]

    go(main)


def test_a_head_that_keeps_more_than_the_one_before_is_read_in_full():
    async def main():
        storage = HeldReads()
        async with scene(storage=storage) as s:
            old = [await add(s.root) for _ in range(3)]
            await add(s.root, head="self")
            kept = await transcripts(s)
            storage.hold("before")
            reading = asyncio.ensure_future(kept.active(1))
            await storage.waiting.wait()
            marker = await add(s.root, head=old[1])
            storage.let_go()
            assert ids(await reading) == [marker, *old[1:]]
            wider = await add(s.root, head=old[0])
            assert ids(await kept.active(1)) == [wider, *old]

    go(main)


def test_other_conversations_are_not_disturbed_by_a_load():
    async def main():
        storage = HeldReads()
        async with scene(storage=storage) as s:
            other = await s.session.create_conversation()
            here, there = await add(s.root), await add(other)
            kept = await transcripts(s)
            assert ids(await kept.active(other.id)) == [there]
            storage.hold("after")
            reading = asyncio.ensure_future(kept.active(1))
            await storage.waiting.wait()
            later = await add(other)
            storage.let_go()
            assert ids(await reading) == [here]
            assert ids(await kept.active(other.id)) == [there, later]

    go(main)


def test_a_transcript_is_read_from_storage_once_and_then_grows_by_publications():
    """P10: a request costs its new entries."""

    async def main():
        storage = HeldReads()
        async with scene(storage=storage) as s:
            await add(s.root)
            kept = await transcripts(s)
            await asyncio.gather(*(kept.active(1) for _ in range(5)))
            scans = storage.scans
            assert scans == 1
            for _ in range(3):
                await add(s.root)
                await kept.active(1)
            assert storage.scans == scans
            assert len(await kept.active(1)) == 4

    go(main)


def test_an_empty_transcript_is_read_once_too():
    async def main():
        storage = HeldReads()
        async with scene(storage=storage) as s:
            kept = await transcripts(s)
            assert [await kept.active(1), await kept.active(1)] == [[], []]
            assert storage.scans == 1

    go(main)


def test_a_long_transcript_is_read_page_after_page(storage):
    async def main():
        async with scene(storage=storage) as s:
            await add(s.root, PAGE * 2 + 1)
            assert ids(await (await transcripts(s)).active(1)) == ids(await history(s.root))

    go(main)


def test_everybody_gets_a_list_of_his_own():
    """CX-12."""

    async def main():
        async with scene() as s:
            await add(s.root)
            kept = await transcripts(s)
            (await kept.active(1)).clear()
            assert len(await kept.active(1)) == 1

    go(main)


def test_only_so_many_transcripts_are_kept_once_they_are_long_together(monkeypatch):
    """P10: those that were asked for longest ago go first."""
    monkeypatch.setattr(transcripts_module, "MAX_KEPT_ENTRIES", MAX_KEPT)

    async def main():
        async with scene() as s:
            kept = await transcripts(s)
            conversations = [await s.session.create_conversation() for _ in range(MAX_KEPT + 3)]
            for one in conversations:
                await add(one)
                await kept.active(one.id)
                await kept.active(conversations[0].id)
            assert len(kept._kept) == MAX_KEPT
            assert conversations[0].id in kept._kept
            assert conversations[1].id not in kept._kept
            assert len(await kept.active(conversations[1].id)) == 1

    go(main)


def test_any_number_of_short_transcripts_is_kept():
    async def main():
        async with scene() as s:
            kept = await transcripts(s)
            for _ in range(MAX_KEPT + 3):
                await kept.active((await s.session.create_conversation()).id)
            assert len(kept._kept) == MAX_KEPT + 3

    go(main)


def test_an_unknown_conversation_has_no_transcript():
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.UnknownRecord):
                await (await transcripts(s)).active(99)

    go(main)


@pytest.mark.parametrize("loaded", [False, True], ids=["read late", "kept"])
def test_a_past_entry_shows_the_range_that_was_active_then(loaded):
    """CX-10: later heads and edits have no say in it."""

    async def main():
        async with scene() as s:
            kept = await transcripts(s)
            if loaded:
                await kept.active(1)
            old = [await add(s.root) for _ in range(3)]
            first = await add(s.root, head=old[1])
            after = await add(s.root)
            second = await add(s.root, head="self")
            assert ids(await kept.active(1)) == [second]
            assert ids(await kept.active(1, after)) == [first, old[1], old[2], after]
            assert ids(await kept.active(1, first)) == [first, old[1], old[2]]
            assert ids(await kept.active(1, old[1])) == old[:2]

    go(main)


def test_a_restart_reads_what_is_stored(storage):
    async def main():
        async with scene(storage=storage) as s:
            await add(s.root, 2)
            marker = await add(s.root, head="self")
            tail = await add(s.root)
        async with scene(storage=storage) as s:
            kept = await transcripts(s)
            assert ids(await kept.active(1)) == [marker, tail]
            s.system.kill("session:s")
            await quiet()
            assert ids(await (await transcripts(s)).active(1)) == [marker, tail]

    go(main)


@pytest.fixture
def decoded(monkeypatch):
    """What is decoded from now on."""
    seen = []

    def counting(value):
        seen.append(value)
        return from_json(value)

    monkeypatch.setattr(context, "from_json", counting)
    return seen


def test_a_turn_decodes_its_own_entries_however_long_the_transcript_is(decoded):
    """P10: the cost of a step does not grow with history."""

    async def main():
        costs = []
        async with scene() as s:
            await s.ask()
            for _ in range(40):
                decoded.clear()
                await s.ask()
                costs.append(len(decoded))
            assert len((await s.root.context()).messages) > 80
        assert set(costs[2:]) == {costs[2]}
        assert costs[2] <= 6

    go(main)


def test_what_edits_say_is_decoded_once_too_and_the_newest_counts(decoded):
    async def main():
        async with scene() as s:
            said = await add(s.root, model=[to_json(user("first"))])
            for text in ("second", "third"):
                edit = ContextEdit(target=said, action="replace", messages=[to_json(user(text))])
                await add(s.root, edits=[edit])
                assert (await s.root.context()).messages == [user(text)]
            decoded.clear()
            assert (await s.root.context()).messages == [user("third")]
            assert decoded == []

    go(main)


@pytest.mark.parametrize("loaded", [True, False])
def test_contexts_are_the_same_whether_entries_were_decoded_before_or_not(loaded):
    async def main():
        storage = perdure.MemoryStorage()
        async with scene(storage=storage) as s:
            await s.ask("one")
            before = await add(s.root, model=[to_json(user("two"))])
            if loaded:
                await s.root.context()
            await add(s.root, model=[to_json(user("summary"))], head="self")
            await add(s.root, model=[to_json(user("three"))])
            assert (await s.root.context()).messages == [user("summary"), user("three")]
            past = (await s.root.context(at=before)).messages
            assert past[-1] == user("two")
            assert len(past) == 3
            await add(s.root, head=before)
            assert (await s.root.context()).messages == [user("two"), user("three")]
            active = await (await transcripts(s)).active(1)
            assert (await s.root.context()) == derive(active)

    go(main)


def test_a_context_never_changes_and_each_entry_counts_at_once():
    """CX-12, unlike the reference's: callers share one immutable sequence instead of getting lists of their own."""

    async def main():
        async with scene() as s:
            seen = []
            for count in range(1, 5):
                last = await add(s.root, model=[to_json(user(str(count)))])
                for at in (None, last):
                    view = await s.root.context(at=at)
                    assert view == derive(await history(s.root))
                seen.append((view, derive(await history(s.root))))
            assert all(view == then for view, then in seen)
            assert not any(hasattr(seen[0][0].messages, change) for change in ("append", "clear", "__setitem__"))
            assert (await s.root.context(at=last - 1)).messages == [user(str(one)) for one in range(1, 4)]

    go(main)


def test_a_context_as_of_what_a_conversation_does_not_show_is_refused():
    """DF-07."""

    async def main():
        async with scene() as s:
            other = await s.session.create_conversation()
            here, there = await add(s.root), await add(other)
            for unseen in (there, there + 5, other.id):
                with pytest.raises(perdure.EntryNotVisible) as refused:
                    await s.root.context(at=unseen)
                assert (refused.value.id, refused.value.conversation_id) == (unseen, 1)
                with pytest.raises(perdure.EntryNotVisible):
                    await s.root.entries(at=unseen)
            assert ids((await s.root.context(at=here)).entries) == [here]

    go(main)


def test_what_a_head_leaves_behind_is_no_longer_kept():
    """P10."""

    async def main():
        async with scene() as s:
            await add(s.root, 20, model=[to_json(user("old"))])
            await s.root.context()
            last = await add(s.root, model=[to_json(user("new"))], head="self")
            await s.root.context()
            kept = (await transcripts(s))._kept[1]
            assert ids(kept.entries.items) == list(kept.said) == [last]

    go(main)


def test_an_entry_that_says_nothing_readable_is_an_error_each_time_and_in_its_own_conversation_only():
    async def main():
        async with scene() as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model="scripted/model"))
            async with s.root.commit() as tx:
                tx.core.hooks.check_entry.clear()
                await tx.append("note", model=[{"role": "nobody"}])
            for _ in range(2):
                with pytest.raises(MessageInvalid):
                    await s.root.context()
            assert (await (await other.submit("x")).wait()).answer.text == "re: x"

    go(main)


# --- forks


def test_a_fork_takes_what_it_shares_from_memory_and_reads_what_is_its_own(decoded):
    """P10: neither read nor decoded again."""

    async def main():
        storage = HeldReads()
        async with scene(storage=storage) as s:
            for text in ("one", "two"):
                await s.ask(text)
            whole = await s.root.context()
            fork = await s.root.fork(whole.entries[1].id)
            own = await add(fork, model=[to_json(user("mine"))])
            decoded.clear()
            view = await fork.context()
            assert ids(view.entries) == [*ids(whole.entries)[:2], own]
            assert storage.firsts[-1] == whole.entries[1].id + 1
            assert [value["content"] for value in decoded] == ["mine"]
            assert view == derive(await history(fork))

    go(main)


@pytest.mark.parametrize("where", ["fork", "parent"])
@pytest.mark.parametrize("target", ["first", "second", "self"])
def test_heads_on_either_side_of_a_fork_are_that_sides_own(where, target):
    """B136."""

    async def main():
        async with scene() as s:
            for text in ("one", "two"):
                await add(s.root, model=[to_json(user(text))])
            first, second = ids(await history(s.root))
            await s.root.context()
            fork = await s.root.fork()
            side, other = (fork, s.root) if where == "fork" else (s.root, fork)
            head = {"first": first, "second": second, "self": "self"}[target]
            marker = await add(side, model=[to_json(user("head"))], head=head)
            kept = {"first": [first, second], "second": [second], "self": []}[target]
            assert ids((await side.context()).entries) == [marker, *kept]
            assert ids((await other.context()).entries) == [first, second]

    go(main)


def test_a_fork_of_what_a_head_has_put_away_is_read_from_storage():
    """B136."""

    async def main():
        async with scene() as s:
            old = [await add(s.root, model=[to_json(user(text))]) for text in ("one", "two")]
            marker = await add(s.root, head=old[1])
            await s.root.context()
            fork = await s.root.fork(old[0])
            assert ids((await fork.context()).entries) == old[:1]
            late = await s.root.fork(marker)
            wider = await add(late, head=old[0])
            assert ids((await late.context()).entries) == [wider, *old]

    go(main)


def test_a_long_transcript_is_decoded_in_slices_between_which_others_run():
    """A head that comes meanwhile counts, and what was asked for as of an entry is still found."""

    async def main():
        async with scene() as s:
            await add(s.root, PAGE * 3, model=[to_json(user("x"))])
            last = (await history(s.root))[-1].id
            reading = [asyncio.ensure_future(s.root.context(at=at)) for at in (None, last)]
            marker = await add(s.root, head="self")
            now, then = await asyncio.gather(*reading)
            assert len(then.messages) == PAGE * 3
            assert ids((await s.root.context()).entries) == [marker]
            assert now.newest in (last, marker)

    go(main)
