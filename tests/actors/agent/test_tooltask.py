import asyncio
import time
from itertools import pairwise

import perdure
import pytest
from perdure.actors.agent.tooltask import ToolTask
from perdure.actors.conversation.builtin import AssistantEntry, LiveDoc, UserEntry
from perdure.actors.models import ToolResultMessage, call, from_json, plain_text, to_json
from perdure.storage.records import Pending, Running, SubmissionRecord, TaskRecord, Waiting

from ..conversation.support import (
    Faults,
    calling,
    go,
    history,
    problems,
    quiet,
    said,
    scene,
    seen,
    user,
)


class Pay:
    """A tool with an effect outside, which can be held before and after it."""

    def __init__(self, replay="unsafe", **options):
        self.paid = []
        self.arrived, self.free = asyncio.Event(), asyncio.Event()
        self.effect, self.done = asyncio.Event(), asyncio.Event()
        self.free.set()

        async def pay(ctx: perdure.ToolContext, amount: int) -> str:
            """Pay."""
            ctx.output("paying\n")
            ctx.details({"amount": amount})
            ctx.diagnostic("in euros")
            self.arrived.set()
            await self.free.wait()
            self.paid.append((amount, ctx.idempotency_key))
            self.effect.set()
            await self.done.wait()
            return f"paid {amount}"

        self.tool = perdure.tool(replay=replay, **options)(pay)

    def hold(self):
        self.free.clear()
        return self

    def finish(self):
        self.free.set()
        self.done.set()
        return self


PAY = calling(call("pay", "c1", amount=5))


def slots(view):
    return view["docs"]["pi.live"].get("tools", [])


def shown(view):
    return any("output" in slot for slot in slots(view))


async def results(conversation):
    messages = [from_json(entry.model[0]) for entry in await history(conversation) if entry.model]
    return [m for m in messages if isinstance(m, ToolResultMessage)]


async def tool_record(s):
    async with s.session.commit() as tx:
        return (await tx.scan_tasks(perdure.TaskQuery(kind="pi.tool"), 10)).items[0]


async def answered(submission):
    """Wait for an answer through any number of deaths of the session."""
    while True:
        try:
            return await submission.wait()
        except perdure.SessionFailed:
            await asyncio.sleep(0)


# --- intent before execution


def test_the_intent_is_stored_with_the_arguments_and_the_policy_before_the_tool_runs():
    """TO-04, P4."""

    async def main():
        pay = Pay(replay="safe").hold()
        async with scene(PAY, tools=[pay.tool]) as s:
            submission = await s.root.submit("x")
            await pay.arrived.wait()
            record = await tool_record(s)
            assert isinstance(record.state, Running)
            assert record.state.checkpoint == {"phase": "execute", "arguments": {"amount": 5}, "replay": "safe"}
            [slot] = (await s.root.live())["tools"]
            assert (slot["status"], slot["taskId"], slot["name"]) == ("running", record.id, "pay")
            pay.finish()
            assert (await submission.wait()).answer.text.startswith("paid 5")

    go(main)


class IntentHook(Faults):
    """Calls an action at the write that stores a tool's intent."""

    def __init__(self, action, when):
        super().__init__(perdure.MemoryStorage())
        self._action, self._when = action, when

    async def write(self, batches):
        tasks = [w for b in batches for w in b.writes if isinstance(w, TaskRecord) and w.kind == "pi.tool"]
        if any(isinstance(t.state, Running) and t.state.checkpoint["phase"] == "execute" for t in tasks):
            when, self._when = self._when, None
            if when is not None:
                self.call(self.writes + 1, when, lambda: self._action(self))
        await super().write(batches)


async def fail(storage):
    storage._failed = True
    raise perdure.StorageFull("no space left")


def test_a_tool_whose_intent_cannot_be_stored_never_runs_and_runs_once_when_it_can():
    """B092: it never ran, so it runs in the next life, once."""

    async def main():
        pay = Pay().finish()
        storage = IntentHook(fail, "before")
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            submission = await s.root.submit("x")
            waiting = asyncio.ensure_future(submission.wait())
            with pytest.raises(perdure.SessionFailed) as failed:
                await waiting
            assert isinstance(failed.value.__cause__, perdure.StorageFull)
            assert pay.paid == []
            assert (await answered(submission)).answer.text.startswith("paid 5")
            assert len(pay.paid) == 1

    go(main)


def test_a_tool_whose_intent_may_have_been_stored_is_interrupted_unless_it_is_safe():
    """B092: nobody can tell that it never ran."""

    async def main():
        pay = Pay().finish()
        storage = IntentHook(fail, "after")
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            submission = await s.root.submit("x")
            assert "was interrupted" in (await answered(submission)).answer.text
            assert pay.paid == []

    go(main)


def test_a_tool_does_not_start_while_its_intent_is_being_stored():
    """B092, P1."""

    async def main():
        pay = Pay().finish()
        holding, released = asyncio.Event(), asyncio.Event()

        async def hold(storage):
            holding.set()
            await released.wait()

        async with scene(PAY, tools=[pay.tool], storage=IntentHook(hold, "before")) as s:
            submission = await s.root.submit("x")
            await holding.wait()
            await quiet(100)
            assert not pay.arrived.is_set()
            released.set()
            await submission.wait()
            assert len(pay.paid) == 1

    go(main)


# --- after a crash


def test_an_interrupted_unsafe_call_is_answered_with_what_it_had_shown_and_never_runs_again(storage):
    """TO-01, TO-06, B089, B091, P6."""

    async def main():
        pay = Pay()
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            submission = await s.root.submit("x")
            await pay.effect.wait()
            await seen(s.root, shown)
        again = Pay().finish()
        async with scene(PAY, tools=[again.tool], storage=storage) as s:
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.status == "done"
            assert (len(pay.paid), again.paid) == (1, [])
            [result] = await results(s.root)
            assert result.is_error
            assert result.details == {"amount": 5}
            assert plain_text(result.content) == (
                "paying\n"
                "<harness>\n[info] in euros\n[error] Tool pay was interrupted and may have partially run\n</harness>"
            )
            record = await tool_record(s)
            assert isinstance(record.state.outcome, perdure.Failed)
            entry = next(e for e in await history(s.root) if e.kind == "pi.tool-result")
            assert record.state.outcome.result == {"entryId": entry.id}
            assert [one["code"] for one in entry.data["diagnostics"] if "code" in one] == ["interrupted"]
            assert all(problems(request.messages) == [] for request in s.model.calls)

    go(main)


def test_an_interrupted_safe_call_runs_again_from_nothing(storage):
    """TO-05, P6."""

    async def main():
        pay = Pay(replay="safe")
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            submission = await s.root.submit("x")
            await pay.effect.wait()
            await seen(s.root, shown)
        again = Pay(replay="safe").hold()
        async with scene(PAY, tools=[again.tool], storage=storage) as s:
            await again.arrived.wait()
            again.finish()
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.answer.text == "paid 5<harness>\n[info] in euros\n</harness>"
            assert again.paid == pay.paid  # the same call has the same idempotency key
            assert len(await results(s.root)) == 1

    go(main)


def test_a_call_that_runs_again_first_takes_back_what_it_had_shown():
    """TO-05."""

    async def main():
        storage = perdure.MemoryStorage()
        pay = Pay(replay="safe")
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            await s.root.submit("x")
            await seen(s.root, shown)
        started, free = asyncio.Event(), asyncio.Event()

        async def silent(amount: int) -> str:
            """Pay."""
            started.set()
            await free.wait()
            return "ok"

        tool = perdure.tool(name="pay", replay="safe")(silent)
        async with scene(PAY, tools=[tool], storage=storage) as s:
            await started.wait()
            [slot] = (await s.root.live())["tools"]
            assert set(slot) == {"callId", "name", "status", "taskId"}
            free.set()
            await s.root.wait_for_idle()

    go(main)


@pytest.mark.parametrize(("before", "after"), [("safe", "unsafe"), ("unsafe", "safe"), ("safe", None)])
def test_a_call_runs_again_only_if_it_was_safe_then_and_is_safe_now(before, after):
    """TO-05, B118: the stricter policy wins, and a tool that is gone runs nowhere."""

    async def main():
        storage = perdure.MemoryStorage()
        pay = Pay(replay=before)
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            submission = await s.root.submit("x")
            await pay.effect.wait()
        again = Pay(replay=after or "safe").finish()
        async with scene(PAY, tools=[again.tool] if after else [], storage=storage) as s:
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.status == "done"
            assert again.paid == []
            assert "was interrupted" in plain_text((await results(s.root))[0].content)

    go(main)


def test_a_call_whose_tool_has_another_schema_now_is_answered_with_that():
    """B118."""

    async def main():
        storage = perdure.MemoryStorage()
        pay = Pay(replay="safe")
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            submission = await s.root.submit("x")
            await pay.effect.wait()

        @perdure.tool(name="pay", replay="safe")
        async def other(currency: str) -> str:
            """Pay."""
            return "never"

        async with scene(PAY, tools=[other], storage=storage) as s:
            assert (await (await s.session.submission(submission.id)).wait()).status == "done"
            assert "Validation failed for tool pay" in plain_text((await results(s.root))[0].content)

    go(main)


@pytest.mark.parametrize("replay", ["safe", "unsafe"])
@pytest.mark.parametrize("victim", ["task", "session:s", "storage"])
def test_whoever_is_killed_while_a_tool_runs_the_run_is_answered_once(victim, replay):
    """P6, P8, B091."""

    async def main():
        pay = Pay(replay=replay)
        async with scene(PAY, tools=[pay.tool]) as s:
            submission = await s.root.submit("x")
            await pay.effect.wait()
            pay.effect.clear()
            task = (await tool_record(s)).id
            assert s.system.kill(f"task:s/{task}" if victim == "task" else victim)
            if replay == "safe":
                await pay.effect.wait()
            pay.done.set()
            settled = await answered(submission)
            assert settled.status == "done"
            assert len(pay.paid) == (2 if replay == "safe" else 1)
            assert len({key for _, key in pay.paid}) == 1
            assert len(await results(s.root)) == 1

    go(main)


def waiting_tool(replay, started, wait):
    async def wait_for_it(ctx: perdure.ToolContext) -> str:
        """Wait for something that ends with the session."""
        started.append(ctx.task_id)
        return await wait(ctx)

    return perdure.tool(replay=replay, name="wait")(wait_for_it)


class Forever(perdure.Task[None, None], name="test.forever", version=1):
    """Parks until nobody knows when."""

    class Wait(perdure.Phase):
        pass

    async def wait(self, run, state):
        await run.wait(mail=True, then=self.Wait())


async def asks_own_session(ctx):
    async with ctx.commit() as tx:
        other = await tx.create_task(Forever, background=True)
    await other.result()
    return "over, which cannot be"


async def asks_own_session_and_complains(ctx):
    try:
        return await asks_own_session(ctx)
    except perdure.PerdureError as error:
        raise ValueError("no luck") from error


async def asks_own_session_and_shrugs(ctx):
    try:
        return await asks_own_session(ctx)
    except perdure.PerdureError:
        return "whatever"


@pytest.mark.parametrize("wait", [asks_own_session, asks_own_session_and_complains, asks_own_session_and_shrugs])
@pytest.mark.parametrize("end", ["kill", "storage", "close"])
@pytest.mark.parametrize("replay", ["safe", "unsafe"])
def test_the_end_of_its_own_session_is_no_answer_of_a_tool_and_the_next_life_gives_one(replay, end, wait):
    """P6, P8."""

    async def main():
        storage, started = perdure.MemoryStorage(), []
        again = asyncio.Event()

        async def once(ctx):
            if len(started) == 1:
                return await wait(ctx)
            again.set()
            return "the second life"

        tool = waiting_tool(replay, started, once)
        brain = calling(call("wait", "c1"))
        tasks = [perdure.Extension(name="tasks", tasks=[Forever])]
        async with scene(brain, tools=[tool], storage=storage, extensions=tasks) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: any(slot["status"] == "running" for slot in slots(v)))
            while not started:
                await asyncio.sleep(0)
            if end != "close":
                assert s.system.kill({"kill": "session:s", "storage": "storage"}[end])
                settled = await answered(submission)
                [result] = await results(s.root)
        if end == "close":
            async with scene(brain, tools=[tool], storage=storage, extensions=tasks) as s:
                settled = await answered(await s.session.submission(submission.id))
                [result] = await results(s.root)
        said = plain_text(result.content)
        assert settled.status == "done"
        assert ("the second life" if replay == "safe" else "was interrupted and may have partially run") in said
        assert len(started) == (2 if replay == "safe" else 1)

    go(main)


@pytest.mark.parametrize("problem", [perdure.SessionFailed("other"), perdure.SessionClosed("the other is closed")])
def test_the_end_of_another_session_is_an_error_of_the_call(problem):
    async def main():
        async def fails(ctx):
            raise problem

        started = []
        async with scene(calling(call("wait")), tools=[waiting_tool("safe", started, fails)]) as s:
            assert "Tool wait failed" in (await s.ask()).answer.text
            assert len(started) == 1

    go(main)


class ResultHook(Faults):
    """Fails the write that stores a tool's result, on either side of storing it."""

    def __init__(self, when):
        super().__init__(perdure.MemoryStorage())
        self._when = when

    async def write(self, batches):
        if self._when and any(getattr(w, "kind", None) == "pi.tool-result" for b in batches for w in b.writes):
            self.fail(self.writes + 1, self._when)
            self._when = None
        await super().write(batches)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_effect_whose_result_could_not_be_stored_is_not_repeated(when):
    """B025, B091: either the result is there, or the model is told that nobody knows."""

    async def main():
        pay = Pay().finish()
        async with scene(PAY, tools=[pay.tool], storage=ResultHook(when)) as s:
            settled = await answered(await s.root.submit("x"))
            assert len(pay.paid) == 1
            assert ("was interrupted" in settled.answer.text) is (when == "before")
            assert len(await results(s.root)) == 1

    go(main)


# --- how a call ends


def test_a_tool_that_raises_fails_its_task_and_an_error_that_it_returns_completes_it():
    """TO-07."""

    async def main():
        @perdure.tool
        def bad() -> None:
            """Raise."""
            raise ValueError("broken")

        @perdure.tool
        def polite() -> perdure.ToolResult:
            """Say no."""
            return perdure.ToolResult(content="no", is_error=True)

        for tool, outcome in ((bad, perdure.Failed), (polite, perdure.Completed)):
            async with scene(calling(call(tool.name)), tools=[tool]) as s:
                await s.ask()
                record = await tool_record(s)
                assert type(record.state.outcome) is outcome
                assert record.state.outcome.result is not None
                assert (await results(s.root))[0].is_error

    go(main)


class Odd(BaseException):
    pass


@pytest.mark.parametrize("in_thread", [False, True], ids=["on the loop", "in a thread"])
@pytest.mark.parametrize(
    "problem",
    [
        Exception(""),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        MemoryError(),
        asyncio.CancelledError(),
        Odd(),
    ],
    ids=repr,
)
def test_whatever_a_tool_raises_is_an_error_of_its_call_alone(problem, in_thread):
    """B032, must show 7 of issue 2."""

    def sync() -> None:
        """Raise."""
        raise problem

    async def on_loop() -> None:
        """Raise."""
        raise problem

    async def main():
        tool = perdure.Tool(sync if in_thread else on_loop, name="bad")
        async with scene(calling(call("bad")), tools=[tool]) as s:
            other = await (await s.system.session("other")).root(agent=perdure.Agent(model="scripted/model"))
            theirs = await other.submit("hello")
            answer = (await s.ask()).answer.text
            assert f"Tool bad failed: {type(problem).__name__}" in answer
            assert (await theirs.wait()).status == "done"
            assert isinstance((await tool_record(s)).state.outcome, perdure.Failed)
            assert (await s.ask("again")).status == "done"

    go(main)


def test_the_duration_of_a_call_is_on_its_result_and_nothing_of_it_runs_on():
    async def main():
        clock = perdure.VirtualClock(autojump=True)

        @perdure.tool
        async def nap(ctx: perdure.ToolContext) -> str:
            """Sleep."""
            await ctx.sleep(2.5)
            return "rested"

        async with scene(calling(call("nap")), tools=[nap], clock=clock) as s:
            await s.ask()
            assert (await results(s.root))[0].duration_ms == 2_500
            assert not [task for task in asyncio.all_tasks() if "Pump" in repr(task.get_coro())]

    go(main)


# --- aborting


def test_an_aborted_call_is_answered_with_what_it_had_shown():
    """TO-12, TO-13."""

    async def main():
        pay = Pay()
        async with scene(PAY, tools=[pay.tool]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, shown)
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            [result] = await results(s.root)
            assert (result.is_error, result.details, result.duration_ms) == (True, {"amount": 5}, None)
            assert plain_text(result.content) == (
                "paying\n<harness>\n[info] in euros\n[error] Tool pay was aborted\n</harness>"
            )
            record = await tool_record(s)
            assert isinstance(record.state.outcome, perdure.Aborted)

    go(main)


def test_an_abort_settles_a_call_whose_tool_is_no_longer_installed():
    """TO-18."""

    async def main():
        pay = Pay()
        async with scene(PAY, extensions=[perdure.Extension(name="pay", tools=[pay.tool])]) as s:
            await s.root.submit("x")
            await seen(s.root, shown)
            s.system.registry.uninstall("pay")
            await s.root.abort()
            assert "was aborted" in plain_text((await results(s.root))[0].content)

    go(main)


def test_an_aborted_tool_may_clean_up_and_one_that_answers_all_the_same_is_not_heard():
    """B101, TS-17."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        cleaned = []

        @perdure.tool
        async def tidy(ctx: perdure.ToolContext) -> str:
            """Clean up in the end."""
            try:
                await asyncio.Event().wait()
            finally:
                await ctx.sleep(0.5)
                cleaned.append("tidy")

        @perdure.tool
        async def deaf() -> str:
            """Not care."""
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cleaned.append("deaf")
            return "an answer all the same"

        async with scene(calling(call("tidy"), call("deaf")), tools=[tidy, deaf], clock=clock) as s:
            await s.root.submit("x")
            await seen(s.root, lambda v: [t["status"] for t in slots(v)] == ["running", "running"])
            await quiet()
            await s.root.abort()
            assert sorted(cleaned) == ["deaf", "tidy"]
            said = [plain_text(m.content) for m in await results(s.root)]
            assert len(said) == 2
            assert all("was aborted" in one for one in said)

    go(main)


def test_an_abort_of_one_call_leaves_its_siblings_and_the_run_alone():
    """TO-13."""

    async def main():
        pay = Pay()

        @perdure.tool
        async def other() -> str:
            """Do something else."""
            await pay.effect.wait()
            return "else"

        async with scene(calling(call("pay", amount=5), call("other")), tools=[pay.tool, other]) as s:
            submission = await s.root.submit("x")
            await pay.effect.wait()
            record = next(r for r in await s.session.tasks() if r.kind == "pi.tool" and r.live)
            assert await (await s.session.task(record.id)).abort()
            answer = (await submission.wait()).answer.text
            assert "Tool pay was aborted" in answer
            assert answer.endswith("else")

    go(main)


def test_an_abort_before_a_restart_is_kept_and_the_tool_does_not_run_again():
    """CR-02."""

    async def main():
        storage = perdure.MemoryStorage()
        cleaning = asyncio.Event()

        @perdure.tool(name="pay", replay="safe")
        async def stubborn(amount: int) -> None:
            """Take its time to end."""
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cleaning.set()
                await asyncio.Event().wait()

        async with scene(PAY, tools=[stubborn], storage=storage) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: any(t["status"] == "running" for t in slots(v)))
            await quiet()
            aborting = asyncio.ensure_future(s.root.abort())
            await cleaning.wait()
        assert isinstance((await asyncio.gather(aborting, return_exceptions=True))[0], perdure.PerdureError)
        pay = Pay(replay="safe").finish()
        async with scene(PAY, tools=[pay.tool], storage=storage) as s:
            assert (await (await s.session.submission(submission.id)).wait()).reason == "aborted"
            assert pay.paid == []

    go(main)


# --- progress


def talker(lines, seconds=0.05, retain="head"):
    async def talk(ctx: perdure.ToolContext) -> None:
        """Talk."""
        for n in range(lines):
            ctx.output(f"line {n}\n")
            await ctx.sleep(seconds)

    return perdure.tool(limits=perdure.OutputLimits(retain=retain, max_lines=10))(talk)


def test_output_is_shown_while_the_tool_runs_once_an_interval_and_gone_when_it_is_done():
    """TO-25."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        async with scene(calling(call("talk")), tools=[talker(10)], clock=clock) as s:
            watch = await s.root.watch()
            shown = []

            async def take(value, ops):
                shown.append((clock.now(), [slot.get("output") for slot in slots(value)]))

            watch.start(take)
            assert (await s.ask()).answer.text == "".join(f"line {n}\n" for n in range(10))
            await quiet()
            texts = [(at, out[0]) for at, out in shown if out and out[0]]
            assert 3 <= len(texts) <= 7
            assert all(b[0] - a[0] >= 100 for a, b in pairwise(texts) if a[1] != b[1])
            assert texts[0][1] == "line 0\n"
            finished = next(out for _, out in reversed(shown) if out)
            assert finished == [None]
            assert not [task for task in asyncio.all_tasks() if "Pump" in repr(task.get_coro())]

    go(main)


def test_progress_is_written_as_what_changed():
    """TO-25, B028."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)

        @perdure.tool
        async def count(ctx: perdure.ToolContext) -> str:
            """Count."""
            for n in range(6):
                ctx.output(f"{n} " + "x" * 1_000 + "\n")
                ctx.details({"fixed": "y" * 1_000, "n": n})
                if n == 3:
                    ctx.diagnostic("three")
                await ctx.sleep(0.2)
            return "ok"

        async with scene(calling(call("count")), tools=[count], clock=clock) as s:
            watch = await s.root.watch()
            frames = []

            async def take(value, ops):
                frames.append(ops)

            watch.start(take)
            await s.ask()
            await quiet()
            ops = [op for one in frames for op in one if op[1][:3] == ["docs", "pi.live", "tools"]]
            appended = [op for op in ops if op[0] == "a"]
            assert [op[1][-1] for op in appended] == ["output"] * len(appended)
            assert len(appended) >= 4
            assert all(len(op[2]) == 1_003 for op in appended)
            assert [op[2] for op in ops if op[1][-1] == "n"] == [1, 2, 3, 4, 5]

    go(main)


def test_the_tail_moves_on_in_what_is_shown_and_the_result_says_what_was_dropped():
    """TO-16, TO-23."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        async with scene(calling(call("talk")), tools=[talker(30, retain="tail")], clock=clock) as s:
            await s.root.submit("x")
            view = await seen(s.root, lambda v: any(slot.get("droppedLines") for slot in slots(v)))
            [slot] = slots(view)
            assert slot["output"].count("\n") == 10
            assert slot["droppedBytes"] == 7 * slot["droppedLines"]
            await s.root.wait_for_idle()
            [result] = await results(s.root)
            assert result.content[0].text == "".join(f"line {n}\n" for n in range(20, 30))
            assert "Output truncated to its end: 20 lines" in result.content[1].text

    go(main)


def test_a_sync_tool_reports_from_its_thread():
    async def main():
        clock = perdure.SystemClock()
        let_go = asyncio.Event()
        loop = asyncio.get_running_loop()

        @perdure.tool
        def crunch(ctx: perdure.ToolContext) -> str:
            """Crunch."""
            ctx.output("crunching\n")
            ctx.details({"half": True})
            asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result(timeout=5)
            ctx.output("done\n")
            return "crunched"

        settings = perdure.Settings(progress=perdure.ProgressPolicy(output_interval_ms=0))
        async with scene(calling(call("crunch")), tools=[crunch], clock=clock, settings=settings) as s:
            submission = await s.root.submit("x")
            view = await seen(s.root, shown)
            assert slots(view)[0]["output"] == "crunching\n"
            let_go.set()
            assert (await submission.wait()).answer.text == "crunched"
            assert (await results(s.root))[0].details == {"half": True}

    go(main)


def test_a_sync_tool_does_not_hold_up_the_loop():
    async def main():
        let_go = asyncio.Event()
        loop = asyncio.get_running_loop()

        @perdure.tool
        def block() -> str:
            """Block."""
            asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result(timeout=5)
            return "released"

        async with scene(calling(call("block"), call("block")), tools=[block]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: [t["status"] for t in slots(v)] == ["running", "running"])
            other = await s.session.create_conversation(agent=perdure.Agent(model="scripted/model"))
            started = time.monotonic()
            async with other.commit() as tx:
                await tx.append("note")
            assert time.monotonic() - started < 2
            let_go.set()
            assert (await submission.wait()).answer.text == "released | released"

    go(main)


def test_details_that_become_false_are_shown():
    async def main():
        @perdure.tool
        async def flip(ctx: perdure.ToolContext) -> str:
            """Flip."""
            ctx.details({"on": True})
            await asyncio.sleep(0)
            await seen(ctx.conversation(), lambda v: any(slot.get("details") for slot in slots(v)))
            ctx.details({})
            await seen(ctx.conversation(), lambda v: any(slot.get("details") == {} for slot in slots(v)))
            return "flipped"

        settings = perdure.Settings(progress=perdure.ProgressPolicy(output_interval_ms=0))
        async with scene(calling(call("flip")), tools=[flip], settings=settings) as s:
            assert (await s.ask()).answer.text == "flipped"
            assert (await results(s.root))[0].details == {}

    go(main, within=5)


# --- without any code to decide


def test_a_call_that_no_code_can_take_is_closed_by_an_abort_and_the_context_answers_it():
    """TO-03's ending, TS-09, CX-08."""

    async def main():
        async with scene(calling()) as s:
            async with s.root.commit() as tx:
                submission = tx.put_submission(
                    SubmissionRecord(id=tx.mint(), conversation_id=1, type="input", status="placed")
                )
                await tx.append(UserEntry, model=[to_json(user("x"))])
                assistant = (await tx.append(AssistantEntry, model=[to_json(said(("pay", "c1")))])).id
                run, tool = tx.mint(), tx.mint()
                common = {"conversation_id": 1, "background": False, "abort_requested": False}
                state = {"phase": "tools", "assistant": assistant, "tools": [tool], "pending": []}
                await tx.put_task(
                    TaskRecord(
                        id=run,
                        kind="pi.generation",
                        version=1,
                        state=Waiting(checkpoint=state, on=[tool], policy="allSettled"),
                        **common,
                    )
                )
                await tx.put_task(
                    TaskRecord(
                        id=tool,
                        kind=ToolTask.name,
                        version=99,
                        owner=run,
                        input={"assistant": assistant, "callId": "c1"},
                        state=Pending(checkpoint={"phase": "call"}),
                        **common,
                    )
                )
                live = await tx.doc(LiveDoc, 1)
                live["run"] = {"taskId": run, "inputs": [submission.id]}
                live["tools"] = [{"callId": "c1", "name": "pay", "status": "pending", "taskId": tool}]
            await quiet()
            watch = await s.root.watch()
            assert await (await s.session.task(tool)).abort()
            settled = await (await s.session.submission(submission.id)).wait()
            assert "interrupted before it was answered" in settled.answer.text
            await quiet()
            closed = [slots(v) for v, _ in watch._frames if slots(v)]
            assert closed[-1] == [{"callId": "c1", "name": "pay", "status": "done", "taskId": tool}]
            assert problems(s.model.calls[0].messages) == []

    go(main)
