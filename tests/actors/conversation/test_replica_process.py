"""A replica in another process, which knows the wire form and nothing of this library, and what the session has committed."""

import asyncio
import json
import random
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import perdure
import pytest
from perdure.actors.conversation.builtin import BUILT_IN
from perdure.actors.models import Pause, ToolResultMessage, call, error_info, text
from perdure.chord import Encoder

from .support import go, quiet, scene

BROWSER = Path(__file__).parent / "browser.py"


class Browser:
    """The process at the other end of a pipe, fed from one watch after another."""

    def __init__(self, process):
        self._process = process
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.frames = []
        """The first verb of each batch that was sent."""
        self.attached = 0

    def _send(self, **message):
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")

    async def follow(self, conversation):
        """Feed the page until cancelled; when the watch ends with its session, attach again."""
        while True:
            try:
                watch = await conversation.watch()
            except perdure.SessionFailed:
                continue
            encoder = Encoder()
            self.attached += 1
            self._send(attach=watch.value)
            async with watch:
                await self.flowing.wait()
                async for _, ops in watch:
                    self.frames.append(ops[0][0])
                    self._send(ops=encoder.encode(ops))
                    await self._process.stdin.drain()
                    await self.flowing.wait()

    async def value(self):
        """Ask the page what it holds."""
        self._send(tell=True)
        return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def browsing(conversation):
    """Open a page that follows a conversation, for as long as the block runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, BROWSER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26
    )
    browser = Browser(process)
    following = asyncio.ensure_future(browser.follow(conversation))
    try:
        yield browser
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        process.stdin.close()
        await process.wait()


async def committed(conversation):
    """The view as anybody would put it together from what is stored."""
    record = (await conversation._core()).row(perdure.ConversationRecord, conversation.id)
    docs = {doc.kind: await conversation.snapshot(doc) for doc in BUILT_IN}
    entries = msgspec.to_builtins(list((await conversation.context()).entries))
    return {"conversation": msgspec.to_builtins(await record), "entries": entries, "docs": docs}


async def assert_same(browser, conversation):
    await conversation.wait_for_idle()
    for _ in range(500):  # what is committed has to go through the pipe
        if await browser.value() == await committed(conversation):
            return
        await asyncio.sleep(0)
    assert await browser.value() == await committed(conversation)


# --- a life with some of everything


@perdure.tool
async def dig(ctx: perdure.ToolContext, depth: int) -> str:
    """Dig, and say how it goes."""
    for metre in range(depth):
        ctx.output(f"at {metre} m, \U0001f573 and on\n" * (1 + metre * 40))
        ctx.details({"depth": [metre] * metre})
        await ctx.sleep(0.15)
    ctx.diagnostic("wet", severity="warn")
    return "bottom"


def moody(dice):
    """A model that streams, calls, fails and answers as the dice say."""

    def brain(request):
        if isinstance(request.messages[-1], ToolResultMessage) and dice.random() < 0.7:
            return f"that was \U0001f30d deep {dice.random()}"
        mood = dice.random()
        if mood < 0.2:
            return error_info("overloaded", "busy")
        if mood < 0.3:
            return error_info("invalid_request", "no")
        if mood < 0.7:
            calls = [call("dig", depth=dice.randrange(1, 5)) for _ in range(dice.randrange(1, 4))]
            return [text("let me dig \u00e9"), Pause(dice.randrange(500)), *calls]
        return [text(f"a text of several words {dice.random()} " * 3), Pause(dice.randrange(300)), text("and more")]

    return brain


async def live_on(s, dice, steps):
    """Do this and that to the root conversation."""
    for number in range(steps):
        await random_deed(s, dice, number)
        for _ in range(dice.randrange(40)):
            await asyncio.sleep(0)
    await s.root.wait_for_idle()


async def random_deed(s, dice, number):
    entries = (await s.root.context()).entries
    deeds = {
        "input": lambda: s.root.submit(f"do {number}", when_busy=dice.choice(["steer", "follow_up"])),
        "note": lambda: s.root.write("note", {"n": number, "deep": [{"x": "\u2028"}] * dice.randrange(4)}),
        "cut": lambda: s.root.write("cut", head=dice.choice(entries).id if entries else "self"),
        "reset": lambda: s.root.reset(f"so far {number}"),
        "withdraw": lambda: s.root.withdraw(dice.randrange(1, 200)),
        "configure": lambda: s.root.configure(perdure.Agent(instructions=f"mind {number}")),
        "abort": s.root.abort,
        "idle": s.root.wait_for_idle,
    }
    weights = {"input": 10, "note": 3, "cut": 2, "reset": 1, "withdraw": 2, "configure": 1, "abort": 1, "idle": 4}
    await deeds[dice.choices(list(deeds), list(weights.values()))[0]]()


@asynccontextmanager
async def moody_scene(seed, **options):
    dice = random.Random(seed)
    clock = perdure.VirtualClock(autojump=True)
    async with scene(moody(dice), tools=[dig], clock=clock, tokens_per_second=50, **options) as s:
        yield s, dice


@pytest.mark.parametrize("seed", range(4))
def test_a_page_in_another_process_holds_the_committed_view_after_a_random_run(seed):
    """Must show 3 of issue 6, P1."""

    async def main():
        async with moody_scene(seed) as (s, dice), browsing(s.root) as browser:
            for _ in range(3):
                await live_on(s, dice, 12)
                await assert_same(browser, s.root)
            assert browser.attached == 1
            assert "r" not in browser.frames

    go(main, within=50)


@pytest.mark.parametrize("seed", range(3))
def test_a_page_that_could_not_keep_up_gets_one_replacement_and_holds_the_committed_view(seed):
    """Must show 3 of issue 6, VE-08, B160: the one that keeps up beside it gets every commit."""

    async def main():
        async with moody_scene(seed) as (s, dice), browsing(s.root) as slow, browsing(s.root) as fast:
            await live_on(s, dice, 5)
            await assert_same(slow, s.root)
            slow.flowing.clear()
            for number in range(130):
                await s.root.write("note", number)
            await live_on(s, dice, 5)
            await assert_same(fast, s.root)
            slow.flowing.set()
            await assert_same(slow, s.root)
            assert slow.frames.count("r") >= 1
            assert "r" not in fast.frames
            await live_on(s, dice, 5)
            await assert_same(slow, s.root)

    go(main, within=50)


@pytest.mark.parametrize("seed", range(3))
def test_a_page_that_attaches_again_after_its_session_has_died_holds_the_committed_view(seed):
    """Must show 3 of issue 6, B158."""

    async def main():
        async with moody_scene(seed) as (s, dice), browsing(s.root) as browser:
            for round_ in range(4):
                await live_on(s, dice, 4)
                await s.root.submit(f"once more {round_}")
                await quiet(dice.randrange(60))
                s.system.kill("session:s")
                await quiet()
                await assert_same(browser, s.root)
            assert browser.attached == 5

    go(main, within=50)


def test_a_page_follows_a_conversation_over_a_restart_of_the_whole_program(tmp_path):
    """Must show 3 of issue 6, with a file in between."""

    async def main():
        path = tmp_path / "s.db"
        values = []
        for life in range(3):
            async with moody_scene(life, storage=perdure.SqliteStorage(path)) as (s, dice), browsing(s.root) as browser:
                while browser.attached == 0:
                    await asyncio.sleep(0)
                values.append(await browser.value())
                await live_on(s, dice, 6)
                await assert_same(browser, s.root)
                values.append(await browser.value())
        assert values[2] == values[1]
        assert values[4] == values[3]

    go(main, within=50)
