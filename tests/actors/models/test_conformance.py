"""Every adapter against the same table: the real SDK, a real server, the same neutral outcome."""

import asyncio
import json
from contextlib import aclosing
from types import MappingProxyType

import pytest
from perdure.actors import models
from perdure.actors.models import (
    AssistantMessage,
    BlockEnd,
    Delta,
    ModelRequest,
    Partial,
    Start,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    answer_text,
    interrupted,
    text,
    tool_calls,
)
from perdure.actors.models import testing_chat as chat_api
from perdure.actors.models import testing_messages as messages_api
from perdure.actors.models import testing_responses as responses_api
from perdure.actors.models.testing import Cut, Drip, ProtocolServer, Reply, Silence, error_reply, sse

IDLE_S = 0.3
"""For servers that fall silent; real time, so that a busy machine must not take a late answer for silence."""
DEADLINE_S = 1.5
"""For servers that never come to an end; likewise."""


class Anthropic:
    """The Messages API as the suite needs it."""

    STOPS = MappingProxyType({"stop": "end_turn", "toolUse": "tool_use", "length": "max_tokens"})
    LAST_STEPS = 2

    def model(self, url, **options):
        return models.anthropic("claude-opus-5-5", api_key="key", base_url=url, **options)

    def steps(self, *blocks, stop="stop"):
        wires = [self.wire(block) for block in blocks]
        body = [event for index, wire in enumerate(wires) for event in messages_api.block_events(index, wire)]
        return [messages_api.message_start(), *body, *messages_api.message_end(self.STOPS[stop])]

    def wire(self, block):
        match block:
            case Thinking():
                return {"type": "thinking", "thinking": block.thinking, **block.provider_data}
            case ToolCall():
                given = block.arguments if block.arguments_error is None else block.arguments_error
                return {"type": "tool_use", "id": block.id, "name": block.name, "input": given}
        return {"type": "text", "text": block.text}

    def thinking(self, value):
        return Thinking(thinking=value, provider_data={"signature": f"sig-{value}=="})

    def sent(self, blocks):
        """What the server sent for these blocks, as a request has to bring it back."""
        return [self.wire(block) for block in blocks]

    def resent(self, body):
        """What a request brings back of the last model message."""
        return [message for message in body["messages"] if message["role"] == "assistant"][-1]["content"]

    def error_event(self, kind, message):
        return messages_api.stream_error(kind, message)

    def refusal(self):
        """The end of an answer that the provider has stopped."""
        return messages_api.message_end("refusal")

    def chatter(self):
        """An event that says nothing new behind a complete answer."""
        return messages_api.message_end("end_turn")[0]

    def error_body(self, kind, message):
        return {"type": "error", "error": {"type": kind, "message": message}}

    def odd_events(self):
        block = {"type": "content_block_start", "index": 0}
        yield sse("content_block_start", block)
        yield sse("content_block_start", {**block, "content_block": {"type": None}}) + sse(
            "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": None}
        )
        yield sse("message_delta", {"type": "message_delta", "delta": "odd", "usage": 3})

    def problems(self, body):
        return messages_api.problems(body, signatures=["sig-hmm=="])


def arguments_of(block):
    return json.dumps(block.arguments) if block.arguments_error is None else block.arguments_error


class Chat:
    """Chat Completions as the suite needs it."""

    STOPS = MappingProxyType({"stop": "stop", "toolUse": "tool_calls", "length": "length"})
    LAST_STEPS = 3

    def model(self, url, **options):
        return models.openai_chat("gpt", api_key="key", base_url=f"{url}/v1", **options)

    def steps(self, *blocks, stop="stop"):
        body, calls = [chat_api.chunk({"role": "assistant", "content": None})], 0
        for block in blocks:
            match block:
                case Thinking():
                    body += chat_api.text_chunks(block.thinking, field="reasoning_content")
                case ToolCall():
                    body += chat_api.call_chunks(calls, block.id, block.name, arguments_of(block))
                    calls += 1
                case _:
                    body += chat_api.text_chunks(block.text)
        return [*body, *chat_api.chat_end(self.STOPS[stop])]

    def thinking(self, value):
        return Thinking(thinking=value, provider_data={"field": "reasoning_content"})

    def sent(self, blocks):
        thought, said, call = blocks
        function = {"name": call.name, "arguments": arguments_of(call)}
        return {
            "role": "assistant",
            "content": said.text,
            "reasoning_content": thought.thinking,
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        }

    def resent(self, body):
        return [message for message in body["messages"] if message["role"] == "assistant"][-1]

    def error_event(self, kind, message):
        return sse(None, self.error_body(kind, message))

    def refusal(self):
        """The end of an answer that the provider has stopped."""
        return chat_api.chat_end("content_filter")

    def chatter(self):
        """An event that says nothing new behind a complete answer."""
        return chat_api.chunk({})

    def error_body(self, kind, message):
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def odd_events(self):
        yield chat_api.chunk({"tool_calls": [3]})
        yield chat_api.chunk(choices=["odd"])
        yield chat_api.chunk({"content": {"odd": True}})

    def problems(self, body):
        return chat_api.chat_problems(body)


class Responses:
    """The Responses API as the suite needs it."""

    LAST_STEPS = 1

    def model(self, url, **options):
        return models.openai("gpt-6-sol", api_key="key", base_url=f"{url}/v1", **options)

    def steps(self, *blocks, stop="stop"):
        items = [self.item(index, block) for index, block in enumerate(blocks)]
        body = [event for index, item in enumerate(items) for event in responses_api.item_events(index, item)]
        status, more = "completed", {}
        if stop == "length":
            status, more = "incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}
        return [*responses_api.response_start(), *body, responses_api.response_end(items, status=status, **more)]

    def item(self, index, block):
        match block:
            case Thinking():
                return block.provider_data
            case ToolCall():
                call = {"type": "function_call", "call_id": block.id, "name": block.name}
                return {**call, "arguments": arguments_of(block), "id": f"fc_{index}", "status": "completed"}
        content = [{"type": "output_text", "text": block.text, "annotations": []}]
        message = {"type": "message", "role": "assistant", "content": content, "status": "completed"}
        return {**message, "id": f"msg_{index}", "phase": "commentary"}

    def thinking(self, value):
        summary = [{"type": "summary_text", "text": value}]
        item = {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "enc=="}
        return Thinking(thinking=value, provider_data=item)

    def sent(self, blocks):
        items = [self.item(index, block) for index, block in enumerate(blocks)]
        return [{k: v for k, v in item.items() if (item["type"], k) != ("function_call", "status")} for item in items]

    def resent(self, body):
        return [item for item in body["input"] if item.get("role") != "user" and "output" not in item]

    def error_event(self, kind, message):
        return responses_api.event("error", code=kind, message=message, param=None)

    def refusal(self):
        """The end of an answer that the provider has stopped."""
        return [responses_api.response_end([], status="incomplete", incomplete_details={"reason": "content_filter"})]

    def chatter(self):
        """An event that says nothing new behind a complete answer."""
        return responses_api.event("response.in_progress", response={})

    def error_body(self, kind, message):
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def odd_events(self):
        yield responses_api.event("response.output_item.added", output_index=0)
        yield responses_api.event("response.output_item.added", output_index=0, item={"type": "message", "content": 3})
        yield responses_api.event("response.completed", response="odd")

    def problems(self, body):
        return responses_api.responses_problems(body)


DIALECTS = {"anthropic": Anthropic(), "chat": Chat(), "responses": Responses()}


@pytest.fixture(params=DIALECTS, ids=str)
def dialect(request):
    return DIALECTS[request.param]


def asking(*more, **options):
    return ModelRequest(messages=[UserMessage(content="Hi"), *more], **options)


def raw_call(name, id, json_text):
    """A call as a test server sends it: with this text for arguments, whatever it is."""
    return ToolCall(id=id, name=name, arguments={}, arguments_error=json_text)


def answer(dialect, reply, request=None, **options):
    """One answer over the network: (events, message, the server's requests)."""

    async def main():
        async with ProtocolServer(*(reply if isinstance(reply, list) else [reply])) as server:
            model = dialect.model(server.url, **options)
            partial, events = Partial(), []
            async with aclosing(model.stream(request or asking())) as stream:
                async for event in stream:
                    events.append(event)
                    partial.feed(event)
                    partial.message()
            await model.aclose()
            return events, events[-1].message, server.requests

    return asyncio.run(main())


def reply(dialect, *blocks, stop="stop"):
    return Reply(steps=dialect.steps(*blocks, stop=stop))


# Answers that end well


def test_text_streams_and_adds_up(dialect):
    events, message, _ = answer(dialect, reply(dialect, text("Hello wörld 😀")))
    assert answer_text(message) == "Hello wörld 😀"
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "Hello wörld 😀"
    assert isinstance(events[0], Start)
    assert (message.stop_reason, message.api) == ("stop", dialect.model("http://x").api)
    assert (message.usage.input, message.usage.output, message.usage.total_tokens) == (10, 20, 30)
    assert message.usage.raw
    assert message.response_id
    assert message.error is None


def test_a_call_in_fragments_is_put_together(dialect):
    call = ToolCall(id="call_1", name="read", arguments={"path": 'a\n"b" ü', "deep": {"list": [1, 2.5, None, True]}})
    events, message, _ = answer(dialect, reply(dialect, text("I look."), call, stop="toolUse"))
    assert answer_text(message) == "I look."
    assert tool_calls(message)[0].arguments == call.arguments
    assert tool_calls(message)[0].id == "call_1"
    assert message.stop_reason == "toolUse"
    assert sum(isinstance(event, Delta) for event in events) > 5


def test_parallel_calls_keep_their_own_arguments(dialect):
    calls = [ToolCall(id=f"call_{n}", name="read", arguments={"n": n, "pad": "x" * n}) for n in range(3)]
    _, message, _ = answer(dialect, reply(dialect, *calls, stop="toolUse"))
    assert [(call.id, call.arguments) for call in tool_calls(message)] == [(c.id, c.arguments) for c in calls]


def test_a_call_without_arguments_has_none(dialect):
    _, message, _ = answer(dialect, reply(dialect, raw_call("now", "call_1", ""), stop="toolUse"))
    assert tool_calls(message)[0].arguments == {}
    assert tool_calls(message)[0].arguments_error is None


def test_a_call_makes_the_answer_a_tool_use_whatever_the_server_calls_it(dialect):
    call = ToolCall(id="call_1", name="read", arguments={})
    assert answer(dialect, reply(dialect, call, stop="stop"))[1].stop_reason == "toolUse"


def test_an_empty_answer_is_recorded_as_one(dialect):
    _, message, _ = answer(dialect, reply(dialect))
    assert (message.content, message.stop_reason, message.error) == ([], "stop", None)


@pytest.mark.parametrize("bad", ['{"a":1,,}', "[1]", '"text"', '{"a":NaN}', '{"a": "cut'])
def test_a_bad_call_is_reported_beside_a_good_one(dialect, bad):
    """B110."""
    good = ToolCall(id="call_2", name="read", arguments={"path": "b"})
    _, message, _ = answer(dialect, reply(dialect, raw_call("read", "call_1", bad), good, stop="toolUse"))
    first, second = tool_calls(message)
    assert bad in first.arguments_error
    assert first.arguments == {}
    assert (second.arguments, second.arguments_error) == ({"path": "b"}, None)
    assert message.stop_reason == "toolUse"


@pytest.mark.parametrize("cut", ["", '{"path": "a", "content": "half', '{"path": "a"'])
def test_arguments_cut_by_the_token_limit_are_never_executable(dialect, cut):
    """B109."""
    _, message, _ = answer(dialect, reply(dialect, text("So:"), raw_call("write", "call_1", cut), stop="length"))
    call = tool_calls(message)[0]
    assert message.stop_reason == "length"
    assert call.arguments == {}
    assert f"after {len(cut)} characters" in call.arguments_error


def test_a_complete_call_before_the_token_limit_stays_usable(dialect):
    whole = ToolCall(id="call_1", name="read", arguments={"path": "a"})
    _, message, _ = answer(dialect, reply(dialect, whole, raw_call("read", "call_2", '{"pa'), stop="length"))
    first, second = tool_calls(message)
    assert first.arguments_error is None
    assert second.arguments_error


def test_half_surrogates_are_repaired_before_they_leave(dialect):
    """B104."""
    call = raw_call("say", "call_1", r'{"text": "a\ud800b \ud83d\ude00"}')
    _, message, _ = answer(dialect, reply(dialect, text("x\ud800y"), call, stop="toolUse"))
    assert answer_text(message) == "x\ufffdy"
    assert tool_calls(message)[0].arguments == {"text": "a\ufffdb \U0001f600"}


# Failures


def faulty(dialect, place, fault):
    """A reply that goes well up to `place` and then meets `fault`."""
    call = ToolCall(id="call_1", name="write", arguments={"content": "MARKER" * 5})
    steps = dialect.steps(text("Before it. BEACON and after."), call, stop="toolUse")
    cut = {
        "before the first byte": 0,
        "in the text": next(n for n, step in enumerate(steps) if b"BEAC" in step) + 1,
        "in the arguments": next(n for n, step in enumerate(steps) if b"MARK" in step or b"ARKE" in step) + 1,
        "after the last block": -dialect.LAST_STEPS,
    }[place]
    return Reply(steps=[*steps[:cut], *fault], headers={"request-id": "req_1", "x-request-id": "req_1"})


PLACES = ["before the first byte", "in the text", "in the arguments", "after the last block"]
FAULTS = {
    "overloaded": (lambda d: [d.error_event("overloaded_error", "Overloaded")], "overloaded"),
    "rate limit": (lambda d: [d.error_event("rate_limit_error", "Slow down")], "rate_limit"),
    "cut": (lambda d: [Cut()], "transport"),
    "clean end": (lambda d: [], "transport"),
    "broken JSON": (lambda d: [b'event: message_delta\ndata: {"type": "mess\n\n'], "malformed"),
    "silence": (lambda d: [Silence()], "timeout"),
    "slow drip": (lambda d: [Drip()], "timeout"),
}


def impatience(fault):
    """The options of a model that meets a fault."""
    return {"idle_timeout_s": IDLE_S} if fault == "silence" else {}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_matrix(dialect, place, fault):
    """B142, B143, B154, B157: one retryable error of our own, the content so far, the tokens counted."""
    make, kind = FAULTS[fault]
    request = asking(
        timeout_s=DEADLINE_S if fault == "slow drip" else None
    )  # who always says something is never silent
    events, message, _ = answer(dialect, faulty(dialect, place, make(dialect)), request, **impatience(fault))
    assert (message.stop_reason, message.error.kind, message.error.retryable) == ("error", kind, True)
    assert message.duration_ms is not None
    shown = Partial()
    for event in events[:-1]:
        shown.feed(event)
    assert answer_text(message) == answer_text(shown.message())
    if place == "before the first byte":
        assert message.content == []
        return
    assert message.usage.estimated
    assert message.usage.output > 0
    assert message.usage.total_tokens == message.usage.input + message.usage.output
    assert answer_text(message).startswith("Before it. BEAC")
    if place == "in the arguments":
        assert tool_calls(message)[0].arguments_error


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request_error", False),
        (401, "authentication_error", False),
        (403, "permission_error", False),
        (404, "not_found_error", False),
        (408, "timeout_error", True),
        (413, "request_too_large", False),
        (422, "invalid_request_error", False),
        (429, "rate_limit_error", True),
        (500, "api_error", True),
        (529, "overloaded_error", True),
    ],
)
def test_a_refused_request_is_classified_and_not_repeated(dialect, status, kind, retryable):
    """B155."""
    _, message, requests = answer(dialect, error_reply(status, dialect.error_body(kind, "No.")))
    assert message.error.retryable is retryable
    assert (message.error.status, message.error.message, message.error.code) == (status, "No.", kind)
    assert len(requests) == 1


@pytest.mark.parametrize(("wait", "ms"), [("59", 59_000), ("3600", 3_600_000)])
def test_the_wait_that_was_asked_for_is_reported_not_slept(dialect, wait, ms):
    """B077."""
    body = dialect.error_body("rate_limit_error", "slow")
    _, message, _ = answer(dialect, error_reply(429, body, retry_after=wait))
    assert (message.error.kind, message.error.retry_after_ms) == ("rate_limit", ms)


def test_a_page_instead_of_an_answer_is_a_server_failure(dialect):
    _, message, _ = answer(dialect, error_reply(502, "<html>" + "x" * 9_000 + "</html>"))
    assert (message.error.kind, message.error.status, message.error.retryable) == ("server", 502, True)
    assert len(message.error.message) <= 4_000


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>hello</html>"])
def test_success_without_a_stream_is_a_failure(dialect, body):
    _, message, _ = answer(dialect, Reply(steps=[body] if body else []))
    assert message.error.retryable
    assert message.content == []


def test_nothing_listening_is_a_transport_failure(dialect):
    async def main():
        async with ProtocolServer() as server:
            url = server.url
        model = dialect.model(url)
        events = [event async for event in model.stream(asking())]
        await model.aclose()
        return events[-1].message

    message = asyncio.run(main())
    assert (message.error.kind, message.error.retryable) == ("transport", True)


@pytest.mark.parametrize("sent", [0, 4])
def test_the_whole_answer_has_a_time_limit(dialect, sent):
    async def main():
        steps = dialect.steps(text("Slow and steady"))[:sent]
        async with ProtocolServer(Reply(steps=[*steps, Silence()])) as server:
            model = dialect.model(server.url)
            await model._clients.get()  # The time it takes to load the SDK counts too; not what is tried here.
            last = [event async for event in model.stream(asking(timeout_s=IDLE_S))][-1].message
            await model.aclose()
            return last

    message = asyncio.run(main())
    assert (message.error.kind, message.error.retryable) == ("timeout", True)
    assert bool(message.content) == bool(sent)


# Cancelling, loops


def test_a_server_that_goes_on_after_a_complete_answer_holds_nobody_up(dialect):
    steps = dialect.steps(text("All said."))
    ended = steps[:-1] if isinstance(dialect, Chat) else steps
    _, message, _ = answer(dialect, Reply(steps=[*ended, Drip(piece=dialect.chatter())]))
    assert (message.stop_reason, answer_text(message)) == ("stop", "All said.")


@pytest.mark.parametrize("started", [False, True])
def test_cancelling_closes_the_connection_and_the_next_request_works(dialect, started):
    """B145: also ten at once."""

    async def main():
        steps = dialect.steps(text("Hello"))
        hanging = Reply(steps=[*(steps[:3] if started else []), Silence()])

        def script(request):
            return Reply(steps=steps) if "again" in json.dumps(request.body) else hanging

        async with ProtocolServer(script=script) as server:
            model = dialect.model(server.url)
            partials = [Partial() for _ in range(10)]
            shown = [asyncio.Event() for _ in partials]
            tasks = [asyncio.create_task(consume(model, *one)) for one in zip(partials, shown, strict=True)]
            await server.wait_requests(10)
            for event in shown if started else []:
                await event.wait()
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done)
            await server.wait_dropped(10, timeout_s=1)
            last = [event async for event in model.stream(asking(UserMessage(content="again")))][-1].message
            await model.aclose()
            return partials[0], last

    partial, last = asyncio.run(main())
    assert answer_text(last) == "Hello"
    if started:
        stopped = interrupted(partial.message())
        assert stopped.stop_reason == "aborted"
        assert stopped.usage.estimated


async def consume(model, partial, shown):
    async with aclosing(model.stream(asking())) as stream:
        async for event in stream:
            partial.feed(event)
            if partial.has_content:
                shown.set()


def test_closing_the_stream_closes_the_connection(dialect):
    async def main():
        steps = dialect.steps(text("Hello"))
        async with ProtocolServer(Reply(steps=[*steps[:3], Silence()])) as server:
            model = dialect.model(server.url)
            async with aclosing(model.stream(asking())) as stream:
                assert isinstance(await anext(stream), Start)
            await server.wait_dropped(1, timeout_s=1)
            await model.aclose()

    asyncio.run(main())


def test_one_model_serves_several_loops(dialect):
    """B146: also when nobody closed what an earlier loop had opened."""
    model = dialect.model("http://127.0.0.1:1")
    clients = []

    async def main():
        async with ProtocolServer(reply(dialect, text("Hi"))) as server:
            model._clients._make = dialect.model(server.url)._clients._make
            message = [event async for event in model.stream(asking())][-1].message
            clients.append(await model._clients.get())
            return answer_text(message)

    assert [asyncio.run(main()) for _ in range(3)] == ["Hi"] * 3
    assert len(set(map(id, clients))) == 3


# What goes back


TOOL = ToolSpec(name="read", description="Reads a file", parameters={"type": "object", "properties": {}})


def test_what_the_provider_sent_goes_back_byte_for_byte(dialect):
    """B152: an answer, resent, is what was received."""
    sent = [dialect.thinking("hmm"), text("I look."), ToolCall(id="call_1", name="read", arguments={"z": 1, "a": 2})]
    first = answer(dialect, reply(dialect, *sent, stop="toolUse"))[1]
    result = ToolResultMessage(tool_call_id="call_1", tool_name="read", content=[text("content")])
    history = [SystemMessage(content="Be brief", tools_added=[TOOL]), UserMessage(content="Hi"), first, result]
    _, _, requests = answer(dialect, reply(dialect, text("Done")), ModelRequest(messages=history))
    assert dialect.resent(requests[0].body) == dialect.sent(sent)
    assert dialect.problems(requests[0].body) == []


def test_another_model_gets_the_text_and_the_calls_only(dialect):
    foreign = AssistantMessage(
        content=[
            dialect.thinking("secret"),
            text("I look."),
            ToolCall(id="functions.read:0", name="read", arguments={}),
        ],
        provider="elsewhere",
        api="other",
        model="m",
        stop_reason="toolUse",
    )
    result = ToolResultMessage(tool_call_id="functions.read:0", tool_name="read", content=[text("content")])
    _, _, requests = answer(dialect, reply(dialect, text("Done")), asking(foreign, result))
    body = json.dumps(requests[0].body)
    assert "secret" not in body
    assert "I look." in body
    assert "functions.read:0" not in body


def test_tools_prompt_and_limits_are_sent(dialect):
    history = [SystemMessage(content="Be brief", tools_added=[TOOL]), UserMessage(content="Hi")]
    request = ModelRequest(messages=history, max_tokens=77, headers={"x-team": "blue"})
    _, _, requests = answer(dialect, reply(dialect, text("Done")), request)
    body = json.dumps(requests[0].body)
    assert "Be brief" in body
    assert "Reads a file" in body
    assert "77" in body
    assert requests[0].headers["x-team"] == "blue"
    assert requests[0].headers["authorization"] == "Bearer key"


def test_unknown_events_are_skipped(dialect):
    """B154."""
    steps = dialect.steps(text("Hello"))
    odd = [sse("some_future_event", {"type": "some_future_event", "x": 1}), b": comment\n\n"]
    _, message, _ = answer(dialect, Reply(steps=[steps[0], *odd, *steps[1:]]))
    assert answer_text(message) == "Hello"


@pytest.mark.parametrize("odd", range(3))
def test_events_of_odd_shape_are_the_servers_failure_or_nothing(dialect, odd):
    """B154: never an exception, never a failure that looks like ours."""
    steps = dialect.steps(text("Hello"))
    _, message, _ = answer(dialect, Reply(steps=[steps[0], list(dialect.odd_events())[odd], *steps[1:]]))
    assert message.error is None or (message.error.kind, message.error.retryable) == ("malformed", True)


def test_events_arrive_as_they_come(dialect):
    events, _, _ = answer(
        dialect, reply(dialect, text("One"), ToolCall(id="c", name="f", arguments={}), stop="toolUse")
    )
    ends = [event for event in events if isinstance(event, BlockEnd)]
    assert [end.index for end in ends] == [0, 1]
