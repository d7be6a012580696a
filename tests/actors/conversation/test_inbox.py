import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import perdure
import pytest
from perdure.actors.conversation.builtin import InboxDoc, LiveDoc
from perdure.actors.conversation.inbox import answered, select, settle_inputs, unanswered
from perdure.actors.models import (
    Image,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    call,
    from_json,
    plain_text,
    text,
)
from perdure.chord import InvalidJson
from perdure.storage.records import SubmissionRecord

from .support import MODEL, Faults, answering, calling, echo, go, history, kinds, quiet, scene, seen


class Work:
    """A tool that runs until it is let go, and the model that calls it when a user speaks."""

    def __init__(self):
        self.started = asyncio.Event()
        self.released = asyncio.Event()

        async def work() -> str:
            """Work until released."""
            self.started.set()
            await self.released.wait()
            return "worked"

        self.tool = perdure.tool(work)

    @staticmethod
    def brain(request):
        if isinstance(request.messages[-1], UserMessage):
            return call("work")
        said = [plain_text(m.content) for m in request.messages if isinstance(m, UserMessage)]
        return f"done: {', '.join(said)}"

    def release(self):
        self.released.set()


def users(entries):
    return [plain_text(from_json(e.model[0]).content) for e in entries if e.kind == "pi.user"]


async def submissions(scene):
    async with scene.session.commit() as tx:
        return (await tx.scan_submissions(perdure.SubmissionQuery(), 100)).items


async def inbox(conversation):
    return (await conversation.snapshot(InboxDoc))["items"]


# --- an idle conversation


def test_an_input_to_an_idle_conversation_is_placed_at_once_and_answered_by_its_run():
    """SI-01."""

    async def main():
        async with scene() as s:
            submission = await s.root.submit("hello")
            assert (await submission.status()).status == "placed"
            assert "run" in await s.root.live()
            settled = await submission.wait()
            entries = await history(s.root)
            assert kinds(entries) == ["user", "assistant"]
            assert (settled.status, settled.answer.text) == ("done", "re: hello")
            assert (settled.record.entry, settled.record.answer) == (entries[0].id, entries[1].id)
            assert await s.root.live() == {}

    go(main)


def test_reject_is_accepted_by_an_idle_conversation():
    async def main():
        async with scene() as s:
            assert (await s.ask("now", when_busy="reject")).answer.text == "re: now"

    go(main)


# --- a busy conversation


def test_a_follow_up_waits_for_the_end_of_the_run_and_starts_the_next():
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            second = await s.root.submit("two")
            assert (await second.status()).status == "queued"
            assert [item["mode"] for item in await inbox(s.root)] == ["followUp"]
            work.release()
            assert (await first.wait()).answer.text == "done: one"
            assert (await second.wait()).answer.text == "done: one, two"
            assert await inbox(s.root) == []

    go(main)


def test_a_steer_joins_the_run_after_the_tool_round_and_is_settled_by_its_answer():
    async def main():
        work = Work()

        def brain(request):
            if not any(isinstance(m, ToolResultMessage) for m in request.messages):
                return call("work")
            return f"heard {plain_text(request.messages[-1].content)}"

        async with scene(brain, tools=[work.tool]) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            steer = await s.root.submit("turn left", when_busy="steer")
            follow = await s.root.submit("and then", when_busy="follow_up")
            work.release()
            one, two = await first.wait(), await steer.wait()
            assert one.answer.text == two.answer.text == "heard turn left"
            assert one.record.answer == two.record.answer
            assert (await follow.wait()).answer.text == "heard and then"
            assert kinds(await history(s.root)) == [
                "user",
                "system",
                "assistant",
                "tool-result",
                "user",
                "assistant",
                "user",
                "assistant",
            ]

    go(main)


def test_a_steer_that_no_tool_round_takes_starts_the_next_run():
    async def main():
        asked = asyncio.Event()
        free = asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return echo(request)

        async with scene(brain) as s:
            first = await s.root.submit("one")
            await asked.wait()
            steer = await s.root.submit("two", when_busy="steer")
            free.set()
            assert (await first.wait()).answer.text == "re: one"
            assert (await steer.wait()).answer.text == "re: two"

    go(main)


def test_reject_raises_when_busy_and_stores_nothing():
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            before = await submissions(s), await history(s.root), await inbox(s.root)
            with pytest.raises(perdure.ConversationBusy):
                await s.root.submit("two", when_busy="reject", request_id="r")
            assert (await submissions(s), await history(s.root), await inbox(s.root)) == before
            work.release()
            await first.wait()
            assert (await s.ask("two", request_id="r")).status == "done"

    go(main)


def test_two_inputs_at_once_make_two_runs_one_after_the_other():
    """B067."""

    async def main():
        async with scene() as s:
            both = await asyncio.gather(s.root.submit("a"), s.root.submit("b"))
            settled = await asyncio.gather(*(one.wait() for one in both))
            assert [one.answer.text for one in settled] == ["re: a", "re: b"]
            assert kinds(await history(s.root)) == ["user", "assistant", "user", "assistant"]

    go(main)


def test_prompts_of_two_threads_in_the_same_moment_never_start_two_runs():
    """B067: a thousand times, through a system on a loop of its own."""

    async def ask(system, key, text):
        root = await (await system.session(key)).root(agent=perdure.Agent(model=MODEL))
        return (await (await root.submit(text)).wait()).status

    async def told(system, key):
        entries = await history(await (await system.session(key)).root())
        return kinds(entries), users(entries)

    models = [perdure.ScriptedModel(lambda request: "ok")]
    with perdure.System.background(perdure.MemoryStorage(), models=models) as background, ThreadPoolExecutor(2) as pool:
        moment = Barrier(2)

        def send(key, text):
            moment.wait()
            return background.call(ask, key, text)

        for key in (f"s{number}" for number in range(50)):
            sent = [f"{thread} {number}" for number in range(20) for thread in "ab"]
            assert set(pool.map(send, [key] * 40, sent)) == {"done"}
            entries, said = background.call(told, key)
            assert sorted(said) == sorted(sent)
            assert entries == ["user", "assistant"] * 40


@pytest.mark.parametrize(
    ("mode", "answers"), [("one-at-a-time", ["b", "c", "d"]), ("all", ["d", "d", "d"])], ids=["one", "all"]
)
def test_the_follow_up_mode_says_how_many_a_boundary_takes(mode, answers):
    """SI-13."""

    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return plain_text(request.messages[-1].content)

        async with scene(brain, settings=perdure.Settings(follow_up_mode=mode)) as s:
            await s.root.submit("a")
            await asked.wait()
            queued = [await s.root.submit(letter) for letter in "bcd"]
            free.set()
            assert [(await one.wait()).answer.text for one in queued] == answers
            assert users(await history(s.root)) == ["a", "b", "c", "d"]

    go(main)


@pytest.mark.parametrize(("mode", "joined"), [("one-at-a-time", ["b"]), ("all", ["b", "c"])], ids=["one", "all"])
def test_the_steering_mode_says_how_many_join_after_a_round(mode, joined):
    """SI-13."""

    async def main():
        work = Work()
        seen_after_round = []

        def brain(request):
            if not any(isinstance(m, ToolResultMessage) for m in request.messages):
                return call("work")
            seen_after_round.append([plain_text(m.content) for m in request.messages if isinstance(m, UserMessage)])
            return "ok"

        async with scene(brain, tools=[work.tool], settings=perdure.Settings(steering_mode=mode)) as s:
            await s.root.submit("a")
            await work.started.wait()
            steers = [await s.root.submit(letter, when_busy="steer") for letter in "bc"]
            work.release()
            await asyncio.gather(*(one.wait() for one in steers))
            assert seen_after_round[0] == ["a", *joined]

    go(main)


def test_a_boundary_places_in_the_order_of_ids_whatever_the_kind():
    """SI-13: the final boundary takes steers and follow-ups."""

    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return "ok"

        async with scene(brain) as s:
            await s.root.submit("a")
            await asked.wait()
            follow = await s.root.submit("b", when_busy="follow_up")
            steer = await s.root.submit("c", when_busy="steer")
            free.set()
            one, two = await follow.wait(), await steer.wait()
            assert one.record.answer == two.record.answer
            assert users(await history(s.root)) == ["a", "b", "c"]

    go(main)


def item(id, mode):
    return {"id": id, "mode": mode, "content": "x"}


def test_only_the_final_boundary_takes_follow_ups():
    """SI-13."""
    items = [item(1, "followUp"), item(2, "steer"), item(3, "steer"), item(4, "followUp")]

    def ids(boundary, *modes):
        return [one["id"] for one in select(items, boundary, *modes)]

    assert ids("postTools", "one-at-a-time", "all") == [2]
    assert ids("postTools", "all", "all") == [2, 3]
    assert ids("final", "one-at-a-time", "one-at-a-time") == [1, 2]
    assert ids("final", "all", "all") == [1, 2, 3, 4]


def test_a_queued_message_is_dated_when_it_is_placed():
    """SI-18."""

    async def main():
        clock = perdure.VirtualClock()
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return "ok"

        async with scene(brain, clock=clock) as s:
            await s.root.submit("a")
            await asked.wait()
            queued = await s.root.submit("b")
            clock.advance(60)
            free.set()
            await queued.wait()
            dates = [e.model[0]["timestamp"] for e in await history(s.root) if e.kind == "pi.user"]
            assert dates[1] - dates[0] == 60_000

    go(main)


# --- request ids


def test_a_request_id_admits_once_however_often_it_is_sent(storage):
    """SI-11, P9."""

    async def main():
        async with scene(storage=storage) as s:
            first = await s.root.submit("pay", request_id="r")
            again = await s.root.submit("pay", request_id="r")
            await first.wait()
            later = await s.root.submit("something else", request_id="r")
            assert first.id == again.id == later.id
            assert len(s.model.calls) == 1
        async with scene(storage=storage) as s:
            reopened = await s.root.submit("pay", request_id="r")
            assert reopened.id == first.id
            assert (await reopened.wait()).answer.text == "re: pay"
            assert s.model.calls == []
            assert users(await history(s.root)) == ["pay"]

    go(main)


def test_a_request_id_sent_by_many_at_once_admits_once(storage):
    async def main():
        async with scene(storage=storage) as s:
            sent = await asyncio.gather(*(s.root.submit(f"{i}", request_id="r") for i in range(20)))
            assert len({one.id for one in sent}) == 1
            await sent[7].wait()
            assert len(users(await history(s.root))) == 1

    go(main)


def test_a_request_id_finds_an_input_that_is_still_queued():
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            await s.root.submit("one")
            await work.started.wait()
            queued = await s.root.submit("two", request_id="r")
            assert (await s.root.submit("two", request_id="r", when_busy="reject")).id == queued.id
            assert len(await inbox(s.root)) == 1
            work.release()
            await queued.wait()

    go(main)


def test_request_ids_of_two_conversations_have_nothing_to_do_with_each_other():
    """SI-11."""

    async def main():
        async with scene() as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            one, two = await s.root.submit("a", request_id="r"), await other.submit("b", request_id="r")
            assert one.id != two.id
            assert (await two.wait()).answer.text == "re: b"

    go(main)


def test_a_request_id_of_a_write_is_refused_for_an_input():
    """SI-11."""

    async def main():
        async with scene() as s:
            async with s.session.commit() as tx:
                tx.put_submission(
                    SubmissionRecord(id=tx.mint(), conversation_id=1, type="write", status="queued", request_id="r")
                )
            with pytest.raises(perdure.RequestIdReused):
                await s.root.submit("a", request_id="r")
            assert await history(s.root) == []

    go(main)


# --- failures and aborts


def test_what_is_queued_survives_a_failed_run_and_the_next_submission_queues_behind_it(storage):
    """SI-12, SI-16."""

    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            if len(request.messages) == 1:
                asked.set()
                await free.wait()
                return perdure.actors.models.error_info("invalid_request", "no")
            return echo(request)

        async with scene(brain, storage=storage) as s:
            first = await s.root.submit("one")
            await asked.wait()
            second = await s.root.submit("two")
            free.set()
            assert (await first.wait()).reason == "model_error"
            await s.root.wait_for_idle()
            assert (await second.status()).status == "queued"
        async with scene(brain, storage=storage) as s:
            await quiet()
            assert (await (await s.session.submission(second.id)).status()).status == "queued"
            third = await s.root.submit("three")
            assert (await (await s.session.submission(second.id)).wait()).answer.text == "re: two"
            assert (await third.wait()).answer.text == "re: three"
            assert users(await history(s.root)) == ["one", "two", "three"]

    go(main)


def test_a_rejecting_submission_queues_behind_what_a_failed_run_has_left():
    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def failing(request):
            asked.set()
            await free.wait()
            return perdure.actors.models.error_info("invalid_request", "no")

        async with scene(answering(failing, echo)) as s:
            first = await s.root.submit("one")
            await asked.wait()
            second = await s.root.submit("two")
            free.set()
            await first.wait()
            third = await s.root.submit("three", when_busy="reject")
            assert (await second.wait()).answer.text == "re: two"
            assert (await third.wait()).answer.text == "re: three"

    go(main)


def test_an_abort_withdraws_what_is_queued_and_answers_nobody(storage):
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool], storage=storage) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            steer = await s.root.submit("two", when_busy="steer")
            follow = await s.root.submit("three")
            await s.root.abort()
            for submission in (first, steer, follow):
                settled = await submission.wait()
                assert (settled.status, settled.reason, settled.answer) == ("unanswered", "aborted", None)
            assert await inbox(s.root) == []
            assert await s.root.live() == {}
            assert users(await history(s.root)) == ["one"]
            work.release()
            assert (await s.ask("four")).status == "done"

    go(main)


def test_settling_what_is_settled_changes_nothing_and_the_run_still_ends_cleanly():
    """SI-03, SI-19."""

    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return "ok"

        async with scene(brain) as s:
            submission = await s.root.submit("a")
            await asked.wait()
            async with s.root.commit() as tx:
                await settle_inputs(tx, [submission.id], unanswered("elsewhere", {"why": 1}))
            async with s.root.commit() as tx:
                await settle_inputs(tx, [submission.id], answered(1))
            free.set()
            await s.root.wait_for_idle()
            settled = await submission.wait()
            assert (settled.reason, settled.record.detail) == ("elsewhere", {"why": 1})
            assert await s.root.live() == {}

    go(main)


def test_a_submission_is_found_again_by_id_after_a_restart(storage):
    """SI-05."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool], storage=storage) as s:
            submission = await s.root.submit("one")
            await work.started.wait()
            queued = await s.root.submit("two")
        again = Work()
        again.release()
        async with scene(Work.brain, tools=[again.tool], storage=storage) as s:
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.answer.text == "done: one"
            assert (await (await s.session.submission(queued.id)).wait()).answer.text == "done: one, two"

    go(main)


def test_waits_for_an_answer_end_with_the_storage_error_when_the_session_fails():
    """SI-06."""

    async def main():
        storage = Faults(perdure.MemoryStorage())
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return "ok"

        async with scene(brain, storage=storage) as s:
            submission = await s.root.submit("a", request_id="r")
            waiting = asyncio.ensure_future(submission.wait())
            await asked.wait()
            storage.fail(storage.writes + 1)
            free.set()
            with pytest.raises(perdure.SessionFailed) as failed:
                await waiting
            assert isinstance(failed.value.__cause__, perdure.StorageError)
            again = await s.root.submit("a", request_id="r")
            assert again.id == submission.id
            assert (await again.wait()).answer.text == "ok"

    go(main)


# --- bad input


def test_a_submission_over_the_limit_is_refused_and_stores_nothing():
    """Must show 7 of issue 2."""

    async def main():
        async with scene(settings=perdure.Settings(max_submission_bytes=10)) as s:
            with pytest.raises(perdure.SubmissionTooLarge, match="10"):
                await s.root.submit("x" * 9, request_id="r")
            with pytest.raises(perdure.SubmissionTooLarge):
                await s.root.submit("\u00e4" * 5)
            assert await submissions(s) == []
            assert (await s.ask("x" * 8, request_id="r")).answer.text == "re: xxxxxxxx"

    go(main)


BAD = {
    "none": None,
    "a number": 5,
    "bytes": b"x",
    "no blocks": [],
    "a block that is none": ["text"],
    "a dict": [{"type": "text", "txt": "x"}],
    "a call": [ToolCall(id="a", name="t", arguments={})],
    "text that is none": [text(5)],
    "an image that is none": [Image(data=None, mime_type="image/png")],
    "nothing": "",
    "blanks": " \n",
    "blank blocks": [text(" "), text("")],
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_no_content_is_refused_and_the_conversation_goes_on(content):
    """P11: what could not be read again, or what every provider would refuse, is never stored."""

    async def main():
        async with scene() as s:
            with pytest.raises(perdure.InvalidValue):
                await s.root.submit(content, request_id="r")
            assert await submissions(s) == []
            assert (await s.ask("fine", request_id="r")).answer.text == "re: fine"

    go(main)


def knot():
    value = {}
    value["self"] = value
    return value


def deep(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


UNSTORABLE = {
    "a cycle": knot(),
    "deeper than documents": deep(300),
    "deeper than can be walked": deep(700),
    "deeper than the stack": deep(100_000),
    "keys that are no text": {(1, 2): 3},
    "no JSON": {"f": print},
    "a number too huge": 10**5_000,
}


@pytest.mark.parametrize("value", UNSTORABLE.values(), ids=UNSTORABLE)
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("place", ["beside a block", "as content", "as a list"])
def test_what_cannot_be_stored_is_refused_with_an_error_of_this_library(value, busy, place):
    """P11: nothing is stored, and the same request id is free."""
    content = {"beside a block": [Text(text="x", provider_data=value)], "as content": value, "as a list": [value]}

    async def main():
        free = asyncio.Event()

        async def work() -> str:
            """Work."""
            await free.wait()
            return "done"

        brain = calling(call("work")) if busy else echo
        async with scene(brain, tools=[perdure.tool(work)]) as s:
            if busy:
                await s.root.submit("x")
            before = len(await submissions(s))
            with pytest.raises((perdure.InvalidValue, InvalidJson)):
                await s.root.submit(content[place], request_id="r")
            assert len(await submissions(s)) == before
            free.set()
            assert (await s.ask("fine", request_id="r")).status == "done"

    go(main)


def test_half_a_surrogate_pair_is_replaced_before_it_is_stored():
    """B104."""

    async def main():
        async with scene() as s:
            assert (await s.ask("a\ud800b")).answer.text == "re: a\ufffdb"
            assert (await s.ask([text("\udc00"), text("c")])).answer.text == "re: \ufffdc"

    go(main)


def test_pictures_and_text_are_content():
    async def main():
        async with scene() as s:
            await s.ask([text("look"), Image(data="aGk=", mime_type="image/png")])
            [first, _] = await history(s.root)
            assert first.model[0]["content"] == [
                {"type": "text", "text": "look"},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            ]

    go(main)


def test_an_unknown_way_of_being_busy_is_refused():
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.InvalidValue, match="when_busy"):
                await s.root.submit("x", when_busy="stear")
            assert await submissions(s) == []

    go(main)


@pytest.mark.parametrize("request_id", [5, "\ud800"], ids=["number", "surrogate"])
def test_a_request_id_that_cannot_be_stored_is_refused_and_the_session_lives(request_id):
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.PerdureError):
                await s.root.submit("x", request_id=request_id)
            assert (await s.ask("y")).status == "done"

    go(main)


def test_an_input_to_an_unknown_conversation_is_refused():
    """Must show 7 of issue 2."""

    async def main():
        async with scene() as s:
            nowhere = perdure.Conversation(s.system.services, "s", 99)
            with pytest.raises(perdure.UnknownRecord, match="99"):
                await nowhere.submit("x")
            assert (await s.ask("y")).status == "done"

    go(main)


def test_the_inbox_document_is_replaced_whole_when_it_empties():
    """What waits is in pi.inbox and nowhere else; the reader of pi.live sees the run's inputs."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            first = await s.root.submit("one")
            await work.started.wait()
            queued = await s.root.submit("two")
            assert await inbox(s.root) == [{"id": queued.id, "mode": "followUp", "content": "two"}]
            assert (await s.root.snapshot(LiveDoc))["run"]["inputs"] == [first.id]
            work.release()
            await seen(s.root, lambda view: view["docs"]["pi.live"].get("run", {}).get("inputs") == [queued.id])
            await queued.wait()

    go(main)


def test_a_calling_model_is_asked_again_for_each_follow_up():
    async def main():
        @perdure.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        async with scene(calling(call("add", a=2, b=3)), tools=[add]) as s:
            texts = [(await s.ask(f"{i}")).answer.text for i in range(3)]
            assert texts == ["5", "5", "5"]

    go(main)
