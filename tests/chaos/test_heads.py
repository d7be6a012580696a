"""Compactions of every kind, resets, handoffs, steers and follow-ups, with a crash or a failure at each of their commits.

Nothing is lost and nothing doubled: every input is there once and settled, every summary once, the prompt is complete,
and whatever any model was sent is a context that a strict provider accepts.
"""

import asyncio

import msgspec
import perdure
import pytest
from perdure.actors.models import (
    AssistantMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    call,
    current_system,
    from_json,
    plain_text,
)
from perdure.storage.errors import StorageError

from ..actors.agent.compacting import SMALL, SUMMARY, TOO_LONG, WINDOW, both, fill, heads, summarizes, told
from ..actors.conversation.support import problems
from . import scenario
from .observer import FaultyStore, Observer
from .test_killed_actors import running_tasks

KEY = "s"
PROMPT = "<role>\nYou look after customers.\n</role>"


class Dying(FaultyStore):
    """A store whose process dies at a write: it takes nothing more and cannot be opened until somebody else comes."""

    def __init__(self, inner=None):
        super().__init__(inner or perdure.MemoryStorage())
        self.dead = False
        self.died = asyncio.Event()

    def die(self, write, when):
        async def die():
            self.dead = True
            self.died.set()
            raise StorageError("the process is gone")

        self.call(write, when, die)

    async def open(self):
        if self.dead:
            raise StorageError("the process is gone")
        await super().open()

    async def write(self, batches):
        if self.dead:
            raise StorageError("the process is gone")
        await super().write(batches)


class Plot(msgspec.Struct):
    """What somebody does to a conversation, and what must have become of it."""

    tokens: int
    """Of history, in turns of 500."""
    act: object
    """``act(root)``: may be begun again from its beginning by whoever comes after a crash."""
    inputs: dict
    """What users have said, and how it was settled."""
    compactions: int = 0
    resets: int = 0
    brain: object = None


# --- who acts


async def once_compacted(root):
    """Compact, unless somebody has begun to."""
    core = await root._core()
    tasks = (await core.storage.scan_tasks(KEY, perdure.TaskQuery(kind="pi.compaction"), 10)).items
    if not tasks:
        await root.compact()


def asks(*inputs):
    async def act(root):
        for said in inputs:
            await (await root.submit(said, request_id=said)).wait()

    return act


async def resets(root):
    await (await root.submit("before", request_id="before")).wait()
    await (await root.reset(request_id="reset")).wait()
    await (await root.submit("after", request_id="after")).wait()


async def hands_off(root):
    await (await root.handoff("go on from here", request_id="handoff")).wait()
    await (await root.submit("after", request_id="after")).wait()


async def asks_and_compacts(root):
    await (await root.submit("compact", request_id="compact")).wait()
    await root.wait_for_idle()


@perdure.tool(replay="safe")
async def meddle(ctx: perdure.ToolContext, what: str) -> perdure.ToolResult:
    """Do something to the conversation while its run waits for this."""
    root = ctx.conversation()
    if what == "steer":
        await root.submit("a steer", when_busy="steer", request_id="a steer")
        await root.submit("a follow-up", request_id="a follow-up")
    elif what == "reset":
        await root.reset("anew", request_id="the reset")
    elif what == "compact":
        await once_compacted(root)
    return perdure.ToolResult(content=f"did {what}", handoff="take over" if what == "hand off" else None)


def brain(request):
    """Make the call that an input asks for, else answer it."""
    last = next(one for one in reversed(request.messages) if not isinstance(one, SystemMessage))
    said = plain_text(last.content)
    if isinstance(last, UserMessage) and said in ("steer", "reset", "compact", "hand off"):
        return call("meddle", what=said)
    return f"re: {said}"


def narrow(request):
    """Find more than 4,000 tokens too long."""
    return TOO_LONG if sum(map(len, told(request))) > 14_000 else brain(request)


DONE = "done"
PLOTS = {
    "a compaction that is asked for": Plot(2_500, once_compacted, {}, compactions=1),
    "a compaction in a round": Plot(2_500, asks_and_compacts, {"compact": DONE}, compactions=1),
    "a blocking compaction": Plot(9_000, asks("now"), {"now": DONE}, compactions=1),
    "a background compaction": Plot(7_500, asks("now"), {"now": DONE}, compactions=1),
    "an overflow": Plot(5_000, asks("now"), {"now": DONE}, compactions=1, brain=narrow),
    "a reset": Plot(1_000, resets, {"before": DONE, "after": DONE}, resets=1),
    "a reset in a round": Plot(1_000, asks("reset", "next"), {"reset": "reset", "next": DONE}, resets=1),
    "a handoff": Plot(1_000, hands_off, {"after": DONE}, resets=1),
    "a tool's handoff": Plot(1_000, asks("hand off", "next"), {"hand off": DONE, "next": DONE}, resets=1),
    "a steer and a follow-up": Plot(500, asks("steer"), {"steer": DONE, "a steer": DONE, "a follow-up": DONE}),
}


# --- the world


class World:
    """One system at a time over one store, and the sum of what models were sent in all of them."""

    def __init__(self, plot, path=None):
        self.plot = plot
        self.storage = Dying(path and perdure.SqliteStorage(path, durability="process"))
        self.clock = None if path else perdure.VirtualClock(autojump=True)
        self.observer = Observer(self.storage, KEY)
        self.requests = []
        self.before = []
        self.failures = 0
        self.system = None
        self.killed = False

    def open(self):
        model = perdure.ScriptedModel(self._think, name="scripted/small", context_window=WINDOW, clock=self.clock)
        return perdure.System.open(
            self.storage,
            models=[model],
            extensions=[
                perdure.Extension(
                    name="kit", tools=[meddle], sections=[perdure.Section("role", "You look after customers.")]
                )
            ],
            settings=perdure.Settings(compaction=SMALL),
            clock=self.clock,
        )

    def _think(self, request):
        self.requests.append(request)
        return both(self.plot.brain or brain)(request)

    async def begin(self):
        """Have the history that the plot begins with."""
        async with self.open() as system:
            root = await (await system.session(KEY)).root(agent=perdure.Agent(model="scripted/small"))
            await fill(root, *[500] * (self.plot.tokens // 500))
            self.before = (await root.entries(limit=1_000, order="ascending")).items

    async def act(self, system):
        """Act, and again whenever the session fails, until all that follows has come to rest."""
        while True:
            try:
                session = await system.session(KEY)
                root = await session.root()
                await self.plot.act(root)
                await root.wait_for_idle(background=True)
            except perdure.SessionFailed:
                self.failures += 1
            else:
                return

    async def live(self):
        """Act once in a system; it ends when that is done, or when its process dies."""
        async with self.open() as system, self.observer.watching(system):
            self.system = system
            acting = asyncio.ensure_future(self.act(system))
            dying = asyncio.ensure_future(self.storage.died.wait())
            await asyncio.wait([acting, dying], return_when=asyncio.FIRST_COMPLETED)
            for one in (acting, dying):
                one.cancel()
            await asyncio.gather(acting, dying, return_exceptions=True)

    async def check(self):
        async with self.open() as system:
            await self.act(system)
            stored = await scenario.read_stored(self.storage, KEY)
            root = await (await system.session(KEY)).root()
            context = await root.context()
            usage = await root.snapshot(perdure.UsageDoc)
            inbox = await root.snapshot(perdure.InboxDoc)
        entries = stored.entries[1]
        assert entries[: len(self.before)] == self.before
        assert [task.id for task in stored.tasks.values() if task.live] == []
        assert stored.live[1] == {}
        assert inbox["items"] == []
        self._check_inputs(stored)
        assert len(heads(entries)) == self.plot.compactions
        assert sum(entry.kind == "pi.reset" for entry in entries) == self.plot.resets
        self._check_context(entries, context)
        self._check_usage(entries, usage)

    def _check_inputs(self, stored):
        entries = [entry for entry in stored.entries[1][len(self.before) :] if entry.kind == "pi.user"]
        assert sorted(from_json(entry.model[0]).content for entry in entries) == sorted(self.plot.inputs)
        inputs = [one for one in stored.submissions.values() if one.type == "input"]
        assert {one.request_id: one.reason or one.status for one in inputs} == self.plot.inputs
        assert all(one.status == "done" for one in stored.submissions.values() if one.type == "write")

    def _check_context(self, entries, context):
        scenario.check_calls(scenario.messages(entries))
        assert problems(context.messages) == []
        asked = [request for request in self.requests if not summarizes(request)]
        assert all(problems(request.messages) == [] for request in asked)
        assert all(current_system(request.messages) == PROMPT for request in asked)
        for marker in heads(entries):
            assert SUMMARY in plain_text(from_json(marker.model[0]).content)
            assert marker.head in {entry.id for entry in entries}

    def _check_usage(self, entries, usage):
        """Every answer is counted once, and so is every attempt at a summary that was decided on."""
        said = [one for one in scenario.messages(entries) if isinstance(one, AssistantMessage)]
        counted = usage["models"].get("scripted/small", {"totalTokens": 0})["totalTokens"]
        answers = sum(one.usage.total_tokens for one in said)
        assert counted >= answers
        assert (counted > answers) == bool(self.plot.compactions)
        results = [one for one in scenario.messages(entries) if isinstance(one, ToolResultMessage)]
        assert not any(scenario.was_interrupted(one) for one in results)

    def kill_tasks(self, write, when):
        async def kill():
            self.killed = True
            for task in running_tasks(self.system):
                self.system.kill(task)

        self.storage.call(write, when, kill)


def worlds(plot, prepare):
    """Run a plot once for each write that it makes, prepared for that write. Gives how many there are."""
    for write in range(1, 200):
        world = World(plot)

        async def run(world=world, write=write):
            await world.begin()
            first = world.storage.writes
            prepare(world, first + write)
            await world.live()
            met = world.storage.dead or bool(world.failures) or world.killed
            world.storage.dead = False
            await world.check()
            return met

        if not asyncio.run(run()):
            return write - 1
    raise AssertionError("the plot has no end")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("plot", PLOTS)
def test_a_crash_at_any_commit_loses_nothing_and_doubles_nothing(plot, when):
    """B122, B125, CO-18, must show 4 of issue 6: the next process goes on with what is stored."""
    assert worlds(PLOTS[plot], lambda world, write: world.storage.die(write, when)) >= 3


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("plot", PLOTS)
def test_storage_that_fails_at_any_write_loses_nothing_and_doubles_nothing(plot, when):
    """B122, B014, must show 4 of issue 6: the supervisors go on with what is stored."""
    assert worlds(PLOTS[plot], lambda world, write: world.storage.fail(write, when)) >= 3


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("plot", PLOTS)
def test_tasks_that_are_killed_at_any_commit_lose_nothing_and_double_nothing(plot, when):
    """B122, P8: a task's crash is no business of anybody else, and it goes on from its checkpoint."""
    assert worlds(PLOTS[plot], lambda world, write: world.kill_tasks(write, when)) >= 3
