"""What a tool does about an execution that was cut off, before its call is answered."""

import asyncio

import perdure
import pytest
from perdure.actors.models import call

from ..conversation.support import calling, go, history, scene


class Machine(perdure.Tool):
    """A tool that switches something on in the world, and knows how to switch it off."""

    def __init__(self, replay="unsafe", fails=None):
        async def work(ctx: perdure.ToolContext) -> str:
            """Work."""
            self.log.append(f"run {ctx.task_id}")
            self.on.set()
            await self.free.wait()
            return "worked"

        super().__init__(work, replay=replay)
        self.log, self.on, self.free, self.fails = [], asyncio.Event(), asyncio.Event(), fails

    async def clean_up(self, context):
        self.log.append(f"clean up {context.task_id}")
        if self.fails is not None:
            raise self.fails


async def cut_off(storage, tool):
    """Have a call running and end the life of its system."""
    async with scene(calling(call("work")), storage=storage, tools=[tool]) as s:
        await s.root.submit("go")
        await tool.on.wait()


@pytest.mark.parametrize("storage", [perdure.MemoryStorage, None])
@pytest.mark.parametrize(("replay", "then"), [("unsafe", []), ("safe", ["run"])])
def test_a_tool_cleans_up_before_its_cut_off_call_is_answered_or_runs_again(storage, replay, then, tmp_path):
    """B098, TO-05, TO-06"""
    store = perdure.SqliteStorage(tmp_path / "s.db") if storage is None else storage()

    async def main():
        tool = Machine(replay)
        await cut_off(store, tool)
        tool.free.set()
        async with scene(calling(call("work")), storage=store, tools=[tool]) as s:
            await s.root.wait_for_idle()
            assert [line.partition(" ")[0] for line in tool.log] == ["run", "clean", *then]
            [result] = [one for one in await history(s.root) if one.kind == "pi.tool-result"]
            assert ("was interrupted" in str(result.model)) == (replay == "unsafe")
        assert {line.rpartition(" ")[2] for line in tool.log} == {tool.log[0].rpartition(" ")[2]}

    go(main)


@pytest.mark.parametrize("fails", [RuntimeError("no"), asyncio.CancelledError(), SystemExit()])
def test_a_clean_up_that_fails_keeps_no_call_from_its_answer(fails):
    async def main():
        storage, tool = perdure.MemoryStorage(), Machine(fails=fails)
        await cut_off(storage, tool)
        async with scene(calling(call("work")), storage=storage, tools=[tool]) as s:
            await s.root.wait_for_idle()
            assert tool.log[1].startswith("clean up")
            assert "was interrupted" in str((await history(s.root))[-2].model)

    go(main)


def test_an_aborted_execution_is_cleaned_up_after_and_a_call_that_never_ran_is_not():
    """B098, TO-15"""

    async def main():
        tool = Machine()
        async with scene(calling(call("work")), tools=[tool]) as s:
            await s.root.submit("go")
            await tool.on.wait()
            await s.root.abort()
            assert [line.partition(" ")[0] for line in tool.log] == ["run", "clean"]

    go(main)


def test_what_a_call_ended_by_itself_is_not_cleaned_up():
    async def main():
        tool = Machine()
        tool.free.set()
        async with scene(calling(call("work")), tools=[tool]) as s:
            await s.ask("go")
            assert [line.partition(" ")[0] for line in tool.log] == ["run"]

    go(main)
