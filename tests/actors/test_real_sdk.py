"""A whole conversation through the real anthropic SDK, against a local server that speaks the Messages protocol."""

import asyncio

import perdure
from perdure.actors import models
from perdure.actors.models.testing import Cut, ProtocolServer
from perdure.actors.models.testing_messages import (
    block_events,
    message_start,
    problems,
    reply,
    stream_error,
    stream_reply,
)

ID = "claude-opus-5-5"
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris", "days": 3}}
THOUGHT = {"type": "thinking", "thinking": "The user wants weather.", "signature": "sig-1"}
ANSWER = {"type": "text", "text": "Sunny for three days."}


@perdure.tool(replay="safe")
async def weather(city: str, days: int = 1) -> str:
    """Look the weather of a city up."""
    return f"{city}: sunny, {days} days"


def converse(store, *replies, retries=3):
    """Ask one question; the settled submission, the entries, and the bodies that the server got."""

    async def main():
        async with ProtocolServer(*replies) as server:
            model = models.anthropic(ID, api_key="key", base_url=server.url)
            extension = perdure.Extension(
                name="weather", tools=[weather], sections=[perdure.Section("role", "You know the weather.", tag=False)]
            )
            settings = perdure.Settings(retry=perdure.RetryPolicy(max_retries=retries, base_delay_ms=1))
            async with perdure.System.open(store, models=[model], extensions=[extension], settings=settings) as system:
                session = await system.session("s")
                root = await session.root(agent=perdure.Agent(model=f"anthropic/{ID}"))
                settled = await (await root.submit("Weather in Paris?")).wait()
                entries = (await root.entries(order="ascending")).items
                usage = (await root.snapshot(perdure.UsageDoc))["models"]
            await model.aclose()
            return settled, entries, [request.body for request in server.requests], usage

    return asyncio.run(main())


def test_text_thinking_and_a_call_with_fragmented_arguments_go_through_the_sdk_and_back(tmp_path):
    settled, entries, bodies, usage = converse(
        tmp_path / "store.db", stream_reply(THOUGHT, CALL, stop_reason="tool_use", size=3), stream_reply(ANSWER, size=2)
    )
    assert settled.answer.text == "Sunny for three days."
    kinds = ["pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.assistant"]
    assert [entry.kind for entry in entries] == kinds
    assert all(problems(body, signatures=["sig-1"]) == [] for body in bodies)
    result = bodies[1]["messages"][-1]["content"][0]
    assert (result["tool_use_id"], result["content"][0]["text"]) == ("toolu_1", "Paris: sunny, 3 days")
    assert bodies[1]["messages"][1]["content"][0] == THOUGHT
    assert bodies[1]["messages"][0]["content"][0]["text"] == bodies[0]["messages"][0]["content"][0]["text"]
    assert usage[f"anthropic/{ID}"]["output"] == 40


def test_an_error_in_mid_stream_keeps_what_was_said_and_is_tried_again(tmp_path):
    half = [message_start(), *block_events(0, {"type": "text", "text": "Let me th"})[:-1]]
    settled, entries, bodies, usage = converse(
        tmp_path / "store.db", reply([*half, stream_error("overloaded_error", "Overloaded")]), stream_reply(ANSWER)
    )
    assert settled.answer.text == "Sunny for three days."
    failed = next(entry for entry in entries if entry.kind == "pi.assistant").model[0]
    assert (failed["stopReason"], failed["error"]["kind"]) == ("error", "overloaded")
    assert failed["content"][0]["text"] == "Let me th"
    assert bodies[0]["messages"] == bodies[1]["messages"]
    assert usage[f"anthropic/{ID}"]["input"] == 20


def test_a_connection_that_is_cut_in_every_attempt_ends_unanswered_with_the_reason(tmp_path):
    half = [message_start(), *block_events(0, CALL)[:-2], Cut()]
    settled, entries, bodies, _ = converse(tmp_path / "store.db", reply(half), reply(half), retries=1)
    assert (settled.status, settled.reason, settled.answer) == ("unanswered", "model_error", None)
    assert len(bodies) == 2
    assert not [entry for entry in entries if entry.kind == "pi.tool-result"]
