import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.models import (
    Appended,
    AssistantMessage,
    BlockEnd,
    BlockStart,
    Delta,
    Done,
    Partial,
    Replaced,
    Start,
    Thinking,
    Usage,
    call,
    interrupted,
    text,
    to_json,
)

START = Start(AssistantMessage(content=[], model="m", usage=Usage(input=7, total_tokens=7), stop_reason="pending"))


def applied(changes, value):
    """What a reader of the changes has, starting from `value`."""
    for change in changes:
        if not change.path:
            value = deepcopy(change.value)
            continue
        *parents, key = change.path
        target = value
        for part in parents:
            target = target[part]
        if isinstance(change, Appended):
            target[key] += change.text
        elif isinstance(target, list) and key == len(target):
            target.append(deepcopy(change.value))
        else:
            target[key] = deepcopy(change.value)
    return value


def streamed(blocks, size):
    """Events of a message made of `blocks`, in pieces of `size` characters."""
    for index, block in enumerate(blocks):
        match block:
            case Thinking():
                empty, body = Thinking(thinking=""), block.thinking
            case _ if hasattr(block, "arguments"):
                empty, body = call(block.name, block.id), json.dumps(block.arguments)
            case _:
                empty, body = text(""), block.text
        yield BlockStart(index, empty)
        yield from (Delta(index, body[at : at + size]) for at in range(0, len(body), size))
        yield BlockEnd(index, block)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(st.text(max_size=4), values, max_size=3)
blocks = st.lists(
    st.text(max_size=40).map(text)
    | st.text(max_size=40).map(lambda t: Thinking(thinking=t, provider_data={"signature": "s"}))
    | arguments.map(lambda a: call("f", "c1").__class__(id="c1", name="f", arguments=a)),
    max_size=3,
)


@given(blocks, st.integers(1, 7), st.data())
def test_changes_add_up_to_the_message_wherever_they_are_taken(content, size, data):
    partial, seen = Partial(), None
    final = AssistantMessage(content=content, model="m", stop_reason="stop")
    for event in [START, *streamed(content, size), Done(final)]:
        partial.feed(event)
        if data.draw(st.booleans()):
            seen = applied(partial.changes(), seen)
            assert seen == to_json(partial.message())
    assert applied(partial.changes(), seen) == to_json(final)


def test_growing_text_is_reported_as_what_was_added():
    partial = Partial()
    partial.feed(START)
    partial.changes()
    partial.feed(BlockStart(0, text("")))
    assert partial.changes() == [Replaced(("content", 0), {"type": "text", "text": ""})]
    for piece in ("Hel", "lo"):
        partial.feed(Delta(0, piece))
    assert partial.changes() == [Appended(("content", 0, "text"), "Hello")]
    assert partial.changes() == []


def test_a_growing_argument_is_reported_as_what_was_added():
    partial = Partial()
    for event in (START, BlockStart(0, call("write", "c1")), Delta(0, '{"path": "a", "text": "one ')):
        partial.feed(event)
    partial.changes()
    assert partial.message().content[0].arguments == {"path": "a", "text": "one "}
    partial.feed(Delta(0, "two"))
    assert partial.changes() == [Appended(("content", 0, "arguments", "text"), "two")]


def test_long_arguments_are_parsed_again_only_when_they_have_grown(monkeypatch):
    import jiter

    parsed = []
    monkeypatch.setattr(jiter, "from_json", lambda data, **_: parsed.append(len(data)) or {"text": "x"})
    partial = Partial()
    partial.feed(START)
    partial.feed(BlockStart(0, call("write", "c1")))
    for _ in range(2_000):
        partial.feed(Delta(0, "0123456789"))
        partial.changes()
    assert sum(parsed) < 25 * 20_000


def test_a_partial_without_blocks_has_no_content():
    partial = Partial()
    assert not partial.has_content
    partial.feed(START)
    assert not partial.has_content
    partial.feed(BlockStart(0, text("")))
    assert partial.has_content
    assert partial.message().stop_reason == "pending"


def test_a_failure_before_the_start_is_the_whole_message():
    partial, failed = Partial(), AssistantMessage(content=[], stop_reason="error")
    partial.feed(Done(failed))
    assert partial.message() == failed


def test_blocks_may_interleave():
    partial = Partial()
    for event in (START, BlockStart(0, text("")), BlockStart(1, text("")), Delta(1, "b"), Delta(0, "a"), Delta(1, "B")):
        partial.feed(event)
    assert partial.message().content == [text("a"), text("bB")]


def test_an_interrupted_message_keeps_what_was_shown_and_runs_nothing():
    """B080, B157: text equal, calls not executable, tokens counted and marked as estimated."""
    partial = Partial()
    for event in (START, *streamed([text("Hello there")], 3), BlockStart(1, call("rm", "c1")), Delta(1, '{"path": "/')):
        partial.feed(event)
    stopped = interrupted(partial.message())
    assert stopped.stop_reason == "aborted"
    assert stopped.content[0] == text("Hello there")
    assert stopped.content[1].arguments_error
    assert stopped.usage.input == 7
    assert stopped.usage.output > 3
    assert stopped.usage.total_tokens == 7 + stopped.usage.output
    assert stopped.usage.estimated


@pytest.mark.parametrize("junk", ["", "{", '{"a', "[1", "\ud800", "nonsense"])
def test_unreadable_arguments_show_nothing(junk):
    partial = Partial()
    for event in (START, BlockStart(0, call("f", "c1")), Delta(0, junk)):
        partial.feed(event)
    assert partial.message().content[0].arguments == {}
