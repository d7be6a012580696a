import asyncio

import msgspec
import perdure
import pytest
from perdure.actors.models import ToolResultMessage, call, from_json, plain_text, text
from perdure.actors.task.definition import Phase
from structlog.testing import capture_logs

from ..conversation.support import (
    answering,
    calling,
    echo,
    go,
    history,
    kinds,
    problems,
    scene,
    seen,
)


def hooked(name="h", **hooks):
    return perdure.Extension(name=name, hooks=perdure.Hooks(**hooks))


def adder(log=None):
    @perdure.tool
    async def add(amount: int) -> str:
        """Add."""
        if log is not None:
            log.append(amount)
        return f"added {amount}"

    return add


ADD = calling(call("add", "c1", amount=5))


def reports(logs):
    return [(one["extension"], one["hook"]) for one in logs if one["event"] == "hook_failed"]


def boom(*_):
    raise RuntimeError("boom")


async def result_entry(conversation, call_id="c1"):
    for one in await history(conversation):
        message = from_json(one.model[0]) if one.model else None
        if isinstance(message, ToolResultMessage) and message.tool_call_id == call_id:
            return one, message
    return None, None


# --- before_request, after_response


def test_a_request_is_changed_by_each_hook_in_order_of_installation_and_keeps_its_identity():
    """GE-09: signal and session id win over what anybody sets."""

    async def main():
        def tag(value):
            def before(ctx, request):
                headers = {"x": request.headers.get("x", "") + value}
                return msgspec.structs.replace(request, headers=headers, session_id="stolen")

            return before

        one, two = hooked("one", before_request=tag("1")), hooked("two", before_request=tag("2"))
        async with scene(
            extensions=[one, two], agent=perdure.Agent(model="scripted/model", extensions=["two", "one"])
        ) as s:
            assert (await s.ask("x")).text == "re: x"
            [request] = s.model.calls
            assert request.headers == {"x": "12"}
            assert request.session_id == (await s.root.snapshot(perdure.ProviderDoc))["sessionId"]

    go(main)


def test_a_response_is_stored_as_the_hooks_would_have_it():
    async def main():
        async def redact(ctx, message):
            said = plain_text(message.content).replace("secret", "***")
            return msgspec.structs.replace(message, content=[text(said)])

        async with scene(answering("the secret"), extensions=[hooked(after_response=redact)]) as s:
            assert (await s.ask()).text == "the ***"

    go(main)


@pytest.mark.parametrize("point", ["before_request", "after_response", "on_yield"])
@pytest.mark.parametrize("hook", [boom, lambda *_: 42, lambda *_: asyncio.sleep(0, "   ")])
def test_a_hook_that_fails_or_gives_what_does_not_belong_there_is_reported_and_passed_over(point, hook):
    async def main():
        async with scene(extensions=[hooked("bad", **{point: hook})]) as s:
            with capture_logs() as logs:
                assert (await s.ask("x")).text == "re: x"
            assert reports(logs) == [("bad", point)]

    go(main)


# --- on_yield


def test_a_run_goes_on_with_what_the_first_hook_says_and_its_input_gets_the_last_answer():
    """GE-40."""

    async def main():
        def once(words):
            left = [words]
            return lambda ctx, message: left.pop() if left else None

        check, other = hooked("check", on_yield=once("check it")), hooked("other", on_yield=once("and this"))
        async with scene(extensions=[check, other]) as s:
            settled = await s.ask("x")
            assert settled.text == "re: and this"
            said = [plain_text(from_json(one.model[0]).content) for one in await history(s.root)]
            assert said == ["x", "re: x", "check it", "re: check it", "and this", "re: and this"]
            assert await s.root.live() == {}

    go(main)


def test_queued_input_comes_before_what_a_hook_says_and_drops_it():
    """GE-40: it is dropped, not tried again."""

    async def main():
        asked = []

        async def more(ctx, message):
            asked.append(plain_text(message.content))
            if len(asked) == 1:
                await ctx.conversation().submit("queued")
                return "dropped"
            return None

        async with scene(extensions=[hooked(on_yield=more)]) as s:
            assert (await s.ask("x")).text == "re: x"
            await s.session.wait_for_idle()
            assert asked == ["re: x", "re: queued"]
            assert kinds(await history(s.root)) == ["user", "assistant", "user", "assistant"]

    go(main)


class Slow(perdure.Task[None, None], name="test.slow", version=1):
    class Sleep(Phase):
        pass

    class Wake(Phase):
        pass

    async def sleep(self, run, state):
        await run.wait(until=run.now() + 60_000, then=self.Wake())

    async def wake(self, run, state):
        await run.complete()


def test_a_generation_holds_for_the_work_that_a_hook_has_created():
    """GE-34: the input has its answer at once; the generation is completing until that work has ended."""

    async def main():
        async def spawn(ctx, message):
            async with ctx.commit() as tx:
                await tx.create_task(Slow, owner=ctx.task_id)

        clock = perdure.VirtualClock()
        hook = perdure.Extension(name="h", tasks=[Slow], hooks=perdure.Hooks(after_response=spawn))
        async with scene(extensions=[hook], clock=clock) as s:
            assert (await s.ask("x")).text == "re: x"
            states = {one.kind: type(one.state).__name__ for one in await s.session.tasks()}
            assert states == {"pi.generation": "Completing", "test.slow": "Waiting"}
            clock.advance(60)
            await s.session.wait_for_idle()

    go(main)


# --- before_tool


def test_arguments_are_changed_by_each_hook_and_checked_again():
    """TO-09: repair, validate, hooks in a chain, validate again."""

    async def main():
        log = []
        double = lambda ctx, one: {"amount": one.arguments["amount"] * 2}
        async with scene(
            ADD, tools=[adder(log)], extensions=[hooked("a", before_tool=double), hooked("b", before_tool=double)]
        ) as s:
            assert "added 20" in (await s.ask()).text
            assert log == [20]

    go(main)


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        (lambda ctx, one: perdure.Deny("not today"), "Tool call blocked: not today"),
        (boom, "Tool call blocked: RuntimeError: boom"),
        (lambda ctx, one: {"amount": "many"}, "Validation failed for tool add"),
        (lambda ctx, one: {"amount": float("nan")}, "Tool call blocked"),
        (lambda ctx, one: [1], "Tool call blocked"),
    ],
    ids=["deny", "raise", "misfit", "no-json", "no-arguments"],
)
def test_a_blocked_call_never_runs_and_the_model_is_told_why(hook, told):
    """TO-09, B178: a hook that fails blocks; the first block wins."""

    async def main():
        log, later = [], []
        after = hooked("later", before_tool=lambda ctx, one: later.append(one))
        async with scene(ADD, tools=[adder(log)], extensions=[hooked("first", before_tool=hook), after]) as s:
            assert told in (await s.ask()).text
            assert log == []
            assert len(later) == (1 if "Validation" in told else 0)

    go(main)


def test_hooks_are_not_asked_about_calls_that_do_not_fit():
    """TO-09, TO-10."""

    async def main():
        asked = []
        brain = calling(call("add", "c1", amount="x"), call("nothing", "c2"))
        hook = hooked(before_tool=lambda ctx, one: asked.append(one), after_tool=lambda ctx, one, r: asked.append(one))
        async with scene(brain, tools=[adder()], extensions=[hook]) as s:
            await s.ask()
            assert asked == []

    go(main)


# --- after_tool, after_tools


def test_results_are_changed_by_each_hook_and_a_failure_in_between_is_passed_over():
    """TO-11."""

    async def main():
        def mark(letter):
            return lambda ctx, one, result: msgspec.structs.replace(
                result,
                content=plain_text(result.content) + letter
                if isinstance(result.content, list)
                else result.content + letter,
            )

        kit = [hooked("a", after_tool=mark("A")), hooked("bad", after_tool=boom), hooked("b", after_tool=mark("B"))]
        async with scene(ADD, tools=[adder()], extensions=kit) as s:
            with capture_logs() as logs:
                assert (await s.ask()).text == "added 5AB"
            assert reports(logs) == [("bad", "after_tool")]

    go(main)


def test_what_a_hook_makes_of_a_result_is_bounded_and_the_outputs_own_truncation_is_not_mentioned():
    """TO-16, TO-22, TO-23."""

    async def main():
        @perdure.tool(limits=perdure.OutputLimits(max_lines=2, retain="tail"))
        async def count() -> str:
            """Count."""
            return "\n".join(map(str, range(100)))

        longer = lambda ctx, one, result: msgspec.structs.replace(result, content="one\ntwo\nthree\nfour")
        async with scene(calling(call("count", "c1")), tools=[count], extensions=[hooked(after_tool=longer)]) as s:
            await s.ask()
            entry, message = await result_entry(s.root)
            assert message.content[0].text == "three\nfour"
            assert [one["message"] for one in entry.data["diagnostics"]] == [
                "Output truncated to its end: 2 lines, 8 bytes dropped"
            ]

    go(main)


def test_what_a_hook_says_behind_a_round_is_read_by_the_model():
    async def main():
        seen_results = []

        def nudge(ctx, message, results):
            seen_results.extend(plain_text(one.content) for one in results)
            return f"{len(results)} done"

        brain = answering([call("add", "c1", amount=1), call("add", "c2", amount=2)], echo)
        async with scene(brain, tools=[adder()], extensions=[hooked(after_tools=nudge)]) as s:
            assert (await s.ask()).text == "re: 2 done"
            assert seen_results == ["added 1", "added 2"]
            assert problems(s.model.calls[-1].messages) == []
            assert kinds(await history(s.root))[2:] == ["assistant", "tool-result", "tool-result", "user", "assistant"]

    go(main)


# --- on_abort


class Stuck:
    """A tool that shows something and never ends."""

    def __init__(self, **options):
        self.runs = 0
        self.shown = asyncio.Event()

        async def stuck(ctx: perdure.ToolContext) -> str:
            """Hang."""
            self.runs += 1
            ctx.output("one\n")
            ctx.details({"at": 1})
            ctx.diagnostic("half way", code="progress")
            self.shown.set()
            await asyncio.Event().wait()
            raise AssertionError

        self.tool = perdure.tool(**options)(stuck)


STUCK = calling(call("stuck", "c1"))


def shows(view):
    return any(slot.get("output") for slot in view["docs"]["pi.live"].get("tools", ()))


def codes(result):
    return [one.get("code") for one in result.diagnostics]


def test_abort_hooks_see_the_durable_result_and_what_they_return_is_what_the_model_gets():
    """TO-12, TO-13: the outcome stays aborted, controls are ignored, after-hooks are not asked, no duration is set."""

    async def main():
        stuck, seen_by, after = Stuck(), [], []

        async def note(ctx, one, result):
            live = await ctx.snapshot(perdure.LiveDoc, ctx.conversation_id)
            seen_by.append((plain_text(result.content), result.details, codes(result), "tools" in live))
            return msgspec.structs.replace(result, content="noted", details={"n": 1}, is_error=False, terminate=True)

        def second(ctx, one, result):
            seen_by.append(result.content)

        kit = [
            hooked("a", on_abort=note, after_tool=lambda *given: after.append(given)),
            hooked("b", on_abort=second),
        ]
        async with scene(STUCK, tools=[stuck.tool], extensions=kit) as s:
            submission = await s.root.submit("x")
            await seen(s.root, shows)
            with capture_logs() as logs:
                await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            assert seen_by == [("one\n", {"at": 1}, ["progress", "aborted"], True), "noted"]
            entry, message = await result_entry(s.root)
            assert (message.content[0].text, message.details, message.is_error) == ("noted", {"n": 1}, True)
            assert message.duration_ms is None
            assert codes_of(entry) == ["progress", "aborted"]
            assert (after, reports(logs)) == ([], [])
            async with s.session.commit() as tx:
                [tool] = (await tx.scan_tasks(perdure.TaskQuery(kind="pi.tool"), 10)).items
            assert isinstance(tool.state.outcome, perdure.Aborted)

    go(main)


def codes_of(entry):
    return [one.get("code") for one in entry.data["diagnostics"]]


def test_what_an_abort_hook_says_is_bounded_by_the_tools_limits():
    """TO-16."""

    async def main():
        stuck = Stuck(limits=perdure.OutputLimits(max_lines=2, retain="tail"))
        more = lambda ctx, one, r: msgspec.structs.replace(r, content="one\ntwo\nthree\nfour")
        async with scene(STUCK, tools=[stuck.tool], extensions=[hooked(on_abort=more)]) as s:
            await s.root.submit("x")
            await seen(s.root, shows)
            await s.root.abort()
            entry, message = await result_entry(s.root)
            assert message.content[0].text == "three\nfour"
            assert codes_of(entry) == ["progress", "aborted", "truncated"]
            assert "Output truncated to its end" in message.content[-1].text

    go(main)


def test_an_abort_hook_that_changes_nothing_leaves_the_output_alone_though_the_limits_have_shrunk():
    """TO-17."""

    async def main():
        stuck = Stuck()
        async with scene(STUCK, tools=[stuck.tool], extensions=[hooked(on_abort=lambda ctx, one, r: r)]) as s:
            await s.root.submit("x")
            await seen(s.root, shows)
            smaller = Stuck(limits=perdure.OutputLimits(max_bytes=1))
            s.system.registry.install(perdure.Extension(name="kit", tools=[smaller.tool]))
            await s.root.abort()
            _, message = await result_entry(s.root)
            assert message.content[0].text == "one\n"

    go(main)


def test_an_abort_hook_is_bounded_by_the_defaults_when_the_tool_is_gone():
    """TO-18."""

    async def main():
        stuck = Stuck()
        flood = lambda ctx, one, r: msgspec.structs.replace(r, content="x\n" * 5_000)
        async with scene(STUCK, tools=[stuck.tool], extensions=[hooked(on_abort=flood)]) as s:
            await s.root.submit("x")
            await seen(s.root, shows)
            s.system.registry.uninstall("kit")
            await s.root.abort()
            entry, message = await result_entry(s.root)
            assert message.content[0].text.count("\n") == 2_000
            assert codes_of(entry)[-1] == "truncated"

    go(main)


def test_an_abort_while_a_hook_is_asked_runs_the_abort_hook_once_and_the_tool_never():
    """TO-15."""

    async def main():
        arrived, asked, log = asyncio.Event(), [], []

        async def wait(ctx, one):
            arrived.set()
            await asyncio.Event().wait()

        kit = hooked(before_tool=wait, on_abort=lambda ctx, one, r: asked.append((r.content, r.is_error)))
        async with scene(ADD, tools=[adder(log)], extensions=[kit]) as s:
            await s.root.submit("x")
            await arrived.wait()
            with capture_logs() as logs:
                await s.root.abort()
            assert asked == [([], True)]
            assert (log, reports(logs)) == ([], [])

    go(main)


def test_an_abort_hook_that_a_close_has_interrupted_is_asked_again(storage):
    """TO-19: asked twice, the same note, the tool executed once, one result entry."""

    async def main():
        stuck, asked, arrived, free = Stuck(replay="safe"), [], asyncio.Event(), asyncio.Event()

        async def note(ctx, one, result):
            asked.append(plain_text(result.content))
            arrived.set()
            await free.wait()
            return msgspec.structs.replace(result, content="noted")

        async with scene(STUCK, storage=storage, tools=[stuck.tool], extensions=[hooked(on_abort=note)]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, shows)
            aborting = asyncio.create_task(s.root.abort())
            await arrived.wait()
        with pytest.raises(perdure.PerdureError):
            await aborting
        free.set()
        async with scene(STUCK, storage=storage, tools=[stuck.tool], extensions=[hooked(on_abort=note)]) as s:
            assert (await (await s.session.submission(submission.id)).wait()).reason == "aborted"
            assert asked == ["one\n", "one\n"]
            assert stuck.runs == 1
            assert kinds(await history(s.root)).count("tool-result") == 1
            assert (await result_entry(s.root))[1].content[0].text == "noted"

    go(main)


# --- the set of hooks


def test_the_agent_is_resolved_once_in_a_phase_and_what_runs_keeps_its_hooks():
    """PR-15: a phase that has begun keeps the hooks it took; the next phase takes those installed then."""

    async def main():
        told = []

        def say(word):
            return lambda *_: told.append(word)

        def first(ctx, request):
            told.append("first")
            ctx.service(perdure.Registry).install(hooked("h", before_request=say("second"), after_response=say("new")))

        old = hooked("h", before_request=first, after_response=say("old"))
        async with scene(answering([call("add", "c1", amount=1)], "done"), tools=[adder()], extensions=[old]) as s:
            assert (await s.ask()).text == "done"
            assert told == ["first", "old", "second", "new"]

    go(main)


@pytest.mark.parametrize("hooks", [{"before_request": print}, perdure.Hooks(on_yield="no function")])
def test_hooks_that_cannot_be_asked_are_refused_when_they_are_installed(hooks):
    registry = perdure.Registry(perdure.actors.task.definition.Definitions())
    with pytest.raises(perdure.ExtensionInvalid, match="hook"):
        registry.install(perdure.Extension(name="x", hooks=hooks))
    assert registry.installed() == []


def test_a_conversation_that_does_not_select_an_extension_does_not_have_its_hooks():
    async def main():
        async with scene(extensions=[hooked("h", before_request=boom)]) as s:
            await s.root.configure(perdure.Agent(extensions=["kit"]))
            with capture_logs() as logs:
                assert (await s.ask("x")).text == "re: x"
            assert reports(logs) == []

    go(main)
