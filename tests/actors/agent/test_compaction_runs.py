import asyncio
from itertools import pairwise

import perdure
import pytest
from perdure.actors.conversation.builtin import UsageDoc
from perdure.actors.models import (
    AssistantMessage,
    Usage,
    UserMessage,
    call,
    error_info,
    from_json,
    plain_text,
    text,
)
from perdure.storage.records import Completed

from ..conversation.support import answering, echo, go, history, kinds, problems, scene, seen
from .compacting import (
    BUSY,
    SMALL,
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
    summarizes,
    told,
    words,
)

# --- beside a run


def test_a_compaction_of_a_busy_conversation_waits_for_a_boundary_and_says_so():
    """CO-12, B125: the run that goes on is not disturbed, and its answer comes before the summary."""

    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def slow(request):
            asked.set()
            await free.wait()
            return "an answer"

        async with scene(**small(both(slow))) as s:
            await fill(s.root, *[400] * 5)
            submission = await s.root.submit("work")
            await asked.wait()
            done = await s.root.compact()
            assert (done.status, done.entry) == ("queued", None)
            free.set()
            assert (await submission.wait()).text == "an answer"
            settled = await (await s.session.submission(done.submission_id)).wait()
            assert settled.status == "done"
            assert kinds(await history(s.root))[-3:] == ["user", "assistant", "compaction"]
            record = await (await s.session.submission(done.submission_id)).status()
            assert (record.type, record.request_id) == ("write", f"compaction:{done.task_id}")

    go(main)


def test_a_summary_takes_its_place_after_a_tool_round_and_the_run_goes_on_with_it():
    """CO-12, SI-13, B059: queued input lands after it, and nothing of it is lost."""

    async def main():
        begun, free = asyncio.Event(), asyncio.Event()

        @perdure.tool
        async def work() -> str:
            """Work."""
            begun.set()
            await free.wait()
            return "worked"

        brain = both(answering(call("work", "c1"), "done", echo))
        async with scene(**small(brain), tools=[work]) as s:
            await fill(s.root, *[400] * 5)
            submission = await s.root.submit("go")
            await begun.wait()
            steer = await s.root.submit("and this", when_busy="steer")
            later = await s.root.submit("then that")
            done = await s.root.compact()
            assert done.status == "queued"
            free.set()
            assert (await submission.wait()).text == (await steer.wait()).text == "done"
            assert (await later.wait()).text == "re: then that"
            assert kinds(await history(s.root))[10:] == [
                "user", "system", "assistant", "tool-result", "compaction", "user", "system", "assistant",
                "user", "assistant",
            ]  # fmt: skip
            asked = model_of(s).calls[-2]
            assert problems(asked.messages) == []
            assert asked.messages[0].tools_added[0].name == "work"
            assert SUMMARY in told(asked)[1]

    go(main)


def test_an_abort_ends_a_compaction_that_somebody_asked_for_and_changes_nothing():
    """CO-14, CO-15, CO-18: it is foreground work; no entry, no usage."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[400] * 5)
            before = await history(s.root)
            compacting = asyncio.ensure_future(s.root.compact())
            await gate.asked.wait()
            [status] = (await s.root.live())["compactions"]
            assert status == {"taskId": status["taskId"], "reason": "manual", "blocking": False, "attempt": 1}
            await s.root.abort()
            assert (await compacting).status == "aborted"
            assert await s.root.live() == {}
            assert await history(s.root) == before
            assert (await s.root.snapshot(UsageDoc))["models"] == {}
            assert (await s.ask("x")).status == "done"

    go(main)


def test_cancelling_the_caller_only_ends_its_waiting():
    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[400] * 5)
            compacting = asyncio.ensure_future(s.root.compact())
            await gate.asked.wait()
            compacting.cancel()
            gate.free.set()
            await s.root.wait_for_idle()
            assert len(heads(await history(s.root))) == 1

    go(main)


def test_of_two_that_ask_at_once_the_second_waits_and_finds_what_the_first_has_left():
    """B125: serialised; the same history is not summarized twice."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[400] * 5)
            first = asyncio.ensure_future(s.root.compact())
            await gate.asked.wait()
            second = asyncio.ensure_future(s.root.compact())
            await seen(s.root, lambda view: len(shown(view)) == 2)
            gate.free.set()
            assert (await first).status == "placed"
            assert (await second).status == "nothing"
            assert len(model_of(s).calls) == 1
            assert await s.root.live() == {}

    go(main)


def test_a_summary_that_cuts_less_than_a_later_one_is_stale():
    """CO-17, B125: the furthest cut wins, whichever comes last."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[400] * 5)
            compacting = asyncio.ensure_future(s.root.compact())
            await gate.asked.wait()
            reset = await s.root.reset()
            assert (await reset.wait()).status == "done"
            gate.free.set()
            done = await compacting
            assert (done.status, done.entry, done.reason) == ("stale", None, "stale")
            assert (await s.root.context()).messages == []

    go(main)


def test_a_summary_that_cuts_further_than_a_later_one_is_placed_behind_it():
    """CO-17."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[400] * 5)
            ids = [entry.id for entry in await history(s.root)]
            compacting = asyncio.ensure_future(s.root.compact())
            await gate.asked.wait()
            await (await s.root.write("pi.compaction", model=[], head=ids[2])).wait()
            gate.free.set()
            done = await compacting
            assert (done.status, done.entry.head) == ("placed", ids[7])

    go(main)


def test_queued_input_survives_a_compaction_of_any_outcome():
    """SI-16, B059, B122."""

    async def main():
        async with scene(**small(both(answering(error_info("auth", "no key"), echo), " "))) as s:
            await fill(s.root, *[400] * 5)
            failed = await s.root.submit("one")
            queued = await s.root.submit("two")
            assert (await failed.wait()).reason == "model_error"
            assert (await s.root.compact()).status == "failed"
            assert (await queued.status()).status == "queued"
            last = await s.root.submit("three")
            assert (await queued.wait()).text == "re: two"
            assert (await last.wait()).text == "re: three"

    go(main)


def test_a_summary_in_an_idle_conversation_with_queued_input_begins_the_runs_that_wait():
    """CO-12, SI-12."""

    async def main():
        async with scene(**small(both(answering(error_info("auth", "no key"), echo)))) as s:
            await fill(s.root, *[400] * 5)
            failed = await s.root.submit("one")
            queued = await s.root.submit("two")
            await failed.wait()
            done = await s.root.compact()
            assert (await (await s.session.submission(done.submission_id)).wait()).status == "done"
            assert (await queued.wait()).text == "re: two"
            assert kinds(await history(s.root))[-3:] == ["compaction", "user", "assistant"]

    go(main)


def test_a_full_inbox_fails_the_compaction_and_not_the_session():
    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def slow(request):
            asked.set()
            await free.wait()
            return "an answer"

        async with scene(**small(both(slow), settings={"max_queued_submissions": 1})) as s:
            await fill(s.root, *[400] * 5)
            submission = await s.root.submit("work")
            await asked.wait()
            queued = await s.root.submit("more")
            done = await s.root.compact()
            [task] = await compactions(s.session)
            assert (done.status, task.state.outcome.error.detail) == ("failed", {"reason": "inbox_full"})
            free.set()
            assert (await submission.wait()).status == (await queued.wait()).status == "done"

    go(main)


# --- thresholds


def test_above_the_blocking_threshold_a_request_waits_for_a_compaction():
    """GE-29, CO-12, CO-14, CO-15: the transcript gets no prompt before it, and the request after it is the next thing sent."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate)), sections=[perdure.Section("a", "1")]) as s:
            await fill(s.root, *[1_000] * 9)
            submission = await s.root.submit("now")
            await gate.asked.wait()
            live = await s.root.live()
            [status] = live["compactions"]
            assert (status["reason"], status["blocking"]) == ("threshold", True)
            assert live["run"]["inputs"] == [submission.id]
            assert kinds(await history(s.root))[-1] == "user"
            gate.free.set()
            assert (await submission.wait()).text == "re: now"
            assert kinds(await history(s.root))[-4:] == ["user", "compaction", "system", "assistant"]
            [task] = await compactions(s.session)
            assert task.owner == live["run"]["taskId"]
            marker = heads(await history(s.root))[0]
            assert task.state.outcome == Completed(result={"entryId": marker.id})
            last = model_of(s).calls[-1]
            assert problems(last.messages) == []
            assert last.messages[0].sections == {"a": "<a>\n1\n</a>"}
            assert told(last)[-1] == "now"
            assert len([one for one in model_of(s).calls if not summarizes(one)]) == 1

    go(main)


def test_a_request_is_sent_anyway_when_nothing_came_of_its_compaction():
    """GE-29, B122: declined, failed, and nothing else is tried."""

    async def main():
        async with scene(**small(both(echo, " "))) as s:
            await fill(s.root, *[1_000] * 9)
            assert (await s.ask("now")).text == "re: now"
            assert len(model_of(s).calls) == 2
            s.system.registry.install(ext("a", lambda ctx, plan: perdure.Decline()))
            assert (await s.ask("again")).text == "re: again"
            assert len(model_of(s).calls) == 3
            assert heads(await history(s.root)) == []

    go(main)


def test_events_tell_when_a_compaction_begins_and_ends():
    """CO-14."""

    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[1_000] * 9)
            told_ = []
            async with await s.root.watch_events() as stream:
                await s.ask("now")
                async for event in stream:
                    told_.append(event)
                    if isinstance(event, perdure.events.RunEnd):
                        break
            names = [type(event).__name__ for event in told_]
            assert names.index("CompactionStart") < names.index("CompactionEnd") < names.index("RunEnd")
            ended = next(event for event in told_ if isinstance(event, perdure.events.CompactionEnd))
            [task] = await compactions(s.session)
            assert ended.task_id == task.id

    go(main)


@pytest.mark.parametrize("hook", [None, lambda ctx, plan: perdure.Decline()])
def test_a_run_whose_compactions_come_to_nothing_does_not_try_at_every_step(hook):
    """B122, B121: only when its context has grown by half of what would be kept; the next run tries again."""
    steps = iter(range(1_000))
    asked = []

    @perdure.tool
    async def step() -> str:
        """Step."""
        return words(50)

    def counted(ctx, plan):
        asked.append(plan.first_kept)
        return hook(ctx, plan) if hook else None

    def brain(request):
        return call("step") if next(steps) % 21 < 20 else "done"

    async def main():
        async with scene(**small(both(brain, " ")), tools=[step], extensions=[ext("a", counted)]) as s:
            await fill(s.root, *[1_000] * 9)
            assert (await s.ask("go")).text == "done"
            # 20 steps of about 60 tokens: one try at their beginning, and one for each 250 more
            assert 2 <= len(asked) <= 6
            before = len(asked)
            assert (await s.ask("go")).text == "done"
            assert len(asked) > before
            assert await s.root.live() == {}

    go(main)


def test_above_the_background_threshold_a_compaction_begins_beside_the_request():
    """GE-29, CO-12, CO-15: in the commit that fixes the request; the answer does not wait for it."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[1_000] * 7, 500)
            assert (await s.ask("now")).text == "re: now"
            [status] = (await s.root.live())["compactions"]
            assert (status["reason"], status["blocking"]) == ("threshold", False)
            [task] = await compactions(s.session)
            assert (task.owner, task.background) == (None, True)
            await s.root.wait_for_idle()
            gate.free.set()
            await s.root.wait_for_idle(background=True)
            assert kinds(await history(s.root))[-3:] == ["user", "assistant", "compaction"]
            assert await s.root.live() == {}

    go(main)


def test_a_second_background_compaction_is_not_begun_beside_the_first():
    """GE-30."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[1_000] * 7, 500)
            await s.ask("now")
            await s.ask("and now")
            assert len(await compactions(s.session)) == 1
            gate.free.set()
            await s.root.wait_for_idle(background=True)

    go(main)


def test_an_abort_leaves_a_background_compaction_alone_unless_told_otherwise():
    """CO-15."""

    async def main():
        gate = Gate()
        async with scene(**small(both(echo, gate))) as s:
            await fill(s.root, *[1_000] * 7, 500)
            await s.ask("now")
            await s.root.abort()
            assert "compactions" in await s.root.live()
            await s.root.abort(background=True)
            assert await s.root.live() == {}
            [task] = await compactions(s.session)
            assert isinstance(task.state.outcome, perdure.Aborted)

    go(main)


def test_a_blocking_compaction_that_overtakes_a_background_one_makes_its_summary_stale():
    """CO-17, B125."""

    async def main():
        gates = [Gate(), Gate()]
        left = list(gates)

        def summary(request):
            return left.pop(0)(request) if left else SUMMARY

        async with scene(**small(both(echo, summary))) as s:
            await fill(s.root, *[1_000] * 7, 500)
            await s.ask("now")
            await fill(s.root, *[1_000] * 3)
            submission = await s.root.submit("next")
            await gates[1].asked.wait()
            gates[1].free.set()
            assert (await submission.wait()).text == "re: next"
            gates[0].free.set()
            await s.root.wait_for_idle(background=True)
            [background, blocking] = await compactions(s.session)
            write = await (await s.session.submission(background.state.outcome.result["submissionId"])).status()
            assert (write.status, write.reason) == ("unanswered", "stale")
            [marker] = heads(await history(s.root))
            assert marker.id == blocking.state.outcome.result["entryId"]

    go(main)


def test_a_policy_that_is_off_compacts_only_when_asked():
    """GE-27, GE-29."""

    async def main():
        off = perdure.CompactionPolicy(enabled=False, keep_recent_tokens=500)
        async with scene(**small(both(answering(TOO_LONG, echo)), compaction=off)) as s:
            await fill(s.root, *[1_000] * 9)
            assert (await s.ask("now")).reason == "model_error"
            assert await compactions(s.session) == []
            assert (await s.root.compact()).status == "placed"

    go(main)


def test_a_good_answer_of_high_usage_is_kept_and_compacted_afterwards():
    """B127."""

    async def main():
        full = AssistantMessage(content=[text("good")], usage=Usage(input=9_000, output=400, total_tokens=9_400))
        async with scene(**small(both(answering(full, echo)))) as s:
            await fill(s.root, *[400] * 5)
            assert (await s.ask("one")).text == "good"
            assert heads(await history(s.root)) == []
            assert (await s.ask("two")).text == "re: two"
            assert kinds(await history(s.root))[-3:] == ["user", "compaction", "assistant"]

    go(main)


def test_closing_asks_no_provider_for_anything():
    """B134."""

    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[1_000] * 9)
            model = model_of(s)
        assert model.calls == []

    go(main)


def test_a_smaller_model_gets_one_compaction_sized_for_it_and_no_series_of_them():
    """B121: 150,000 tokens of history, then a model with 32,000."""

    async def main():
        tiny = perdure.ScriptedModel(
            both(answering(*[call("step")] * 10, echo)), name="scripted/32k", context_window=32_000
        )

        @perdure.tool
        async def step() -> str:
            """Step."""
            return words(200)

        async with scene(both(echo), models=[tiny], tools=[step]) as s:
            await fill(s.root, *[1_500] * 100)
            await s.root.configure(perdure.Agent(model="scripted/32k"))
            assert (await s.ask("now")).status == "done"
            assert len(await compactions(s.session)) == 1
            assert len([one for one in tiny.calls if not summarizes(one)]) == 11
            assert all(problems(one.messages) == [] for one in tiny.calls if not summarizes(one))

    go(main)


def test_a_budget_that_is_exhausted_pays_for_no_compaction_but_a_summary_is_no_turn():
    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[1_000] * 9)
            await s.root.set_budget(perdure.Budget(turns=1))
            assert (await s.ask("one")).text == "re: one"
            assert len(heads(await history(s.root))) == 1
            await fill(s.root, *[1_000] * 9)
            asked = len(model_of(s).calls)
            submission = await s.root.submit("two")
            await s.root.wait_for_idle()
            assert (await submission.status()).status in ("queued", "unanswered")
            assert len(model_of(s).calls) == asked

    go(main)


def test_a_prompt_that_fills_the_window_starts_no_series_of_compactions():
    """B121: no summary could make it smaller."""

    async def main():
        async with scene(**small(both(echo)), sections=[perdure.Section("a", words(8_000))]) as s:
            for _ in range(5):
                assert (await s.ask(words(100))).status == "done"
            assert not any(summarizes(one) for one in model_of(s).calls)

    go(main)


# --- overflow


def test_an_overflow_is_compacted_once_and_the_request_sent_again():
    """GE-27, B125: the error is stored, the attempt does not advance, the turn is not lost."""

    async def main():
        async with scene(**small(both(answering(TOO_LONG, echo)))) as s:
            await fill(s.root, *[400] * 5)
            settled = await s.ask("now")
            assert settled.text == "re: now"
            assert kinds(await history(s.root))[-4:] == ["user", "assistant", "compaction", "assistant"]
            [task] = await compactions(s.session)
            assert task.input == {"reason": "overflow"}
            assert heads(await history(s.root))[0].data == {"reason": "overflow"}
            views = [one for one in model_of(s).calls if not summarizes(one)]
            assert len(views) == 2
            assert SUMMARY in told(views[1])[0]
            assert await s.root.live() == {}

    go(main)


def test_the_attempt_that_overflowed_is_not_counted_among_the_retries():
    """GE-27."""
    clock = jumping()

    async def main():
        options = small(both(answering(BUSY, TOO_LONG, BUSY, echo)), clock=clock)
        options["settings"] = perdure.Settings(compaction=SMALL, retry=perdure.RetryPolicy(max_retries=2))
        async with scene(**options) as s:
            await fill(s.root, *[400] * 5)
            assert (await s.ask("now")).text == "re: now"
            assert len(await compactions(s.session)) == 1

    go(main)


def test_a_second_overflow_ends_the_run_and_names_what_is_too_long():
    """GE-28, B128: the provider's text, and the entry that says most."""

    async def main():
        async with scene(**small(both(TOO_LONG))) as s:
            await fill(s.root, *[400] * 5)
            submission = await s.root.submit(words(3_000))
            settled = await submission.wait()
            assert (settled.status, settled.reason) == ("unanswered", "model_error")
            assert settled.record.detail.startswith("the prompt is too long (entry ")
            assert f"entry {settled.record.entry} alone has about 3,000 tokens" in settled.record.detail
            assert len(await compactions(s.session)) == 1
            assert await s.root.live() == {}

    go(main)


def test_an_overflow_without_a_summary_ends_the_run_with_the_providers_text():
    """GE-28, B122."""

    async def main():
        async with scene(**small(both(answering(TOO_LONG, echo), " "))) as s:
            await fill(s.root, *[400] * 5)
            settled = await s.ask("now")
            assert (settled.reason, settled.record.detail[:22]) == ("model_error", "the prompt is too long")
            assert (await s.ask("again")).text == "re: again"

    go(main)


def test_an_overflow_with_nothing_to_cut_ends_the_run_at_once():
    """GE-27, GE-28, B128: one message of three million characters."""

    async def main():
        huge = perdure.Settings(compaction=SMALL, max_submission_bytes=4_000_000)
        async with scene(**{**small(both(TOO_LONG)), "settings": huge}) as s:
            settled = await s.ask("x" * 3_000_000)
            assert settled.reason == "model_error"
            assert "alone has about 857,143 tokens" in settled.record.detail
            assert await compactions(s.session) == []

    go(main)


def test_a_conversation_that_was_too_long_can_be_used_again():
    """B128: each run keeps at most half of what was too long, so it becomes short enough in the end."""

    def strict(request):
        return TOO_LONG if sum(map(len, told(request))) > 6_000 else "fine"

    async def main():
        unknown = perdure.ScriptedModel(both(strict), name="scripted/unknown", context_window=0)
        settings = perdure.Settings(compaction=perdure.CompactionPolicy())
        async with scene(models=[unknown], agent=perdure.Agent(model="scripted/unknown"), settings=settings) as s:
            await fill(s.root, *[400] * 20)
            ends = [(await s.ask(f"try {number}")).status for number in range(5)]
            assert ends[-1] == "done"
            assert "unanswered" in ends or ends == ["done"] * 5

    go(main)


def test_during_an_overflows_compaction_a_manual_one_and_a_steer_lose_nothing():
    """B125: the turn is retried, the second compaction waits, the steer joins in."""

    async def main():
        gate = Gate()
        async with scene(**small(both(answering(TOO_LONG, echo), gate))) as s:
            await fill(s.root, *[400] * 5)
            submission = await s.root.submit("now")
            await gate.asked.wait()
            manual = asyncio.ensure_future(s.root.compact())
            steer = await s.root.submit("and this", when_busy="steer")
            await seen(s.root, lambda view: len(shown(view)) == 2)
            gate.free.set()
            assert (await submission.wait()).text == "re: now"
            assert (await steer.wait()).status == "done"
            assert (await manual).status in ("nothing", "placed", "queued")
            await s.root.wait_for_idle()
            assert problems((await s.root.context()).messages) == []

    go(main)


def test_an_abort_during_an_overflows_compaction_aborts_the_turn_once():
    """B125, CO-18."""

    async def main():
        gate = Gate()
        async with scene(**small(both(answering(TOO_LONG, echo), gate))) as s:
            await fill(s.root, *[400] * 5)
            submission = await s.root.submit("now")
            await gate.asked.wait()
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            assert await s.root.live() == {}
            assert heads(await history(s.root)) == []
            [task] = await compactions(s.session)
            assert isinstance(task.state.outcome, perdure.Aborted)

    go(main)


# --- what must not be forgotten


def test_a_task_of_many_steps_goes_on_with_the_users_words_after_its_beginning_is_gone():
    """B130: one input, 60 tool steps, compactions in between."""

    async def main():
        @perdure.tool
        async def step() -> str:
            """Step."""
            return words(150)

        requests = []

        def brain(request):
            requests.append(request)
            return call("step") if len(requests) <= 60 else "finished"

        async with scene(**small(both(brain)), tools=[step]) as s:
            settled = await s.ask("Count all barrels, and paint none of them")
            assert settled.text == "finished"
            markers = heads(await history(s.root))
            assert markers
            assert all(marker.data["instruction"] == settled.record.entry for marker in markers)
            assert all("Count all barrels, and paint none of them" in told(request) for request in requests)
            assert all(problems(request.messages) == [] for request in requests)

    go(main)


def test_work_that_runs_across_a_compaction_is_listed_as_data_and_not_begun_again():
    """B131: two children of a background task, and a task in the background."""

    class Long(perdure.Task[None, None], name="test.long"):
        class Go(perdure.Phase):
            pass

        async def go(self, run, state):
            await asyncio.Event().wait()

    async def main():
        extension = perdure.Extension(name="long", tasks=[Long])
        async with scene(**small(both(echo)), extensions=[extension]) as s:
            await fill(s.root, *[400] * 5)
            async with s.root.commit() as tx:
                anchor = await tx.create_task(Long, background=True)
                other = await tx.create_task(Long, background=True)
                children = [(await tx.create_conversation(owner=anchor.id)).id for _ in range(2)]
                for child in children:
                    await tx.create_task(Long, conversation_id=child)
            done = await s.root.compact()
            listed = done.entry.data["running"]
            assert {"taskId": anchor.id, "kind": "test.long", "background": True} in listed
            assert {"taskId": other.id, "kind": "test.long", "background": True} in listed
            assert [one["conversationId"] for one in listed if "conversationId" in one] == children
            said = plain_text(from_json(done.entry.model[0]).content)
            assert "<running>" in said
            assert f'"taskId": {anchor.id}' in said
            assert len([task for task in await s.session.tasks() if task.kind == "test.long"]) == 4

    go(main)


def test_a_fork_before_a_compaction_has_no_summary_and_one_behind_it_compacts_on_its_own():
    """B136, B137."""

    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[400] * 5)
            entries = await history(s.root)
            done = await s.root.compact()
            early = await (await s.root.fork(at=entries[3].id)).context()
            assert [entry.id for entry in early.entries] == [entry.id for entry in entries[:4]]
            assert SUMMARY not in str(early.messages)
            late = await s.root.fork(at=done.entry.id)
            assert await late.context() == await s.root.context()
            await fill(late, *[400] * 4)
            assert (await late.compact()).status == "placed"
            assert len(heads(await history(s.root))) == 1
            assert await s.root.context() == await s.root.context(at=done.entry.id)

    go(main)


def test_between_compactions_each_request_begins_as_the_one_before():
    """B140: ten turns with large results near the limit."""

    async def main():
        @perdure.tool
        async def look() -> str:
            """Look."""
            return words(300)

        requests = []

        def brain(request):
            requests.append(request)
            return call("look") if isinstance(request.messages[-1], UserMessage) else "seen"

        async with scene(**small(both(brain)), tools=[look]) as s:
            for number in range(25):
                await s.ask(f"turn {number}")
            changed = 0
            for before, after in pairwise(requests):
                changed += after.messages[: len(before.messages)] != before.messages
            cuts = {entry.head for entry in heads(await history(s.root))}  # two summaries may be of one cut
            assert changed == len(cuts) > 0

    go(main)
