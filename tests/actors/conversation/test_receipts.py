"""Commands with a request id: done once, however often they are sent, through crashes and reopenings."""

import perdure
import pytest
from perdure.actors.conversation import receipts
from perdure.actors.conversation.errors import RequestIdReused
from perdure.storage.contract import DocumentQuery
from perdure.storage.records import ConversationScope

from ..agent.compacting import both, compactions, fill, heads, small
from .support import MODEL, Faults, echo, go, history, scene

TOLD = perdure.Agent(model=MODEL, instructions="be brief")


async def create(s):
    """Create a conversation with an agent."""
    return (await s.session.create_conversation(agent=TOLD, request_id="r")).id


async def fork(s):
    """Fork the root conversation with an agent of its own."""
    return (await s.root.fork(agent=TOLD, request_id="r")).id


async def conversations(s):
    """The ids of all conversations but the root."""
    return [one.id for one in (await s.session.conversations()).items if one.id != s.root.id]


@pytest.mark.parametrize("command", [create, fork])
def test_a_conversation_is_made_once_also_after_a_reopening(storage, command):
    """P9: the same id gives the same conversation, whose agent somebody may have changed meanwhile."""

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            made = await command(s)
            assert await command(s) == made
            await (await s.session.conversation(made)).configure(perdure.Agent(instructions="be long"))
        async with scene(storage=storage) as s:
            await s.ask("two")
            assert await command(s) == made
            assert await conversations(s) == [made]
            agent = await (await s.session.conversation(made)).snapshot(perdure.AgentDoc)
            assert agent["instructions"] == "be long"

    go(main)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
@pytest.mark.parametrize("command", [create, fork])
def test_a_crash_at_the_commit_of_a_conversation_makes_it_once_with_its_receipt(tmp_path, command, backend, when):
    """P9, B137: whether or not the commit was stored, sending again gives one conversation, with its agent."""
    sqlite = backend == "sqlite"
    inner = perdure.SqliteStorage(tmp_path / "s.db") if sqlite else perdure.JsonlStorage(tmp_path / "s")

    async def main():
        storage = Faults(inner)
        async with scene(storage=storage) as s:
            await s.ask("one")
            storage.crash(storage.writes + 1, when)
            with pytest.raises(perdure.SessionFailed):
                await command(s)
        async with scene(storage=inner) as s:
            assert len(await conversations(s)) == (when == "after")
            made = await command(s)
            assert await conversations(s) == [made]
            agent = await (await s.session.conversation(made)).snapshot(perdure.AgentDoc)
            assert agent["instructions"] == "be brief"

    go(main)


def test_a_compaction_is_made_once_and_sending_it_again_gives_what_became_of_it(storage):
    """P9, B124: also after a reopening, and after there is more that could be summarized."""

    async def main():
        async with scene(**small(both(echo)), storage=storage) as s:
            await fill(s.root, *[400] * 5)
            done = await s.root.compact(request_id="r")
            assert done.status == "placed"
            assert await s.root.compact(request_id="r") == done
        async with scene(**small(both(echo)), storage=storage) as s:
            await fill(s.root, *[400] * 5)
            assert await s.root.compact("other words", request_id="r") == done
            assert heads(await history(s.root)) == [done.entry]
            assert len(await compactions(s.session)) == 1
            assert (await s.root.compact(request_id="another")).entry != done.entry

    go(main)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
def test_a_crash_at_every_commit_of_a_compaction_makes_it_once(tmp_path, backend, when):
    """P9, B124: the caller that was told of no result sends it again, and there is one summary."""

    async def attempt(offset):
        sqlite = backend == "sqlite"
        place = tmp_path / str(offset)
        inner = perdure.SqliteStorage(place) if sqlite else perdure.JsonlStorage(place)
        storage, failed = Faults(inner), False
        async with scene(**small(both(echo)), storage=storage) as s:
            await fill(s.root, *[400] * 5)
            storage.crash(storage.writes + 1 + offset, when)
            try:
                await s.root.compact(request_id="r")
            except perdure.PerdureError:
                failed = True
        async with scene(**small(both(echo)), storage=inner) as s:
            done = await s.root.compact(request_id="r")
            assert done.status == "placed"
            assert heads(await history(s.root)) == [done.entry]
            assert [one.id for one in await compactions(s.session)] == [done.task_id]
        return failed

    async def main():
        crashes = 0
        while await attempt(crashes):
            crashes += 1
        assert crashes >= 3, "the command, its checkpoint, its placement"

    go(main, within=60.0)


def test_an_id_that_named_another_command_is_refused_and_nothing_happens(storage):
    """P11."""

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            made = await fork(s)
            for again in (s.root.compact, s.root.abort, lambda **given: s.root.configure(TOLD, **given)):
                with pytest.raises(RequestIdReused, match="fork"):
                    await again(request_id="r")
            assert await conversations(s) == [made]
            assert await compactions(s.session) == []

    go(main)


def test_a_command_that_was_refused_leaves_its_id_free(storage):
    """P11: an error is no result."""

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            with pytest.raises(perdure.EntryNotVisible):
                await s.root.fork(at=999, request_id="r")
            assert await conversations(s) == []
            made = await fork(s)
            assert await conversations(s) == [made]

    go(main)


def test_only_the_newest_receipts_are_kept_and_a_fork_costs_no_more_for_them(storage, monkeypatch):
    """P9, P10: an id may be sent again until so many newer ones were; then it is new."""
    monkeypatch.setattr(receipts, "KEPT", 3)

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            made = [(await s.root.fork(request_id=str(number))).id for number in range(4)]
            made += [(await s.session.create_conversation(request_id=str(number))).id for number in range(4)]
        async with scene(storage=storage) as s:
            for number in (1, 2, 3):
                assert (await s.root.fork(request_id=str(number))).id == made[number]
                assert (await s.session.create_conversation(request_id=str(number))).id == made[4 + number]
            assert (await s.root.fork(request_id="0")).id not in made
            assert (await s.session.create_conversation(request_id="0")).id not in made
            assert len(await conversations(s)) == 10
            query = DocumentQuery(scope=ConversationScope(conversation_id=s.root.id))
            stored = (await storage.scan_documents("s", query, 100)).items
            assert [one.kind for one in stored].count("pi.receipts") == 1

    go(main)


def test_an_abort_keeps_no_list_of_what_it_reached():
    """P10."""

    async def main():
        async with scene() as s:
            await s.root.abort(background=True, request_id="r")
            assert (await s.root.snapshot(receipts.ReceiptsDoc))["r"] == {"command": "abort", "result": None}

    go(main)


def test_a_reset_is_made_once():
    """P9: a submission is its own receipt."""

    async def main():
        async with scene() as s:
            await s.ask("one")
            first = await s.root.reset(request_id="r")
            await first.wait()
            await s.ask("two")
            assert (await s.root.reset(request_id="r")).id == first.id
            assert len([one for one in await history(s.root) if one.head is not None]) == 1

    go(main)
