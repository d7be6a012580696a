import asyncio

import perdure
import pytest
from perdure.actors.conversation.builtin import InboxDoc
from perdure.actors.conversation.inbox import select
from perdure.actors.models import UserMessage, call, plain_text, to_json
from perdure.storage.records import ContextEdit, Waiting

from .support import MODEL, answering, calling, echo, go, history, kinds, quiet, scene
from .test_inbox import Work, inbox, item, submissions, users


def says(text):
    return [to_json(UserMessage(content=text))]


async def failing_once(started, free):
    """A model that fails its first request once it is told to, and echoes from then on."""

    async def fail(request):
        started.set()
        await free.wait()
        return perdure.actors.models.error_info("invalid_request", "no")

    return answering(fail, echo)


# --- placing


def test_a_write_to_an_idle_conversation_is_appended_at_once_and_asks_nobody(storage):
    async def main():
        async with scene(storage=storage) as s:
            written = await s.root.write("note", {"n": 1}, model=says("remember"))
            settled = await written.wait()
            [entry] = await history(s.root)
            assert (entry.kind, entry.data, settled.status, settled.record.entry) == (
                "note",
                {"n": 1},
                "done",
                entry.id,
            )
            assert (settled.answer, s.model.calls) == (None, [])
            await s.ask("x")
            assert plain_text(s.model.calls[0].messages[0].content) == "remember"

    go(main)


def test_a_write_to_a_busy_conversation_waits_for_the_end_of_the_tool_round():
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            written = await s.root.write("note", "x")
            assert await inbox(s.root) == [{"id": written.id, "mode": "write", "entry": {"kind": "note", "data": "x"}}]
            work.release()
            assert (await first.wait()).status == "done"
            assert (await written.wait()).status == "done"
            assert kinds(await history(s.root)) == ["user", "system", "assistant", "tool-result", "note", "assistant"]

    go(main)


def test_a_write_that_nothing_follows_is_placed_by_the_final_boundary_and_starts_no_run():
    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return "ok"

        async with scene(brain) as s:
            await s.root.submit("one")
            await asked.wait()
            written = await s.root.write("note")
            free.set()
            assert (await written.wait()).status == "done"
            await s.root.wait_for_idle()
            assert kinds(await history(s.root)) == ["user", "assistant", "note"]
            assert len(s.model.calls) == 1

    go(main)


def test_a_boundary_takes_all_writes_first_and_then_the_inputs():
    """SI-13."""
    write = {"id": 5, "mode": "write", "entry": {"kind": "note"}}
    items = [item(1, "steer"), item(2, "followUp"), {**write, "id": 3}, item(4, "steer"), write]

    def ids(boundary, *modes):
        return [one["id"] for one in select(items, boundary, *modes)]

    assert ids("postTools", "one-at-a-time", "one-at-a-time") == [3, 5, 1]
    assert ids("final", "one-at-a-time", "one-at-a-time") == [3, 5, 1, 2]
    assert ids("final", "all", "all") == [3, 5, 1, 2, 4]


def test_writes_and_inputs_that_wait_together_are_placed_in_that_order():
    """SI-13."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            await s.root.submit("one")
            await work.started.wait()
            steer = await s.root.submit("steer", when_busy="steer")
            await s.root.write("late note")
            work.release()
            await steer.wait()
            assert kinds(await history(s.root))[3:6] == ["tool-result", "late note", "user"]

    go(main)


def test_a_write_queues_behind_what_a_failed_run_has_left_and_a_final_boundary_runs():
    """SI-12, SI-16."""

    async def main():
        asked, free = asyncio.Event(), asyncio.Event()
        async with scene(await failing_once(asked, free)) as s:
            first = await s.root.submit("one")
            await asked.wait()
            second = await s.root.submit("two")
            free.set()
            assert (await first.wait()).reason == "model_error"
            await s.root.wait_for_idle()
            assert (await second.status()).status == "queued"
            written = await s.root.write("note")
            assert (await written.wait()).status == "done"
            assert (await second.wait()).answer.text == "re: two"
            assert kinds(await history(s.root))[-3:] == ["note", "user", "assistant"]

    go(main)


def test_an_abort_keeps_queued_writes_for_the_next_submission(storage):
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool], storage=storage) as s:
            await s.root.submit("one")
            await work.started.wait()
            written = await s.root.write("note")
            queued = await s.root.submit("two")
            await s.root.abort()
            assert (await queued.wait()).reason == "aborted"
            assert (await written.status()).status == "queued"
            work.release()
        async with scene(Work.brain, tools=[work.tool], storage=storage) as s:
            assert (await s.ask("three")).status == "done"
            placed = await (await s.session.submission(written.id)).wait()
            texts = [e.id for e in await history(s.root) if e.kind == "pi.user"]
            assert texts[0] < placed.record.entry < texts[1]

    go(main)


def test_a_write_is_admitted_once_by_its_request_id():
    """SI-11."""

    async def main():
        async with scene() as s:
            first = await s.root.write("note", request_id="r")
            assert (await s.root.write("note", request_id="r")).id == first.id
            assert kinds(await history(s.root)) == ["note"]
            with pytest.raises(perdure.RequestIdReused):
                await s.root.submit("x", request_id="r")

    go(main)


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": 5},
        {"kind": "note", "data": {1, 2}.__iter__()},
        {"kind": "note", "model": ["x"]},
        {"kind": "note", "model": [{"role": "nobody"}]},
        {"kind": "note", "head": "here"},
        {"kind": "note", "head": -1},
        {"kind": "note", "edits": [{"action": "paint"}]},
    ],
    ids=["kind", "data", "model", "message", "head text", "head number", "edits"],
)
@pytest.mark.parametrize("busy", [False, True])
def test_what_cannot_be_written_is_refused_when_it_is_submitted(bad, busy):
    """P11: a boundary can place whatever was admitted."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            if busy:
                await s.root.submit("one")
                await work.started.wait()
            before = len(await submissions(s))
            with pytest.raises(perdure.PerdureError):
                await s.root.write(**bad)
            assert len(await submissions(s)) == before
            work.release()
            await s.root.wait_for_idle()
            assert (await (await s.root.write("note")).wait()).status == "done"

    go(main)


def test_a_write_over_the_limit_is_refused_and_stores_nothing():
    async def main():
        async with scene(settings=perdure.Settings(max_submission_bytes=50)) as s:
            with pytest.raises(perdure.SubmissionTooLarge):
                await s.root.write("note", "x" * 50)
            assert await submissions(s) == []

    go(main)


# --- heads


def test_edits_and_heads_of_a_queued_write_take_effect_when_it_is_placed():
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            first = await s.root.submit("one")
            entry = (await first.status()).entry
            await work.started.wait()
            edit = ContextEdit(target=entry, action="replace", messages=says("changed"))
            await s.root.write("edit", edits=[edit])
            assert users(await history(s.root)) == ["one"]
            work.release()
            assert (await first.wait()).answer.text == "done: changed"

    go(main)


@pytest.mark.parametrize("order", ["further first", "further last"])
def test_of_two_queued_heads_the_one_that_cuts_further_wins(order):
    """CO-17: a head that comes after one which cuts further is stale."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            notes = [(await (await s.root.write("note")).wait()).record.entry for _ in range(4)]
            await s.root.submit("one")
            await work.started.wait()
            near, far = notes[1], notes[3]
            heads = [far, near] if order == "further first" else [near, far]
            cuts = [await s.root.write("cut", head=head) for head in heads]
            work.release()
            await s.root.wait_for_idle()
            ended = [(settled.status, settled.reason) for settled in [await cut.wait() for cut in cuts]]
            stale = [("done", None), ("unanswered", "stale")]
            assert ended == (stale if order == "further first" else [("done", None)] * 2)
            active = (await s.root.context()).entries
            assert (active[0].head, active[1].id) == (far, far)

    go(main)


def test_a_head_that_is_stale_when_it_comes_is_refused_by_an_idle_conversation_too(storage):
    async def main():
        async with scene(storage=storage) as s:
            notes = [(await (await s.root.write("note")).wait()).record.entry for _ in range(3)]
            await s.root.write("cut", head=notes[2])
        async with scene(storage=storage) as s:
            settled = await (await s.root.write("cut", head=notes[0])).wait()
            assert (settled.status, settled.reason, settled.record.entry) == ("unanswered", "stale", None)
            assert (await (await s.root.write("cut", head=notes[2])).wait()).status == "done"

    go(main)


# --- reset


def test_a_reset_takes_everything_out_of_context_and_hands_a_text_over():
    """SI-09."""

    async def main():
        async with scene() as s:
            await s.ask("old")
            settled = await (await s.root.reset("go on from here")).wait()
            entry = (await history(s.root))[-1]
            assert (entry.kind, entry.head, entry.id) == ("pi.reset", entry.id, settled.record.entry)
            await s.ask("new")
            said = [plain_text(m.content) for m in s.model.calls[-1].messages if isinstance(m, UserMessage)]
            assert said == ["go on from here", "new"]
            assert len(await history(s.root)) == 5
            await s.root.reset()
            assert (await s.root.context()).messages == []

    go(main)


def test_a_reset_after_a_tool_round_ends_the_run_and_what_waits_begins_the_next():
    """SI-15."""

    async def main():
        work = Work()
        async with scene(answering(call("work"), echo), tools=[work.tool]) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            steer = await s.root.submit("left", when_busy="steer")
            reset = await s.root.reset()
            follow = await s.root.submit("two")
            work.release()
            assert ((await first.wait()).status, (await first.wait()).reason) == ("unanswered", "reset")
            assert (await reset.wait()).status == "done"
            assert (await steer.wait()).record.answer == (await follow.wait()).record.answer
            await s.root.wait_for_idle()
            assert kinds(await history(s.root)) == [
                *["user", "system", "assistant", "tool-result", "reset", "user", "user", "system", "assistant"]
            ]
            said = [plain_text(m.content) for m in s.model.calls[-1].messages if isinstance(m, UserMessage)]
            assert said == ["left", "two"]
            assert await s.root.live() == {}

    go(main)


def test_a_reset_after_a_tool_round_with_nothing_waiting_leaves_the_conversation_idle():
    """SI-15."""

    async def main():
        work = Work()
        async with scene(answering(call("work"), echo), tools=[work.tool]) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            await s.root.reset()
            work.release()
            assert (await first.wait()).reason == "reset"
            await s.root.wait_for_idle()
            assert (await s.root.live(), len(s.model.calls)) == ({}, 1)
            assert (await s.ask("two")).answer.text == "re: two"

    go(main)


# --- withdrawal


def test_a_queued_submission_can_be_withdrawn_and_nothing_else_can(storage):
    """SI-17."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool], storage=storage) as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            first = await s.root.submit("one")
            await work.started.wait()
            steer, follow = await s.root.submit("two", when_busy="steer"), await s.root.submit("three")
            written = await s.root.write("note")
            kept = await s.root.submit("four")
            assert await first.withdraw() == "already_placed"
            assert await other.withdraw(follow) == "not_found"
            assert [await s.root.withdraw(one.id) for one in (steer, follow)] == ["aborted", "aborted"]
            assert await written.withdraw() == "aborted"
            assert await follow.withdraw() == "settled"
            assert [one["id"] for one in await inbox(s.root)] == [kept.id]
            assert await perdure.Submission(s.system.services, "s", 10_000).withdraw() == "not_found"
            work.release()
            assert (await kept.wait()).answer.text == "done: one, four"
            for one in (steer, follow, written):
                assert ((await one.wait()).status, (await one.wait()).reason) == ("unanswered", "aborted")
            assert await first.withdraw() == "settled"

    go(main)


def test_promoting_a_follow_up_while_the_run_ends_delivers_it_once():
    """B064: withdrawing and submitting anew is one decision after the other, never two deliveries."""

    async def main():
        moment = asyncio.Event()

        async def brain(request):
            await moment.wait()
            return echo(request)

        async with scene(brain) as s:
            for number in range(40):
                moment.clear()
                first = await s.root.submit(f"run {number}")
                follow = await s.root.submit(f"follow {number}")
                moment.set()
                await quiet(number)  # another place in the end of the run each time
                if await follow.withdraw() == "aborted":
                    follow = await s.root.submit(f"follow {number}", when_busy="steer")
                assert (await follow.wait()).answer.text == f"re: follow {number}"
                await first.wait()
            assert users(await history(s.root)) == [f"{w} {n}" for n in range(40) for w in ("run", "follow")]

    go(main)


# --- limits


def test_a_full_inbox_refuses_with_a_typed_error_and_takes_more_when_there_is_room():
    """B073: by count."""

    async def main():
        work = Work()
        settings = perdure.Settings(max_queued_submissions=2)
        async with scene(Work.brain, tools=[work.tool], settings=settings) as s:
            await s.root.submit("one")
            await work.started.wait()
            queued = [await s.root.submit("two"), await s.root.write("note")]
            for send in (s.root.submit("three", request_id="r"), s.root.write("note"), s.root.reset()):
                with pytest.raises(perdure.InboxFull, match="2 messages waiting") as full:
                    await send
                assert (full.value.receiver, full.value.count) == (s.root.id, 2)
            assert [one["id"] for one in await inbox(s.root)] == [one.id for one in queued]
            assert await queued[1].withdraw() == "aborted"
            three = await s.root.submit("three", request_id="r")
            assert (await s.root.submit("three", request_id="r")).id == three.id
            work.release()
            assert (await three.wait()).status == "done"

    go(main)


def test_an_inbox_is_bounded_in_bytes():
    """B073, B161."""

    async def main():
        work = Work()
        settings = perdure.Settings(max_queued_bytes=400)
        async with scene(Work.brain, tools=[work.tool], settings=settings) as s:
            await s.root.submit("one")
            await work.started.wait()
            await s.root.submit("x" * 200)
            with pytest.raises(perdure.InboxFull) as full:
                await s.root.submit("x" * 200)
            assert full.value.size > 400
            await s.root.submit("short")
            work.release()
            await s.root.wait_for_idle()

    go(main)


def test_ten_thousand_prompts_during_a_slow_opening_are_stored_in_order_or_refused():
    """B073."""

    async def main():
        free = asyncio.Event()

        async def brain(request):
            await free.wait()
            return "ok"

        settings = perdure.Settings(max_queued_submissions=50, follow_up_mode="all")
        async with scene(brain, settings=settings) as s:
            s.system.kill("session:s")
            sent = await asyncio.gather(*(s.root.submit(f"{n}") for n in range(10_000)), return_exceptions=True)
            admitted = [n for n, one in enumerate(sent) if isinstance(one, perdure.Submission)]
            refused = [one for one in sent if isinstance(one, perdure.InboxFull)]
            assert (len(admitted), len(refused)) == (51, 9_949)
            free.set()
            assert (await sent[admitted[-1]].wait()).status == "done"
            assert users(await history(s.root)) == [f"{n}" for n in admitted]
            [session] = [child for child in s.system.inspect().actors[0]["children"] if child["id"] == "sessions"]
            assert "guard:s" in str(session)

    go(main, within=60)


# --- receipts and targets


def test_a_receipt_says_what_became_of_a_submission_at_every_moment():
    """B061, B062: kind and place in the queue, then the entry as soon as the model can see it, then the answer."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            await s.root.submit("one")
            await work.started.wait()
            await s.root.submit("two")
            steer = await s.root.submit("three", when_busy="steer")
            waiting = [(one["id"], one["mode"]) for one in (await s.root.snapshot(InboxDoc))["items"]]
            assert waiting[1] == (steer.id, "steer")
            assert ((await steer.status()).status, (await steer.status()).entry) == ("queued", None)
            work.release()
            settled = await steer.wait()
            request = next(r for r in s.model.calls if plain_text(r.messages[-1].content) == "three")
            assert request is not s.model.calls[0]
            placed = next(e for e in await history(s.root) if e.id == settled.record.entry)
            assert placed.id < settled.record.answer
            assert users([placed]) == ["three"]

    go(main)


def test_an_ordinary_message_while_a_tool_waits_for_somebody_neither_ends_nor_silences_it():
    """B068: a prompt waits, a steer waits for the round, a second answer changes nothing, an abort ends it all."""

    async def main():
        approval = perdure.Doc("test.approval", initial=lambda: {"answer": None})

        @perdure.tool
        async def approve(ctx: perdure.ToolContext) -> str:
            """Wait for somebody's decision."""
            async with ctx.commit() as tx:
                await tx.doc(approval, ctx.conversation_id)
            async with await ctx.conversation().watch_doc(approval) as watch:
                if watch.value["answer"] is None:
                    await anext(watch)
                return str(watch.value["answer"])

        async def decide(s, answer):
            async with s.root.commit() as tx:
                draft = await tx.doc(approval, s.root.id)
                draft["answer"] = draft["answer"] or answer

        async def asked(s):
            while await s.root.snapshot(approval) is None:
                await asyncio.sleep(0)

        async with scene(calling(call("approve")), tools=[approve]) as s:
            first = await s.root.submit("may I?")
            await asked(s)
            plain, steer = await s.root.submit("hello?"), await s.root.submit("hurry", when_busy="steer")
            await decide(s, "yes")
            await decide(s, "no")
            for one in (first, steer, plain):
                assert (await one.wait()).status == "done"
            results = [e for e in await history(s.root) if e.kind == "pi.tool-result"]
            assert results[0].model[0]["content"][0]["text"] == "yes"

        async with scene(calling(call("approve")), tools=[approve]) as s:
            first = await s.root.submit("may I?")
            await asked(s)
            plain = await s.root.submit("hello?")
            await s.root.abort()
            assert [(await one.wait()).reason for one in (first, plain)] == ["aborted", "aborted"]
            await decide(s, "yes")
            assert (await s.ask("again")).status == "done"

    go(main)


def test_what_a_start_schedules_by_key_is_there_once_however_often_it_starts():
    """B070, B071: one row, one firing."""
    fired = []

    class Maintain(perdure.Task[None, None], name="maintain", version=1):
        class Park(perdure.Phase):
            pass

        class Fire(perdure.Phase):
            pass

        async def park(self, run, state):
            await run.wait(until=run.now() + 60_000, then=self.Fire())

        async def fire(self, run, state):
            fired.append(run.now())
            await run.complete()

        async def abort(self, run, state):
            async with run.commit() as tx:
                tx.abort()

    schedule = perdure.Doc("test.schedule", scope="session", family=True, initial=lambda seed: {"task": seed})

    async def start(session):
        async with session.commit() as tx:
            planned = await tx.doc(schedule, key="maint")
            if planned["task"] is None:
                planned["task"] = (await tx.create_task(Maintain, conversation_id=1, background=True)).id

    async def parked(session):
        while True:
            [task] = await session.tasks()
            if isinstance(task.state, Waiting):
                return task
            await asyncio.sleep(0)

    async def main():
        clock = perdure.VirtualClock()
        storage = perdure.MemoryStorage()
        kit = perdure.Extension(name="maintenance", tasks=[Maintain])
        began = clock.now()
        for _ in range(50):
            async with scene(storage=storage, clock=clock, extensions=[kit]) as s:
                await start(s.session)
                await parked(s.session)
        async with scene(storage=storage, clock=clock, extensions=[kit]) as s:
            task = await parked(s.session)
            clock.advance(61)
            await (await s.session.task(task.id)).settled()
            assert len(fired) == 1
            assert fired[0] - began >= 60_000

    go(main)


def test_handles_of_a_tool_are_ordinary_handles_and_what_they_admitted_stays():
    """SI-10, on purpose otherwise: a handle holds ids only, so an ended execution leaves nothing dangling in it.

    What the reference refuses after the invocation's end is here the business of the conversation it is asked of.
    """

    async def main():
        sent = []
        started = asyncio.Event()

        @perdure.tool
        async def order(ctx: perdure.ToolContext) -> str:
            """Submit to another conversation, and work on."""
            sent.append(await ctx.conversation(other.id).submit("ordered"))
            sent.append(ctx.conversation(other.id))
            started.set()
            await asyncio.Event().wait()

        async with scene(calling(call("order")), tools=[order]) as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL, tools=[]))
            await s.root.submit("go")
            await started.wait()
            await s.root.abort()
            submission, handle = sent
            assert (await submission.wait()).status == "done"
            assert (await (await handle.submit("later")).wait()).status == "done"

    go(main)
