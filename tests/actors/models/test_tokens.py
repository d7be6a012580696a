import pytest
from perdure.actors.models import (
    AssistantMessage,
    Image,
    ModelRequest,
    Opaque,
    SystemMessage,
    Thinking,
    ToolResultMessage,
    ToolSpec,
    Usage,
    UserMessage,
    call,
    context_tokens,
    estimate_output,
    estimate_tokens,
    text,
)
from perdure.actors.models.accumulate import count
from perdure.actors.models.tokens import answer_room


def said(at, total=0, **options):
    usage = Usage(total_tokens=total)
    return AssistantMessage(content=[text("x" * 35)], usage=usage, timestamp=at, **options)


def heard(at, chars=35):
    return UserMessage(content="x" * chars, timestamp=at)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (heard(0), 10),
        (UserMessage(content=[text("x" * 7), Image(data="", mime_type="image/png")]), 1374),
        (ToolResultMessage(tool_call_id="c", tool_name="t", content=[text("x" * 8)]), 3),
        (SystemMessage(content="x" * 7, sections={"a": "x" * 5}), 4),
        (AssistantMessage(content=[text("xx"), Thinking(thinking="xx"), call("abc", a=1)]), 5),
        (AssistantMessage(content=[Opaque(provider="p", api="a", data={"a": "b"})]), 3),
        (AssistantMessage(content=[]), 0),
    ],
)
def test_messages_are_estimated_by_their_characters(message, tokens):
    assert estimate_tokens([message]) == tokens


def test_tools_weigh_what_their_declarations_do():
    tool = ToolSpec(name="read", description="x" * 350, parameters={"type": "object"})
    assert estimate_tokens([SystemMessage(tools_added=[tool])]) > 100


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([], 0),
        ([heard(1), heard(2)], 20),
        ([heard(1), said(2, 500)], 500),
        ([heard(1), said(2, 500), heard(3)], 510),
        ([said(1, 400), said(2, 500, stop_reason="length"), heard(3)], 510),
        ([said(1, 400), said(2, 9_999, stop_reason="error"), heard(3)], 420),
        ([said(1, 400), said(2, 9_999, stop_reason="aborted")], 410),
        ([said(1, 400), said(2, 0)], 410),
        # A summary that is younger than what it stands before: the kept message's usage counts what it replaced.
        ([heard(9), said(2, 90_000), heard(10)], 30),
    ],
)
def test_a_context_weighs_its_newest_usage_and_what_follows(messages, tokens):
    assert context_tokens(messages) == tokens


def test_usage_without_a_total_is_added_up():
    usage = Usage(input=1, output=2, cache_read=3, cache_write=4)
    assert context_tokens([AssistantMessage(content=[], usage=usage)]) == 10


@pytest.mark.parametrize(
    ("used_chars", "asked", "window", "room"),
    [
        (0, None, 0, 32_000),
        (0, 500, 0, 500),
        (0, 99_000, 0, 32_000),
        (350, None, 200_000, 32_000),
        (350 * 1_700, None, 200_000, 25_904),
        (350 * 1_950, None, 200_000, 904),
        (350 * 3_000, None, 200_000, 1),
        (350, None, 4_096, 4_096 - 100 - 512),
        (350 * 40, None, 8_192, 8_192 - 4_000 - 1_024),
    ],
)
def test_an_answer_gets_what_the_context_leaves(used_chars, asked, window, room):
    request = ModelRequest(messages=[heard(0, used_chars)], max_tokens=asked)
    assert answer_room(request, window=window, limit=32_000) == room


def test_output_is_estimated_without_the_envelope():
    assert estimate_output(AssistantMessage(content=[text("x" * 35)])) == 10


@pytest.mark.parametrize("sent", [-5, None, True, "7", 1.5])
def test_a_server_that_counts_oddly_gives_no_tokens_back(sent):
    """A budget must not grow by what a server says."""
    assert count({"output_tokens": sent}, "output_tokens") == 0
    assert count({"output_tokens": 7}, "output_tokens") == 7
