"""Nested calls that are begun together: few commits, and what may go wrong between and in them."""

import asyncio
from contextlib import suppress

import perdure
import pytest
from perdure.actors.models import call
from perdure.chord import InvalidJson
from perdure.storage.records import Pending, Running, TaskRecord, Terminal

from ..conversation.support import calling, go, quiet, scene

FAN = calling(call("fan", "c1"))


class Watched(perdure.MemoryStorage):
    """Remembers what each commit said of nested calls: their ids, by the phase or status that was stored."""

    def __init__(self):
        super().__init__()
        self.commits = []

    async def write(self, batches):
        await super().write(batches)
        for batch in batches:
            tasks = [one for one in batch.writes if isinstance(one, TaskRecord) and one.kind == "pi.tool"]
            nested = {one.id: _stage(one.state) for one in tasks if one.input["assistant"] is None}
            if nested:
                self.commits.append(nested)

    def stages(self, task):
        """What was stored of a call, in order."""
        return [commit[task] for commit in self.commits if task in commit]


def _stage(state):
    return state.checkpoint["phase"] if isinstance(state, Pending | Running) else state.__struct_config__.tag


class Fan:
    """A tool that makes calls of another one, ``work``, all at once."""

    def __init__(self, *given, replay="safe", **options):
        self.ran, self.got = [], []
        self.started, self.free = asyncio.Event(), asyncio.Event()
        self.free.set()

        @perdure.tool(replay=replay, **options)
        async def work(number: int) -> str:
            """Work."""
            self.ran.append(number)
            self.started.set()
            await self.free.wait()
            return str(number)

        @perdure.tool(replay="safe")
        async def fan(ctx: perdure.ToolContext) -> str:
            """Call."""
            calls = (ctx.call("work", one) for one in given)
            self.got = await asyncio.gather(*calls, return_exceptions=True)
            return " ".join("!" if isinstance(one, Exception) else one.text for one in self.got)

        self.work, self.fan = work, fan
        self.tools = [work, fan]


def numbers(count):
    return [{"number": number} for number in range(count)]


@pytest.mark.parametrize(
    ("replay", "stages"), [("safe", ["execute", "terminal"]), ("unsafe", ["call", "execute", "terminal"])]
)
def test_calls_begun_together_are_created_in_one_commit_and_only_unsafe_ones_need_one_for_their_intent(replay, stages):
    """P4: the intent is stored before the tool runs, with the call if the tool may run again."""

    async def main():
        fan, storage = Fan(*numbers(10), replay=replay), Watched()
        async with scene(FAN, tools=fan.tools, storage=storage) as s:
            assert (await s.ask()).text == "0 1 2 3 4 5 6 7 8 9"
        assert set(storage.commits[0].values()) == {stages[0]}
        assert len(storage.commits[0]) == 10
        assert [storage.stages(task) for task in storage.commits[0]] == [stages] * 10

    go(main)


def test_no_more_calls_are_created_than_there_is_room_for():
    async def main():
        fan, storage = Fan(*numbers(10)), Watched()
        settings = perdure.Settings(max_nested_calls=4)
        async with scene(FAN, tools=fan.tools, storage=storage, settings=settings) as s:
            assert (await s.ask()).text == "0 1 2 3 4 5 6 7 8 9"
        live = set()
        for commit in storage.commits:
            live = (live | commit.keys()) - {task for task, stage in commit.items() if stage == "terminal"}
            assert len(live) <= 4

    go(main)


@pytest.mark.parametrize("asks", ["hook", "approval"])
def test_a_call_that_somebody_is_asked_about_stores_no_intent_before_he_was(asks):
    async def main():
        asked = []

        def before(ctx, one):
            if one.name == "work":
                asked.append(one.arguments["number"])

        kit = perdure.Extension(name="h", hooks=perdure.Hooks(before_tool=before if asks == "hook" else None))
        policy = {"approval": lambda one: asked.append(one.arguments["number"])} if asks == "approval" else {}
        fan, storage = Fan(*numbers(2), **policy), Watched()
        async with scene(FAN, tools=fan.tools, storage=storage, extensions=[kit]) as s:
            assert (await s.ask()).text == "0 1"
        assert asked == [0, 1]
        assert storage.stages(min(storage.commits[0])) == ["call", "execute", "terminal"]

    go(main)


def test_one_call_of_a_batch_that_is_refused_leaves_the_others_alone():
    """P11."""

    async def main():
        fan = Fan({"number": 1}, 5, {"number": "\ud800"}, {"number": "x"}, {}, {"number": 2})
        async with scene(FAN, tools=fan.tools) as s:
            await s.ask()
            one, no_object, no_text, no_number, nothing, two = fan.got
            assert (one.text, two.text) == ("1", "2")
            assert isinstance(no_object, perdure.InvalidValue)
            assert isinstance(no_text, InvalidJson)
            assert no_number.is_error
            assert "Validation failed" in no_number.text
            assert nothing.is_error
            assert fan.ran == [1, 2]

    go(main)


@pytest.mark.parametrize(("tool", "key"), [(5, None), ("work", 5), ("work", "\ud800")])
def test_names_and_keys_of_calls_are_text(tool, key):
    """P11."""

    async def main():
        got = []

        @perdure.tool
        async def fan(ctx: perdure.ToolContext) -> str:
            """Call."""
            with pytest.raises(perdure.InvalidValue):
                await ctx.call(tool, {}, key=key)
            got.append(await ctx.call("work", {"number": 3}))
            return got[0].text

        async with scene(FAN, tools=[Fan().work, fan]) as s:
            assert (await s.ask()).text == "3"

    go(main)


@pytest.mark.parametrize(("first", "second"), [("k", "k"), ("1", None), (None, "0")])
def test_a_key_names_one_call_of_an_execution(first, second):
    """P6: of two calls by one key, an execution that runs again could only find one, and would make the other again."""

    async def main():
        work = Fan(replay="unsafe")

        @perdure.tool(replay="safe")
        async def fan(ctx: perdure.ToolContext) -> str:
            """Call."""
            with suppress(perdure.InvalidValue):
                await ctx.call("work", {"number": 1}, key=first)
                await ctx.call("work", {"number": 2}, key=second)
            return (await ctx.call("work", {"number": 3})).text

        async with scene(FAN, tools=[work.work, fan]) as s:
            assert (await s.ask()).text == "3"
            assert work.ran == [1, 3]

    go(main)


def test_nothing_can_be_called_inside_a_commit_of_the_caller():
    async def main():
        @perdure.tool
        async def fan(ctx: perdure.ToolContext) -> str:
            """Call."""
            async with ctx.commit():
                with pytest.raises(perdure.LineReentry):
                    await ctx.call("work", {"number": 1})
            return (await ctx.call("work", {"number": 2})).text

        async with scene(FAN, tools=[Fan().work, fan]) as s:
            assert (await s.ask()).text == "2"

    go(main)


def test_a_call_that_is_given_up_while_it_waits_its_turn_is_never_made():
    async def main():
        work = Fan()

        @perdure.tool
        async def fan(ctx: perdure.ToolContext) -> str:
            """Call."""
            first, second, third = (asyncio.ensure_future(ctx.call("work", {"number": n})) for n in range(3))
            await work.started.wait()
            second.cancel()
            work.free.set()
            return f"{(await first).text} {(await third).text}"

        work.free.clear()
        async with scene(FAN, tools=[work.work, fan], settings=perdure.Settings(max_nested_calls=1)) as s:
            assert (await s.ask()).text == "0 2"
            assert work.ran == [0, 2]

    go(main)


def test_an_abort_in_the_middle_of_a_batch_ends_what_was_made_and_makes_no_more():
    """P7."""

    async def main():
        fan, storage = Fan(*numbers(5)), Watched()
        fan.free.clear()
        settings = perdure.Settings(max_nested_calls=2)
        async with scene(FAN, tools=fan.tools, storage=storage, settings=settings) as s:
            submission = await s.root.submit("x")
            await fan.started.wait()
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            assert not await s.session.tasks()
        made = {task for commit in storage.commits for task in commit}
        assert len(made) == 2
        assert all(storage.stages(task)[-1] == "terminal" for task in made)

    go(main)


def test_an_abort_before_the_batch_is_made_makes_none():
    async def main():
        fan, storage = Fan(*numbers(3)), Watched()

        @perdure.tool
        async def early(ctx: perdure.ToolContext) -> str:
            """Call."""
            calls = [asyncio.ensure_future(ctx.call("work", one)) for one in numbers(3)]
            async with ctx.commit() as tx:
                await tx.abort_task(ctx.task_id)
            await asyncio.gather(*calls)
            return "no"

        async with scene(calling(call("early", "c1")), tools=[*fan.tools, early], storage=storage) as s:
            await s.ask()
            assert fan.ran == []
            assert not await s.session.tasks()
        assert all("terminal" in storage.stages(task) for commit in storage.commits for task in commit)

    go(main)


def test_calls_left_running_are_aborted_also_those_that_are_just_being_made():
    """TO-29."""

    async def main():
        fan, storage = Fan(), Watched()
        fan.free.clear()

        @perdure.tool
        async def hasty(ctx: perdure.ToolContext) -> str:
            """Call."""
            left = [asyncio.ensure_future(ctx.call("work", one)) for one in numbers(3)]
            await fan.started.wait()
            left.append(asyncio.ensure_future(ctx.call("work", {"number": 9})))
            await quiet(2)
            return "gone"

        async with scene(calling(call("hasty", "c1")), tools=[fan.work, hasty], storage=storage) as s:
            assert (await s.ask()).text == "gone"
            assert not await s.session.tasks()
            async with s.session.commit() as tx:
                tasks = (await tx.scan_tasks(perdure.TaskQuery(kind="pi.tool"), 10)).items
            nested = [one for one in tasks if one.input["assistant"] is None]
            assert {type(one.state.outcome).__name__ for one in nested} == {"Aborted"}
            assert all(isinstance(one.state, Terminal) for one in nested)

    go(main)


# --- between the creation of a batch and its calls


async def interrupted(tools, storage, started):
    """Let the process die once ``started``; give the submission's id."""
    async with scene(FAN, tools=tools, storage=storage) as s:
        submission = await s.root.submit("x")
        await started.wait()
        await quiet()
    return submission.id


def test_calls_whose_intent_was_stored_with_them_run_again():
    """P6, TO-28: their caller finds them by position."""

    async def main():
        storage, fan = Watched(), Fan(*numbers(3))
        fan.free.clear()
        submission = await interrupted(fan.tools, storage, fan.started)
        again = Fan(*numbers(3))
        async with scene(FAN, tools=again.tools, storage=storage) as s:
            assert (await (await s.session.submission(submission)).wait()).text == "0 1 2"
        assert again.ran == [0, 1, 2]
        assert len({task for commit in storage.commits for task in commit}) == 3

    go(main)


@pytest.mark.parametrize("now", ["unsafe", "gone"])
def test_calls_whose_tool_is_no_longer_safe_do_not_run_again(now):
    """P6."""

    async def main():
        storage, fan = Watched(), Fan(*numbers(2))
        fan.free.clear()
        submission = await interrupted(fan.tools, storage, fan.started)
        again = Fan(*numbers(2), replay="unsafe")
        tools = again.tools if now == "unsafe" else [again.fan]
        async with scene(FAN, tools=tools, storage=storage) as s:
            said = (await (await s.session.submission(submission)).wait()).text
        assert said.count("was interrupted and may have partially run") == 2
        assert again.ran == []

    go(main)


def test_calls_that_run_again_are_validated_again():
    async def main():
        storage, fan = Watched(), Fan(*numbers(1))
        fan.free.clear()
        submission = await interrupted(fan.tools, storage, fan.started)

        @perdure.tool(replay="safe")
        async def work(number: str) -> str:
            """Take something else now."""
            raise AssertionError(number)

        async with scene(FAN, tools=[work, fan.fan], storage=storage) as s:
            assert "Validation failed" in (await (await s.session.submission(submission)).wait()).text

    go(main)


def test_a_tool_that_became_unsafe_between_creation_and_call_stores_its_intent_first():
    """P4: what is checked when the call runs is what is installed then."""

    async def main():
        fan, unsafe = Fan(*numbers(2)), Fan(replay="unsafe")

        class Swapping(Watched):
            swap = None

            async def write(self, batches):
                await super().write(batches)
                if self.commits and self.swap is not None:
                    self.swap()
                    self.swap = None

        storage = Swapping()
        async with scene(FAN, tools=fan.tools, storage=storage) as s:
            kit = perdure.Extension(name="kit", tools=[unsafe.work, fan.fan])
            storage.swap = lambda: s.system.registry.install(kit)
            assert (await s.ask()).text == "0 1"
        assert (fan.ran, unsafe.ran) == ([], [0, 1])
        assert [storage.stages(task) for task in storage.commits[0]] == [["execute", "execute", "terminal"]] * 2

    go(main)


def test_calls_that_an_earlier_execution_made_and_nobody_asks_for_again_end_with_their_caller():
    """TO-29."""

    async def main():
        storage, fan = Watched(), Fan(*numbers(2))
        fan.free.clear()
        submission = await interrupted(fan.tools, storage, fan.started)
        none = Fan()
        none.free.clear()
        async with scene(FAN, tools=none.tools, storage=storage) as s:
            settled = await (await s.session.submission(submission)).wait()
            assert settled.text in ("", "(no output)")
            assert not await s.session.tasks()

    go(main)
