"""Deleting a conversation under a running system: its work ends, nothing of it is left, and whoever looks at it is told."""

import asyncio

import perdure
import pytest
from perdure.actors.conversation.deletion import DeletionsDoc
from perdure.models import UserMessage, call, plain_text
from perdure.storage.contract import EntryQuery, SubmissionQuery, TaskQuery
from perdure.storage.faulty import FaultyStorage
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.memory import MemoryStorage

AGENT = perdure.Agent(model="scripted/model")
STORES = {
    "memory": lambda folder: MemoryStorage(),
    "sqlite": lambda folder: perdure.SqliteStorage(folder / "s.db"),
    "jsonl": lambda folder: JsonlStorage(folder / "store"),
}


class Office:
    """A session in which a tool can be held in the middle of its work."""

    def __init__(self, storage):
        self.storage = storage
        self.free, self.working, self.left = asyncio.Event(), asyncio.Event(), []

        @perdure.tool(replay="safe")
        async def work(ctx: perdure.ToolContext) -> str:
            """Work."""
            self.working.set()
            try:
                await self.free.wait()
            finally:
                self.left.append(ctx.conversation_id)
            return "done"

        def brain(request):
            last = request.messages[-1]
            said = plain_text(last.content) if isinstance(last, UserMessage) else ""
            if said == "work":
                return call("work")
            return call("subagent", task="work") if said == "delegate" else f"answer {len(request.messages)}"

        self.options = {
            "models": [perdure.ScriptedModel(brain)],
            "extensions": [
                perdure.Extension(name="work", tools=[work]),
                perdure.Extension(name="help", tools=[perdure.subagent()], tasks=[Lasting]),
            ],
            "clock": perdure.VirtualClock(autojump=True, quiet_s=0.001),
        }

    def open(self):
        return perdure.System.open(self.storage, **self.options)


@pytest.fixture(params=STORES)
def office(request, tmp_path):
    return Office(FaultyStorage(STORES[request.param](tmp_path)))


@pytest.fixture
def in_memory():
    return Office(FaultyStorage(MemoryStorage()))


class Lasting(perdure.Task[None, None], name="t.lasting"):
    """Lasts until it is aborted."""

    class Go(perdure.Phase): ...

    async def go(self, run, state):
        await asyncio.Event().wait()


async def chat(session, *said):
    """Begin a conversation and have things said in it."""
    conversation = await session.create_conversation(agent=AGENT)
    for text in said:
        await (await conversation.submit(text)).wait()
    return conversation


async def left_of(storage, conversation):
    """List what storage still holds of a conversation of session "s"."""
    key, found = "s", []
    if await storage.conversation(key, conversation) is not None:
        found += [("entry", one.id) for one in (await storage.scan_entries(key, entries(conversation), 999)).items]
        found.append(("conversation", conversation))
    query = {"conversation_id": conversation}
    found += [("task", one.id) for one in (await storage.scan_tasks(key, TaskQuery(**query), 999)).items]
    submissions = await storage.scan_submissions(key, SubmissionQuery(**query), 999)
    found += [("submission", one.id) for one in submissions.items]
    documents = (await storage.incarnations(key, 999)).items
    return found + [
        ("document", one.id) for one in documents if getattr(one.scope, "conversation_id", 0) == conversation
    ]


def entries(conversation):
    return EntryQuery(conversation_id=conversation)


async def ids(session):
    return [one.id for one in (await session.conversations()).items]


def test_nothing_of_a_deleted_conversation_is_left_and_others_never_notice(office):
    async def run():
        async with office.open() as system:
            session = await system.session("s")
            spared, doomed = await chat(session, "hello"), await chat(session, "one", "two")
            before = await spared.entries()
            await session.delete_conversation(doomed.id)
            assert await ids(session) == [spared.id]
            assert (await spared.entries()) == before
            assert (await (await spared.submit("more")).wait()).status == "done"
            for ask in (doomed.context, doomed.entries, doomed.usage, doomed.watch, doomed.fork, doomed.abort):
                with pytest.raises(perdure.UnknownRecord):
                    await ask()
            for ask in (doomed.submit, doomed.write):
                with pytest.raises(perdure.UnknownRecord):
                    await ask("note")
            for ask in (session.conversation, session.delete_conversation):
                with pytest.raises(perdure.UnknownRecord):
                    await ask(doomed.id)
            assert await doomed.snapshot(perdure.LiveDoc) is None
            assert (await chat(session)).id > doomed.id
            assert await left_of(office.storage, doomed.id) == []
        async with office.open() as system:
            session = await system.session("s")
            assert await left_of(office.storage, doomed.id) == []
            with pytest.raises(perdure.UnknownRecord):
                await session.conversation(doomed.id)
            assert len((await (await session.conversation(spared.id)).entries()).items) > len(before.items)

    asyncio.run(run())


def test_running_work_is_aborted_and_whoever_waits_is_told(office):
    async def run():
        async with office.open() as system:
            session = await system.session("s")
            doomed = await chat(session, "hello")
            running = await doomed.submit("work")
            await office.working.wait()
            later, write = await doomed.submit("later"), await doomed.write("note", {"n": 1})
            waiting = [asyncio.ensure_future(one.wait()) for one in (running, later, write)]
            await session.delete_conversation(doomed.id)
            assert [(one.status, one.reason) for one in await asyncio.gather(*waiting)] == [
                ("unanswered", "aborted")
            ] * 3
            assert office.left == [doomed.id], "the tool runs on"
            assert await session.tasks() == []
            assert await left_of(office.storage, doomed.id) == []
            for one in (running, later, write):
                with pytest.raises(perdure.UnknownRecord):
                    await one.wait()

    asyncio.run(run())


def test_subagents_go_with_their_conversation(office):
    async def run():
        async with office.open() as system:
            session = await system.session("s")
            doomed = await chat(session)
            await doomed.submit("delegate")
            await office.working.wait()
            (_, owned) = await ids(session)
            with pytest.raises(perdure.ConversationKept, match="which lives"):
                await session.delete_conversation(owned)
            assert await session.tasks() != []
            await session.delete_conversation(doomed.id)
            assert office.left == [owned]
            assert await ids(session) == []
            assert await left_of(office.storage, owned) == await left_of(office.storage, doomed.id) == []

    asyncio.run(run())


def test_the_root_stays(in_memory):
    async def run():
        async with in_memory.open() as system:
            session = await system.session("s")
            root = await session.root()
            with pytest.raises(perdure.ConversationKept, match="root"):
                await session.delete_conversation(root.id)
            with pytest.raises(perdure.UnknownRecord):
                await session.delete_conversation(root.id + 1)
            assert await ids(session) == [root.id]
            assert not in_memory.storage.groups[-1][0].wake

    asyncio.run(run())


def test_forks_lose_nothing_of_what_they_show(office):
    async def run():
        async with office.open() as system:
            session = await system.session("s")
            doomed = await chat(session, "one", "two")
            shown = (await doomed.entries(order="ascending")).items
            fork = await doomed.fork(shown[-2].id)
            was = await fork.context()
            agent = await doomed.snapshot_as_of(perdure.AgentDoc, shown[0].id)
            await session.delete_conversation(doomed.id)
            assert await ids(session) == [fork.id]
            assert (await fork.context()).messages == was.messages
            assert await fork.snapshot_as_of(perdure.AgentDoc, shown[0].id) == agent
            assert (await (await fork.submit("three")).wait()).status == "done"
            again = await fork.fork(shown[0].id)
            assert await again.snapshot(perdure.AgentDoc) == agent
            assert [one async for one in fork.export("markdown")]
            with pytest.raises(perdure.UnknownRecord):
                await session.conversation(doomed.id)
            assert [one.id for one in (await fork.entries(order="ascending")).items][: len(shown) - 1] == [
                one.id for one in shown[:-1]
            ]
            assert await office.storage.entry("s", shown[-1].id) is None
        async with office.open() as system:
            session = await system.session("s")
            assert await ids(session) == [fork.id, again.id]
            await session.delete_conversation(fork.id)
            await session.delete_conversation(again.id)
            for one in (doomed, fork, again):
                assert await left_of(office.storage, one.id) == []

    asyncio.run(run())


def test_watches_end_with_what_they_watch(in_memory):
    async def run():
        async with in_memory.open() as system:
            session = await system.session("s")
            spared, doomed = await chat(session, "hello"), await chat(session, "hello")
            view, events, listing = (
                await doomed.watch(),
                await doomed.watch_events(),
                await session.watch_conversations(),
            )
            document, other = await doomed.watch_doc(perdure.LiveDoc), await spared.watch()
            await doomed.context()
            await session.delete_conversation(doomed.id)
            assert [value async for value, _ in document] == [None]
            async for _ in view:
                pass
            async for _ in events:
                pass
            assert [one.ended.reason for one in (view, events, document)] == ["retired"] * 3
            assert other.ended is None
            value, ops = await anext(listing)
            assert ops == [["d", ["conversations", str(doomed.id)]]]
            assert list(value["conversations"]) == [str(spared.id)]
            assert listing.ended is None

    asyncio.run(run())


def test_a_request_id_makes_sending_it_again_harmless(office):
    async def run():
        async with office.open() as system:
            session = await system.session("s")
            one, two = await chat(session, "hello"), await chat(session)
            await session.delete_conversation(one.id, request_id="r")
            await session.delete_conversation(one.id, request_id="r")
            with pytest.raises(perdure.RequestIdReused):
                await session.delete_conversation(two.id, request_id="r")
            assert await ids(session) == [two.id]

    asyncio.run(run())


def test_a_tool_cannot_delete_what_it_runs_in(in_memory):
    refused = []

    @perdure.tool(replay="safe")
    async def work(ctx: perdure.ToolContext) -> str:
        """Work."""
        with pytest.raises(perdure.WaitCycle):
            await refused[0].delete_conversation(ctx.conversation_id)
        refused.append("refused")
        return "done"

    async def run():
        in_memory.options["extensions"] = [perdure.Extension(name="work", tools=[work])]
        async with in_memory.open() as system:
            session = await system.session("s")
            refused.append(session)
            conversation = await chat(session, "work")
            assert refused[1:] == ["refused"]
            assert await ids(session) == [conversation.id]

    asyncio.run(run())


def test_whoever_stops_waiting_does_not_stop_it(in_memory):
    async def run():
        async with in_memory.open() as system:
            session = await system.session("s")
            doomed = await chat(session)
            await doomed.submit("work")
            await in_memory.working.wait()
            held = in_memory.storage.hold(in_memory.storage.writes + 1)
            asked = asyncio.ensure_future(session.delete_conversation(doomed.id))
            while not await session_marks(session):
                await asyncio.sleep(0)
            asked.cancel()
            held.set()
            with pytest.raises(asyncio.CancelledError):
                await asked
            with pytest.raises(perdure.UnknownRecord):
                await session.delete_conversation(doomed.id)
                await session.delete_conversation(doomed.id)
            assert await left_of(in_memory.storage, doomed.id) == []

    asyncio.run(run())


async def session_marks(session):
    core = await session._core()
    return core.unfinished


async def doomed_in(system, office):
    """Have a conversation with running work, something queued and a subagent; and a fork of it beside it."""
    session = await system.session("s")
    doomed = await chat(session, "hello")
    fork = await doomed.fork()
    await doomed.submit("delegate")
    await office.working.wait()
    await doomed.submit("later")
    return session, doomed, fork


async def commits_of_a_deletion():
    """Count the writes before and after a deletion."""
    office = Office(FaultyStorage(MemoryStorage()))
    async with office.open() as system:
        session, doomed, _ = await doomed_in(system, office)
        before = office.storage.writes
        await session.delete_conversation(doomed.id)
        return before, office.storage.writes


BEFORE, AFTER = asyncio.run(commits_of_a_deletion())


def test_a_deletion_takes_several_commits():
    assert AFTER - BEFORE >= 3


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(AFTER - BEFORE))
def test_a_crash_at_any_commit_is_made_up_for(tmp_path, store, when, number):
    """Once the mark is stored the deletion is finished by whoever opens the store, though nobody asks for the session."""
    office = Office(FaultyStorage(STORES[store](tmp_path)))

    async def first():
        async with office.open() as system:
            session, doomed, fork = await doomed_in(system, office)
            shown = await fork.entries()
            office.storage.crash(office.storage.writes + 1 + number, when)
            try:
                await session.delete_conversation(doomed.id, request_id="d")
            except perdure.SessionFailed:
                crashed.append(number)
            return doomed.id, fork.id, shown

    async def second(doomed, fork, shown):
        async with office.open() as system:
            marked = (number, when) != (0, "before")
            if marked:
                await until_gone(office.storage, doomed)
            session = await system.session("s")
            office.free.set()
            await session.delete_conversation(doomed, request_id="d")
            assert await ids(session) == [fork]
            assert await (await session.conversation(fork)).entries() == shown
            assert await session.snapshot(DeletionsDoc) == {"conversations": {}}
            assert (await (await (await session.conversation(fork)).submit("hello")).wait()).status == "done"
            row = await office.storage.session("s")
            assert row.wake is None
            stored = (await office.storage.scan_tasks("s", TaskQuery(), 99)).items
            assert {one.conversation_id for one in stored} == {fork}

    crashed = []
    found = asyncio.run(first())
    asyncio.run(second(*found))
    assert crashed


async def until_gone(storage, conversation):
    """Wait until a conversation, which forks keep, is deleted."""
    async with asyncio.timeout(30):
        while not (await storage.conversation("s", conversation)).deleted:
            await asyncio.sleep(0.002)


def test_work_that_begins_meanwhile_is_aborted_too(in_memory):
    async def run():
        async with in_memory.open() as system:
            session = await system.session("s")
            doomed = await chat(session)
            await doomed.submit("work")
            await in_memory.working.wait()
            begun = asyncio.Event()
            in_memory.storage.call(in_memory.storage.writes + 1, "before", begin(doomed, begun))
            await session.delete_conversation(doomed.id)
            await begun.wait()
            assert await session.tasks() == []
            assert await left_of(in_memory.storage, doomed.id) == []

    def begin(doomed, begun):
        async def meanwhile():
            asyncio.get_running_loop().create_task(start(doomed, begun))

        return meanwhile

    async def start(doomed, begun):
        async with doomed.commit() as tx:
            await tx.create_task(Lasting, background=True)
        with pytest.raises(perdure.UnknownRecord):
            await doomed.submit("work")
        begun.set()

    asyncio.run(run())


def test_what_it_has_spent_counts_no_longer(in_memory):
    async def run():
        async with in_memory.open() as system:
            session = await system.session("s")
            spared, doomed = await chat(session, "hello"), await chat(session, "hello", "again")
            assert (await session.usage()).turns == 3
            await session.delete_conversation(doomed.id)
            assert await session.usage() == await spared.usage()
            assert (await session.usage()).turns == 1

    asyncio.run(run())


def test_a_budget_that_held_it_up_can_still_be_raised(in_memory):
    async def run():
        async with in_memory.open() as system:
            session = await system.session("s")
            spared, doomed = await chat(session, "hello"), await chat(session)
            await session.set_budget(perdure.Budget(turns=1))
            waiting = [await one.submit("more") for one in (spared, doomed)]
            await session.wait_for_idle()
            await session.delete_conversation(doomed.id)
            await session.set_budget(perdure.Budget(turns=5))
            assert (await (await spared.submit("again")).wait()).status == "done"
            with pytest.raises(perdure.UnknownRecord):
                await waiting[1].wait()

    asyncio.run(run())


def test_a_session_with_forks_of_deleted_conversations_can_be_moved(tmp_path):
    async def run():
        office = Office(perdure.SqliteStorage(tmp_path / "s.db"))
        async with office.open() as system:
            session = await system.session("s")
            doomed = await chat(session, "one", "two")
            first = (await doomed.entries(order="ascending")).items[0]
            fork = await doomed.fork(first.id)
            await session.delete_conversation(doomed.id)
        await office.storage.open()
        await perdure.export_session(office.storage, "s", tmp_path / "copy")
        await office.storage.close()
        moved = Office(JsonlStorage(tmp_path / "copy"))
        async with moved.open() as system:
            session = await system.session("s")
            assert await ids(session) == [fork.id]
            assert [one.id for one in (await (await session.conversation(fork.id)).entries()).items] == [first.id]
            await session.delete_conversation(fork.id)
            assert await left_of(moved.storage, doomed.id) == await left_of(moved.storage, fork.id) == []
        names = {path.name for path in (tmp_path / "copy" / "s").iterdir()}
        assert not [name for name in names if name.startswith("task-")]
        async with moved.open() as system:
            assert await ids(await system.session("s")) == []

    asyncio.run(run())
