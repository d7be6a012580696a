"""Storage that fails at every write of what goes through an inbox: nothing is lost, nothing happens twice.

Each story is a list of steps. A step that is told of a failure is done again, with the same request id, as a client would.
"""

import asyncio

import perdure
import pytest
from perdure.actors.models import UserMessage, call, plain_text

from . import scenario
from .observer import FaultyStore

KEY = "s"
SETTINGS = perdure.Settings(progress=perdure.ProgressPolicy(partial_interval_ms=25, output_interval_ms=25))


class Stage:
    """One system over a storage that fails, a tool and a model that wait for a sign, and somebody who listens."""

    def __init__(self):
        self.storage = FaultyStore(perdure.MemoryStorage())
        self.working = asyncio.Event()
        self.free = asyncio.Event()
        self.system = None
        self.failures = 0
        self.told = []
        """The ids of the entries that events have told of, over all lives of the session."""

    def open(self):
        @perdure.tool(replay="safe")
        async def work() -> str:
            """Work until there is a sign."""
            self.working.set()
            await self.free.wait()
            return "worked"

        clock = perdure.VirtualClock(autojump=True)
        model = perdure.ScriptedModel(self._think, clock=clock)
        kit = perdure.Extension(name="kit", tools=[work])
        return perdure.System.open(self.storage, models=[model], extensions=[kit], settings=SETTINGS, clock=clock)

    async def _think(self, request):
        last = request.messages[-1]
        if not isinstance(last, UserMessage):
            return f"done: {plain_text(request.messages[-1].content)}"
        if plain_text(last.content).startswith("work"):
            return call("work")
        self.working.set()
        await self.free.wait()
        return f"re: {plain_text(last.content)}"

    async def root(self):
        session = await self.system.session(KEY)
        return await session.root(agent=perdure.Agent(model="scripted/model"))

    async def do(self, step):
        """Do a step, again and again until nothing fails meanwhile."""
        while True:
            try:
                return await step(await self.root())
            except perdure.SessionFailed:
                self.failures += 1

    async def listen(self):
        while True:
            try:
                stream = await (await self.root()).watch_events()
            except perdure.SessionFailed:
                continue
            snapshot = await anext(stream, None)
            if snapshot is not None:
                self.told += [entry["id"] for entry in snapshot.view["entries"] if entry["id"] not in self.told]
            async for event in stream:
                if getattr(event, "entry", None) is not None and event.__struct_config__.tag != "tool_end":
                    self.told.append(event.entry.id)


def send(text, **options):
    return lambda root: root.submit(text, request_id=text, **options)


def settled(submission):
    return lambda root: submission.wait()


# --- the stories: each gives the texts that must be in the history, in order


async def steer_during_a_tool_round(stage):
    first = await stage.do(send("work one"))
    await stage.working.wait()
    steer = await stage.do(send("left", when_busy="steer"))
    note = await stage.do(lambda root: root.write("note", request_id="note"))
    stage.free.set()
    for one in (first, steer, note):
        assert (await stage.do(settled(one))).status == "done"
    return ["work one", "left"]


async def follow_up(stage):
    first = await stage.do(send("one"))
    await stage.working.wait()
    second = await stage.do(send("two"))
    stage.free.set()
    for one in (first, second):
        assert (await stage.do(settled(one))).status == "done"
    return ["one", "two"]


async def withdrawal(stage):
    first = await stage.do(send("work one"))
    await stage.working.wait()
    second, third = await stage.do(send("two")), await stage.do(send("three"))
    assert await stage.do(lambda root: second.withdraw()) in ("aborted", "settled")
    stage.free.set()
    ended = [await stage.do(settled(one)) for one in (first, second, third)]
    assert [(one.status, one.reason) for one in ended] == [("done", None), ("unanswered", "aborted"), ("done", None)]
    return ["work one", "three"]


async def reset_during_a_tool_round(stage):
    first = await stage.do(send("work one"))
    await stage.working.wait()
    reset = await stage.do(lambda root: root.reset("go on", request_id="reset"))
    second = await stage.do(send("two"))
    stage.free.set()
    ended = [await stage.do(settled(one)) for one in (first, reset, second)]
    assert [(one.status, one.reason) for one in ended] == [("unanswered", "reset"), ("done", None), ("done", None)]
    return ["work one", "two"]


async def budget_pause_and_raise(stage):
    await stage.do(lambda root: root.set_budget(perdure.Budget(turns=1)))
    first = await stage.do(send("work one"))
    await stage.working.wait()
    second = await stage.do(send("two"))
    stage.free.set()
    paused = await stage.do(settled(first))
    assert (paused.status, paused.reason) == ("unanswered", "budget")
    await stage.do(lambda root: root.wait_for_idle())
    assert (await stage.do(lambda root: second.status())).status == "queued"
    await stage.do(lambda root: root.set_budget(perdure.Budget(turns=2)))
    assert (await stage.do(settled(second))).status == "done"
    third = await stage.do(settled(await stage.do(send("three"))))
    assert (third.status, third.reason) == ("unanswered", "budget")
    return ["work one", "two", "three"]


STORIES = [steer_during_a_tool_round, follow_up, withdrawal, reset_during_a_tool_round, budget_pause_and_raise]


async def play(story, write, when):
    """Let one write of a story fail; tell whether the story has that many."""
    stage = Stage()
    stage.storage.fail(write, when)
    async with stage.open() as stage.system:
        listening = asyncio.ensure_future(stage.listen())
        expected = await story(stage)
        failed = stage.storage.writes >= write
        stage.storage.heal()
        root = await stage.root()
        await root.wait_for_idle()
        await check(stage, root, expected)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    async with stage.open() as stage.system:
        await check(stage, await stage.root(), expected)
    return failed


async def check(stage, root, expected):
    """Everything was said once, in order, answered as it should be, counted once, and nothing is left over."""
    stored = await scenario.read_stored(stage.storage, KEY)
    transcript = scenario.messages(stored.entries[1])
    scenario.check_calls(transcript)
    said = [e for e in stored.entries[1] if e.kind == "pi.user"]
    assert [plain_text(m.content) for m in scenario.messages(said)] == expected
    assert sorted(set(stage.told)) == sorted(stage.told), "an entry was told twice"
    assert set(stage.told) <= {entry.id for entry in stored.entries[1]}
    assert not [task for task in stored.tasks.values() if task.live]
    assert all(one.settled for one in stored.submissions.values())
    requests = [one.request_id for one in stored.submissions.values()]
    assert len(requests) == len(set(requests))
    assert stored.live[1] == {}
    assert (await root.snapshot(perdure.InboxDoc))["items"] == []
    answers = [entry for entry in stored.entries[1] if entry.kind == "pi.assistant"]
    assert (await root.usage()).turns == len(answers)
    budget = await root.budget()
    assert budget is None or budget.turns == len(answers)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whichever_write_fails_nothing_is_lost_and_nothing_happens_twice(story, when):
    """Must show 4 of issue 6; B062, B064, B158, B164, P9."""

    async def bounded(write):
        async with asyncio.timeout(20):
            return await play(story, write, when)

    writes = 1
    while asyncio.run(bounded(writes)):
        writes += 1
        assert writes < 100, "the story has no end"
    assert writes >= 8
