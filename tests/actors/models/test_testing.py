"""The validators refuse what the real services refuse: each rule is broken once."""

import asyncio
import time

import pytest
from perdure.actors.models import WallClock
from perdure.actors.models.testing_chat import chat_problems
from perdure.actors.models.testing_messages import problems
from perdure.actors.models.testing_responses import responses_problems
from perdure.testing import request_problems


def words(value):
    return {"type": "text", "text": value}


def user(*blocks):
    return {"role": "user", "content": list(blocks or [words("Hi")])}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks or [words("Yes")])}


def system(*blocks):
    return {"role": "system", "content": list(blocks or [words("Rule")])}


def use(call_id="c1", name="read"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def outcome(call_id="c1", *content, **more):
    return {"type": "tool_result", "tool_use_id": call_id, "content": list(content or [words("ok")]), **more}


TOOL = {"name": "read", "input_schema": {"type": "object"}}
PICTURE = {"type": "image", "source": {"media_type": "image/png", "data": "aGk="}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "known"}
REMOVAL = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "x"}}
ADDITION = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "read"}}}

GOOD = [user(), assistant(THOUGHT, use()), user(outcome(), words("And?")), system(words("Rule"))]

BAD = {
    "empty message": [user(), assistant(use()), {"role": "user", "content": []}],
    "blank text": [user(words(" "))],
    "call id": [user(), assistant(use("a.b")), user(outcome("a.b"))],
    "call name": [user(), assistant(use(name="")), user(outcome())],
    "empty result": [user(), assistant(use()), user({**outcome(), "content": []})],
    "blank result": [user(), assistant(use()), user(outcome("c1", words("")))],
    "picture in an error": [user(), assistant(use()), user(outcome("c1", PICTURE, is_error=True))],
    "foreign signature": [user(), assistant({**THOUGHT, "signature": "other"}, words("x")), user()],
    "thinking last": [user(), assistant(words("x"), THOUGHT), user()],
    "server call open": [user(), assistant({"type": "server_tool_use", "id": "s"}, words("x")), user()],
    "model first": [assistant(), user()],
    "model last": [user(), assistant()],
    "system before user": [user(), system(), user()],
    "two users": [user(), user()],
    "same id twice": [user(), assistant(use(), use()), user(outcome(), outcome())],
    "unanswered": [user(), assistant(use()), user()],
    "wrong order": [user(), assistant(use("a"), use("b")), user(outcome("b"), outcome("a"))],
    "results not first": [user(), assistant(use()), user(words("x"), outcome())],
    "result of nothing": [user(outcome())],
    "withdrawn unknown": [user(), system(REMOVAL)],
    "added twice": [user(), system(ADDITION)],
    "half a pair": [user(words("\ud800"))],
    "no number": [user(), assistant({**use(), "input": {"a": float("nan")}}), user(outcome())],
    "input of another kind": [user(), assistant({**use(), "input": []}), user(outcome())],
    "picture without data": [user({**PICTURE, "source": {"media_type": "image/png", "data": ""}})],
    "picture of another kind": [user({**PICTURE, "source": {"media_type": "image/tiff", "data": "x"}})],
    "call of the user": [user(use()), assistant(), user()],
    "redacted thinking without data": [user(), assistant({"type": "redacted_thinking"}, words("x")), user()],
}


def test_a_good_request_has_no_problems():
    assert problems({"messages": GOOD, "tools": [TOOL]}, signatures=["known"]) == []


@pytest.mark.parametrize("messages", BAD.values(), ids=BAD)
def test_the_messages_api_refuses(messages):
    assert problems({"messages": messages, "tools": [TOOL]}, signatures=["known"])


def test_the_messages_api_refuses_two_tools_of_one_name():
    assert problems({"messages": [user()], "tools": [TOOL]}) == []
    assert problems({"messages": [user()], "tools": [TOOL, TOOL]})


def test_the_messages_api_refuses_a_budget_that_leaves_nothing_and_thinking_in_the_middle_of_a_round():
    enabled = {"max_tokens": 4_000, "thinking": {"type": "enabled", "budget_tokens": 2_000}}
    begun = [user(), assistant(THOUGHT, use()), user(outcome())]
    assert problems({"messages": begun, **enabled}, signatures=["known"]) == []
    assert problems({"messages": begun, **enabled, "max_tokens": 2_000}, signatures=["known"])
    assert problems({"messages": [user(), assistant(use()), user(outcome())], **enabled})
    assert problems({"messages": begun, "max_tokens": 0}, signatures=["known"])
    assert problems({"messages": [user()], "system": " "})


def chat_call(name="f", arguments="{}"):
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}


CHAT_CALL = chat_call()
CHAT_RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
CHAT_USER = {"role": "user", "content": "Hi"}
CHAT_SAID = {"role": "assistant", "content": "Yes"}

BAD_CHAT = {
    "nothing said": [],
    "model last": [CHAT_USER, CHAT_SAID],
    "model first": [CHAT_SAID, CHAT_USER],
    "two users": [CHAT_USER, CHAT_USER],
    "unanswered": [CHAT_USER, CHAT_CALL, CHAT_USER],
    "unanswered at the end": [CHAT_USER, CHAT_CALL],
    "wrong result": [CHAT_USER, CHAT_CALL, {**CHAT_RESULT, "tool_call_id": "c2"}],
    "same id twice": [CHAT_USER, CHAT_CALL, CHAT_RESULT, CHAT_CALL, CHAT_RESULT],
    "blank": [{"role": "user", "content": ""}],
    "arguments of another kind": [CHAT_USER, chat_call(arguments="[]"), CHAT_RESULT],
    "arguments cut off": [CHAT_USER, chat_call(arguments='{"a": '), CHAT_RESULT],
    "call name": [CHAT_USER, chat_call(name="a b"), CHAT_RESULT],
    "half a pair": [{"role": "user", "content": "\ud800"}],
    "picture elsewhere": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}],
    "parts in a result": [CHAT_USER, CHAT_CALL, {**CHAT_RESULT, "content": [{"type": "text", "text": "x"}]}],
}


@pytest.mark.parametrize("messages", BAD_CHAT.values(), ids=BAD_CHAT)
def test_a_strict_chat_server_refuses(messages):
    assert chat_problems({"messages": [CHAT_USER, CHAT_CALL, CHAT_RESULT]}) == []
    assert chat_problems({"messages": messages})


REASONING = {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}
ITEM_CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
ITEM_RESULT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}

BAD_ITEMS = {
    "nothing said": [],
    "model last": [CHAT_USER, CHAT_SAID],
    "unanswered": [CHAT_USER, REASONING, ITEM_CALL],
    "same id twice": [CHAT_USER, REASONING, ITEM_CALL, ITEM_RESULT, ITEM_CALL, ITEM_RESULT],
    "not encrypted": [CHAT_USER, {**REASONING, "encrypted_content": None}, ITEM_CALL, ITEM_RESULT],
    "reasoning alone": [CHAT_USER, REASONING, CHAT_USER],
    "named without reasoning": [CHAT_USER, ITEM_CALL, ITEM_RESULT],
    "blank": [{"role": "user", "content": [{"type": "input_text", "text": " "}]}],
    "something between": [CHAT_USER, REASONING, ITEM_CALL, CHAT_USER, ITEM_RESULT],
    "a call between": [
        *(CHAT_USER, REASONING, ITEM_CALL, {**ITEM_CALL, "call_id": "c2"}, ITEM_RESULT),
        *({**ITEM_CALL, "call_id": "c3"}, {**ITEM_RESULT, "call_id": "c2"}, {**ITEM_RESULT, "call_id": "c3"}),
    ],
    "result of nothing": [CHAT_USER, ITEM_RESULT],
    "reasoning before a result": [CHAT_USER, REASONING, ITEM_CALL, REASONING, ITEM_RESULT],
    "no content": [{"role": "user", "content": []}],
    "unknown part": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    "tool added twice": [
        CHAT_USER,
        {"type": "additional_tools", "role": "developer", "tools": [{"name": "f", "parameters": {}}] * 2},
    ],
}


@pytest.mark.parametrize("items", BAD_ITEMS.values(), ids=BAD_ITEMS)
def test_the_responses_api_refuses(items):
    assert responses_problems({"input": [CHAT_USER, REASONING, ITEM_CALL, ITEM_RESULT]}) == []
    assert responses_problems({"input": items})


def test_one_judge_knows_all_protocols():
    good = {
        "anthropic-messages": {"messages": GOOD},
        "openai-completions": {"messages": [CHAT_USER, CHAT_CALL, CHAT_RESULT]},
        "openai-responses": {"input": [CHAT_USER, REASONING, ITEM_CALL, ITEM_RESULT]},
    }
    for api, body in good.items():
        assert request_problems(api, body, signatures=["known"]) == []
        (field,) = body
        assert request_problems(api, {field: body[field][:2]}, signatures=["known"])
    with pytest.raises(KeyError):
        request_problems("scripted", {})


def test_the_wall_clock_tells_the_time_and_does_not_wait_for_the_past():
    clock = WallClock()
    assert abs(clock.now() - time.time() * 1000) < 1_000
    asyncio.run(clock.sleep_until(clock.now() - 1_000))
