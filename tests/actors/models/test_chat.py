"""What only Chat Completions has: servers that break the protocol, each in its own way."""

import asyncio
import json
from pathlib import Path

import pytest
from perdure.actors import models
from perdure.actors.models import (
    AssistantMessage,
    Image,
    ModelRequest,
    SystemMessage,
    Text,
    Thinking,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    answer_text,
    call,
    text,
    tool_calls,
)
from perdure.actors.models.testing import ProtocolServer, Reply, sse
from perdure.actors.models.testing_chat import DONE, call_chunks, chat_end, chat_problems, chunk, text_chunks

CAPTURES = Path(__file__).parent / "captures"


def asking(*more, **options):
    return ModelRequest(messages=[UserMessage(content="Hi"), *more], **options)


def talk(reply, request=None, model_id="gpt", **options):
    """The final message, and the body that was sent, valid for a strict server."""

    async def main():
        async with ProtocolServer(reply) as server:
            model = models.openai_chat(model_id, api_key="key", base_url=f"{server.url}/v1", **options)
            last = [event async for event in model.stream(request or asking())][-1].message
            await model.aclose()
            return last, server.requests[0].body

    message, body = asyncio.run(main())
    assert chat_problems(body) == []
    return message, body


def answered(*steps, **options):
    return talk(Reply(steps=steps), **options)[0]


def body_of(request, **options):
    return talk(Reply(steps=[*text_chunks("ok"), *chat_end()]), request, **options)[1]


def test_a_captured_stream_of_another_server_is_understood():
    captured = (CAPTURES / "llamacpp_chat_tool.sse").read_bytes()
    message = answered(captured, model_id="models/qwen.gguf", provider="local")
    assert [(one.name, one.arguments) for one in tool_calls(message)] == [("get_weather", {"city": "Paris"})]
    assert (message.stop_reason, message.usage.input, message.usage.output) == ("toolUse", 136, 21)
    assert not message.usage.estimated


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_goes_back_in_the_field_it_came_in(field):
    message = answered(*text_chunks("hm hm", field=field), *text_chunks("Yes"), *chat_end())
    assert message.content == [Thinking(thinking="hm hm", provider_data={"field": field}), Text(text="Yes")]
    body = body_of(asking(message, UserMessage(content="And?")))
    assert body["messages"][1] == {"role": "assistant", "content": "Yes", field: "hm hm"}


def test_reasoning_details_go_back_whole():
    details = [{"type": "reasoning.encrypted", "data": "x=="}]
    message = answered(chunk({"reasoning_details": details}), *text_chunks("Yes"), *chat_end())
    body = body_of(asking(message, UserMessage(content="And?")))
    assert body["messages"][1]["reasoning_details"] == details


def test_a_server_that_demands_reasoning_gets_it_from_everyone():
    """B148: fail over to it and away."""
    foreign = AssistantMessage(content=[call("read", "c1")], provider="elsewhere", stop_reason="toolUse")
    result = ToolResultMessage(tool_call_id="c1", tool_name="read", content=[text("x")])
    there = body_of(asking(foreign, result), reasoning_field="reasoning_content")
    assert there["messages"][1]["reasoning_content"] == ""
    own = AssistantMessage(
        content=[Thinking(thinking="hm", provider_data={"field": "reasoning_content"}), call("read", "c1")],
        provider="openai",
        api="openai-completions",
        model="gpt",
        stop_reason="toolUse",
    )
    assert body_of(asking(own, result), reasoning_field="reasoning_content")["messages"][1]["reasoning_content"] == "hm"
    assert "reasoning_content" not in body_of(asking(foreign, result))["messages"][1]


def test_two_calls_at_one_index_are_two_calls():
    """B112: told apart by their ids, fragments in turn."""
    heads = [call_chunks(0, call_id, "read", "")[0] for call_id in ("a", "b")]
    pieces = [
        chunk({"tool_calls": [{"index": 0, "id": call_id, "function": {"arguments": piece}}]})
        for piece in ('{"n":', "1}")
        for call_id in ("a", "b")
    ]
    message = answered(*heads, *pieces, *chat_end("tool_calls"))
    assert [(one.id, one.arguments) for one in tool_calls(message)] == [("a", {"n": 1}), ("b", {"n": 1})]


def test_calls_without_an_index_are_told_apart_by_id():
    steps = [*call_chunks(None, "a", "read", '{"n":1}'), *call_chunks(None, "b", "read", '{"n":2}')]
    message = answered(*steps, *chat_end("tool_calls"))
    assert [one.arguments for one in tool_calls(message)] == [{"n": 1}, {"n": 2}]


def test_interleaved_fragments_are_sorted_by_index():
    first, second = (call_chunks(n, f"c{n}", "read", json.dumps({"n": n}), size=3) for n in range(2))
    mixed = [step for pair in zip(first, second, strict=True) for step in pair]
    message = answered(*mixed, *chat_end("tool_calls"))
    assert [one.arguments for one in tool_calls(message)] == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("call_id", ["x", "", None])
def test_calls_with_one_id_or_none_keep_their_own_results(call_id):
    """B095."""
    steps = [step for n in range(2) for step in call_chunks(n, call_id, "read", json.dumps({"n": n}))]
    message = answered(*steps, *chat_end("tool_calls"))
    assert [one.arguments for one in tool_calls(message)] == [{"n": 0}, {"n": 1}]
    results = [
        ToolResultMessage(tool_call_id=call_id or "", tool_name="read", content=[text(f"result {n}")]) for n in range(2)
    ]
    body = body_of(asking(message, *results))
    assert [entry["content"] for entry in body["messages"] if entry["role"] == "tool"] == ["result 0", "result 1"]


def test_arguments_that_come_as_an_object_are_read():
    whole = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": {"path": "a"}}}
    message = answered(chunk({"tool_calls": [whole]}), *chat_end("tool_calls"))
    assert tool_calls(message)[0].arguments == {"path": "a"}


def test_a_call_in_one_chunk_with_finish_stop_is_a_call():
    whole = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": '{"path":"a"}'}}
    assert answered(chunk({"tool_calls": [whole]}, finish="stop"), DONE).stop_reason == "toolUse"


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("content_filter", "refusal"),
        ("sensitive", "refusal"),
        ("network_error", "transport"),
        ("model_context_window_exceeded", "overflow"),
        ("some_future_reason", "unknown"),
    ],
)
def test_an_ending_that_is_no_success_is_an_error(finish, kind):
    """B082."""
    message = answered(*text_chunks("Well"), *chat_end(finish))
    assert (message.stop_reason, message.error.kind, message.raw_stop_reason) == ("error", kind, finish)
    assert answer_text(message) == "Well"


def test_a_refusal_is_text_that_says_so():
    message = answered(*text_chunks("I cannot", field="refusal"), *chat_end())
    assert message.content == [Text(text="I cannot", provider_data={"refusal": True})]
    assert message.stop_reason == "stop"


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4}}, 4),
        ({"prompt_cache_hit_tokens": 5}, 5),
        ({"cached_tokens": 6}, 6),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, 0),
    ],
)
def test_usage_leaves_the_cache_out_of_the_input(usage, cached):
    counts = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, **usage}
    message = answered(*text_chunks("ok"), *chat_end(usage=counts))
    assert (message.usage.input, message.usage.cache_read, message.usage.total_tokens) == (10 - cached, cached, 30)


def test_usage_may_come_with_the_choice():
    last = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    message = answered(*text_chunks("ok"), chunk(choices=[last]), DONE)
    assert (message.usage.input, message.usage.output, message.usage.estimated) == (3, 4, False)


def test_an_answer_without_usage_is_estimated():
    message = answered(*text_chunks("x" * 35), chunk({}, finish="stop"))
    assert (message.usage.output, message.usage.estimated) == (10, True)
    assert message.stop_reason == "stop"


def test_a_server_that_hangs_after_the_end_has_answered(monkeypatch):
    monkeypatch.setattr("perdure.actors.models.adapter._GRACE_S", 0.05)
    from perdure.actors.models.testing import Silence

    message = answered(*text_chunks("ok"), chunk({}, finish="stop"), Silence())
    assert (answer_text(message), message.stop_reason) == ("ok", "stop")


def test_an_error_that_the_sdk_takes_for_a_chunk_is_one():
    odd = sse("error", {"message": "busy", "type": "overloaded_error", "code": None})
    message = answered(*text_chunks("Well"), odd)
    assert (message.error.kind, message.error.retryable) == ("overloaded", True)


def test_chunks_without_choices_mean_nothing():
    message = answered(chunk(), sse(None, {"object": "keepalive"}), *text_chunks("ok"), *chat_end())
    assert answer_text(message) == "ok"


# Requests


def test_other_servers_get_the_oldest_form_of_everything():
    change = SystemMessage(content="Now plan.")
    body = body_of(asking(change, session_id="s-1", max_tokens=5, metadata={"user_id": "u"}, thinking_level="high"))
    assert body["max_tokens"] == 5
    assert "<system_update>" in body["messages"][-1]["content"]
    assert not {"max_completion_tokens", "prompt_cache_key", "safety_identifier", "reasoning_effort"} & body.keys()
    assert body["stream_options"] == {"include_usage": True}


def test_the_vendor_gets_cache_affinity_and_system_messages_in_place():
    from perdure.actors.models.chat_render import render_chat_request
    from perdure.actors.models.openai_profile import openai_profile_of

    profile = openai_profile_of("gpt-6-sol").__class__(vendor=True, reasons=True, max_tokens=100)
    change = SystemMessage(content="Now plan.")
    request = asking(change, session_id="s" * 80, metadata={"user_id": "u"}, thinking_level="high")
    body = render_chat_request(request, models.openai_chat("gpt-6-sol"), profile)
    assert body["messages"][-1] == {"role": "system", "content": "Now plan."}
    assert (body["prompt_cache_key"], body["safety_identifier"]) == ("s" * 64, "u")
    assert (body["reasoning_effort"], body["max_completion_tokens"]) == ("high", 100)


def test_pictures_in_results_follow_in_a_user_message():
    picture = Image(data="aGk=", mime_type="image/png")
    asked = AssistantMessage(content=[call("shot", "c1")], stop_reason="toolUse")
    result = ToolResultMessage(tool_call_id="c1", tool_name="shot", content=[picture])
    body = body_of(asking(asked, result, UserMessage(content="And?")))
    tool, user = body["messages"][-2:]
    assert tool["content"] == "(see the picture below)"
    assert user["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "text", "text": "And?"},
    ]


def test_arguments_go_back_as_the_model_wrote_them():
    written = '{ "b":1,\n "a" : "x" }'
    message = answered(*call_chunks(0, "c1", "read", written), *chat_end("tool_calls"))
    result = ToolResultMessage(tool_call_id="c1", tool_name="read", content=[])
    body = body_of(asking(message, result))
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == written
    assert body["messages"][2]["content"] == "(no output)"


@pytest.mark.parametrize("written", ["", '{"a": "one\ntwo"}', '{"a":1,,}'])
def test_arguments_that_are_not_exact_json_go_back_as_json(written):
    message = answered(*call_chunks(0, "c1", "read", written), *chat_end("tool_calls"))
    result = ToolResultMessage(tool_call_id="c1", tool_name="read", content=[text("x")])
    body = body_of(asking(message, result))
    json.loads(body["messages"][1]["tool_calls"][0]["function"]["arguments"])


def test_tools_are_declared_as_functions():
    spec = ToolSpec(name="read", description="Reads", parameters={"type": "object"})
    body = body_of(ModelRequest(messages=[SystemMessage(tools_added=[spec]), UserMessage(content="Hi")]))
    function = {"name": "read", "description": "Reads", "parameters": {"type": "object"}}
    assert body["tools"] == [{"type": "function", "function": function}]
