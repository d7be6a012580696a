"""What the agent's work looks like as events; their derivation itself is tested beside conversations."""

import asyncio

import perdure
import pytest
from perdure.actors.agent.deferred import POLL_MS
from perdure.actors.models import call

from ..conversation.support import answering, echo, go, scene
from ..conversation.test_events import log_of, name, settle
from .compacting import BUSY, SUMMARY, TOO_LONG, Gate, both, ext, fill, small
from .test_deferred import LATER, Deferring, later


def told(log, *kinds):
    return [(name(event), getattr(event, "task_id", None)) for event in log.of(*kinds)]


def test_a_manual_compaction_is_told_from_its_start_over_its_retry_to_its_end_beside_its_entry():
    """VE-10, CO-10, CO-14."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        async with scene(**small(both(echo, answering(BUSY, SUMMARY)), clock=clock)) as s:
            await fill(s.root, *[400] * 5)
            log = await log_of(s.root)
            done = await s.root.compact()
            await settle(s)
            kinds = [kind for kind, task in told(log, "compaction_start", "compaction_update", "compaction_end")]
            assert kinds[0] == "compaction_start"
            assert kinds[-1] == "compaction_end"
            assert set(kinds[1:-1]) == {"compaction_update"}
            retries = [event for event in log.of("compaction_update") if "retry" in event.status]
            assert retries[0].status["retry"]["error"] == "busy"
            assert {event.task_id for event in log.of("compaction_start", "compaction_end")} == {done.task_id}
            [end] = log.of("compaction_end")
            marker = next(e for e in log.of("message_end") if e.entry.kind == "pi.compaction")
            assert marker.seq == end.seq
            assert log.events.index(marker) < log.events.index(end)

    go(main)


def test_a_deferred_response_is_told_with_the_time_of_each_look():
    """VE-06, GE-16."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        model = Deferring(later(), later(poll_after_ms=1_000), "here it is", clock=clock)
        async with scene(models=[model], agent=LATER, clock=clock) as s:
            log = await log_of(s.root)
            began = clock.now()
            assert (await s.ask("x")).text == "here it is"
            await settle(s)
            looks = [event.poll_at for event in log.of("deferred")]
            assert looks == [began + POLL_MS, began + POLL_MS + 1_000]
            assert len(log.of("turn_start")) == len(log.of("turn_end")) == 1

    go(main)


def test_a_handoff_is_told_as_a_message_that_heads_itself():
    async def main():
        @perdure.tool
        async def hand_over(ctx: perdure.ToolContext) -> perdure.ToolResult:
            """Hand over."""
            return perdure.ToolResult(content="ok", handoff="go on from here")

        async with scene(answering(call("hand_over"), echo), tools=[hand_over]) as s:
            log = await log_of(s.root)
            await s.ask("x")
            await settle(s)
            [reset] = [event.entry for event in log.of("message_end") if event.entry.kind == "pi.reset"]
            assert reset.head == reset.id

    go(main)


# --- input that waits while a compaction is under way


@pytest.mark.parametrize("kind", ["manual", "overflow", "threshold", "hook"])
def test_a_follow_up_that_comes_during_a_compaction_runs_by_itself(kind):
    """B059: whatever began the compaction, and nothing else is sent."""

    async def main():
        gate = Gate()
        brain = answering(TOO_LONG, echo) if kind == "overflow" else echo

        async def hook(ctx, plan):
            return perdure.Summary(await gate(plan))

        extensions = [ext("summarizer", hook)] if kind == "hook" else []
        async with scene(**small(both(brain, gate)), extensions=extensions) as s:
            await fill(s.root, *[1_700] * 5 if kind in ("threshold", "hook") else [400] * 5)
            work = s.root.compact() if kind == "manual" else s.ask("now")
            working = asyncio.ensure_future(work)
            await gate.asked.wait()
            follow = await s.root.submit("and then")
            gate.free.set()
            await working
            assert (await follow.wait()).text == "re: and then"

    go(main)


# --- money


def test_what_a_summary_costs_counts_towards_the_budget_and_an_exhausted_one_compacts_nothing_by_itself():
    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[400] * 5)
            await s.root.set_budget(perdure.Budget(tokens=10**9))
            await s.root.compact()
            spent = (await s.root.budget()).tokens
            assert spent == (await s.root.usage()).total.total_tokens > 0
            await s.root.set_budget(perdure.Budget(tokens=spent))
            await fill(s.root, *[3_000] * 5)
            assert (await s.ask("x")).reason == "budget"
            assert (await s.root.budget()).tokens == spent

    go(main)


def test_an_exhausted_budget_stops_a_compaction_that_somebody_asks_for_before_it_asks_a_model():
    async def main():
        async with scene(**small(both(echo))) as s:
            await fill(s.root, *[400] * 5)
            before = (await s.root.usage()).total.total_tokens
            await s.root.set_budget(perdure.Budget(tokens=0))
            done = await s.root.compact()
            assert (done.status, done.reason) == ("failed", "budget")
            assert (await s.root.usage()).total.total_tokens == before
            assert await s.root.live() == {}
            await s.root.set_budget(perdure.Budget(tokens=10**9))
            assert (await s.root.compact()).status == "placed"

    go(main)
