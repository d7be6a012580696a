"""Storage that fails at every write of decisions about calls, of calls completed from outside, nested, deferred or spawned.

Each story is a list of steps. A step that is told of a failure is done again, as whoever decides would.
"""

import asyncio

import perdure
import pytest
from perdure.actors.models import AssistantMessage, DeferredHandle, ToolResultMessage, UserMessage, call, plain_text
from perdure.actors.tools.subagents import KIND

from . import scenario
from .observer import FaultyStore

KEY = "s"
SETTINGS = perdure.Settings(progress=perdure.ProgressPolicy(partial_interval_ms=25, output_interval_ms=25))
HANDLE = DeferredHandle(provider="scripted", api="scripted", model_id="model", id="h1", poll_after_ms=1_000)


class Stage:
    """One system over a storage that fails, with tools whose effects are counted."""

    def __init__(self):
        self.storage = FaultyStore(perdure.MemoryStorage())
        self.paid, self.ordered, self.squared, self.charged = [], [], [], []
        self.system = None
        self.hears = None

    def open(self):
        clock = perdure.VirtualClock(autojump=True)
        model = perdure.ScriptedModel(self._think, clock=clock, fetch=lambda _: "computed")
        kit = perdure.Extension(name="kit", tools=self._tools())
        team = perdure.subagents(report="follow_up")
        return perdure.System.open(self.storage, models=[model], extensions=[kit, team], settings=SETTINGS, clock=clock)

    def _tools(self):
        @perdure.tool(approval="always")
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @perdure.tool(replay="safe")
        async def order(ctx: perdure.ToolContext) -> perdure.External:
            """Order."""
            later = await ctx.external()
            self.ordered.append(later.call_id)
            return later

        @perdure.tool(replay="safe")
        async def square(ctx: perdure.ToolContext, number: int) -> str:
            """Square."""
            self.squared.append(number)
            return str(number**2)

        @perdure.tool(replay="safe")
        async def add_squares(ctx: perdure.ToolContext) -> str:
            """Add."""
            return str(sum([int((await ctx.call("square", {"number": n})).text) for n in (1, 2, 3)]))

        @perdure.tool(replay="safe")
        async def add_at_once(ctx: perdure.ToolContext) -> str:
            """Add."""
            squares = await asyncio.gather(*(ctx.call("square", {"number": n}) for n in (1, 2, 3)))
            return str(sum(int(one.text) for one in squares))

        @perdure.tool
        async def charge(amount: int) -> str:
            """Charge."""
            self.charged.append(amount)
            return str(amount)

        @perdure.tool(replay="safe")
        async def charge_all(ctx: perdure.ToolContext) -> str:
            """Charge."""
            charged = await asyncio.gather(*(ctx.call("charge", {"amount": n}) for n in (1, 2, 3)))
            return " ".join("?" if one.is_error else one.text for one in charged)

        return [pay, order, square, add_squares, add_at_once, charge, charge_all]

    @staticmethod
    def _think(request):
        last = request.messages[-1]
        if isinstance(last, ToolResultMessage):
            return f"told {plain_text(last.content)}"
        said = plain_text(last.content)
        if said == "later":
            return AssistantMessage(content=[], stop_reason="deferred", deferred=HANDLE)
        calls = {
            "pay": call("pay", "c1", amount=5),
            "order": call("order", "c1"),
            "add": call("add_squares", "c1"),
            "add at once": call("add_at_once", "c1"),
            "charge": call("charge_all", "c1"),
            "team": call("spawn_agent", "c1", name="bob", task="hello"),
        }
        return calls.get(said, f"re: {said}")

    async def root(self):
        session = await self.system.session(KEY)
        return await session.root(agent=perdure.Agent(model="scripted/model"))

    async def do(self, step):
        """Do a step, again and again until nothing fails meanwhile."""
        while True:
            try:
                return await step(await self.root())
            except perdure.SessionFailed:
                await asyncio.sleep(0)

    async def seen(self, condition):
        """Wait until the view meets a condition, over any number of lives of the session."""
        while True:
            watch = await self.do(lambda root: root.watch())
            async with watch:
                value = watch.value
                if condition(value):
                    return value
                async for value, _ in watch:
                    if condition(value):
                        return value

    async def ask(self, text):
        return await self.do(lambda root: root.submit(text, request_id=text))

    async def answer(self, submission):
        return await self.do(lambda root: submission.wait())


def slot(view, field):
    return next((one[field] for one in view["docs"]["pi.live"].get("tools", ()) if field in one), None)


def once(decide):
    """Do what can be done once: that it was done by a try that seemed to fail is as good."""

    async def step(root):
        try:
            await decide(root)
        except perdure.CallNotWaiting:
            return

    return step


async def approval(stage):
    asked = await stage.ask("pay")
    shown = slot(await stage.seen(lambda view: slot(view, "approval")), "approval")
    await stage.do(once(lambda root: root.approve("c1", shown["hash"])))
    settled = await stage.answer(asked)
    assert settled.text.startswith("told paid 5") or "interrupted" in settled.text
    assert stage.paid in ([], [5])
    assert stage.paid == [5] or "interrupted" in settled.text


async def denial(stage):
    asked = await stage.ask("pay")
    shown = slot(await stage.seen(lambda view: slot(view, "approval")), "approval")
    await stage.do(once(lambda root: root.deny("c1", shown["hash"], reason="no")))
    assert "denied: no" in (await stage.answer(asked)).text
    assert stage.paid == []


async def completion(stage):
    asked = await stage.ask("order")
    await stage.seen(lambda view: slot(view, "external"))
    await stage.do(lambda root: root.complete_call("c1", "tea", request_id="r1"))
    assert (await stage.answer(asked)).text == "told tea"
    await stage.do(lambda root: root.complete_call("c1", "tea", request_id="r1"))


async def nested(stage):
    assert (await stage.answer(await stage.ask("add"))).text == "told 14"
    assert set(stage.squared) == {1, 2, 3}


async def nested_at_once(stage):
    assert (await stage.answer(await stage.ask("add at once"))).text == "told 14"
    assert set(stage.squared) == {1, 2, 3}


async def nested_unsafe(stage):
    told = (await stage.answer(await stage.ask("charge"))).text.removeprefix("told ").split()
    assert len(stage.charged) == len(set(stage.charged))
    assert all(said == "?" or int(said) in stage.charged for said in told)
    assert told == ["1", "2", "3"] or "?" in told


async def deferral(stage):
    await stage.do(lambda root: root.configure(perdure.Agent(deferred=True)))
    assert (await stage.answer(await stage.ask("later"))).text == "computed"


async def subagent(stage):
    asked = await stage.ask("team")
    assert "has begun" in (await stage.answer(asked)).text
    report = "The subagent 'bob' reports:\nre: hello"
    await stage.seen(lambda view: f"re: {report}" in str([e["model"] for e in view["entries"]]).replace("\\n", "\n"))
    await stage.do(lambda root: root.wait_for_idle())
    stored = await scenario.read_stored(stage.storage, KEY)
    said = [plain_text(m.content) for m in scenario.messages(stored.entries[1]) if isinstance(m, UserMessage)]
    assert said == ["team", report]
    assert sum(task.kind == KIND for task in stored.tasks.values()) == 1
    await stage.do(lambda root: root.abort(background=True))


STORIES = [approval, denial, completion, nested, nested_at_once, nested_unsafe, deferral, subagent]


async def play(story, write, when):
    """Let one write of a story fail; tell whether the story has that many."""
    stage = Stage()
    stage.storage.fail(write, when)
    async with stage.open() as stage.system:
        await story(stage)
        failed = stage.storage.writes >= write
        stage.storage.heal()
        await (await stage.root()).wait_for_idle()
        stored = await scenario.read_stored(stage.storage, KEY)
    scenario.check_calls(scenario.messages(stored.entries[1]))
    assert not [task for task in stored.tasks.values() if task.live]
    assert all(one.settled for one in stored.submissions.values())
    assert stored.live[1] == {}
    return failed


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whichever_write_fails_a_decision_counts_once_and_nothing_is_left_over(story, when):
    """B113, B116, P6, P9: an effect that may have happened is not repeated, one that was decided on is not lost."""

    async def bounded(write):
        async with asyncio.timeout(20):
            return await play(story, write, when)

    writes = 1
    while asyncio.run(bounded(writes)):
        writes += 1
        assert writes < 100, "the story has no end"
    assert writes >= 6
