import msgspec
import pytest
from perdure.actors.models import (
    AssistantMessage,
    Cost,
    DeferredHandle,
    ErrorInfo,
    Image,
    MessageInvalid,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolRef,
    ToolResultMessage,
    ToolSpec,
    Usage,
    UserMessage,
    answer_text,
    call,
    from_json,
    text,
    to_json,
    tool_calls,
)

FULL = [
    SystemMessage(
        content="Be brief.",
        sections={"cwd": "<cwd>\n/repo\n</cwd>", "old": None},
        tools_added=[ToolSpec(name="read", description="Reads", parameters={"type": "object"})],
        tools_removed=[ToolRef(name="write")],
        timestamp=1,
    ),
    UserMessage(content="Hi", timestamp=2),
    UserMessage(content=[text("Look"), Image(data="aGk=", mime_type="image/png")], timestamp=3),
    AssistantMessage(
        content=[
            Thinking(thinking="hm", provider_data={"signature": "s=="}),
            Thinking(thinking="", redacted=True, provider_data={"data": "x"}),
            text("Yes"),
            call("read", "c1", path="a", name="b", id="c"),
            ToolCall(id="c2", name="read", arguments={}, arguments_error="not JSON"),
            Opaque(provider="p", api="a", data={"type": "web_search_tool_result"}),
        ],
        api="anthropic-messages",
        provider="anthropic",
        model="m",
        response_model="m-1",
        response_id="r",
        usage=Usage(
            input=1, output=2, cache_write_1h=3, reasoning=1, total_tokens=3, cost=Cost(total=0.5, priced=True)
        ),
        stop_reason="error",
        raw_stop_reason="odd",
        error=ErrorInfo(kind="rate_limit", message="slow", retryable=True, retry_after_ms=7),
        deferred=DeferredHandle(provider="p", api="a", model_id="m", id="d", poll_after_ms=5),
        thinking_level="high",
        timestamp=4,
        duration_ms=5,
    ),
    ToolResultMessage(tool_call_id="c1", tool_name="read", content=[text("ok")], details={"lines": 3}, timestamp=5),
]


@pytest.mark.parametrize("message", FULL, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_from_json_as_it_was(message):
    assert from_json(to_json(message)) == message
    assert from_json(msgspec.json.decode(msgspec.json.encode(to_json(message)))) == message


def test_stored_json_has_the_names_of_pi():
    stored = to_json(FULL[3])
    assert stored["role"] == "assistant"
    assert stored["stopReason"] == "error"
    assert [block["type"] for block in stored["content"]] == [
        "thinking",
        "thinking",
        "text",
        "toolCall",
        "toolCall",
        "opaque",
    ]
    assert stored["content"][3]["arguments"] == {"path": "a", "name": "b", "id": "c"}
    assert stored["usage"]["cacheWrite1h"] == 3
    assert to_json(FULL[0])["toolsRemoved"] == [{"name": "write"}]
    assert to_json(FULL[4])["toolCallId"] == "c1"


def test_fields_that_pi_always_writes_are_written_when_they_are_empty():
    assert to_json(SystemMessage()) == {"role": "system", "content": "", "timestamp": 0}
    assert to_json(ToolResultMessage(tool_call_id="c", tool_name="t", content=[]))["isError"] is False
    stored = to_json(AssistantMessage(content=[]))
    assert stored.keys() == {"role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp"}
    assert stored["usage"].keys() == {"input", "output", "cacheRead", "cacheWrite", "totalTokens", "cost"}


def test_fields_of_a_later_version_are_dropped():
    assert from_json({"role": "user", "content": "Hi", "mood": "good"}) == UserMessage(content="Hi")


@pytest.mark.parametrize("value", [None, [], {"role": "robot"}, {"role": "user"}, {"role": "user", "content": 3}])
def test_json_that_is_no_message_is_refused(value):
    with pytest.raises(MessageInvalid):
        from_json(value)


def test_messages_cannot_be_changed():
    with pytest.raises(AttributeError):
        FULL[1].content = "else"  # type: ignore[misc]


def test_the_answer_is_the_text_alone():
    message = AssistantMessage(content=[Thinking(thinking="hm"), text("a"), call("f"), text("b")])
    assert answer_text(message) == "ab"
    assert tool_calls(message) == [call("f")]
    assert Text(text="a") == text("a")
