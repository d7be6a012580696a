import asyncio
from contextlib import aclosing

import pytest
from perdure.actors.models import (
    AssistantMessage,
    BlockStart,
    Delta,
    Done,
    ErrorInfo,
    ModelRequest,
    Pause,
    ScriptedModel,
    Start,
    Thinking,
    ToolCall,
    Usage,
    UserMessage,
    answer_text,
    call,
    error_info,
    text,
    tool_calls,
)


def asking(*contents, **options):
    return ModelRequest(messages=[UserMessage(content=content) for content in contents], **options)


def test_a_text_answer_streams_in_small_pieces(ask):
    events, message = asyncio.run(ask(ScriptedModel(lambda _: "Hello world")))
    assert [event.text for event in events if isinstance(event, Delta)] == ["Hell", "o wo", "rld"]
    assert isinstance(events[0], Start)
    assert events[1] == BlockStart(0, text(""))
    assert answer_text(message) == "Hello world"
    assert (message.stop_reason, message.provider, message.model) == ("stop", "scripted", "model")


def test_the_script_sees_the_request_and_calls_are_recorded(ask):
    model = ScriptedModel(lambda request: request.messages[-1].content.upper(), name="fake/echo")
    _, message = asyncio.run(ask(model, asking("shout")))
    assert answer_text(message) == "SHOUT"
    assert (message.provider, message.model) == ("fake", "echo")
    assert model.calls == [asking("shout")]


def test_a_script_may_be_async(ask):
    async def script(request):
        await asyncio.sleep(0)
        return "done"

    assert answer_text(asyncio.run(ask(ScriptedModel(script)))[1]) == "done"


def test_calls_get_ids_that_follow_from_the_request(ask):
    model = ScriptedModel(lambda _: [Thinking(thinking="hm"), "I look", call("read", path="a"), call("read", path="b")])
    first, second = (asyncio.run(ask(model, asking("Hi")))[1] for _ in range(2))
    assert tool_calls(first) == tool_calls(second)
    assert len({block.id for block in tool_calls(first)}) == 2
    assert first.stop_reason == "toolUse"
    other = asyncio.run(ask(model, asking("Hi", "again")))[1]
    assert not {block.id for block in tool_calls(first)} & {block.id for block in tool_calls(other)}


def test_a_given_id_is_kept(ask):
    message = asyncio.run(ask(ScriptedModel(lambda _: call("read", "mine", path="a"))))[1]
    assert message.content == [ToolCall(id="mine", name="read", arguments={"path": "a"})]


def test_tokens_are_paced_on_the_clock(ask, clock):
    model = ScriptedModel(lambda _: "12345678", tokens_per_second=10, clock=clock)
    _, message = asyncio.run(ask(model))
    assert clock.slept == [1_000_100, 1_000_200]
    assert (message.timestamp, message.duration_ms) == (1_000_000, 200)


def test_a_pause_is_silence_on_the_clock(ask, clock):
    model = ScriptedModel(lambda _: ["one", Pause(5_000), "two"], clock=clock)
    assert answer_text(asyncio.run(ask(model))[1]) == "onetwo"
    assert clock.slept == [1_005_000]


def test_usage_is_estimated(ask):
    message = asyncio.run(ask(ScriptedModel(lambda _: "x" * 35), asking("y" * 70)))[1]
    assert message.usage == Usage(input=20, output=10, total_tokens=30)


@pytest.mark.parametrize("failure", [RuntimeError("bang"), error_info("overloaded", "bang")])
def test_a_failure_ends_the_stream_where_it_stands(ask, failure):
    events, message = asyncio.run(ask(ScriptedModel(lambda _: ["so far", failure, "never"])))
    assert answer_text(message) == "so far"
    assert message.stop_reason == "error"
    assert message.error.message == "bang"
    assert message.usage.output > 0
    assert isinstance(events[0], Start)


def test_a_failure_at_once_is_only_done(ask):
    failure = ErrorInfo(kind="rate_limit", message="slow", retryable=True, retry_after_ms=5)
    events, message = asyncio.run(ask(ScriptedModel(lambda _: failure)))
    assert [type(event) for event in events] == [Done]
    assert message.error == failure


def test_a_script_that_raises_fails_the_request(ask):
    def script(request):
        raise KeyError("oops")

    assert asyncio.run(ask(ScriptedModel(script)))[1].error.kind == "unknown"


def test_a_whole_message_keeps_its_own_endings(ask):
    given = AssistantMessage(
        content=[text("cut")], stop_reason="length", raw_stop_reason="max", usage=Usage(total_tokens=9), response_id="r"
    )
    message = asyncio.run(ask(ScriptedModel(lambda _: given)))[1]
    assert (message.stop_reason, message.raw_stop_reason, message.response_id) == ("length", "max", "r")
    assert message.usage == given.usage
    assert message.provider == "scripted"


def test_an_empty_answer_is_an_answer(ask):
    message = asyncio.run(ask(ScriptedModel(lambda _: [])))[1]
    assert (message.content, message.stop_reason) == ([], "stop")


def test_closing_the_stream_early_is_allowed():
    async def main():
        async with aclosing(ScriptedModel(lambda _: "long " * 100).stream(asking("Hi"))) as events:
            return [await anext(events) for _ in range(3)]

    assert asyncio.run(main())[-1] == Delta(0, "long")
