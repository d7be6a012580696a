import asyncio
from collections import Counter
from itertools import pairwise, permutations

import msgspec
import perdure
import pytest
from perdure.actors.agent.generation import Generation, may_retry, retry_delay
from perdure.actors.agent.responses import unique_calls
from perdure.actors.conversation.builtin import LiveDoc, ProviderDoc
from perdure.actors.models import (
    AssistantMessage,
    BlockStart,
    Delta,
    Done,
    ErrorInfo,
    Pause,
    Start,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    call,
    error_info,
    from_json,
    plain_text,
    text,
    to_json,
)
from perdure.storage.records import Pending, SubmissionRecord, TaskRecord

from ..conversation.support import (
    MODEL,
    Faults,
    answering,
    calling,
    echo,
    go,
    history,
    kinds,
    problems,
    quiet,
    results_of,
    scene,
    seen,
)

BUSY = error_info("overloaded", "busy")
BROKEN = error_info("invalid_request", "that is no request")


def jumping():
    return perdure.VirtualClock(autojump=True)


def generation(view):
    return view["docs"]["pi.live"].get("generation", {})


async def run_task(conversation):
    return (await conversation.live())["run"]["taskId"]


async def outcome(session, task):
    return (await (await session.task(task)).settled()).state.outcome


async def last_outcome(session):
    async with session.commit() as tx:
        tasks = await tx.scan_tasks(perdure.TaskQuery(kind="pi.generation", order="descending"), 1)
    return tasks.items[0].state.outcome


def messages(entries):
    return [from_json(entry.model[0]) for entry in entries if entry.model]


# --- the request


@pytest.mark.parametrize("model", [None, "scripted/missing", "nobody/at-all"])
def test_without_a_model_the_input_is_unanswered_and_the_task_says_why(model):
    """GE-02, SI-04."""

    async def main():
        async with scene(agent=perdure.Agent(model=model)) as s:
            settled = await s.ask("x")
            assert (settled.status, settled.reason) == ("unanswered", "no_model")
            ended = await last_outcome(s.session)
            assert isinstance(ended, perdure.Failed)
            assert ended.error.detail == {"reason": "no_model"}
            assert (model or "none chosen") in ended.error.message
            assert kinds(await history(s.root)) == ["user"]
            assert await s.root.live() == {}

    go(main)


def test_the_request_carries_what_was_set_and_no_longer_what_was_cleared():
    """GE-03."""

    async def main():
        settings = perdure.Settings(request_timeout_ms=1_500, idle_timeout_ms=300)
        async with scene(agent=perdure.Agent(model=MODEL, thinking_level="high"), settings=settings) as s:
            await s.ask()
            await s.root.configure(perdure.Agent(thinking_level=None))
            s.system.services.provide(perdure.Settings, perdure.Settings())
            await s.ask()
            first, second = s.model.calls
            assert (first.thinking_level, first.timeout_s, first.idle_timeout_s) == ("high", 1.5, 0.3)
            assert (second.thinking_level, second.timeout_s, second.idle_timeout_s) == ("off", None, None)

    go(main)


def test_settings_have_the_defaults_that_are_documented():
    """GE-05."""
    settings = perdure.Settings()
    assert settings.retry == perdure.RetryPolicy(enabled=True, max_retries=3, base_delay_ms=2_000, max_delay_ms=60_000)
    assert settings.progress == perdure.ProgressPolicy(partial_interval_ms=100, output_interval_ms=100)
    assert (settings.steering_mode, settings.follow_up_mode) == ("one-at-a-time", "one-at-a-time")
    assert (settings.tool_execution, settings.extensions) == ("parallel", None)


def test_each_conversation_has_an_identity_at_providers_of_its_own_for_good(storage):
    """GE-06."""

    async def main():
        async with scene(storage=storage) as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            await asyncio.gather(s.ask("a"), (await other.submit("b")).wait())
            await s.ask("c")
            ids = Counter(request.session_id for request in s.model.calls)
            mine, theirs = [(await one.snapshot(ProviderDoc))["sessionId"] for one in (s.root, other)]
            assert ids == {mine: 2, theirs: 1}
        async with scene(storage=storage) as s:
            await s.ask("d")
            assert s.model.calls[0].session_id == mine

    go(main)


# --- how a response ends


@pytest.mark.parametrize("stop", ["stop", "length", "toolUse"])
def test_a_response_without_calls_is_an_answer(stop):
    """GE-10."""

    async def main():
        async with scene(answering(AssistantMessage(content=[text("so far")], stop_reason=stop))) as s:
            settled = await s.ask()
            assert (settled.status, settled.answer.text) == ("done", "so far")
            assert settled.answer.message.stop_reason == stop

    go(main)


def test_an_error_that_a_retry_cannot_help_is_stored_and_ends_the_run():
    """GE-08, SI-04."""

    async def main():
        async with scene(answering(["half", BROKEN])) as s:
            settled = await s.ask("x")
            assert settled.reason == "model_error"
            [_, entry] = await history(s.root)
            message = from_json(entry.model[0])
            assert (message.stop_reason, plain_text(message.content)) == ("error", "half")
            ended = await last_outcome(s.session)
            assert ended.error.message == "that is no request"
            assert ended.result == {"entryId": entry.id}
            assert len(s.model.calls) == 1

    go(main)


def test_the_providers_text_is_the_detail_of_the_unanswered_input():
    """SI-04."""

    async def main():
        async with scene(answering(BROKEN)) as s:
            assert (await s.ask()).record.detail == "that is no request"

    go(main)


def test_a_response_that_its_provider_aborted_is_an_error():
    """GE-11."""

    async def main():
        async with scene(answering(AssistantMessage(content=[text("x")], stop_reason="aborted"), echo)) as s:
            assert (await s.ask()).reason == "model_error"
            assert (await s.ask("y")).answer.text == "re: y"

    go(main)


def test_a_failed_answer_is_not_sent_again():
    """CX-02."""

    async def main():
        async with scene(answering(["half", BROKEN], echo)) as s:
            await s.ask("one")
            await s.ask("two")
            assert s.model.calls[1].messages == [
                m for m in messages(await history(s.root)) if isinstance(m, UserMessage)
            ]

    go(main)


class Rude:
    """A model that breaks the rules of models."""

    name, provider, id, api = "rude/model", "rude", "model", "rude"
    context_window = max_tokens = 1_000

    def __init__(self, stream):
        self._stream = stream

    async def stream(self, request):
        async for event in self._stream():
            yield event

    async def aclose(self):
        pass


async def raises():
    yield Start(AssistantMessage(content=[]))
    raise RuntimeError("socket on fire")


async def stops_early():
    yield Start(AssistantMessage(content=[]))


async def is_not_json():
    broken = ToolCall(id="a", name="t", arguments={"f": print})
    yield Done(AssistantMessage(content=[text("x"), broken], stop_reason="toolUse"))


@pytest.mark.parametrize(
    ("stream", "reason", "detail"),
    [
        (raises, "model_error", "socket on fire"),
        (stops_early, "model_error", "pending"),
        (is_not_json, "model_error", "builtin"),
    ],
)
def test_a_model_that_breaks_its_contract_ends_the_run_and_not_the_session(stream, reason, detail):
    """GE-22, B143, SI-04."""

    async def main():
        async with scene(models=[Rude(stream)], agent=perdure.Agent(model="rude/model")) as s:
            settled = await s.ask()
            assert (settled.reason, detail in settled.record.detail) == (reason, True)
            assert await s.root.live() == {}
            await s.root.configure(perdure.Agent(model=MODEL))
            assert (await s.ask("y")).answer.text == "re: y"

    go(main)


def test_a_final_message_that_is_not_json_leaves_what_was_shown_with_the_error():
    """GE-22."""

    async def main():
        shown = asyncio.Event()

        async def stream():
            yield Start(AssistantMessage(content=[], provider="rude", model="model"))
            yield BlockStart(0, text(""))
            yield Delta(0, "shown text")
            await shown.wait()
            yield Done(AssistantMessage(content=[ToolCall(id="a", name="t", arguments={"f": print})]))

        async with scene(models=[Rude(stream)], agent=perdure.Agent(model="rude/model")) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: "message" in generation(v))
            shown.set()
            assert (await submission.wait()).reason == "model_error"
            [_, failed] = messages(await history(s.root))
            assert (failed.stop_reason, failed.error.kind) == ("error", "malformed")
            assert plain_text(failed.content) == "shown text"
            assert await s.root.live() == {}

    go(main)


# --- retries


def test_a_retryable_error_is_stored_shown_and_tried_again():
    """GE-12."""

    async def main():
        clock = jumping()
        settings = perdure.Settings(retry=perdure.RetryPolicy(jitter=0))
        async with scene(answering(BUSY, BUSY, echo), clock=clock, settings=settings) as s:
            began = clock.now()
            assert (await s.ask("x")).answer.text == "re: x"
            assert kinds(await history(s.root)) == ["user", "assistant", "assistant", "assistant"]
            assert clock.now() - began == 2_000 + 4_000
            assert s.model.calls[0].messages == s.model.calls[2].messages
            assert await s.root.live() == {}

    go(main)


def test_after_the_last_retry_the_run_ends_with_the_error():
    """GE-15, B155."""

    async def main():
        settings = perdure.Settings(retry=perdure.RetryPolicy(max_retries=2))
        async with scene(answering(BUSY), clock=jumping(), settings=settings) as s:
            assert (await s.ask()).reason == "model_error"
            assert len(s.model.calls) == 3

    go(main)


def test_with_retries_off_there_is_one_try():
    """GE-14."""

    async def main():
        settings = perdure.Settings(retry=perdure.RetryPolicy(enabled=False))
        async with scene(answering(BUSY), settings=settings) as s:
            assert (await s.ask()).reason == "model_error"
            assert len(s.model.calls) == 1

    go(main)


def test_retries_are_counted_and_delayed_by_the_policy():
    """GE-15, B077."""
    policy = perdure.RetryPolicy(max_retries=3, base_delay_ms=100, max_delay_ms=1_000)
    assert [may_retry(policy, attempt, BUSY) for attempt in range(1, 6)] == [True, True, True, False, False]
    assert not may_retry(policy, 1, BROKEN)
    assert not may_retry(policy, 1, None)
    assert [retry_delay(policy, attempt, BUSY) for attempt in range(1, 7)] == [100, 200, 400, 800, 1_000, 1_000]
    asked = ErrorInfo(kind="rate_limit", message="x", retryable=True, retry_after_ms=59_000)
    assert retry_delay(policy, 1, asked) == 59_000
    assert retry_delay(policy, 4, msgspec.structs.replace(asked, retry_after_ms=5)) == 800


def test_those_who_failed_together_do_not_come_back_together():
    """B077: jitter, which is the same again after a crash."""
    policy = perdure.RetryPolicy(base_delay_ms=1_000, jitter=0.5)
    delays = [retry_delay(policy, 1, BUSY, task) for task in range(1, 101)]
    assert len(set(delays)) > 90
    assert min(delays) >= 1_000
    assert max(delays) <= 1_500
    assert delays == [retry_delay(policy, 1, BUSY, task) for task in range(1, 101)]


def test_a_wait_longer_than_is_allowed_ends_the_attempts_with_the_reason():
    """B077: a cap ends with a clear message."""

    async def main():
        asked = ErrorInfo(kind="rate_limit", message="later", retryable=True, retry_after_ms=7_200_000)
        settings = perdure.Settings(retry=perdure.RetryPolicy(max_wait_ms=3_600_000))
        async with scene(answering(asked), settings=settings) as s:
            settled = await s.ask()
            assert settled.reason == "model_error"
            assert settled.record.detail == "later (the provider asks to wait 7,200 s; 3,600 s are allowed)"
            assert len(s.model.calls) == 1

    go(main)


def test_a_wait_that_the_provider_asks_for_is_kept():
    """B077: never earlier than asked."""

    async def main():
        clock = jumping()
        asked = ErrorInfo(kind="rate_limit", message="later", retryable=True, retry_after_ms=3_600_000)
        async with scene(answering(asked, echo), clock=clock) as s:
            began = clock.now()
            await s.ask()
            assert clock.now() - began == 3_600_000

    go(main)


@pytest.mark.parametrize("away", [30, 90], ids=["back in time", "back late"])
def test_a_retry_survives_a_restart_in_the_middle_of_its_wait(storage, away):
    """B071, B077: it is stored, holds nothing in memory, and comes at its time or at once when overdue."""

    async def main():
        clock = perdure.VirtualClock()
        began = clock.now()
        asked = ErrorInfo(kind="overloaded", message="busy", retryable=True, retry_after_ms=60_000)
        async with scene(answering(asked), storage=storage, clock=clock) as s:
            submission = await s.root.submit("x")
            view = await seen(s.root, lambda v: "retry" in generation(v))
            assert generation(view) == {"attempt": 1, "retry": {"at": began + 60_000, "error": "busy"}}
            assert await s.system.next_deadline() == began + 60_000
            clock.advance(10)
            await quiet()
            assert len(s.model.calls) == 1
        clock.advance(away - 10)
        async with scene(storage=storage, clock=clock) as s:
            waiting = asyncio.ensure_future((await s.session.submission(submission.id)).wait())
            if away < 60:
                await quiet(200)
                assert s.model.calls == []
                clock.advance(60 - away)
            assert (await waiting).answer.text == "re: x"
            assert len(s.model.calls) == 1

    go(main)


def test_another_model_chosen_while_waiting_takes_the_next_try_as_a_whole():
    """B074, GE-04."""

    async def main():
        clock = perdure.VirtualClock()
        second = perdure.ScriptedModel(echo, name="other/second")
        settings = perdure.Settings(request_timeout_ms=111)
        async with scene(answering(BUSY), models=[second], clock=clock, settings=settings) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: "retry" in generation(v))
            await s.root.configure(perdure.Agent(model="other/second"))
            s.system.services.provide(perdure.Settings, perdure.Settings(request_timeout_ms=222))
            clock.advance(3)
            message = (await submission.wait()).answer.message
            assert (message.provider, message.model) == ("other", "second")
            assert (s.model.calls[0].timeout_s, second.calls[0].timeout_s) == (0.111, 0.222)

    go(main)


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
def test_an_abort_while_waiting_ends_the_run_and_no_request_follows(restart):
    """B058, B088."""

    async def main():
        clock = perdure.VirtualClock()
        storage = perdure.MemoryStorage()
        async with scene(answering(BUSY), clock=clock, storage=storage) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: "retry" in generation(v))
            if not restart:
                await s.root.abort()
        async with scene(clock=clock, storage=storage) as s:
            if restart:
                await s.root.abort()
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.reason == "aborted"
            clock.advance(3_600)
            await quiet()
            assert s.model.calls == []
            assert await s.root.live() == {}
            assert (await s.ask("y")).answer.text == "re: y"

    go(main)


# --- streaming and aborting


def test_an_abort_in_mid_stream_keeps_what_was_shown_as_an_aborted_entry(storage):
    """GE-21, B080."""

    async def main():
        clock = jumping()
        answer = "word " * 200
        async with scene(
            lambda request: answer, storage=storage, clock=clock, tokens_per_second=50, agent=perdure.Agent(model=MODEL)
        ) as s:
            submission = await s.root.submit("x")
            task = await run_task(s.root)
            view = await seen(s.root, lambda v: len(str(generation(v).get("message", ""))) > 400)
            shown = generation(view)["message"]["content"][0]["text"]
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            assert await outcome(s.session, task) == perdure.Aborted()
            [_, aborted] = messages(await history(s.root))
            assert aborted.stop_reason == "aborted"
            assert plain_text(aborted.content).startswith(shown)
            assert answer.startswith(plain_text(aborted.content))
            assert await s.root.live() == {}
        async with scene(storage=storage) as s:
            assert messages(await history(s.root))[1] == aborted
            assert (await s.ask("y")).answer.text == "re: y"

    go(main)


def test_an_abort_before_anything_was_shown_leaves_no_entry():
    async def main():
        async with scene(answering([Pause(10**7)]), clock=perdure.VirtualClock()) as s:
            await s.root.submit("x")
            await quiet()
            await s.root.abort()
            assert kinds(await history(s.root)) == ["user"]

    go(main)


@pytest.mark.parametrize(("interval", "shown"), [(100, True), (5_000, False)])
def test_the_interval_says_whether_a_short_stream_is_shown(interval, shown):
    """GE-23, GE-24."""

    async def main():
        clock = jumping()
        settings = perdure.Settings(progress=perdure.ProgressPolicy(partial_interval_ms=interval))
        async with scene(lambda r: "x" * 60, clock=clock, tokens_per_second=50, settings=settings) as s:
            watch = await s.root.watch()
            await s.ask()
            await quiet()
            partials = [v async for v, _ in _frames(watch) if "message" in generation(v)]
            assert bool(partials) is shown
            assert len(partials) <= 3

    go(main)


async def _frames(watch):
    """The frames that are there now."""
    while watch._frames:
        yield await anext(watch)


class HeldPartials(Faults):
    """Writes that show a part of an answer wait until they are let go."""

    def __init__(self):
        super().__init__(perdure.MemoryStorage())
        self.waiting, self.released = asyncio.Event(), asyncio.Event()

    async def write(self, batches):
        changes = [w.content for b in batches for w in b.writes if hasattr(w, "content")]
        if any(op[1][:2] == ["generation", "message"] for c in changes for op in getattr(c, "ops", ())):
            self.waiting.set()
            await self.released.wait()
        await super().write(batches)


def test_a_partial_in_flight_lands_before_the_answer_and_none_after():
    """GE-24: a stale partial never lands."""

    async def main():
        storage = HeldPartials()

        async def stream():
            yield Start(AssistantMessage(content=[], stop_reason="pending"))
            yield BlockStart(0, text(""))
            yield Delta(0, "shown")
            await storage.waiting.wait()
            yield Delta(0, " and more")
            yield Done(AssistantMessage(content=[text("shown and more")]))

        settings = perdure.Settings(progress=perdure.ProgressPolicy(partial_interval_ms=0))
        agent = perdure.Agent(model="rude/model")
        async with scene(models=[Rude(stream)], agent=agent, storage=storage, settings=settings) as s:
            submission = await s.root.submit("x")
            await storage.waiting.wait()
            await quiet(100)
            batches = [b for group in storage.groups for b in group]
            assert not any(getattr(w, "kind", None) == "pi.assistant" for b in batches for w in b.writes)
            storage.released.set()
            assert (await submission.wait()).answer.text == "shown and more"
            await quiet()
            assert await s.root.live() == {}
            assert kinds(await history(s.root)) == ["user", "assistant"]
            assert not [task for task in asyncio.all_tasks() if "Pump" in repr(task.get_coro())]

    go(main)


def test_partials_are_written_as_what_was_added():
    """DF-03: a stream writes deltas, and a base when it ends."""

    async def main():
        clock = jumping()
        storage = Faults(perdure.MemoryStorage())
        async with scene(lambda r: "0123456789" * 40, storage=storage, clock=clock, tokens_per_second=50) as s:
            live_id = None
            await s.ask()
            writes = [w for group in storage.groups for batch in group for w in batch.writes]
            live_id = next(w.record.id for w in writes if getattr(w, "record", None) and w.record.kind == "pi.live")
            contents = [w.content for w in writes if getattr(w, "content", None) and getattr(w, "id", 0) == live_id]
            appended = [op for one in contents if hasattr(one, "ops") for op in one.ops if op[0] == "a"]
            assert len(appended) > 5
            assert sum(len(op[2]) for op in appended) <= 400
            assert contents[-1].value == {}

    go(main)


def test_a_request_that_a_crash_interrupted_is_sent_again_as_it_was(storage):
    """GE-26, P5."""

    async def main():
        clock = jumping()
        sections = [perdure.Section("now", lambda given: f"round {len(asked)}")]
        asked = []

        def brain(request):
            asked.append(request)
            return "word " * 100

        async with scene(brain, storage=storage, sections=sections, clock=clock, tokens_per_second=50) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: "message" in generation(v))
            async with s.root.commit() as tx:
                await tx.append("note", head="self")  # what comes later has no say in a request that is under way
            await s.root.configure(perdure.Agent(model="other/model", thinking_level="high"))
        other = perdure.ScriptedModel(echo, name="other/model")
        async with scene(brain, storage=storage, sections=sections, clock=clock, models=[other]) as s:
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.status == "done"
            assert asked[1] == asked[0]
            assert [m.stop_reason for m in messages(await history(s.root)) if isinstance(m, AssistantMessage)] == [
                "aborted",
                "stop",
            ]

    go(main)


def test_a_request_whose_model_is_gone_after_a_restart_keeps_what_was_shown():
    """GE-26: first what is left over, then the model."""

    async def main():
        storage = perdure.MemoryStorage()
        clock = jumping()
        async with scene(lambda r: "word " * 100, storage=storage, clock=clock, tokens_per_second=50) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: "message" in generation(v))
        async with perdure.System.open(storage) as system:
            session = await system.session("s")
            settled = await (await session.submission(submission.id)).wait()
            assert settled.reason == "no_model"
            root = await session.root()
            [_, partial] = messages(await history(root))
            assert partial.stop_reason == "aborted"
            assert await root.live() == {}

    go(main)


@pytest.mark.parametrize("victim", ["session:s", "task", "storage"])
def test_a_kill_in_mid_stream_costs_the_stream_and_nothing_else(victim):
    """P8: the same input is answered once, and what was shown stays."""

    async def main():
        clock = jumping()
        async with scene(lambda r: "word " * 60, clock=clock, tokens_per_second=50) as s:
            submission = await s.root.submit("x")
            view = await seen(s.root, lambda v: "message" in generation(v))
            shown = generation(view)["message"]["content"][0]["text"]
            assert s.system.kill(f"task:s/{await run_task(s.root)}" if victim == "task" else victim)
            for _ in range(3):
                try:
                    settled = await submission.wait()
                    break
                except perdure.SessionFailed:
                    continue
            assert settled.status == "done"
            [_, partial, answer] = messages(await history(s.root))
            assert (partial.stop_reason, answer.stop_reason) == ("aborted", "stop")
            assert plain_text(partial.content).startswith(shown)

    go(main)


# --- tool rounds


def worker(started, free, name="work", **options):
    async def work(n: int) -> str:
        """Work."""
        started.append(n)
        if free is not None:
            await free.wait()
        return f"done {n}"

    return perdure.tool(name=name, **options)(work)


def three(name="work"):
    return calling(*(call(name, f"c{n}", n=n) for n in (1, 2, 3)))


def test_a_parallel_round_runs_its_calls_at_once_and_answers_in_call_order():
    async def main():
        started, free = [], asyncio.Event()
        async with scene(three(), tools=[worker(started, free)]) as s:
            submission = await s.root.submit("x")
            view = await seen(s.root, lambda v: sum(t["status"] == "running" for t in slots(v)) == 3)
            assert [slot["callId"] for slot in slots(view)] == ["c1", "c2", "c3"]
            await quiet()
            assert sorted(started) == [1, 2, 3]
            free.set()
            assert (await submission.wait()).answer.text == "done 1 | done 2 | done 3"

    go(main)


def slots(view):
    return view["docs"]["pi.live"].get("tools", [])


@pytest.mark.parametrize("by", ["the setting", "a tool"])
def test_a_sequential_round_runs_one_call_after_the_other(by):
    """GE-33, GE-38."""

    async def main():
        started, free = [], asyncio.Event()
        settings = perdure.Settings(tool_execution="sequential" if by == "the setting" else "parallel")
        tools = [worker(started, free, execution="sequential" if by == "a tool" else None)]
        async with scene(three(), tools=tools, settings=settings) as s:
            submission = await s.root.submit("x")
            view = await seen(s.root, lambda v: any(t["status"] == "running" for t in slots(v)))
            await quiet(100)
            assert [("taskId" in slot) for slot in slots(view)] == [True, False, False]
            assert started == [1]
            free.set()
            assert (await submission.wait()).answer.text == "done 1 | done 2 | done 3"
            assert started == [1, 2, 3]

    go(main)


def test_a_sequential_tool_that_is_not_called_does_not_slow_the_round():
    """GE-38."""

    async def main():
        started, free = [], asyncio.Event()
        slow = worker([], free, name="slow", execution="sequential")
        async with scene(three(), tools=[worker(started, free), slow]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: sum(t["status"] == "running" for t in slots(v)) == 3)
            free.set()
            assert (await submission.wait()).status == "done"

    go(main)


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))), ids=str)
def test_in_whatever_order_calls_end_requests_are_valid_and_begin_as_the_one_before(order):
    """B055, and the promise that requests are prefix-stable, on what was really sent."""

    async def main():
        free = {n: asyncio.Event() for n in order}

        @perdure.tool
        async def work(n: int) -> str:
            """Work."""
            await free[n].wait()
            return f"done {n}"

        async with scene(three(), tools=[work]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: sum(t["status"] == "running" for t in slots(v)) == 3)
            for count, n in enumerate(order, 1):
                free[n].set()
                await seen(s.root, lambda v, count=count: count == 3 or _ended(v) == count)
            assert (await submission.wait()).answer.text == "done 1 | done 2 | done 3"
            for n in order:
                free[n].set()
            await s.ask("again")
            for shorter, longer in pairwise(s.model.calls):
                assert longer.messages[: len(shorter.messages)] == shorter.messages
                assert problems(longer.messages) == []

    go(main)


def _ended(view):
    return sum(slot["status"] == "done" for slot in slots(view))


def test_an_abort_of_a_parallel_round_answers_every_call_and_then_ends_the_run(storage):
    """GE-32, B094."""

    async def main():
        started, free = [], asyncio.Event()
        async with scene(three(), tools=[worker(started, free)], storage=storage) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: sum(t["status"] == "running" for t in slots(v)) == 3)
            tasks = [record.id for record in await s.session.tasks()]
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            entries = await history(s.root)
            results = [m for m in messages(entries) if isinstance(m, ToolResultMessage)]
            assert sorted(m.tool_call_id for m in results) == ["c1", "c2", "c3"]
            assert all(m.is_error and "was aborted" in plain_text(m.content) for m in results)
            assert await s.root.live() == {}
            records = [await (await s.session.task(task)).record() for task in tasks]
            ends = {record.kind: record.ended_at for record in records}
            assert ends["pi.tool"] <= ends["pi.generation"]
            assert problems((await s.root.context()).messages) == []
            free.set()
            assert (await s.ask("again")).status == "done"

    go(main)


def test_an_abort_keeps_the_results_that_were_there():
    """B094."""

    async def main():
        free = asyncio.Event()

        @perdure.tool
        async def work(n: int) -> str:
            """Work."""
            if n > 1:
                await free.wait()
            return f"done {n}"

        async with scene(three(), tools=[work]) as s:
            await s.root.submit("x")
            await seen(s.root, lambda v: [t["status"] for t in slots(v)] == ["done", "running", "running"])
            await s.root.abort()
            context = (await s.root.context()).messages
            assert problems(context) == []
            said = [plain_text(m.content) for m in context if isinstance(m, ToolResultMessage)]
            assert said[0] == "done 1"
            assert all("aborted" in one for one in said[1:])

    go(main)


def test_an_abort_of_a_sequential_round_answers_calls_that_never_started_without_tasks():
    """GE-33."""

    async def main():
        started, free = [], asyncio.Event()
        async with scene(three(), tools=[worker(started, free, execution="sequential")]) as s:
            await s.root.submit("x")
            await seen(s.root, lambda v: any(t["status"] == "running" for t in slots(v)))
            await s.root.abort()
            results = [m for m in messages(await history(s.root)) if isinstance(m, ToolResultMessage)]
            assert [m.tool_call_id for m in results] == ["c1", "c2", "c3"]
            assert plain_text(results[1].content) == "<harness>\n[error] Tool work was aborted\n</harness>"
            async with s.session.commit() as tx:
                tools = await tx.scan_tasks(perdure.TaskQuery(kind="pi.tool"), 10)
            assert len(tools.items) == 1
            assert started == [1]

    go(main)


def test_a_restart_in_a_sequential_round_goes_on_with_the_next_call(storage):
    async def main():
        started, free = [], asyncio.Event()
        options = {"execution": "sequential", "replay": "safe"}
        async with scene(three(), tools=[worker(started, free, **options)], storage=storage) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: any(t["status"] == "running" for t in slots(v)))
        again = []
        async with scene(three(), tools=[worker(again, None, **options)], storage=storage) as s:
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.answer.text == "done 1 | done 2 | done 3"
            assert (started, again) == ([1], [1, 2, 3])

    go(main)


def test_an_unknown_tool_is_answered_and_its_siblings_run():
    """TO-10, must show 7 of issue 2."""

    async def main():
        started = []
        brain = calling(call("gone", "a"), call("work", "b", n=1), call("", "c"))
        async with scene(brain, tools=[worker(started, None)]) as s:
            answer = (await s.ask()).answer.text.split(" | ")
            assert "Tool gone is not available" in answer[0]
            assert answer[1] == "done 1"
            assert "not available" in answer[2]
            assert (await s.ask("again")).status == "done"

    go(main)


def test_a_round_of_unknown_tools_only_goes_on():
    """TS-12."""

    async def main():
        async with scene(calling(call("gone"), call("lost"))) as s:
            assert (await s.ask()).answer.text.count("not available") == 2

    go(main)


def test_calls_that_share_an_id_or_have_none_run_once_each_and_keep_their_results():
    """B095."""

    async def main():
        started = []

        def brain(request):
            rounds = sum(isinstance(m, AssistantMessage) for m in request.messages)
            if rounds == 0:
                return [call("work", "x", n=1), call("work", "x", n=2), call("work", "x-1", n=3)]
            if rounds == 1:
                return [call("work", "x", n=4)]
            return " | ".join(plain_text(m.content) for m in request.messages if isinstance(m, ToolResultMessage))

        async with scene(brain, tools=[worker(started, None)]) as s:
            assert (await s.ask()).answer.text == "done 1 | done 2 | done 3 | done 4"
            assert sorted(started) == [1, 2, 3, 4]
            assert all(problems(request.messages) == [] for request in s.model.calls)

    go(main)


def test_ids_become_unique_and_stay_what_they_are_where_they_can():
    """B095."""

    def ids(*given):
        calls = [ToolCall(id=one, name="t", arguments={}) for one in given]
        return [one.id for one in unique_calls(AssistantMessage(content=[text("x"), *calls])).content[1:]]

    assert ids("a", "b") == ["a", "b"]
    for given in (("x", "x", "x"), ("", ""), ("x", "x", "x-2"), ("x-2", "x", "x"), ("call", "", "call-2")):
        assert len(set(ids(*given))) == len(given)
        assert "" not in ids(*given)


def test_arguments_that_the_model_did_not_finish_are_answered_and_not_executed():
    """B109, B110, must show 7 of issue 2."""

    async def main():
        started = []
        cut = ToolCall(id="a", name="work", arguments={}, arguments_error='The arguments are cut off. Received: {"n": ')
        async with scene(calling(cut, call("work", "b", n=2)), tools=[worker(started, None)]) as s:
            answer = (await s.ask()).answer.text.split(" | ")
            assert "cut off" in answer[0]
            assert answer[1] == "done 2"
            assert started == [2]
            assert (await s.ask("again")).status == "done"

    go(main)


def test_arguments_that_are_not_json_end_the_run_and_not_the_session():
    """GE-22."""

    async def main():
        async with scene(answering(call("work", n={1, 2}), echo), tools=[worker([], None)]) as s:
            assert (await s.ask()).reason == "model_error"
            assert (await s.ask("y")).answer.text == "re: y"

    go(main)


# --- faults, orphans, strangers


class Stuck(perdure.Task[None, None], name="test.stuck", version=1):
    """Waits for ever, and is not quick to end."""

    class Start(perdure.Phase):
        pass

    async def start(self, run, state):
        await run.wait(until=run.now() + 10**9, then=self.Start())


def raw_run(version):
    """Make a commit that stores a run as another process might have left it, and give its submission and task."""

    async def store(s):
        async with s.root.commit() as tx:
            submission = tx.put_submission(
                SubmissionRecord(id=tx.mint(), conversation_id=1, type="input", status="placed")
            )
            task = await tx.put_task(
                TaskRecord(
                    id=tx.mint(),
                    conversation_id=1,
                    kind="pi.generation",
                    version=version,
                    state=Pending(checkpoint={"phase": "prepare"}),
                    background=False,
                    abort_requested=False,
                )
            )
            live = await tx.doc(LiveDoc, 1)
            live["run"] = {"taskId": task.id, "inputs": [submission.id]}
        return submission.id, task.id

    return store


def test_a_run_of_a_newer_version_keeps_the_conversation_busy_and_an_abort_cleans_up():
    """GE-36, SI-04, SI-07, TS-09."""

    async def main():
        async with scene() as s:
            submission, task = await raw_run(99)(s)
            await quiet()
            with pytest.raises(perdure.ConversationBusy):
                await s.root.submit("x", when_busy="reject")
            await s.root.abort()
            settled = await (await s.session.submission(submission)).wait()
            assert settled.reason == "task_too_old"
            assert await outcome(s.session, task) == perdure.Orphaned(reason="task_too_old")
            assert await s.root.live() == {}
            assert (await s.ask("y")).status == "done"

    go(main)


def test_a_generation_that_is_not_the_runs_leaves_the_run_alone():
    """GE-41's rule: only the generation that the run names goes on with it."""

    async def main():
        free = asyncio.Event()
        started = []
        brain = answering(call("work", n=1), "from a stranger", "the answer")
        async with scene(brain, tools=[worker(started, free)]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: any(t["status"] == "running" for t in slots(v)))
            async with s.root.commit() as tx:
                stranger = await tx.create_task(Generation)
            await stranger.settled()
            assert (await submission.status()).status == "placed"
            free.set()
            assert (await submission.wait()).answer.text == "the answer"

    go(main)


def test_a_steer_that_came_in_a_round_is_seen_behind_the_results():
    """GE-41, SI-13."""

    async def main():
        started, free = [], asyncio.Event()
        async with scene(
            lambda r: three()(r) if len(results_of(r)) == 0 and len(r.messages) < 4 else "ok",
            tools=[worker(started, free)],
        ) as s:
            await s.root.submit("x")
            await seen(s.root, lambda v: sum(t["status"] == "running" for t in slots(v)) == 3)
            steer = await s.root.submit("left", when_busy="steer")
            free.set()
            await steer.wait()
            roles = [type(m).__name__ for m in s.model.calls[-1].messages[-5:]]
            assert roles == ["AssistantMessage", *["ToolResultMessage"] * 3, "UserMessage"]

    go(main)


def test_a_conversation_that_ends_with_an_answer_has_nothing_to_go_on_with_and_takes_the_next_input(storage):
    """B076: there is no call to continue; opening, aborting and waiting ask no model, and the next prompt works."""

    async def main():
        async with scene(storage=storage) as s:
            assert (await s.ask("one")).text == "re: one"
        async with scene(storage=storage) as s:
            await s.root.abort()
            await s.session.wait_for_idle()
            assert s.model.calls == []
            assert kinds(await history(s.root)) == ["user", "assistant"]
            assert (await s.ask("two")).text == "re: two"
            s.system.kill("session:s")
        async with scene(storage=storage) as s:
            await s.session.wait_for_idle()
            assert s.model.calls == []
            assert (await s.ask("three")).text == "re: three"

    go(main)


@pytest.mark.parametrize("storage", [perdure.MemoryStorage, None])
def test_what_a_host_appends_while_an_answer_streams_stands_before_it_and_changes_nothing_of_what_was_asked(
    storage, tmp_path
):
    """PR-07: entries stand in the order of their commits, in the transcript as in every request.

    The request that streams is fixed by its cutoff and says nothing of the note. The next one begins with it, byte for
    byte; so does whatever reads the context between the note and the answer: an answer that went before the note, because
    it was asked for first, would change what was read already. Who wants to speak after the answer submits a write.
    """
    store = perdure.SqliteStorage(tmp_path / "s.db") if storage is None else storage()

    async def main():
        requests = []

        def brain(request):
            requests.append([to_json(message) for message in request.messages])
            return "answer " * 60

        async with scene(brain, storage=store, clock=jumping(), tokens_per_second=50) as s:
            asked = await s.root.submit("question")
            await seen(s.root, lambda view: "message" in generation(view))
            async with s.root.commit() as tx:
                await tx.append("host.note", model=[to_json(UserMessage(content="note", timestamp=0))])
            write = await s.root.write("host.note", model=[to_json(UserMessage(content="later", timestamp=0))])
            between = (await s.root.context()).messages
            await asked.wait()
            await write.wait()
            after = (await s.root.context()).messages
            await s.ask("next")
        first, second = requests
        read = [list(map(to_json, messages)) for messages in (between, after)]
        assert second[: len(first)] == first
        assert read[1][: len(read[0])] == read[0]
        assert second[: len(read[1])] == read[1]
        told = [plain_text(from_json(one).content).split(" ")[0] for one in second if one["role"] != "system"]
        assert told == ["question", "note", "answer", "later", "next"]

    go(main)
