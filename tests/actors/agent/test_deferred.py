import json

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors import models
from perdure.actors.agent.deferred import POLL_MS, poll_at
from perdure.actors.models import AssistantMessage, DeferredHandle, call, error_info
from perdure.actors.models.testing import Cut, ProtocolServer, Reply, error_reply
from structlog.testing import capture_logs

from ..conversation.support import answering, go, history, kinds, scene, seen


def handle(**options):
    return DeferredHandle(provider="scripted", api="scripted", model_id="model", id="h1", **options)


def later(**options):
    return AssistantMessage(content=[], stop_reason="deferred", deferred=handle(**options))


def fetching(*answers):
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


class Deferring(perdure.ScriptedModel):
    """The scene's model, with a script for what is fetched."""

    def __init__(self, answer, *fetched, **options):
        super().__init__(answering(answer, "again"), name="scripted/later", fetch=fetching(*fetched), **options)


LATER = perdure.Agent(model="scripted/later", deferred=True)


def polls(view):
    return view["docs"]["pi.live"].get("generation", {}).get("deferred", {}).get("pollAt", 0)


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.none() | st.integers(0, 10**6))
def test_the_next_look_is_when_the_provider_says_and_later_than_the_last(now, before, wait):
    """GE-20."""
    at = poll_at(handle(poll_after_ms=wait), now, before)
    assert at == max(now + (POLL_MS if wait is None else wait), before + 1)


def test_a_deferred_response_is_looked_for_until_it_is_there(storage):
    """GE-16, VE-06: the answer comes with the second look; two poll times are shown, the second later."""

    async def main():
        clock, shown = perdure.VirtualClock(), []
        model = Deferring(later(), later(poll_after_ms=1_000), "here it is", clock=clock)
        async with scene(storage=storage, models=[model], agent=LATER, clock=clock) as s:
            submission = await s.root.submit("x")
            shown.append(polls(await seen(s.root, polls)))
            assert shown[0] == clock.now() + POLL_MS
            assert model.calls[0].deferred
            assert await s.system.next_deadline() == shown[0]
        async with scene(storage=storage, models=[model], clock=clock) as s:
            clock.advance(POLL_MS / 1_000)
            shown.append(polls(await seen(s.root, lambda view: polls(view) > shown[0])))
            clock.advance(1)
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.text == "here it is"
            assert (len(model.fetched), shown[1] - shown[0]) == (2, 1_000)
            assert kinds(await history(s.root)) == ["user", "assistant"]
            assert len(model.calls) == 1

    go(main)


def test_hooks_are_shown_the_final_response_only():
    """GE-20."""

    async def main():
        clock, shown = perdure.VirtualClock(autojump=True), []
        hooks = perdure.Hooks(after_response=lambda ctx, message: shown.append(message.stop_reason))
        model = Deferring(later(), later(), "here", clock=clock)
        kit = perdure.Extension(name="h", hooks=hooks)
        async with scene(models=[model], agent=LATER, clock=clock, extensions=[kit]) as s:
            assert (await s.ask()).text == "here"
            assert shown == ["stop"]

    go(main)


def test_a_deferred_response_may_call_tools():
    async def main():
        @perdure.tool
        async def look() -> str:
            """Look."""
            return "seen"

        clock = perdure.VirtualClock(autojump=True)
        model = Deferring(later(), [call("look", "c1")], clock=clock)
        async with scene(models=[model], agent=LATER, clock=clock, tools=[look]) as s:
            assert (await s.ask()).text == "again"

    go(main)


@pytest.mark.parametrize("broken", [False, True])
def test_an_abort_cancels_the_response_once_whether_or_not_the_provider_can_be_told(broken):
    """GE-17, GE-18."""

    async def main():
        model = Deferring(later(), "never")
        if broken:

            async def cancel(given):
                model.cancelled.append(given)
                raise RuntimeError("cannot")

            model.cancel = cancel
        async with scene(models=[model], agent=LATER, clock=perdure.VirtualClock()) as s:
            submission = await s.root.submit("x")
            await seen(s.root, polls)
            with capture_logs() as logs:
                await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            assert [one.id for one in model.cancelled] == ["h1"]
            assert model.fetched == []
            assert ("deferred_not_cancelled" in [one["event"] for one in logs]) == broken

    go(main)


@pytest.mark.parametrize("end", ["error", "raise", "expired", "gone"])
def test_a_deferred_response_that_will_not_come_ends_the_run_with_the_reason(end):
    async def main():
        clock = perdure.VirtualClock(autojump=True)
        fetched = {
            "error": AssistantMessage(content=[], stop_reason="error", error=error_info("refusal", "no")),
            "raise": error_info("auth", "no key"),
            "expired": later(expires_at=clock.now() + 12_000),
            "gone": "x",
        }[end]
        model = Deferring(later(), fetched, clock=clock)
        async with scene(models=[model], agent=LATER, clock=clock) as s:
            submission = await s.root.submit("x")
            if end == "gone":
                s.system.services.provide(perdure.Models, perdure.Models())
            settled = await submission.wait()
            told = {"error": "no", "raise": "no key", "expired": "The deferred response did not come in time"}
            assert settled.reason == ("no_model" if end == "gone" else "model_error")
            assert settled.record.detail == told.get(end)

    go(main)


# --- through the real SDK


def response(status, *items, **more):
    return {"id": "resp_1", "object": "response", "model": "gpt-6-sol", "status": status, "output": list(items), **more}


def as_json(body):
    return Reply(content_type="application/json", steps=[json.dumps(body).encode()])


TEXT = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "computed", "annotations": []}],
}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
USAGE = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}


def through_the_sdk(*replies, act=None):
    async def main():
        clock = perdure.VirtualClock(autojump=act is None)
        async with ProtocolServer(*replies) as server:
            model = models.openai("gpt-6-sol", api_key="k", base_url=f"{server.url}/v1", clock=clock)
            agent = perdure.Agent(model="openai/gpt-6-sol", deferred=True)
            async with scene(models=[model], agent=agent, clock=clock) as s:
                submission = await s.root.submit("x")
                if act is not None:
                    await act(s)
                settled = await submission.wait()
                usage = (await s.root.snapshot(perdure.UsageDoc))["models"]
            await model.aclose()
            return settled, usage, [(one.method, one.path, one.body) for one in server.requests]

    return go(main)


def test_a_background_response_of_the_responses_api_is_polled_through_the_sdk():
    """GE-16: in the background, stored until it is fetched; what came goes into the transcript without loss."""
    done = response("completed", THOUGHT, TEXT, usage=USAGE)
    settled, usage, requests = through_the_sdk(
        as_json(response("queued")), as_json(response("in_progress")), as_json(done)
    )
    assert settled.text == "computed"
    assert settled.answer.message.content[0].provider_data["encrypted_content"] == "sealed"
    assert usage["openai/gpt-6-sol"]["totalTokens"] == 13
    assert [(method, path) for method, path, _ in requests] == [
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1"),
    ]
    assert (requests[0][2]["background"], requests[0][2]["store"]) == (True, True)


def test_a_look_that_fails_for_now_is_followed_by_another_and_one_that_fails_for_good_is_the_end():
    broken = Reply(content_type="application/json", steps=[b"{", Cut()])
    done = response("completed", TEXT, usage=USAGE)
    settled, _, requests = through_the_sdk(
        as_json(response("queued")), error_reply(503, {"error": {"message": "busy"}}), broken, as_json(done)
    )
    assert settled.text == "computed"
    assert len(requests) == 4
    settled, _, _ = through_the_sdk(as_json(response("queued")), error_reply(404, {"error": {"message": "not found"}}))
    assert (settled.reason, settled.record.detail) == ("model_error", "not found")
    failed = response("failed", error={"code": "server_error", "message": "broke"})
    settled, _, requests = through_the_sdk(as_json(response("queued")), as_json(failed), as_json(done))
    assert settled.text == "computed"
    assert [method for method, _, _ in requests] == ["POST", "GET", "POST"]


def test_an_abort_cancels_the_background_response_at_the_vendor():
    """GE-17."""

    async def act(s):
        await seen(s.root, polls)
        await s.root.abort()

    settled, _, requests = through_the_sdk(as_json(response("queued")), as_json(response("cancelled")), act=act)
    assert settled.reason == "aborted"
    assert requests[-1][:2] == ("POST", "/v1/responses/resp_1/cancel")
