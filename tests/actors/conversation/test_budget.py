import asyncio

import msgspec
import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.conversation.budget import BudgetDoc, exhausted
from perdure.actors.models import UserMessage, call, plain_text, text

from .support import MODEL, go, history, kinds, quiet, scene
from .test_inbox import Work, inbox, users
from .test_ledger import delegating, nested, spending

CAPS = {
    "cost": perdure.Budget(cost=1.0),
    "tokens": perdure.Budget(tokens=20),
    "turns": perdure.Budget(turns=2),
}
RAISED = {
    "cost": perdure.Budget(cost=1.5),
    "tokens": perdure.Budget(tokens=30),
    "turns": perdure.Budget(turns=3),
}


def frugal(request):
    """Every answer takes 10 tokens and half a dollar."""
    return spending(text(f"re: {plain_text(request.messages[-1].content)}"))


async def why(submission):
    settled = await submission.wait()
    return settled.status, settled.reason


# --- pausing


@pytest.mark.parametrize("scope", ["session", "conversation"])
@pytest.mark.parametrize("limit", CAPS)
def test_a_budget_that_is_used_up_pauses_and_a_raised_one_goes_on(limit, scope, storage):
    async def main():
        async with scene(frugal, storage=storage) as s:
            target = s.session if scope == "session" else s.root
            await target.set_budget(CAPS[limit])
            assert (await s.ask("one")).answer.text == "re: one"
            assert (await s.ask("two")).answer.text == "re: two"
            refused = await s.ask("three")
            assert (refused.status, refused.reason) == ("unanswered", "budget")
            assert refused.record.detail["scope"] == scope
            assert refused.record.detail["limit"] == limit
            assert refused.record.detail["spent"] >= refused.record.detail["cap"]
            assert len(s.model.calls) == 2
        async with scene(frugal, storage=storage) as s:
            target = s.session if scope == "session" else s.root
            assert (await s.ask("four")).reason == "budget"
            await target.set_budget(RAISED[limit])
            assert (await s.ask("five")).answer.text == "re: five"
            assert (await s.ask("six")).reason == "budget"
            assert len(s.model.calls) == 1
            asked = [plain_text(m.content) for m in s.model.calls[0].messages if isinstance(m, UserMessage)]
            assert asked == ["one", "two", "three", "four", "five"]

    go(main)


def test_a_paused_run_has_not_failed_and_what_is_queued_stays_until_the_budget_is_raised(storage):
    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return frugal(request)

        async with scene(brain, storage=storage) as s:
            await s.root.set_budget(perdure.Budget(turns=1))
            first = await s.root.submit("one")
            await asked.wait()
            queued = [await s.root.submit("two"), await s.root.submit("three", when_busy="steer")]
            note = await s.root.write("note")
            free.set()
            assert (await first.wait()).answer.text == "re: one"
            await s.root.wait_for_idle()
            assert (await note.wait()).status == "done"  # a write asks nobody
            assert [one["id"] for one in await inbox(s.root)] == [one.id for one in queued]
            behind = await s.root.submit("four")
            assert (await behind.status()).status == "queued"
            assert (await s.root.budget()).paused == [s.root.id]
        free.set()
        async with scene(brain, storage=storage) as s:
            await quiet()
            assert s.model.calls == []
            await s.root.set_budget(perdure.Budget(turns=10))
            for one in (*queued, behind):
                assert (await (await s.session.submission(one.id)).wait()).status == "done"
            assert users(await history(s.root)) == ["one", "two", "three", "four"]
            assert (await s.root.budget()).paused == []
            async with s.session.commit() as tx:
                tasks = (await tx.scan_tasks(perdure.TaskQuery(kind="pi.generation"), 100)).items
            assert {one.state.outcome.__struct_config__.tag for one in tasks} == {"completed"}

    go(main)


def test_a_run_that_comes_to_its_budget_in_the_middle_is_paused_and_not_failed():
    async def main():
        work = Work()
        brain = lambda r: spending(call("work")) if len(r.messages) < 4 else frugal(r)
        async with scene(brain, tools=[work.tool]) as s:
            await s.root.set_budget(perdure.Budget(tokens=10))
            first = await s.root.submit("one")
            await work.started.wait()
            steer = await s.root.submit("left", when_busy="steer")
            work.release()
            settled = await first.wait()
            assert (settled.status, settled.reason) == ("unanswered", "budget")
            await s.root.wait_for_idle()
            assert await s.root.live() == {}
            assert kinds(await history(s.root)) == ["user", "system", "assistant", "tool-result"]
            assert (await steer.status()).status == "queued"
            async with s.session.commit() as tx:
                tasks = (await tx.scan_tasks(perdure.TaskQuery(kind="pi.generation"), 100)).items
            assert tasks[-1].state.outcome == perdure.Aborted(reason="budget")
            await s.root.set_budget(None)
            assert (await steer.wait()).answer.text == "re: left"

    go(main)


def test_a_retry_is_a_request_like_any_other():
    async def main():
        clock = perdure.VirtualClock(autojump=True)
        failing = msgspec.structs.replace(
            spending(), stop_reason="error", error=perdure.actors.models.error_info("overloaded", "busy")
        )
        async with scene(lambda r: failing, clock=clock) as s:
            await s.root.set_budget(perdure.Budget(turns=2))
            assert (await s.ask("one")).reason == "budget"
            assert len(s.model.calls) == 2
            assert await s.root.live() == {}

    go(main)


def test_wall_time_counts_from_the_moment_the_budget_was_set():
    async def main():
        clock = perdure.VirtualClock()
        async with scene(frugal, clock=clock) as s:
            await s.session.set_budget(perdure.Budget(wall_ms=60_000))
            clock.advance(59)
            assert (await s.ask("one")).status == "done"
            clock.advance(1)
            refused = await s.ask("two")
            assert refused.record.detail == {"scope": "session", "limit": "wallMs", "cap": 60_000, "spent": 60_000}
            await s.session.set_budget(perdure.Budget(wall_ms=90_000))
            assert (await s.ask("three")).status == "done"
            clock.advance(30)
            assert (await s.ask("four")).reason == "budget"

    go(main)


def test_what_was_spent_before_a_budget_was_set_counts():
    async def main():
        async with scene(delegating(1), tools=[nested()]) as s:
            await s.ask("level 0")
            await s.root.set_budget(perdure.Budget(cost=1.5))
            state = await s.root.budget()
            assert (state.cost, state.tokens, state.turns) == (1.5, 30, 3)
            assert (await s.ask("level 1")).reason == "budget"
            await s.session.set_budget(perdure.Budget(turns=100))
            assert (await s.session.budget()).turns == 3

    go(main)


# --- trees


def test_subagents_count_towards_their_owners_budget_and_stop_at_it():
    async def main():
        async with scene(delegating(2), tools=[nested()]) as s:
            await s.root.set_budget(perdure.Budget(turns=3))
            refused = await s.ask("level 0")
            assert (refused.status, refused.reason) == ("unanswered", "budget")
            assert len(s.model.calls) == 3
            assert (await s.root.budget()).turns == 3
            assert (await s.root.usage(subtree=True)).turns == 3
            assert (await s.root.usage()).turns == 1
            results = [e for e in await history(s.root) if e.kind == "pi.tool-result"]
            assert "budget" in results[0].model[0]["content"][0]["text"]
            await s.root.set_budget(perdure.Budget(turns=10))
            assert (await s.ask("level 2")).status == "done"

    go(main)


def test_a_budget_of_one_conversation_is_no_matter_of_another():
    async def main():
        async with scene(frugal) as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            await s.root.set_budget(perdure.Budget(turns=0))
            assert (await s.ask("one")).reason == "budget"
            assert (await (await other.submit("two")).wait()).status == "done"
            assert (await s.root.budget()).turns == 0
            await s.session.set_budget(perdure.Budget(turns=1))
            refused = await (await other.submit("three")).wait()
            assert refused.record.detail["scope"] == "session"

    go(main)


def test_of_two_budgets_the_stricter_one_holds_until_both_allow():
    async def main():
        async with scene(frugal) as s:
            await s.root.set_budget(perdure.Budget(turns=0))
            await s.session.set_budget(perdure.Budget(turns=0))
            assert (await s.ask("one")).reason == "budget"
            await s.root.set_budget(None)
            refused = await s.ask("two")
            assert (refused.reason, refused.record.detail["scope"]) == ("budget", "session")
            await s.session.set_budget(None)
            assert (await s.ask("three")).status == "done"

    go(main)


def test_raising_a_budget_goes_on_in_every_conversation_that_it_holds_up():
    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return frugal(request)

        async with scene(brain) as s:
            others = [await s.session.create_conversation(agent=perdure.Agent(model=MODEL)) for _ in range(3)]
            await s.session.set_budget(perdure.Budget(turns=1))
            first = [await one.submit("one") for one in others]
            await asked.wait()
            queued = [await one.submit("two") for one in others]
            free.set()
            assert sorted([await why(one) for one in first], key=str) == [("done", None)] * 3
            assert [(await one.status()).status for one in queued] == ["queued"] * 3
            await s.session.set_budget(perdure.Budget(turns=100))
            assert [await why(one) for one in queued] == [("done", None)] * 3

    go(main)


# --- values


@pytest.mark.parametrize(
    "bad",
    [
        5,
        {"cost": 1},
        perdure.Budget(cost=-1),
        perdure.Budget(cost=float("nan")),
        perdure.Budget(cost="1"),
        perdure.Budget(tokens=1.5),
        perdure.Budget(turns=True),
        perdure.Budget(wall_ms=float("inf")),
    ],
    ids=repr,
)
def test_what_is_no_budget_is_refused_and_changes_nothing(bad):
    """P11."""

    async def main():
        async with scene(frugal) as s:
            for target in (s.root, s.session):
                with pytest.raises(perdure.InvalidValue):
                    await target.set_budget(bad)
                assert await target.budget() is None
            assert (await s.ask("one")).status == "done"

    go(main)


def test_a_budget_of_an_unknown_conversation_is_refused():
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.UnknownRecord):
                await perdure.Conversation(s.system.services, "s", 99).set_budget(perdure.Budget(turns=1))

    go(main)


def test_a_budget_is_a_document_that_can_be_watched():
    async def main():
        async with scene(frugal) as s:
            await s.root.set_budget(perdure.Budget(cost=5.0))
            async with await s.root.watch_doc(BudgetDoc) as watch:
                assert watch.value["caps"] == {"cost": 5.0}
                await s.ask("one")
                value, _ = await anext(watch)
                assert (value["cost"], value["tokens"], value["turns"]) == (0.5, 10, 1)

    go(main)


def test_a_conversation_without_any_budget_asks_storage_once_only():
    async def main():
        async with scene(frugal) as s:
            await s.ask("one")
            looked = []
            find = s.system._store.storage.find_document

            async def counting(session, kind, *args):
                looked.append(kind)
                return await find(session, kind, *args)

            core = await s.system.core("s")
            core.storage.find_document = counting
            await s.ask("two")
            assert "pi.budget" not in looked
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            await (await other.submit("three")).wait()
            await (await other.submit("four")).wait()
            assert looked.count("pi.budget") == 1

    go(main)


CAP = st.none() | st.integers(0, 100)


@given(CAP, CAP, CAP, CAP, *[st.integers(0, 100)] * 4)
def test_a_budget_is_used_up_exactly_when_something_has_reached_its_cap(cost, tokens, turns, wall, c, t, n, w):
    caps = perdure.Budget(cost=cost, tokens=tokens, turns=turns, wall_ms=wall)
    state = perdure.BudgetState(caps=caps, cost=c, tokens=t, turns=n, since=1_000)
    pairs = [(cost, c), (tokens, t), (turns, n), (wall, w)]
    reached = any(cap is not None and spent >= cap for cap, spent in pairs)
    assert (exhausted(state, 1_000 + w) is not None) == reached
