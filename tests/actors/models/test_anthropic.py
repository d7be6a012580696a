"""What only the Messages API has: pauses, refusals, blocks of its own, thinking and cache settings."""

import asyncio
import json
from pathlib import Path

import pytest
from perdure.actors import models
from perdure.actors.models import (
    ModelRequest,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolRef,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    answer_text,
    text,
    tool_calls,
)
from perdure.actors.models.anthropic_profile import budget_of, effort_of, profile_of
from perdure.actors.models.testing import ProtocolServer, Reply, sse
from perdure.actors.models.testing_messages import (
    block_events,
    message_end,
    message_start,
    problems,
    reply,
    stream_reply,
)

CAPTURES = Path(__file__).parent / "captures"
MODEL = "claude-opus-5-5"
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [{"type": "web_search_result", "url": "u"}],
}


def asking(*more, **options):
    return ModelRequest(messages=[UserMessage(content="Hi"), *more], **options)


def talk(replies, *requests, model_id=MODEL, api_key="key", **options):
    """The final messages of these requests, made one after the other, and what the server got."""

    async def main():
        async with ProtocolServer(*replies) as server:
            model = models.anthropic(model_id, api_key=api_key, base_url=server.url, **options)
            said = [[event async for event in model.stream(request)][-1].message for request in requests]
            await model.aclose()
            return said, [request.body for request in server.requests], server.requests

    return asyncio.run(main())


def answered(*replies, **options):
    return talk(replies, asking(), **options)[0][0]


def body_of(request, **options):
    """The body that is sent for a request; valid by the service's rules."""
    _, (body,), (raw,) = talk([stream_reply({"type": "text", "text": "ok"})], request, **options)
    assert problems(body) == []
    return body, raw.headers


def test_a_captured_stream_of_another_server_is_understood():
    """llama.cpp leaves out the call's `input` and counts its cache."""
    captured = (CAPTURES / "llamacpp_messages_tool.sse").read_bytes()
    message = answered(Reply(steps=[captured]), model_id="models/qwen.gguf", provider="local")
    assert [(call.name, call.arguments) for call in tool_calls(message)] == [("get_weather", {"city": "Paris"})]
    assert (message.stop_reason, message.response_model, message.provider) == ("toolUse", None, "local")
    assert (message.usage.input, message.usage.cache_read, message.usage.output) == (1, 135, 21)
    assert message.usage.total_tokens == 157


@pytest.mark.parametrize(
    ("stop", "details", "kind", "words"),
    [
        ("refusal", {"type": "refusal", "category": "bio", "explanation": "Too risky"}, "refusal", "Too risky"),
        ("refusal", None, "refusal", "refused"),
        ("model_context_window_exceeded", None, "overflow", "full"),
        ("some_future_reason", None, "unknown", "some_future_reason"),
        (None, None, "malformed", "without a stop reason"),
    ],
)
def test_an_ending_that_is_no_success_is_an_error(stop, details, kind, words):
    """B082: explicit, with the raw reason; a pending call is not run."""
    call = {"type": "tool_use", "id": "c1", "name": "rm", "input": {}}
    message = answered(stream_reply({"type": "text", "text": "Well"}, call, stop_reason=stop, details=details))
    assert (message.stop_reason, message.error.kind, message.raw_stop_reason) == ("error", kind, stop)
    assert words in message.error.message
    assert answer_text(message) == "Well"
    assert (message.usage.output, message.usage.estimated) == (20, False)


def test_usage_keeps_what_later_events_leave_out():
    start = message_start(
        cache_read_input_tokens=100,
        cache_creation_input_tokens=50,
        cache_creation={"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
    )
    end = message_end(input_tokens=None, cache_read_input_tokens=None, output_tokens_details={"thinking_tokens": 7})
    usage = answered(reply([start, *end])).usage
    assert (usage.input, usage.cache_read, usage.cache_write, usage.cache_write_1h) == (10, 100, 50, 30)
    assert (usage.output, usage.reasoning, usage.total_tokens) == (20, 7, 180)
    assert usage.raw["cache_creation"]["ephemeral_1h_input_tokens"] == 30


def test_null_usage_is_survived():
    wire = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": MODEL, "usage": None}
    start = sse("message_start", {"type": "message_start", "message": wire})
    message = answered(reply([start, *block_events(0, {"type": "text", "text": "ok"}), *message_end()]))
    assert (answer_text(message), message.stop_reason) == ("ok", "stop")


def test_thinking_keeps_its_signature_and_redacted_thinking_its_data():
    blocks = [
        {"type": "thinking", "thinking": "step by step", "signature": "EqQ=="},
        {"type": "redacted_thinking", "data": "opaque=="},
        {"type": "thinking", "thinking": "", "signature": "hidden=="},
        {"type": "text", "text": "ok"},
    ]
    message = answered(stream_reply(*blocks))
    assert message.content == [
        Thinking(thinking="step by step", provider_data={"signature": "EqQ=="}),
        Thinking(thinking="", redacted=True, provider_data={"data": "opaque=="}),
        Thinking(thinking="", provider_data={"signature": "hidden=="}),
        Text(text="ok"),
    ]
    _, (body,), _ = talk([stream_reply()], asking(message, UserMessage(content="And?")))
    assert body["messages"][1]["content"] == blocks
    assert problems(body, signatures=["EqQ==", "hidden=="]) == []


def test_a_signature_in_two_deltas_is_whole():
    first, second = ({"type": "signature_delta", "signature": part} for part in ("abc", "def"))
    deltas = [sse("x", {"type": "content_block_delta", "index": 0, "delta": delta}) for delta in (first, second)]
    events = block_events(0, {"type": "thinking", "thinking": "hm"})
    message = answered(reply([message_start(), *events[:-1], *deltas, events[-1], *message_end()]))
    assert message.content[0].provider_data == {"signature": "abcdef"}


def test_blocks_without_neutral_meaning_are_kept_and_sent_back():
    """B152."""
    brand_new = {"type": "hologram", "data": {"x": [1, None]}, "id": "h1"}
    message = answered(stream_reply(SEARCH, FOUND, brand_new, {"type": "text", "text": "Found it."}))
    assert message.content[0] == Opaque(provider="anthropic", api="anthropic-messages", data=SEARCH)
    _, (body,), _ = talk([stream_reply()], asking(message, UserMessage(content="And?")))
    assert body["messages"][1]["content"] == [SEARCH, FOUND, brand_new, {"type": "text", "text": "Found it."}]


def test_citations_stay_with_their_text():
    citation = {"type": "char_location", "cited_text": "x", "document_index": 0}
    delta = {"type": "citations_delta", "citation": citation}
    events = block_events(0, {"type": "text", "text": "Cited"})
    cited = sse("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta})
    message = answered(reply([message_start(), *events[:-1], cited, events[-1], *message_end()]))
    assert message.content == [Text(text="Cited", provider_data={"citations": [citation]})]


def test_a_paused_turn_is_continued_with_the_same_content():
    """B083: three pauses in a row, then the end; one answer comes out."""
    pause = stream_reply(SEARCH, stop_reason="pause_turn")
    end = stream_reply(FOUND, {"type": "text", "text": "Done"})
    (message,), bodies, _ = talk([pause, pause, pause, end], asking())
    assert [len(body["messages"]) for body in bodies] == [1, 2, 2, 2]
    assert [body["messages"][-1].get("content") for body in bodies[1:]] == [[SEARCH] * n for n in (1, 2, 3)]
    assert message.stop_reason == "stop"
    assert [type(block) for block in message.content] == [Opaque] * 4 + [Text]
    assert (message.usage.input, message.usage.output, message.usage.total_tokens) == (40, 80, 30)
    assert len(message.usage.raw["requests"]) == 4


def test_pauses_are_bounded():
    pause = stream_reply({"type": "text", "text": "."}, stop_reason="pause_turn")
    (message,), bodies, _ = talk([pause] * 30, asking())
    assert (message.stop_reason, message.error.code) == ("error", "pause_turn")
    assert len(bodies) == 11
    assert message.usage.output == 220


def test_content_outside_a_block_is_a_protocol_error():
    """B154."""
    stray = block_events(3, {"type": "text", "text": "stray"})[1]
    message = answered(reply([message_start(), stray, *message_end()]))
    assert (message.error.kind, message.error.retryable) == ("malformed", True)


def test_a_server_that_forgets_to_close_blocks_is_understood():
    """B112: one index for all blocks, and no stop events."""
    blocks = [{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"n": n}} for n in range(2)]
    steps = [event for block in blocks for event in block_events(0, block)[:-1]]
    message = answered(reply([message_start(), *steps, *message_end("tool_use")]))
    assert [call.arguments for call in tool_calls(message)] == [{"n": 0}, {"n": 1}]


def test_arguments_may_come_with_the_start_of_their_block():
    wire = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
    start = sse("content_block_start", {"type": "content_block_start", "index": 0, "content_block": wire})
    stop = sse("content_block_stop", {"type": "content_block_stop", "index": 0})
    message = answered(reply([message_start(), start, stop, *message_end("tool_use")]))
    assert tool_calls(message)[0].arguments == {"path": "a"}


def test_another_model_may_answer_than_was_asked():
    message = answered(reply([message_start("claude-opus-5-5-v2"), *message_end()]))
    assert (message.model, message.response_model) == (MODEL, "claude-opus-5-5-v2")


# Requests


TOOL = ToolSpec(name="read", description="Reads", parameters={"type": "object"})


def test_a_compatible_server_gets_the_key_in_both_headers():
    _, headers = body_of(asking(), api_key="k1")
    assert (headers["authorization"], headers["x-api-key"]) == ("Bearer k1", "k1")


def test_a_server_without_keys_can_be_asked(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    body_of(asking(), api_key=None, model_id="local")


def test_without_any_key_the_vendor_is_not_asked(monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    async def main():
        model = models.anthropic(MODEL)
        last = [event async for event in model.stream(asking())][-1].message
        await model.aclose()
        return last

    message = asyncio.run(main())
    assert (message.error.kind, message.error.retryable) == ("auth", False)


def test_the_cache_is_asked_for_and_can_be_switched_off():
    assert body_of(asking())[0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert body_of(asking(), cache_ttl="1h")[0]["cache_control"]["ttl"] == "1h"
    assert "cache_control" not in body_of(asking(), cache_ttl=None)[0]


def test_the_user_is_named_by_metadata():
    assert body_of(asking(metadata={"user_id": "u-1", "other": "x"}))[0]["metadata"] == {"user_id": "u-1"}


@pytest.mark.parametrize(
    ("model_id", "level", "thinking", "effort"),
    [
        ("claude-opus-4-8", "off", None, None),
        ("claude-opus-4-8", "minimal", {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-opus-4-8", "xhigh", {"type": "adaptive", "display": "summarized"}, "xhigh"),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive", "display": "summarized"}, "max"),
        ("claude-haiku-4-5", "off", None, None),
        ("claude-haiku-4-5", "low", {"type": "enabled", "budget_tokens": 2048}, None),
        ("unknown-model", "high", None, None),
    ],
)
def test_the_thinking_level_is_mapped_to_what_the_model_has(model_id, level, thinking, effort):
    """GE-09: off sends nothing."""
    body, _ = body_of(asking(thinking_level=level), model_id=model_id)
    assert body.get("thinking") == thinking
    assert body.get("output_config") == ({"effort": effort} if effort else None)


def test_models_that_bind_thinking_are_told_to_drop_what_no_longer_fits():
    body, headers = body_of(asking())
    assert body["thinking"] == {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    assert body_of(asking(thinking_level="max"))[0]["output_config"] == {"effort": "max"}


def test_features_that_a_request_asks_for_itself_stay():
    _, headers = body_of(asking(headers={"anthropic-beta": "mine-2026"}))
    assert headers["anthropic-beta"] == "mine-2026,thinking-binding-controls-2026-08-01"


def test_whatever_a_server_puts_into_its_answer_can_be_stored():
    """B104: names, reasons, error texts and usage as well."""
    start = message_start("model-\ud800", tier="\udfff", odd=float("nan"))
    message = answered(reply([start, *block_events(0, {"type": "text", "text": "ok"}), *message_end("why-\ud800")]))
    to_json_text = json.dumps(models.to_json(message), ensure_ascii=False, allow_nan=False)
    to_json_text.encode()
    assert message.raw_stop_reason == "why-\ufffd"
    assert message.response_model == "model-\ufffd"


def test_a_budget_leaves_room_for_the_answer():
    assert body_of(asking(thinking_level="max", max_tokens=4_000), model_id="claude-haiku-4-5")[0]["thinking"] == {
        "type": "enabled",
        "budget_tokens": 2_976,
    }
    assert "thinking" not in body_of(asking(thinking_level="low", max_tokens=1_500), model_id="claude-haiku-4-5")[0]
    assert budget_of("high", 64_000) == 16_384
    assert effort_of("xhigh", ("low", "medium")) == "medium"
    assert profile_of("claude-sonnet-4-5-20250929").thinking == "budget"


def test_a_model_with_a_budget_does_not_begin_to_think_within_another_models_round():
    foreign = models.AssistantMessage(content=[models.call("read", "c1")], model="other", stop_reason="toolUse")
    result = ToolResultMessage(tool_call_id="c1", tool_name="read", content=[text("x")])
    options = {"model_id": "claude-haiku-4-5"}
    within, _ = body_of(asking(foreign, result, thinking_level="low"), **options)
    assert "thinking" not in within
    after, _ = body_of(asking(foreign, result, UserMessage(content="And?"), thinking_level="low"), **options)
    assert "thinking" in after


def test_later_changes_leave_the_beginning_of_the_request_as_it_was():
    change = SystemMessage(content="Now plan.", tools_removed=[ToolRef(name="read")], tools_added=[TOOL])
    first = [SystemMessage(content="Be brief", tools_added=[TOOL]), UserMessage(content="Hi")]
    body, headers = body_of(ModelRequest(messages=[*first, change, UserMessage(content="Go")]))
    assert body["system"] == "Be brief"
    assert [tool["name"] for tool in body["tools"]] == ["read"]
    definition = {"name": "read", "description": "Reads", "input_schema": {"type": "object"}}
    assert body["messages"][-1] == {
        "role": "system",
        "content": [
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "read"}},
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}},
            {"type": "text", "text": "Now plan."},
        ],
    }
    assert "inline-tools-2026-09-15" in headers["anthropic-beta"]


def test_older_models_are_told_of_changes_as_a_user():
    change = SystemMessage(content="Now plan.", tools_added=[TOOL])
    first = [SystemMessage(content="Be brief"), UserMessage(content="Hi")]
    body, headers = body_of(ModelRequest(messages=[*first, change]), model_id="claude-haiku-4-5")
    assert body["system"] == "Be brief"
    assert json.dumps(body["messages"][-1]).count("<system_update>") == 1
    assert [tool["name"] for tool in body["tools"]] == ["read"]
    assert "anthropic-beta" not in headers
