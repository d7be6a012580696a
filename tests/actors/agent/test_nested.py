import asyncio

import msgspec
import perdure
import pytest
from perdure.actors.models import call
from structlog.testing import capture_logs

from ..conversation.support import calling, go, history, kinds, quiet, scene


class Bench:
    """A tool that calls another one as often as it is told, and that other one."""

    def __init__(self, *, replay="safe", **options):
        self.ran, self.rounds = [], []
        self.free, self.arrived = asyncio.Event(), asyncio.Event()
        self.free.set()

        @perdure.tool(replay="safe", **options)
        async def square(ctx: perdure.ToolContext, number: int) -> perdure.ToolResult:
            """Square."""
            self.ran.append(number)
            return perdure.ToolResult(content=f"{number**2}\n" * 3, details={"square": number**2})

        @perdure.tool(replay=replay)
        async def sum_up(ctx: perdure.ToolContext, count: int, key: str = "") -> str:
            """Sum up."""
            self.rounds.append(count)
            total = 0
            for number in range(count):
                one = await ctx.call("square", {"number": number}, key=f"{key}{number}" if key else None)
                total += one.details["square"]
                if number == 1:
                    self.arrived.set()
                    await self.free.wait()
            return f"sum {total}"

        self.tools = [square, sum_up]


SUM = calling(call("sum_up", "c1", count=4))


def test_a_tool_calls_another_and_gets_its_result_and_the_transcript_knows_nothing_of_it():
    """TO-28."""

    async def main():
        bench = Bench(limits=perdure.OutputLimits(max_lines=1))
        async with scene(SUM, tools=bench.tools) as s:
            assert (await s.ask()).text == "sum 14"
            assert bench.ran == [0, 1, 2, 3]
            assert kinds(await history(s.root)).count("tool-result") == 1
            async with s.session.commit() as tx:
                tasks = (await tx.scan_tasks(perdure.TaskQuery(kind="pi.tool"), 10)).items
            caller = next(one for one in tasks if one.owner is not None and one.input["callId"] == "c1")
            nested = [one for one in tasks if one.owner == caller.id]
            assert [one.input["callId"] for one in nested] == ["c1/0", "c1/1", "c1/2", "c1/3"]
            assert nested[2].state.outcome.result["result"]["content"] == [{"type": "text", "text": "4\n"}]

    go(main)


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("gone", {}, "Tool gone is not available"),
        ("square", {"number": "x"}, "Validation failed for tool square"),
        ("square", {"number": 13}, "Tool call blocked: unlucky"),
        ("fail", {}, "Tool fail failed: RuntimeError: no"),
    ],
)
def test_a_nested_call_is_checked_like_any_other_and_what_goes_wrong_is_its_result(tool, arguments, told):
    """TO-28: same validation, same hooks."""

    async def main():
        got = []

        @perdure.tool
        async def fail() -> str:
            """Fail."""
            raise RuntimeError("no")

        @perdure.tool
        async def outer(ctx: perdure.ToolContext) -> str:
            """Call."""
            got.append(await ctx.call(tool, arguments))
            return "went on"

        unlucky = lambda ctx, one: perdure.Deny("unlucky") if one.arguments.get("number") == 13 else None
        kit = perdure.Extension(name="h", hooks=perdure.Hooks(before_tool=unlucky))
        tools = [*Bench().tools, fail, outer]
        async with scene(calling(call("outer", "c1")), tools=tools, extensions=[kit]) as s:
            assert (await s.ask()).text == "went on"
            assert got[0].is_error
            assert got[0].text.startswith(told)

    go(main)


@pytest.mark.parametrize("key", ["", "k"])
def test_a_safe_caller_that_runs_again_gets_the_results_it_had_by_key_or_position(key):
    """TO-28: no call is made twice."""

    async def main():
        bench = Bench()
        bench.free.clear()
        async with scene(calling(call("sum_up", "c1", count=4, key=key)), tools=bench.tools) as s:
            submission = await s.root.submit("x")
            await bench.arrived.wait()
            s.system.kill("session:s")
            bench.free.set()
            while True:
                try:
                    assert (await submission.wait()).text == "sum 14"
                    break
                except perdure.SessionFailed:
                    await asyncio.sleep(0)
            assert bench.rounds == [4, 4]
            assert bench.ran == [0, 1, 2, 3]

    go(main)


class Slow:
    """A tool that never ends unless it is told to, called by one that does not wait for it."""

    def __init__(self, replay="unsafe"):
        self.started, self.ended = asyncio.Event(), []
        self.leave = asyncio.Event()

        @perdure.tool(replay="safe")
        async def slow() -> str:
            """Hang."""
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.append(True)
            return ""

        @perdure.tool(replay=replay)
        async def outer(ctx: perdure.ToolContext) -> str:
            """Leave."""
            calling = asyncio.ensure_future(ctx.call("slow", {}))
            await self.started.wait()
            await self.leave.wait()
            calling.cancel()
            return "left"

        self.tools = [slow, outer]


OUTER = calling(call("outer", "c1"))


async def nested_outcomes(s):
    async with s.session.commit() as tx:
        tasks = (await tx.scan_tasks(perdure.TaskQuery(kind="pi.tool"), 10)).items
    return [type(one.state.outcome).__name__ for one in tasks if one.input["assistant"] is None]


def test_a_caller_aborts_the_calls_that_it_left_running_before_it_settles():
    """TO-29."""

    async def main():
        slow = Slow()
        slow.leave.set()
        async with scene(OUTER, tools=slow.tools) as s:
            assert (await s.ask()).text == "left"
            assert await nested_outcomes(s) == ["Aborted"]
            assert slow.ended == [True]

    go(main)


def test_nested_calls_of_an_unsafe_caller_are_abandoned_after_a_restart():
    """TO-29."""

    async def main():
        slow, storage = Slow(), perdure.MemoryStorage()
        async with scene(OUTER, storage=storage, tools=slow.tools) as s:
            submission = await s.root.submit("x")
            await slow.started.wait()
            await quiet()
        async with scene(OUTER, storage=storage, tools=slow.tools) as s:
            assert "interrupted" in (await (await s.session.submission(submission.id)).wait()).text
            assert await nested_outcomes(s) == ["Aborted"]

    go(main)


def test_an_abort_reaches_nested_calls_first():
    async def main():
        slow = Slow()
        async with scene(OUTER, tools=slow.tools) as s:
            submission = await s.root.submit("x")
            await slow.started.wait()
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            assert await nested_outcomes(s) == ["Aborted"]

    go(main)


def test_nested_calls_may_wait_for_approval():
    async def main():
        bench = Bench(approval="always")
        async with scene(calling(call("sum_up", "c1", count=1)), tools=bench.tools) as s:
            submission = await s.root.submit("x")
            while True:
                try:
                    await s.root.approve("c1/0", perdure.arguments_hash("square", {"number": 0}))
                    break
                except (perdure.UnknownCall, perdure.CallNotWaiting):
                    await asyncio.sleep(0)
            assert (await submission.wait()).text == "sum 0"

    go(main)


class Square(msgspec.Struct):
    square: str


def test_details_of_a_wrong_type_are_an_error_for_a_tool_that_calls_and_lost_to_a_model_that_does():
    """TO-30: the host gets a report. What the reference calls structured output are a result's details here."""

    async def main():
        got = []
        square = Bench(details_type=Square).tools[0]

        @perdure.tool
        async def outer(ctx: perdure.ToolContext) -> str:
            """Call."""
            got.append(await ctx.call("square", {"number": 2}))
            return "went on"

        brain = calling(call("outer", "c1"), call("square", "c2", number=3))
        async with scene(brain, tools=[square, outer]) as s:
            with capture_logs() as logs:
                assert "9\n9\n9" in (await s.ask()).text
            assert [one["tool"] for one in logs if one["event"] == "details_invalid"] == ["square", "square"]
            assert got[0].is_error
            assert "details of a wrong type" in got[0].text
            last = [one.model[0] for one in await history(s.root) if one.kind == "pi.tool-result"][-1]
            assert (last["isError"], last.get("details")) == (False, None)

    go(main)


def test_no_more_calls_are_under_way_at_once_than_the_settings_say_and_all_have_their_turn():
    async def main():
        running, most = 0, 0

        @perdure.tool(replay="safe")
        async def one(number: int) -> str:
            """One."""
            nonlocal running, most
            running += 1
            most = max(most, running)
            await quiet()  # whoever else may run now does
            running -= 1
            return str(number)

        @perdure.tool
        async def many(ctx: perdure.ToolContext, count: int) -> str:
            """Many."""
            done = await asyncio.gather(*(ctx.call("one", {"number": number}) for number in range(count)))
            return " ".join(each["content"][0]["text"] for each in msgspec.to_builtins(done))

        settings = perdure.Settings(max_nested_calls=3)
        async with scene(calling(call("many", "c1", count=10)), tools=[one, many], settings=settings) as s:
            assert (await s.ask()).text == "0 1 2 3 4 5 6 7 8 9"
            assert most == 3

    go(main)
