"""Whatever went wrong with a run, it ends, its inputs are settled, and its conversation goes on."""

import asyncio

import perdure
import pytest
from perdure.actors.conversation.builtin import InboxDoc, LiveDoc
from perdure.actors.models import AssistantMessage, Done, Start, text
from perdure.actors.task.tx import finish
from perdure.storage.records import OutcomeError, SubmissionRecord, TaskRecord, Terminal

from ..conversation.support import MODEL, answering, go, history, kinds, scene


class Held:
    """A model that begins to answer, and waits."""

    name, provider, id, api = "held/model", "held", "model", "held"
    context_window = max_tokens = 1_000

    def __init__(self):
        self.started, self.free = asyncio.Event(), asyncio.Event()

    async def stream(self, request):
        yield Start(AssistantMessage(content=[]))
        self.started.set()
        await self.free.wait()
        yield Done(AssistantMessage(content=[text("at last")]))

    async def aclose(self):
        pass


UNREADABLE = {
    "nothing": {},
    "no message": {"role": "nobody"},
    "a message of somebody else": {"role": "user", "content": "x"},
    "a null for a number": {"role": "assistant", "content": [], "usage": {"input": None}},
    "content that is none": {"role": "assistant", "content": [{"type": "text", "text": 1}]},
}
FAULTED = perdure.Faulted(error=OutcomeError(message="on fire"))
ORPHANED = perdure.Orphaned(reason="missing_task")


async def assert_goes_on(s):
    await s.root.configure(perdure.Agent(model=MODEL))
    assert (await s.ask("y")).answer.text == "re: y"
    assert await s.root.live() == {}


@pytest.mark.parametrize("shown", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize(("end", "reason"), [(FAULTED, "faulted"), (ORPHANED, "missing_task"), (None, "aborted")])
def test_a_partial_that_cannot_be_read_again_keeps_no_run_from_its_end(end, reason, shown):
    """GE-22, GE-36."""

    async def main():
        model = Held()
        async with scene(models=[model], agent=perdure.Agent(model="held/model")) as s:
            submission = await s.root.submit("x")
            await model.started.wait()
            async with s.root.commit() as tx:
                live = await tx.doc(LiveDoc, 1)
                live["generation"]["message"] = shown
                if end is not None:
                    finish(tx, await tx.task(live["run"]["taskId"]), end)
            if end is None:
                await s.root.abort()
            assert (await submission.wait()).reason == reason
            assert await s.root.live() == {}
            assert "assistant" not in kinds(await history(s.root))
            await assert_goes_on(s)

    go(main)


@pytest.mark.parametrize("shown", UNREADABLE.values(), ids=UNREADABLE)
def test_a_request_that_a_crash_interrupted_is_sent_again_whatever_was_shown_of_its_answer(shown):
    async def main():
        model = Held()
        async with scene(models=[model], agent=perdure.Agent(model="held/model")) as s:
            submission = await s.root.submit("x")
            await model.started.wait()
            async with s.root.commit() as tx:
                (await tx.doc(LiveDoc, 1))["generation"]["message"] = shown
            model.started.clear()
            assert s.system.kill("session:s")
            await model.started.wait()
            model.free.set()
            assert (await (await s.session.submission(submission.id)).wait()).answer.text == "at last"
            await assert_goes_on(s)

    go(main)


async def wreck(s, outcome):
    """Leave a run whose task has ended without settling it, or never was."""
    async with s.root.commit() as tx:
        submission = tx.put_submission(SubmissionRecord(id=tx.mint(), conversation_id=1, type="input", status="placed"))
        task = tx.mint()
        if outcome is not None:
            tx.rows[task] = TaskRecord(
                id=task,
                conversation_id=1,
                kind="pi.generation",
                version=1,
                state=Terminal(outcome=outcome),
                background=False,
                abort_requested=False,
            )
        live = await tx.doc(LiveDoc, 1)
        live["run"] = {"taskId": task, "inputs": [submission.id, 404]}
        live["generation"] = {"attempt": 1, "message": {"role": "nobody"}}
        live["tools"] = [{"callId": "a", "name": "t", "status": "running"}]
    return submission.id


@pytest.mark.parametrize("by", ["follow_up", "steer", "reject", "abort"])
@pytest.mark.parametrize(
    ("outcome", "reason", "detail"),
    [
        (FAULTED, "faulted", "on fire"),
        (ORPHANED, "missing_task", None),
        (perdure.Completed(), "faulted", None),
        (None, "faulted", None),
    ],
    ids=["faulted", "orphaned", "completed", "never there"],
)
def test_a_run_that_nobody_answers_any_more_is_ended_by_the_next_who_comes(outcome, reason, detail, by):
    """SI-04: no conversation is busy for ever."""

    async def main():
        storage = perdure.MemoryStorage()
        async with scene(storage=storage) as s:
            lost = await wreck(s, outcome)
        async with scene(storage=storage) as s:
            if by == "abort":
                await s.root.abort()
                assert await s.root.live() == {}
            else:
                assert (await s.ask("x", when_busy=by)).answer.text == "re: x"
            settled = await (await s.session.submission(lost)).wait()
            assert (settled.reason, settled.record.detail) == (reason, detail)
            await assert_goes_on(s)

    go(main)


def test_what_was_queued_behind_a_lost_run_is_answered_first():
    async def main():
        async with scene(answering("one", "two")) as s:
            await wreck(s, None)
            async with s.root.commit() as tx:
                queued = tx.put_submission(
                    SubmissionRecord(id=tx.mint(), conversation_id=1, type="input", status="queued")
                )
                inbox = await tx.doc(InboxDoc, 1)
                inbox["items"].append({"id": queued.id, "mode": "followUp", "content": "before"})
            assert (await s.ask("after")).answer.text == "two"
            assert (await (await s.session.submission(queued.id)).wait()).answer.text == "one"

    go(main)
