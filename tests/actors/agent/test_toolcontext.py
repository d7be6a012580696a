import asyncio

import perdure
import pytest
from perdure.actors.models import ToolResultMessage, call, from_json, plain_text

from ..conversation.support import MODEL, calling, go, history, quiet, scene, seen

NOTES: perdure.Doc = perdure.Doc("test.notes", initial=lambda: {"n": 0})


class Nap(perdure.Task[int, str], name="test.nap", version=1):
    """Parks for some milliseconds."""

    class Start(perdure.Phase):
        pass

    class Over(perdure.Phase):
        pass

    async def start(self, run, state):
        await run.wait(until=run.now() + run.input, then=self.Over())

    async def over(self, run, state):
        await run.complete("rested")


NAPS = perdure.Extension(name="naps", tasks=[Nap])


async def the_result(s):
    messages = [from_json(entry.model[0]) for entry in await history(s.root) if entry.model]
    return next(m for m in messages if isinstance(m, ToolResultMessage))


def using(body, *, calls=1, **options):
    """A scene whose model calls a tool that runs ``body(ctx)`` whenever a user speaks."""

    async def work(ctx: perdure.ToolContext) -> str:
        """Work."""
        return await body(ctx)

    brain = calling(*(call("work", f"c{n}") for n in range(calls)))
    return scene(brain, tools=[perdure.tool(replay="safe")(work)], **options)


def test_the_context_says_which_call_of_which_conversation_it_is():
    async def main():
        seen_by_tool = []

        async def body(ctx):
            seen_by_tool.append((ctx.call_id, ctx.conversation_id, ctx.session))
            record = await (await s.session.task(ctx.task_id)).record()
            assert record.kind == "pi.tool"
            return "ok"

        async with using(body) as s:
            await s.ask()
            assert seen_by_tool == [("c0", 1, "s")]

    go(main)


def test_the_idempotency_key_belongs_to_the_call():
    async def main():
        keys = []

        async def body(ctx):
            keys.append(ctx.idempotency_key)
            return "ok"

        async with using(body, calls=2) as s:
            await s.ask()
            await s.ask()
            other = await (await s.system.session("t")).root(agent=perdure.Agent(model=MODEL))
            await (await other.submit("x")).wait()
            assert len(set(keys)) == 6

    go(main)


def test_the_first_memo_under_a_name_is_given_again_after_a_crash():
    async def main():
        storage = perdure.MemoryStorage()
        kept = []
        first_life = asyncio.Event()

        async def body(ctx):
            kept.append(await ctx.memo("key", {"try": len(kept)}))
            if len(kept) == 1:
                first_life.set()
                await asyncio.Event().wait()
            kept.append(await ctx.memo("key", "another"))
            return "ok"

        async with using(body, storage=storage) as s:
            submission = await s.root.submit("x")
            await first_life.wait()
        async with using(body, storage=storage) as s:
            await (await s.session.submission(submission.id)).wait()
            assert kept == [{"try": 0}] * 3

    go(main)


def test_what_a_call_has_spawned_ends_before_the_call_does():
    """SC-19: the round goes on when the call's work has drained."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)

        async def body(ctx):
            ref = await ctx.spawn(Nap, 5_000)
            assert (await ref.record()).owner == ctx.task_id
            return "spawned"

        async with using(body, extensions=[NAPS], clock=clock) as s:
            began = clock.now()
            assert (await s.ask()).answer.text == "spawned"
            assert clock.now() - began == 5_000

    go(main)


def test_a_call_can_wait_for_what_it_has_spawned():
    async def main():
        async def body(ctx):
            return await (await ctx.spawn(Nap, 1_000)).result()

        async with using(body, extensions=[NAPS], clock=perdure.VirtualClock(autojump=True)) as s:
            assert (await s.ask()).answer.text == "rested"

    go(main)


def test_a_call_that_fails_cancels_what_it_has_spawned():
    """SC-21."""

    async def main():
        spawned = []

        async def body(ctx):
            spawned.append(await ctx.spawn(Nap, 10**9))
            raise ValueError("never mind")

        async with using(body, extensions=[NAPS]) as s:
            assert "never mind" in (await s.ask()).answer.text
            assert isinstance((await spawned[0].record()).state.outcome, perdure.Aborted)

    go(main)


def test_the_durable_doors_read_and_write_the_session():
    async def main():
        async def body(ctx):
            assert await ctx.snapshot(NOTES, ctx.conversation_id) is None
            async with ctx.commit() as tx:
                (await tx.doc(NOTES, ctx.conversation_id))["n"] = 7
                note = await tx.append("note", {"by": "tool"})
            assert note.by_task_id == ctx.task_id
            assert ctx.conversation() == s.root
            assert ctx.conversation(5).id == 5
            assert isinstance(ctx.service(perdure.Settings), perdure.Settings)
            return str((await ctx.snapshot(NOTES, ctx.conversation_id))["n"])

        async with using(body) as s:
            assert (await s.ask()).answer.text == "7"

    go(main)


def test_time_is_the_systems():
    async def main():
        clock = perdure.VirtualClock(autojump=True)

        async def body(ctx):
            began = ctx.now()
            await ctx.sleep(90)
            return str(ctx.now() - began)

        async with using(body, clock=clock) as s:
            assert (await s.ask()).answer.text == "90000"

    go(main)


def test_everything_is_refused_once_the_call_has_ended():
    async def main():
        kept = []

        async def body(ctx):
            kept.append(ctx)
            return "ok"

        async with using(body) as s:
            await s.ask()
            [ctx] = kept
            with pytest.raises(perdure.InvocationEnded):
                async with ctx.commit():
                    pass
            with pytest.raises(perdure.InvocationEnded):
                await ctx.memo("x", 1)
            with pytest.raises(perdure.InvocationEnded):
                await ctx.spawn(Nap, 1)
            ctx.output("too late")
            ctx.details({"too": "late"})
            await quiet()
            assert plain_text((await the_result(s)).content) == "ok"
            assert await s.root.live() == {}

    go(main)


def test_what_is_no_json_or_no_diagnostic_is_refused_where_it_is_given():
    """B106."""

    async def main():
        async def body(ctx):
            for refused, call_it in (
                ((perdure.PerdureError, TypeError), lambda: ctx.details(object())),
                (perdure.PerdureError, lambda: ctx.details(float("nan"))),
                (perdure.InvalidValue, lambda: ctx.diagnostic("x", severity="loud")),
                (perdure.InvalidValue, lambda: ctx.diagnostic(5)),
                ((AttributeError, TypeError), lambda: ctx.output(5)),
            ):
                with pytest.raises(refused):
                    call_it()
            ctx.details({"kept": True})
            return "ok"

        async with using(body) as s:
            assert (await s.ask()).answer.text == "ok"
            assert (await the_result(s)).details == {"kept": True}

    go(main)


def test_text_from_outside_is_repaired():
    """B104."""

    async def main():
        async def body(ctx):
            ctx.output("a\ud800b\x00")
            ctx.output(b"\xff\xe2\x82")
            ctx.output(b"\xac")
            ctx.details({"k\ud800": "\udfff"})
            ctx.diagnostic("d\ud800", code="c\ud800")

        async with using(body) as s:
            await s.ask()
            result = await the_result(s)
            assert result.content[0].text == "a\ufffdb\ufffd\u20ac"
            assert result.details == {"k\ufffd": "\ufffd"}
            assert result.content[1].text == "<harness>\n[info] d\ufffd\n</harness>"

    go(main)


def test_progress_is_refused_in_silence_when_the_session_dies_and_the_call_runs_again():
    """P8."""

    async def main():
        lives = []

        async def body(ctx):
            lives.append(ctx)
            ctx.output(f"life {len(lives)}\n")
            if len(lives) == 1:
                await seen(ctx.conversation(), lambda v: any("output" in t for t in v["docs"]["pi.live"]["tools"]))
                s.system.kill("session:s")
                await asyncio.Event().wait()

        async with using(body) as s:
            submission = await s.root.submit("x")
            while True:
                try:
                    settled = await submission.wait()
                    break
                except perdure.SessionFailed:
                    await asyncio.sleep(0)
            assert settled.answer.text == "life 2\n"

    go(main)


def test_a_tool_that_keeps_the_tail_may_leave_out_what_would_be_dropped_and_says_how_much():
    """TO-27: its window says what is kept and how often that is shown; a tool that keeps the head has none."""

    async def main():
        windows = []

        @perdure.tool(limits=perdure.OutputLimits(max_lines=2, retain="tail"))
        async def remote(ctx: perdure.ToolContext) -> None:
            """Run elsewhere."""
            windows.append(ctx.window)
            ctx.output("one\n")
            ctx.skipped(400, 100)
            ctx.output("second to last\nlast\n")

        @perdure.tool
        async def local(ctx: perdure.ToolContext) -> str:
            """Run here."""
            windows.append(ctx.window)
            return "here"

        async with scene(calling(call("remote", "c1"), call("local", "c2")), tools=[remote, local]) as s:
            told = (await s.ask()).text
            assert told.startswith("second to last\nlast\n")
            assert "Output truncated to its end: 101 lines, 404 bytes dropped" in told
            window = next(one for one in windows if one is not None)
            assert (window.limits.max_lines, window.interval_ms, len(windows)) == (2, 100, 2)

    go(main)


def test_what_the_model_reads_of_a_result_is_its_content():
    """TO-31: the reference has renamed that field to output; here a result and the stored message say content alike."""
    assert "content" in perdure.ToolResult.__struct_fields__
    assert "output" not in perdure.ToolResult.__struct_fields__
