import asyncio

import perdure
import pytest
from perdure.actors.agent.compaction import Compaction, CompactionInput, CompactionOutcome
from perdure.actors.agent.summaries import OPENING
from perdure.actors.conversation.builtin import ProviderDoc, UsageDoc
from perdure.actors.models import (
    AssistantMessage,
    Thinking,
    Usage,
    call,
    error_info,
    estimate_tokens,
    from_json,
    plain_text,
    text,
)
from perdure.actors.task.definition import encode
from perdure.storage.records import Completed

from ..conversation.support import answering, echo, go, history, kinds, problems, scene, seen
from .compacting import (
    BUSY,
    SUMMARY,
    TOO_LONG,
    Gate,
    both,
    compactions,
    ext,
    fill,
    heads,
    jumping,
    model_of,
    shown,
    small,
    told,
)

# --- when somebody asks


def test_a_compaction_puts_a_summary_in_the_place_of_what_is_old(storage):
    """CO-12, B124: every entry stays readable, with the compaction marked; the next request begins with the summary."""

    async def main():
        async with scene(**small(both(echo)), storage=storage) as s:
            await fill(s.root, *[400] * 5)
            before = await history(s.root)
            done = await s.root.compact()
            assert done.status == "placed"
            entries = await history(s.root)
            assert entries[: len(before)] == before
            [marker] = heads(entries)
            assert done.entry == marker
            assert marker.head == before[-3].id
            assert marker.data == {"reason": "manual"}
            assert plain_text(from_json(marker.model[0]).content) == f"{OPENING}\n\n<summary>\n{SUMMARY}\n</summary>"
            assert marker.by_task_id == done.task_id
            assert (await s.ask("now")).text == "re: now"
            asked = told(model_of(s).calls[-1])
            assert SUMMARY in asked[0]
            assert [one.split(" x")[0] for one in asked[1:]] == ["answer 4", "question 5", "answer 5", "now"]
        async with scene(**small(both(echo)), storage=storage) as s:
            context = await s.root.context()
            assert context.head == marker
            assert problems(context.messages) == []

    go(main)


def test_three_compactions_leave_one_conversation_and_its_whole_history():
    """B124: each summary takes the one before into account."""
    count = iter(range(1, 10))

    async def main():
        async with scene(**small(both(echo, lambda request: f"summary {next(count)}"))) as s:
            for _ in range(3):
                await fill(s.root, *[400] * 4)
                assert (await s.root.compact()).status == "placed"
            assert len((await s.session.conversations()).items) == 1
            entries = await history(s.root)
            assert kinds(entries).count("user") == 12
            assert len(heads(entries)) == 3
            asked = [told(request)[1] for request in model_of(s).calls]
            assert ["summary 1" in one for one in asked] == [False, True, False]
            assert "summary 2" in asked[2]

    go(main)


def test_with_nothing_to_compact_nothing_is_asked_and_nothing_changes():
    """CO-04, B134."""

    async def main():
        async with scene(**small(both(echo))) as s:
            assert (await s.root.compact()).status == "nothing"
            await fill(s.root, 100)
            assert (await s.root.compact()).status == "nothing"
            assert model_of(s).calls == []
            assert heads(await history(s.root)) == []
            [first, second] = await compactions(s.session)
            assert first.state.outcome == second.state.outcome == Completed(result={})
            assert await s.root.live() == {}

    go(main)


def test_what_was_just_compacted_is_not_compacted_again():
    """B134."""

    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[400] * 5)
            await s.root.compact()
            assert (await s.root.compact()).status == "nothing"

    go(main)


@pytest.mark.parametrize("model", [None, "scripted/missing"])
def test_without_a_model_a_compaction_fails_and_leaves_everything_as_it_is(model):
    """B122."""

    async def main():
        async with scene(**small(both(echo))) as s:
            await s.root.configure(perdure.Agent(model=model))
            await fill(s.root, *[400] * 5)
            before = await s.root.context()
            done = await s.root.compact()
            assert (done.status, "not available" in done.reason) == ("failed", True)
            assert await s.root.context() == before
            assert await s.root.live() == {}

    go(main)


def test_instructions_reach_the_summarizer_and_the_pinned_request_has_no_tools():
    """CO-06, CO-08."""

    async def main():
        async with scene(**small(both(echo))) as s:
            await s.root.configure(perdure.Agent(thinking_level="low"))
            await fill(s.root, *[400] * 5)
            await s.root.compact("the numbers")
            [request] = model_of(s).calls
            assert told(request)[1].endswith("Additional focus: the numbers")
            assert (request.thinking_level, request.max_tokens) == ("low", 1_600)
            assert request.session_id == (await s.root.snapshot(ProviderDoc))["sessionId"]

    go(main)


def test_an_unknown_conversation_or_bad_instructions_are_refused():
    async def main():
        async with scene(**small(both(echo))) as s:
            with pytest.raises(perdure.InvalidValue):
                await s.root.compact(7)
            with pytest.raises(perdure.UnknownRecord):
                await perdure.Conversation(s.system.services, "s", 999).compact()

    go(main)


# --- what the summarizer answers


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "empty"),
        (" ", "empty"),
        ([Thinking(thinking="hm")], "empty"),
        ([text("notes"), call("look", "c1")], "called a tool"),
        (AssistantMessage(content=[text("notes")], stop_reason="length"), "cut off"),
        (error_info("auth", "no key"), "no key"),
        (ValueError("garbage"), "garbage"),
    ],
)
def test_what_is_no_summary_fails_with_its_reason_and_leaves_the_session_as_it_was(answer, why):
    """CO-09, B122, B133."""

    async def main():
        async with scene(**small(both(echo, answer))) as s:
            await fill(s.root, *[400] * 5)
            before = await s.root.context()
            done = await s.root.compact()
            assert (done.status, why in done.reason) == ("failed", True), done
            assert await s.root.context() == before
            assert await s.root.live() == {}
            [task] = await compactions(s.session)
            assert task.state.outcome.error.detail == {"reason": "model_error"}
            assert (await s.ask("still there?")).text == "re: still there?"

    go(main)


def test_a_busy_summarizer_is_asked_again_with_the_same_request(storage):
    """CO-06, CO-10, CO-11: status and usage of each attempt."""
    clock = jumping()

    async def main():
        brain = both(echo, answering(BUSY, BUSY, SUMMARY))
        async with scene(**small(brain, clock=clock), storage=storage) as s:
            await fill(s.root, *[400] * 5)
            compacting = asyncio.ensure_future(s.root.compact())
            view = await seen(s.root, lambda view: any("retry" in one for one in shown(view)))
            [status] = shown(view)
            assert (status["attempt"], status["retry"]["error"], status["reason"]) == (2, "busy", "manual")
            assert status["blocking"] is False
            await s.root.configure(perdure.Agent(thinking_level="high"))
            await fill(s.root, 400)
            assert (await compacting).status == "placed"
            first, second, third = model_of(s).calls
            assert first == second == third
            spent = (await s.root.snapshot(UsageDoc))["models"]["scripted/small"]
            assert spent["input"] == 3 * estimate_tokens(first.messages)
            assert await s.root.live() == {}

    go(main)


def test_retries_end_with_the_policy():
    """CO-10."""
    clock = jumping()

    async def main():
        options = small(both(echo, BUSY), clock=clock, settings={"retry": perdure.RetryPolicy(max_retries=1)})
        async with scene(**options) as s:
            await fill(s.root, *[400] * 5)
            done = await s.root.compact()
            assert (done.status, "busy" in done.reason) == ("failed", True)
            assert len(model_of(s).calls) == 2

    go(main)


def test_every_attempt_is_counted_whether_it_is_placed_or_not():
    """CO-11, US-03: under its model, without an entry."""

    async def main():
        counted = AssistantMessage(content=[text(" ")], usage=Usage(input=70, output=3, total_tokens=73))
        async with scene(**small(both(echo, counted))) as s:
            await fill(s.root, *[400] * 5)
            await s.root.compact()
            usage = await s.root.snapshot(UsageDoc)
            assert usage["models"]["scripted/small"]["totalTokens"] == 73
            assert usage.get("turns", 0) == 0
            assert kinds(await history(s.root)) == ["user", "assistant"] * 5

    go(main)


def test_a_record_that_is_too_long_is_summarized_piece_by_piece():
    """B128, B121: a history many times the window is compacted, each piece with the notes on those before."""
    count = iter(range(1, 1_000))

    async def main():
        async with scene(**small(both(echo, lambda request: f"notes {next(count)}"))) as s:
            await fill(s.root, *[2_000] * 50)
            assert (await s.root.compact()).status == "placed"
            calls = model_of(s).calls
            assert len(calls) > 10
            assert all(f"<notes>\nnotes {n}\n</notes>" in told(calls[n])[1] for n in range(1, len(calls)))
            assert [n for n in range(1, 50) if not any(f"question {n} " in told(one)[1] for one in calls)] == []
            summary = plain_text(from_json(heads(await history(s.root))[0].model[0]).content)
            assert f"notes {len(calls)}" in summary

    go(main)


def test_a_summarizer_that_finds_even_a_piece_too_long_is_given_smaller_ones():
    """B128."""

    def summary(request):
        return TOO_LONG if len(told(request)[1]) > 9_000 else "notes"

    async def main():
        async with scene(**small(both(echo, summary))) as s:
            await fill(s.root, *[1_000] * 12)
            assert (await s.root.compact()).status == "placed"

    go(main)


def test_a_summarizer_that_finds_everything_too_long_fails_in_the_end():
    """B128, B122."""

    async def main():
        async with scene(**small(both(echo, TOO_LONG))) as s:
            await fill(s.root, *[1_000] * 12)
            done = await s.root.compact()
            assert (done.status, "too long" in done.reason) == ("failed", True)
            assert len(model_of(s).calls) < 10
            assert heads(await history(s.root)) == []

    go(main)


# --- hooks


def test_the_first_hook_that_decides_is_heard_and_those_after_it_are_not_asked():
    """CO-05: a summary of its own is placed at once."""
    asked = []

    async def mine(ctx, plan):
        asked.append(("mine", plan.reason, [one.id for one in plan.entries], plan.first_kept, plan.instructions))
        return perdure.Summary("my own notes")

    def silent(ctx, plan):
        asked.append("silent")

    async def main():
        extensions = [ext("a", silent), ext("b", mine), ext("c", silent)]
        async with scene(**small(both(echo)), extensions=extensions) as s:
            await fill(s.root, *[400] * 5)
            ids = [entry.id for entry in await history(s.root)]
            done = await s.root.compact("x")
            assert done.status == "placed"
            assert "<summary>\nmy own notes\n</summary>" in plain_text(from_json(done.entry.model[0]).content)
            assert asked == ["silent", ("mine", "manual", ids[:7], ids[7], "x")]
            assert model_of(s).calls == []

    go(main)


def test_a_hook_may_decline():
    """CO-05: the reference completes with {}; here the outcome also says that somebody declined."""

    async def main():
        async with scene(**small(both(echo)), extensions=[ext("a", lambda ctx, plan: perdure.Decline())]) as s:
            await fill(s.root, *[400] * 5)
            assert (await s.root.compact()).status == "declined"
            [task] = await compactions(s.session)
            assert task.state.outcome == Completed(result={"declined": True})
            assert model_of(s).calls == []
            assert await s.root.live() == {}

    go(main)


def boom(ctx, plan):
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    "hook", [boom, lambda ctx, plan: "text", lambda ctx, plan: perdure.Summary(" "), lambda ctx, plan: True]
)
def test_a_hook_that_fails_or_says_nothing_usable_is_passed_over(hook):
    """CO-05, B133."""

    async def main():
        async with scene(**small(both(echo)), extensions=[ext("a", hook)]) as s:
            await fill(s.root, *[400] * 5)
            done = await s.root.compact()
            assert SUMMARY in plain_text(from_json(done.entry.model[0]).content)

    go(main)


def test_hooks_are_those_installed_when_the_compaction_begins():
    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[400] * 5)
            s.system.registry.install(ext("late", lambda ctx, plan: perdure.Decline()))
            assert (await s.root.compact()).status == "declined"
            s.system.registry.uninstall("late")
            assert (await s.root.compact()).status == "placed"

    go(main)


# --- crashes and code changes


def test_a_compaction_that_a_restart_interrupts_sends_the_same_request_again(storage):
    """CO-10, CO-18, B122: nothing is counted or placed twice."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate)), storage=storage) as s:
            await fill(s.root, *[400] * 5)
            compacting = asyncio.ensure_future(s.root.compact())
            await gate.asked.wait()
            first = model_of(s).calls[0]
            compacting.cancel()
        async with scene(**small(both(echo)), storage=storage) as s:
            await s.root.wait_for_idle()
            [again] = model_of(s).calls
            assert again == first
            assert len(heads(await history(s.root))) == 1
            assert await s.root.live() == {}
            assert (await s.root.snapshot(UsageDoc))["models"]["scripted/small"]["totalTokens"] < 2_000

    go(main)


def test_a_compaction_that_faults_is_shown_no_longer(storage):
    """CO-14."""

    async def main():
        async with scene(**small(both(echo)), storage=storage) as s:
            await fill(s.root, *[400] * 5)
            s.system.services.provide(perdure.Models, None)
            done = await s.root.compact()
            assert done.status == "failed"
            [task] = await compactions(s.session)
            assert isinstance(task.state.outcome, perdure.Faulted)
            assert await s.root.live() == {}

    go(main)


def test_a_compaction_of_a_run_ends_with_a_summary_only_if_nothing_has_cut_further_meanwhile():
    """CO-17: whoever appends a head by hand while a generation waits."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[1_000] * 9)
            submission = await s.root.submit("now")
            await gate.asked.wait()
            async with s.root.commit() as tx:
                await tx.append("pi.user", head="self", model=[{"role": "user", "content": "anew", "timestamp": 0}])
            gate.free.set()
            assert (await submission.wait()).text == "re: anew"
            assert heads(await history(s.root)) == []

    go(main)


def test_the_stored_forms_are_those_of_the_reference():
    assert Compaction.version == 1
    assert encode(CompactionInput("manual")) == {"reason": "manual"}
    assert encode(CompactionOutcome(submission_id=3)) == {"submissionId": 3}
