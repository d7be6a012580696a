"""What only the Responses API has: items, encrypted reasoning, statuses."""

import asyncio
from pathlib import Path

import pytest
from perdure.actors import models
from perdure.actors.models import (
    AssistantMessage,
    Image,
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
    call,
    text,
    tool_calls,
)
from perdure.actors.models.openai_profile import OpenAIProfile, openai_profile_of
from perdure.actors.models.responses_render import render_responses_request
from perdure.actors.models.testing import ProtocolServer, Reply
from perdure.actors.models.testing_responses import event, item_events, response_end, response_start, responses_problems

CAPTURES = Path(__file__).parent / "captures"
MODEL = "gpt-6-sol"
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "enc==",
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "read",
    "arguments": '{"path":"a"}',
    "namespace": "files",
    "status": "completed",
}


def said(words, number=1, **more):
    content = [{"type": "output_text", "text": words, "annotations": []}]
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": content}
    return {**message, "status": "completed", **more}


def asking(*more, **options):
    return ModelRequest(messages=[UserMessage(content="Hi"), *more], **options)


def stream(*items, **end):
    body = [step for index, item in enumerate(items) for step in item_events(index, item)]
    return [*response_start(), *body, response_end(items, **end)]


def talk(steps, request=None, model_id=MODEL, **options):
    async def main():
        async with ProtocolServer(Reply(steps=steps)) as server:
            model = models.openai(model_id, api_key="key", base_url=f"{server.url}/v1", **options)
            events = [event async for event in model.stream(request or asking())]
            await model.aclose()
            return events[-1].message, server.requests[0].body

    message, body = asyncio.run(main())
    assert responses_problems(body) == []
    return message, body


def answered(*steps, **options):
    return talk(list(steps), **options)[0]


def body_of(request, **options):
    return talk(stream(said("ok")), request, **options)[1]


def test_a_captured_stream_of_another_server_is_understood():
    """llama.cpp leaves out places and the events that close arguments."""
    captured = (CAPTURES / "llamacpp_responses_tool.sse").read_bytes()
    message = answered(captured, model_id="models/qwen.gguf", provider="local")
    assert [(one.name, one.arguments) for one in tool_calls(message)] == [("get_weather", {"city": "Paris"})]
    assert (message.usage.input, message.usage.cache_read, message.usage.output) == (1, 135, 21)
    assert message.stop_reason == "toolUse"


def test_reasoning_is_kept_whole_and_goes_back_before_what_followed_it():
    message = answered(*stream(REASONING, said("I look.", phase="commentary"), CALL))
    assert message.content[0] == Thinking(thinking="First.\n\nThen.", provider_data=REASONING)
    assert message.content[1] == Text(text="I look.", provider_data={"id": "msg_1", "phase": "commentary"})
    assert tool_calls(message)[0].provider_data == {"id": "fc_1", "namespace": "files"}
    result = ToolResultMessage(tool_call_id="call_1", tool_name="read", content=[text("x")])
    items = body_of(asking(message, result))["input"]
    assert items[1:4] == [
        REASONING,
        said("I look.", phase="commentary"),
        {key: value for key, value in CALL.items() if key != "status"},
    ]
    assert items[4] == {"type": "function_call_output", "call_id": "call_1", "output": "x"}


def test_reasoning_that_is_only_complete_in_the_response_is_taken_from_there():
    bare = {**REASONING, "encrypted_content": None}
    steps = [*response_start(), *item_events(0, bare), *item_events(1, said("ok"))]
    message = answered(*steps, response_end([REASONING, said("ok")]))
    assert message.content[0].provider_data["encrypted_content"] == "enc=="


@pytest.mark.parametrize(
    "items",
    [
        [{**REASONING, "encrypted_content": None}, said("ok"), CALL],
        [{**REASONING, "id": "rs_0", "encrypted_content": None}, said("ok"), REASONING, CALL],
        [REASONING],
        [said("ok"), REASONING],
        [said("ok"), CALL],
    ],
    ids=["not encrypted", "one not encrypted", "alone", "last", "none"],
)
def test_ids_go_back_only_with_all_their_reasoning(items):
    message = answered(*stream(*items))
    result = ToolResultMessage(tool_call_id="call_1", tool_name="read", content=[text("x")])
    more = [result] if CALL in items else [UserMessage(content="And?")]
    sent = body_of(asking(message, *more))["input"]
    assert not any("id" in item for item in sent if item.get("type") != "reasoning")


def test_another_model_gets_messages_and_calls_without_ids():
    message = answered(*stream(REASONING, said("I look."), CALL))
    result = ToolResultMessage(tool_call_id="call_1", tool_name="read", content=[text("x")])
    sent = body_of(asking(message, result), model_id="gpt-6.2-sol")["input"]
    arguments = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path":"a"}'}
    assert sent[1:3] == [{"type": "message", "role": "assistant", "content": "I look."}, arguments]


def test_calls_may_interleave():
    other = {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": '{"path":"b"}'}
    first, second = (item_events(index, item, size=3) for index, item in enumerate([CALL, other]))
    mixed = [step for pair in zip(first, second, strict=True) for step in pair]
    message = answered(*response_start(), *mixed, response_end([CALL, other]))
    assert [one.arguments for one in tool_calls(message)] == [{"path": "a"}, {"path": "b"}]


def test_the_finished_item_wins_over_its_deltas():
    events = item_events(0, CALL)
    message = answered(*response_start(), events[0], events[-1], response_end([CALL]))
    assert tool_calls(message)[0].arguments == {"path": "a"}


def test_an_item_that_never_began_is_taken_when_it_ends():
    message = answered(*response_start(), item_events(0, said("ok"))[-1], response_end([said("ok")]))
    assert answer_text(message) == "ok"


def test_items_without_neutral_meaning_are_kept_and_sent_back():
    search = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    message = answered(*stream(REASONING, search, said("Found.")))
    assert message.content[1] == Opaque(provider="openai", api="openai-responses", data=search)
    assert search in body_of(asking(message, UserMessage(content="And?")))["input"]


def test_a_message_of_several_parts_is_kept_whole():
    parts = [
        {"type": "output_text", "text": "One", "annotations": [{"type": "url_citation", "url": "u", "title": "t"}]},
        {"type": "refusal", "refusal": " but not two"},
    ]
    message = answered(*stream(REASONING, said("", content=parts)))
    assert answer_text(message) == "One but not two"
    sent = body_of(asking(message, UserMessage(content="And?")))["input"]
    assert [part["type"] for part in sent[2]["content"]] == ["output_text", "refusal"]
    assert sent[2]["content"][0]["annotations"][0]["url"] == "u"


@pytest.mark.parametrize(
    ("status", "more", "kind", "retryable"),
    [
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, "refusal", False),
        ("incomplete", {"incomplete_details": {"reason": "steered"}}, "unknown", False),
        ("failed", {"error": {"code": "server_error", "message": "Sorry"}}, "server", True),
        ("failed", {"error": {"code": "rate_limit_exceeded", "message": "Slow"}}, "rate_limit", True),
        ("failed", {"error": {"code": "bio_policy", "message": "No"}}, "refusal", False),
        ("failed", {"error": {"code": "context_length_exceeded", "message": "Long"}}, "overflow", False),
        ("failed", {"error": None}, "unknown", False),
    ],
)
def test_an_ending_that_is_no_success_is_an_error(status, more, kind, retryable):
    message = answered(*stream(said("Well"), status=status, **more))
    assert (message.stop_reason, message.error.kind, message.error.retryable) == ("error", kind, retryable)
    assert answer_text(message) == "Well"
    assert (message.usage.output, message.usage.estimated) == (20, False)


def test_a_nested_error_event_is_classified_by_its_code():
    nested = event("error", error={"code": "rate_limit_exceeded", "message": "Slow", "type": "tokens"})
    message = answered(*response_start(), nested)
    assert (message.error.kind, message.error.code) == ("rate_limit", "rate_limit_exceeded")


def test_a_completed_response_with_an_unfinished_call_is_broken():
    steps = item_events(0, CALL)[:-1]
    message = answered(*response_start(), *steps, response_end([CALL]))
    assert (message.error.kind, message.error.retryable) == ("malformed", True)
    assert tool_calls(message)[0].arguments_error


def test_content_for_an_item_that_is_not_open_is_a_protocol_error():
    message = answered(*response_start(), event("response.output_text.delta", output_index=5, delta="x"))
    assert (message.error.kind, message.error.retryable) == ("malformed", True)


def test_usage_leaves_the_cache_out_of_the_input():
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": 120,
    }
    counted = answered(*stream(said("ok"), usage=usage)).usage
    assert (counted.input, counted.cache_read, counted.cache_write, counted.reasoning) == (10, 60, 30, 7)
    assert counted.total_tokens == 120


# Requests


def vendor(request, **profile):
    """The body for the vendor's own server."""
    known = OpenAIProfile(vendor=True, reasons=True, max_tokens=100, **profile)
    return render_responses_request(request, models.openai(MODEL), known)


def test_nothing_is_stored_and_reasoning_is_asked_for():
    body = vendor(asking(session_id="s" * 80, metadata={"user_id": "u"}, thinking_level="xhigh", max_tokens=3))
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert body["reasoning"] == {"effort": "xhigh", "summary": "auto"}
    assert body["max_output_tokens"] == 16
    assert (body["prompt_cache_key"], body["safety_identifier"]) == ("s" * 64, "u")
    assert body["extra_headers"] == {"session-id": "s" * 80, "x-client-request-id": "s" * 80}
    assert "reasoning" not in vendor(asking())


def spec(name):
    return ToolSpec(name=name, description="", parameters={"type": "object"})


def test_added_tools_are_told_in_place_and_other_changes_at_the_top():
    begin = [SystemMessage(content="Be brief", tools_added=[spec("read")]), UserMessage(content="Hi")]
    added = vendor(ModelRequest(messages=[*begin, SystemMessage(content="More", tools_added=[spec("grep")])]))
    assert added["instructions"] == "Be brief"
    assert [tool["name"] for tool in added["tools"]] == ["read"]
    more, told = added["input"][-2:]
    assert (more["type"], more["tools"][0]["name"]) == ("additional_tools", "grep")
    assert told == {"role": "developer", "content": "More"}
    for change in (
        SystemMessage(tools_removed=[ToolRef(name="read")]),
        SystemMessage(tools_added=[spec("read")]),
        SystemMessage(tools_added=[spec("x"), spec("x")]),
    ):
        body = vendor(ModelRequest(messages=[*begin, change]))
        assert all(item.get("type") != "additional_tools" for item in body["input"])


def test_other_servers_are_told_of_changes_as_a_user():
    body = body_of(asking(SystemMessage(content="More", tools_added=[spec("grep")])))
    assert "<system_update>" in body["input"][-1]["content"][0]["text"]
    assert [tool["name"] for tool in body["tools"]] == ["grep"]
    assert "prompt_cache_key" not in body


def test_pictures_are_sent_as_data():
    picture = Image(data="aGk=", mime_type="image/png")
    asked = AssistantMessage(content=[call("shot", "c1")], stop_reason="toolUse")
    result = ToolResultMessage(tool_call_id="c1", tool_name="shot", content=[text("Here"), picture])
    items = body_of(asking(UserMessage(content=[picture]), asked, result))["input"]
    wire = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}
    assert items[1]["content"] == [wire]
    assert items[-1]["output"] == [{"type": "input_text", "text": "Here"}, wire]


def test_families_of_models_are_known_by_their_names():
    assert openai_profile_of("gpt-6.2-sol").reasons
    assert openai_profile_of("gpt-4o-mini").context_window == 128_000
    assert openai_profile_of("qwen") == OpenAIProfile()


def test_the_environment_says_which_api_is_spoken(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert models.from_env().get("openai/gpt-6-sol") is None
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert models.from_env().get("openai/gpt-6-sol").api == "openai-responses"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert models.from_env().get("openai/gpt-6-sol").api == "openai-completions"


def test_without_any_key_the_vendor_is_not_asked(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    async def main():
        return [event async for event in models.openai(MODEL).stream(asking())][-1].message

    message = asyncio.run(main())
    assert (message.error.kind, message.error.retryable) == ("auth", False)
