import asyncio

import perdure
import pytest
from perdure.actors.agent.timelimit import GRACE_S, within
from perdure.actors.models import call
from structlog.testing import capture_logs

from ..conversation.support import calling, go, quiet, scene, seen


async def never():
    await asyncio.Event().wait()


async def give(value):
    return value


async def fail(error):
    raise error


def on_clock(main):
    """Run a scenario with a clock that only the test moves."""

    async def run():
        clock = perdure.VirtualClock()
        await main(clock)

    go(run)


def test_work_that_ends_in_time_gives_and_raises_what_it_does():
    async def main(clock):
        assert await within(clock, None, give(1)) == 1
        assert await within(clock, 1, give(2)) == 2
        for error in (KeyError("x"), KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()):
            with pytest.raises(type(error)):
                await within(clock, 1, fail(error))

    on_clock(main)


def test_work_that_does_not_end_in_time_is_cancelled_and_may_clean_up():
    """B101: the third kind may finish its clean-up."""

    async def main(clock):
        cleaned = []

        async def tidy():
            try:
                await never()
            finally:
                await clock.sleep(1)
                cleaned.append(True)

        waiting = asyncio.create_task(within(clock, 10, tidy()))
        await quiet()
        clock.advance(9.9)
        await quiet()
        assert not waiting.done()
        clock.advance(0.2)
        await quiet()
        clock.advance(1)
        with pytest.raises(perdure.ToolTimeout, match="within 10 s"):
            await waiting
        assert cleaned == [True]

    on_clock(main)


def test_work_that_ignores_its_cancel_is_left_behind_after_the_grace_time():
    """B101: the second kind is abandoned."""

    async def main(clock):
        free = asyncio.Event()

        async def deaf():
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue

        waiting = asyncio.create_task(within(clock, 10, deaf()))
        await quiet()
        clock.advance(10)
        await quiet()
        assert not waiting.done()
        clock.advance(GRACE_S)
        with capture_logs() as logs, pytest.raises(perdure.ToolTimeout):
            await waiting
        assert [one["event"] for one in logs] == ["tool_ignores_cancel"]
        free.set()
        await quiet()

    on_clock(main)


def test_whoever_is_cancelled_while_waiting_cancels_the_work():
    async def main(clock):
        ended = []

        async def work():
            try:
                await never()
            finally:
                ended.append(True)

        waiting = asyncio.create_task(within(clock, 10, work()))
        await quiet()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == [True]

    on_clock(main)


def slow_tool(minutes, **options):
    @perdure.tool(**options)
    async def slow(ctx: perdure.ToolContext) -> str:
        """Take long."""
        ctx.output("begun\n")
        await ctx.sleep(minutes * 60)
        return "done"

    return slow


def shown(view):
    return any("output" in slot for slot in view["docs"]["pi.live"].get("tools", ()))


def test_a_tool_that_is_silent_within_its_time_is_not_touched():
    """B100: a limit of 15 minutes, ten of silence."""

    async def main():
        clock = perdure.VirtualClock()
        async with scene(calling(call("slow", "c1")), tools=[slow_tool(10, timeout_s=900)], clock=clock) as s:
            submission = await s.root.submit("x")
            await seen(s.root, shown)
            clock.advance(599)
            await quiet()
            assert (await s.root.live())["tools"][0]["status"] == "running"
            clock.advance(1)
            assert (await submission.wait()).text == "done"

    go(main)


@pytest.mark.parametrize("sync", [False, True])
def test_a_tool_past_its_time_is_answered_with_what_it_had_shown(sync):
    async def main():
        clock = perdure.VirtualClock()
        slow = slow_tool(10, timeout_s=60)
        if sync:
            import threading

            free = threading.Event()

            @perdure.tool(timeout_s=60, name="slow")
            def blocking(ctx: perdure.ToolContext) -> str:
                """Block."""
                ctx.output("begun\n")
                free.wait()
                return "done"

            slow = blocking
        async with scene(calling(call("slow", "c1")), tools=[slow], clock=clock) as s:
            submission = await s.root.submit("x")
            await seen(s.root, shown)
            clock.advance(60)
            told = (await submission.wait()).text
            assert told.startswith("begun\n")
            assert "Tool slow did not end within 60 s" in told
            async with s.session.commit() as tx:
                [tool] = (await tx.scan_tasks(perdure.TaskQuery(kind="pi.tool"), 10)).items
            assert isinstance(tool.state.outcome, perdure.Failed)
            if sync:
                free.set()

    go(main)


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": "1"}, {"timeout_s": True}, {"approval": "never"}])
def test_an_option_that_means_nothing_is_refused_when_the_tool_is_made(options):
    with pytest.raises(perdure.ToolDefinitionError):
        slow_tool(1, **options)
