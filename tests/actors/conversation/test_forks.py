"""Forks and rewinds of whole conversations."""

import asyncio
from itertools import pairwise

import perdure
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.actors.conversation.builtin import InboxDoc, LiveDoc, ProviderDoc, UsageDoc
from perdure.actors.models import ToolResultMessage, UserMessage, call, plain_text, to_json
from perdure.storage.records import ContextEdit, ConversationRecord, DocumentCopy

from .histories import histories
from .support import (
    MODEL,
    Faults,
    answering,
    calling,
    echo,
    go,
    history,
    kinds,
    problems,
    results_of,
    said,
    scene,
    user,
)


def ids(entries):
    return [entry.id for entry in entries]


def texts(view):
    return [plain_text(message.content) for message in view.messages]


async def write(conversation, *messages, **options):
    """Append an entry that says this, and give its id."""
    async with conversation.commit() as tx:
        return (await tx.append("note", model=[to_json(one) for one in messages], **options)).id


@perdure.tool(replay="safe")
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


# --- what a fork is


def test_a_fork_at_an_entry_has_the_context_that_its_parent_had_there(storage):
    """DF-06, CX-10: at every cutoff, through edits, a reset and a summary."""

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            two = await write(s.root, user("two"))
            await write(s.root, edits=[edit(two, "replace", user("changed"))])
            await s.ask("three")
            await write(s.root, user("reset"), head="self")
            await s.ask("four")
            await write(s.root, user("summary"), head=two)
            await write(s.root, edits=[edit(two, "omit")])
            await s.ask("five")
            entries = await history(s.root)
            assert len(entries) == 13
            seen = {}
            for entry in entries:
                fork = await s.root.fork(entry.id)
                view = await fork.context()
                assert view == await s.root.context(at=entry.id) == await fork.context(at=entry.id)
                seen[fork.id] = view
        async with scene(storage=storage) as s:
            for fork, view in seen.items():
                assert await (await s.session.conversation(fork)).context() == view

    go(main)


def edit(target, action, *messages):
    stored = [to_json(message) for message in messages] or None
    return ContextEdit(target=target, action=action, messages=stored)


def test_neither_side_sees_what_the_other_says_after_the_fork_point():
    """DF-07: an unknown entry and a hidden one are refused alike, and an inherited cutoff works on the child."""

    async def main():
        async with scene() as s:
            await s.ask("one")
            await s.ask("two")
            first, *_, last = await history(s.root)
            child = await s.root.fork(first.id)
            own = await write(child, user("mine"))
            for conversation, hidden in ((child, last.id), (s.root, own), (child, 999)):
                with pytest.raises(perdure.EntryNotVisible) as refused:
                    await conversation.context(at=hidden)
                assert str(refused.value) == f"entry {hidden} is not visible in conversation {conversation.id}"
                with pytest.raises(perdure.EntryNotVisible):
                    await conversation.entries(at=hidden)
                with pytest.raises(perdure.EntryNotVisible):
                    await conversation.fork(hidden)
                with pytest.raises(perdure.EntryNotVisible):
                    await conversation.snapshot_as_of(perdure.AgentDoc, hidden)
            assert texts(await child.context(at=first.id)) == ["one"]
            assert ids((await child.entries(order="ascending")).items) == [first.id, own]
            assert ids((await child.entries(at=first.id)).items) == [first.id]
            assert ids((await s.root.entries(at=first.id)).items) == [first.id]

    go(main)


def test_a_fork_of_a_fork_goes_its_own_way_and_remembers_its_parent(storage):
    """B137: each has its own continuation, the shared prefix once; the source is unchanged."""

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            shared = await history(s.root)
            child = await s.root.fork()
            await (await child.submit("two in the child")).wait()
            grandchild = await child.fork()
            for conversation, content in ((s.root, "a"), (child, "b"), (grandchild, "c")):
                await (await conversation.submit(content)).wait()
        async with scene(storage=storage) as s:
            records = (await s.session.conversations()).items
            assert [(one.id, one.parent and one.parent.conversation_id) for one in records] == [
                (1, None),
                (child.id, 1),
                (grandchild.id, child.id),
            ]
            told = {}
            for record in records:
                conversation = await s.session.conversation(record.id)
                entries = await history(conversation)
                assert ids(entries) == sorted(set(ids(entries)))
                assert ids(entries)[: len(shared)] == ids(shared)
                told[record.id] = texts(await conversation.context())
            assert told[1] == ["one", "re: one", "a", "re: a"]
            assert told[child.id] == ["one", "re: one", "two in the child", "re: two in the child", "b", "re: b"]
            assert told[grandchild.id][:4] == told[child.id][:4]
            assert told[grandchild.id][4:] == ["c", "re: c"]

    go(main)


def test_a_fork_has_an_agent_of_its_own_as_of_the_entry_and_an_identity_of_its_own():
    """DF-09, PR-16, US-05."""

    async def main():
        async with scene(agent=perdure.Agent(model=MODEL, instructions="first")) as s:
            await s.ask("one")
            first = (await history(s.root))[0].id
            await s.root.configure(perdure.Agent(instructions="second"))
            await s.ask("two")
            then, now = await s.root.fork(first), await s.root.fork(agent=perdure.Agent(thinking_level="high"))
            agents = [await one.snapshot(perdure.AgentDoc) for one in (then, now)]
            assert [one["instructions"] for one in agents] == ["first", "second"]
            assert [one.get("thinkingLevel") for one in agents] == [None, "high"]
            assert (await s.root.snapshot_as_of(perdure.AgentDoc, first))["instructions"] == "first"
            await then.configure(perdure.Agent(instructions="third"))
            assert (await s.root.snapshot(perdure.AgentDoc))["instructions"] == "second"
            identities = {(await one.snapshot(ProviderDoc))["sessionId"] for one in (s.root, then, now)}
            assert len(identities) == 3
            for fork in (then, now):
                assert await fork.snapshot(UsageDoc) == {"models": {}, "tools": {}}
                assert await fork.snapshot(LiveDoc) == {}
                assert await fork.snapshot(InboxDoc) == {"items": []}
            await (await then.submit("go on")).wait()
            assert s.model.calls[-1].session_id == (await then.snapshot(ProviderDoc))["sessionId"]

    go(main)


def test_built_in_documents_are_made_before_the_agent_and_before_what_the_block_adds():
    """DF-05, DF-19: what a block does to a new conversation comes last, and the first request sees it."""
    made = []

    async def note(tx, record):
        made.append(
            (record.id, [address.kind for address in (*tx.opened, *tx.copies) if address.scope_id == record.id])
        )

    async def main():
        async with scene() as s:
            core = await s.system.core("s")
            core.hooks.conversation_created.append(note)
            await s.ask("one")
            fork = await s.root.fork(agent=perdure.Agent(instructions="from the block"))
            assert made == [(fork.id, ["pi.live", "pi.inbox", "pi.usage", "pi.provider", "pi.agent"])]
            await (await fork.submit("two")).wait()
            assert "from the block" in str(s.model.calls[-1].messages)

    go(main)


# --- whatever the parent is doing


def test_a_fork_of_a_busy_conversation_is_idle_and_the_parent_goes_on():
    """The calls that are open at the entry count as interrupted in the fork, for good; the parent's get their results."""

    async def main():
        gate = asyncio.Event()
        started = asyncio.Event()

        @perdure.tool(replay="safe")
        async def wait() -> str:
            """Wait for the test."""
            started.set()
            await gate.wait()
            return "waited"

        async with scene(calling(call("wait", "c1"), call("wait", "c2")), tools=[wait]) as s:
            submission = await s.root.submit("one")
            await started.wait()
            fork = await s.root.fork()
            assert await fork.live() == {}
            await fork.wait_for_idle()
            view = await fork.context()
            results = [m for m in view.messages if isinstance(m, ToolResultMessage)]
            assert [(m.tool_call_id, m.tool_name, m.is_error) for m in results] == [
                ("c1", "wait", True),
                ("c2", "wait", True),
            ]
            assert all(m.details == {"reason": "missing_result"} for m in results)
            gate.set()
            settled = await (await fork.submit("and?")).wait()
            assert settled.status == "done"
            assert (await submission.wait()).text == "waited | waited"
            assert all(problems(request.messages) == [] for request in s.model.calls)
            assert (await fork.context()).messages[: len(view.messages)] == view.messages

    go(main)


def test_a_rewound_conversation_runs_to_its_end():
    """B085: back to message three, then a prompt that needs three steps with tools."""
    steps = [call("look", at="a"), call("look", at="b"), call("look", at="c")]

    def brain(request):
        asked = [m for m in request.messages if isinstance(m, UserMessage)][-1].content
        if asked != "work":
            return echo(request)
        done = len(results_of_run(request))
        return steps[done] if done < len(steps) else " | ".join(results_of_run(request))

    async def main():
        async with scene(brain, tools=[look]) as s:
            for content in ("one", "work", "three", "work"):
                await s.ask(content)
            third = [entry for entry in await history(s.root) if entry.kind == "pi.user"][2]
            fork = await s.root.fork(third.id)
            assert (await (await fork.submit("work")).wait()).text == "seen a | seen b | seen c"
            assert (await (await fork.submit("four")).wait()).text == "re: four"
            assert await fork.live() == {}

    go(main)


def results_of_run(request):
    """The results since a user spoke last."""
    found = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            found = []
        elif isinstance(message, ToolResultMessage):
            found.append(plain_text(message.content))
    return found


def test_a_fork_across_a_summary_shows_what_there_was_at_its_entry():
    """B136: before it the whole beginning and no summary, behind it the summary and what it kept."""

    async def main():
        async with scene() as s:
            for number in range(10):
                await s.ask(str(number))
            entries = await history(s.root)
            await write(s.root, user("summary"), head=entries[12].id)
            await s.ask("after")
            early, late = await s.root.fork(entries[7].id), await s.root.fork()
            assert texts(await early.context()) == [w for n in range(4) for w in (str(n), f"re: {n}")]
            assert texts(await late.context()) == texts(await s.root.context())
            assert texts(await late.context())[:2] == ["summary", "6"]
            await (await early.submit("on")).wait()
            assert texts(await early.context())[-2:] == ["on", "re: on"]
            assert "summary" not in texts(await early.context())
            assert len(await history(early)) == 10

    go(main)


def test_requests_never_change_what_was_sent_and_a_fork_starts_from_its_own_history():
    """B140: results are cut once, when they are made, and no rule slides over them later."""

    @perdure.tool(replay="safe")
    async def read() -> str:
        """Read much."""
        return "line\n" * 20_000

    async def main():
        async with scene(calling(call("read")), tools=[read]) as s:
            for number in range(10):
                await s.ask(str(number))
            requests = [request.messages for request in s.model.calls]
            for before, after in pairwise(requests):
                assert after[: len(before)] == before
            third = [entry for entry in await history(s.root) if entry.kind == "pi.assistant"][5]
            fork = await s.root.fork(third.id)
            await (await fork.submit("again")).wait()
            request = s.model.calls[-2].messages
            assert request[: len(requests[6]) - 1] == requests[6][:-1]

    go(main)


def test_children_stay_with_the_conversation_that_made_them():
    """B139: a fork costs the same however many there are, and cannot end them."""

    async def main():
        gate = asyncio.Event()

        @perdure.tool(replay="safe")
        async def spawn(ctx: perdure.ToolContext) -> str:
            """Make children."""
            async with ctx.commit() as tx:
                for _ in range(50):
                    await tx.create_conversation(owner=ctx.task_id)
            await gate.wait()
            return "made"

        storage = Faults(perdure.MemoryStorage())
        async with scene(calling(call("spawn")), tools=[spawn], storage=storage) as s:
            submission = await s.root.submit("go")
            while len((await s.session.conversations()).items) < 51:
                await asyncio.sleep(0)
            asked = (await history(s.root))[-1].id
            fork = await s.root.fork(asked)
            [made] = [batch.writes for batch in storage.groups[-1]]
            assert len(made) == 6
            await fork.abort()
            assert [task.abort_requested for task in await s.session.tasks()] == [False, False]
            gate.set()
            assert (await submission.wait()).text == "made"
            assert len((await s.session.conversations()).items) == 52

    go(main)


def test_a_task_may_own_a_fork_and_find_it_again():
    """PR-16: an owned fork keeps its own copy of the agent, and lives and dies with its owner."""

    async def main():
        @perdure.tool(replay="safe")
        async def branch(ctx: perdure.ToolContext) -> str:
            """Ask a copy of this conversation."""
            async with ctx.commit() as tx:
                owned = await tx.scan_conversations(perdure.ConversationQuery(owner_task_id=ctx.task_id), 1)
                first = (await tx.scan_entries(perdure.EntryQuery(conversation_id=1, order="ascending"), 1)).items[0]
                fork = owned.items[0] if owned.items else await tx.fork(at=first.id, owner=ctx.task_id)
            submission = await ctx.conversation(fork.id).submit("and you?", request_id="once")
            return (await submission.wait()).text

        def brain(request):
            last = request.messages[-1]
            if isinstance(last, ToolResultMessage):
                return " | ".join(results_of(request))
            return echo(request) if last.content == "and you?" else call("branch")

        async with scene(brain, tools=[branch]) as s:
            assert (await s.ask("ask a copy")).text == "re: and you?"
            record = (await s.session.conversations()).items[1]
            assert (record.parent.conversation_id, record.owner.conversation_id) == (1, 1)
            fork = await s.session.conversation(record.id)
            assert await fork.snapshot(perdure.AgentDoc) == await s.root.snapshot(perdure.AgentDoc)

    go(main)


def test_an_empty_conversation_has_nothing_to_fork():
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.InvalidValue):
                await s.root.fork()
            with pytest.raises(perdure.UnknownRecord):
                await perdure.Conversation(s.root._services, "s", 99).fork(1)

    go(main)


# --- crashes


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("offset", [0, 1], ids=["the fork", "its first input"])
@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
def test_a_crash_at_each_commit_of_a_fork_leaves_all_of_it_or_nothing(tmp_path, backend, when, offset):
    """B137, P3: nothing lost, nothing doubled."""
    sqlite = backend == "sqlite"
    inner = perdure.SqliteStorage(tmp_path / "s.db") if sqlite else perdure.JsonlStorage(tmp_path / "s")

    async def main():
        storage = Faults(inner)
        async with scene(storage=storage) as s:
            await s.ask("one")
            await s.root.configure(perdure.Agent(instructions="kept"))
            source = await history(s.root)
            storage.crash(storage.writes + 1 + offset, when)
            with pytest.raises(perdure.PerdureError):
                fork = await s.root.fork(source[0].id)
                await (await fork.submit("two", request_id="two")).wait()
        async with scene(storage=inner) as s:
            assert await history(s.root) == source
            forks = [one for one in (await s.session.conversations()).items if one.parent is not None]
            assert len(forks) == (offset == 1 or when == "after")
            fork = await s.session.conversation(forks[0].id) if forks else await s.root.fork(source[0].id)
            for doc in (LiveDoc, InboxDoc, UsageDoc, ProviderDoc, perdure.AgentDoc):
                assert await fork.snapshot(doc) is not None
            settled = await (await fork.submit("two", request_id="two")).wait()
            assert settled.text == "re: two"
            assert texts(await fork.context()) == ["one", "two", "re: two"]
            assert kinds(await history(fork)) == ["user", "user", "assistant"]
            assert await history(s.root) == source

    go(main)


def test_a_fork_reads_nothing_of_the_history():
    """P10: what it writes does not depend on how long its parent is."""

    async def main():
        written = []
        for count in (2, 200):
            storage = Faults(perdure.MemoryStorage())
            async with scene(storage=storage) as s:
                for _ in range(count):
                    await write(s.root, user("x"), said("y"))
                await s.root.fork()
                written.append([type(one) for one in storage.groups[-1][0].writes])
        assert written[0] == written[1]
        assert written[0].count(ConversationRecord) == written[0].count(DocumentCopy) == 1

    go(main)


# --- every history


@settings(derandomize=True, deadline=None, max_examples=25)
@given(entries=histories(size=5), data=st.data())
def test_forks_of_every_history_go_on_from_what_there_was(entries, data):
    """CX-10, DF-06, B119: stored, kept in memory and read again give one context; and the request is in order."""

    async def main():
        async with scene() as s:
            async with s.root.commit() as tx:
                base = tx.mint()
                stored = [await tx.append("x", model=one.model, **shifted(one, base)) for one in entries]
            if data.draw(st.booleans()):
                await s.root.context()
            at = data.draw(st.sampled_from(stored)).id if stored else None
            if at is None:
                return
            fork = await s.root.fork(at)
            view = await fork.context()
            assert view == await s.root.context(at=at)
            await (await fork.submit("go on")).wait()
            request = s.model.calls[-1].messages
            assert problems(request) == []
            assert user("go on").content in [message.content for message in request[-2:]]

    go(main)


def shifted(entry, base):
    """Heads and edits of an entry whose id is so much higher when it is stored."""
    edits = [
        ContextEdit(target=one.target + base, action=one.action, messages=one.messages) for one in entry.edits or ()
    ]
    return {"head": None if entry.head is None else entry.head + base, "edits": edits or None}


def test_a_request_goes_on_in_a_fork_as_it_would_have_in_the_parent():
    """The fork's request begins with the parent's, byte for byte."""

    async def main():
        async with scene(answering(echo), tools=[look]) as s:
            await s.ask("one")
            fork = await s.root.fork()
            await s.ask("two")
            await (await fork.submit("two")).wait()
            mine, theirs = s.model.calls[-2].messages, s.model.calls[-1].messages
            assert mine[:-1] == theirs[:-1]

    go(main)
