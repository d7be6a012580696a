from types import SimpleNamespace

import pytest
from perdure.actors.models import (
    AssistantMessage,
    Opaque,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    call,
    text,
)
from perdure.actors.models.growing import Growing
from perdure.actors.models.turns import NO_RESULT, ModelTurn, Result, ResultsTurn, SystemTurn, UserTurn, arrange

from .support import Collected, arranged

MODEL = SimpleNamespace(provider="p", api="a", id="m")


def said(*blocks, own=True, stop="stop"):
    identity = {"provider": "p", "api": "a", "model": "m"} if own else {"provider": "q", "api": "a", "model": "m"}
    return AssistantMessage(content=list(blocks), stop_reason=stop, **identity)


def result(id, value="ok", **options):
    return ToolResultMessage(tool_call_id=id, tool_name="t", content=[text(value)], **options)


def turns(*messages, **options):
    return arranged(list(messages), MODEL, **options).turns


def results(*answers):
    return ResultsTurn([Result(call_id, "t", [text(value)], is_error=error) for call_id, value, error in answers])


HI = UserMessage(content="Hi")


def test_results_follow_their_calls_in_call_order_whatever_came_in_between():
    steer, change = UserMessage(content="Stop"), SystemMessage(content="New rule")
    got = turns(HI, said(call("t", "1"), call("t", "2")), change, result("2"), result("1", "one"), steer)
    assert got[2:] == [
        results(("1", "one", False), ("2", "ok", False)),
        SystemTurn(change),
        UserTurn([text("Stop")]),
    ]


def test_a_call_without_a_result_is_answered_with_an_error():
    assert turns(HI, said(call("t", "1")), HI)[2] == results(("1", NO_RESULT, True))
    assert turns(HI, said(call("t", "1")))[-1] == results(("1", NO_RESULT, True))


def test_a_result_that_comes_too_late_is_told_as_news():
    """What was sent stays: a real result after a synthetic one is a new message."""
    first = turns(HI, said(call("t", "1")), HI)
    later = turns(HI, said(call("t", "1")), HI, result("1", "late"))
    assert later[: len(first)] == first
    assert later[-1] == UserTurn([text("A result of the earlier call of t has arrived:"), text("late")])


def test_a_second_result_of_one_call_is_told_as_news_too():
    got = turns(HI, said(call("t", "1")), result("1"), result("1", "again"))
    assert got[2] == results(("1", "ok", False))
    assert got[3].content[-1] == text("again")


def test_results_of_no_call_are_left_out():
    assert turns(HI, result("9")) == [UserTurn([text("Hi")])]


@pytest.mark.parametrize("stop", ["error", "aborted", "deferred", "pending"])
def test_messages_that_did_not_end_well_are_left_out_with_their_results(stop):
    assert turns(HI, said(text("so far"), call("t", "1"), stop=stop), result("1"), HI) == turns(HI, HI)


def test_a_failed_message_does_not_end_a_round():
    got = turns(HI, said(call("t", "1")), said(text("x"), stop="error"), result("1"))
    assert got[2] == results(("1", "ok", False))


def test_equal_ids_in_one_message_are_answered_in_order():
    """B095."""
    got = turns(HI, said(call("t", "x"), call("t", "x")), result("x", "first"), result("x", "second"))
    first, second = got[2].results
    assert (first.id, first.content) == ("x", [text("first")])
    assert second.content == [text("second")]
    assert second.id != "x"


def test_an_id_used_again_later_is_another_id_on_the_wire():
    got = turns(HI, said(call("t", "x")), result("x", "one"), said(call("t", "x")), result("x", "two"))
    ids = [turn.results[0].id for turn in got if isinstance(turn, ResultsTurn)]
    assert ids[0] == "x"
    assert ids[1] != "x"


@pytest.mark.parametrize("length", [40, 64])
def test_ids_are_mapped_one_to_one_and_always_alike(length):
    """B149."""
    stored = ["functions.bash:0", "", "y" * 446, "y" * 445 + "z", "a.b", "a_b", "é", "ok-1"]
    history = [HI]
    for call_id in stored:
        history += [said(call("t", call_id)), result(call_id)]
    wire = [turn.results[0].id for turn in turns(*history, id_length=length) if isinstance(turn, ResultsTurn)]
    assert len(set(wire)) == len(stored)
    assert all(0 < len(call_id) <= length and call_id.isascii() for call_id in wire)
    assert wire[-1] == "ok-1"
    assert wire[5] == "a_b"
    assert wire == [t.results[0].id for t in turns(*history, id_length=length) if isinstance(t, ResultsTurn)]


def test_only_the_own_model_gets_thinking_and_opaque_blocks():
    blocks = [Thinking(thinking="hm"), text("a"), Opaque(provider="p", api="a", data={}), text(" ")]
    assert turns(HI, said(*blocks))[1] == ModelTurn(blocks[:3], own=True)
    assert turns(HI, said(*blocks, own=False))[1] == ModelTurn([text("a")], own=False)


def test_a_message_with_nothing_to_say_is_left_out():
    assert turns(HI, said(), said(text("")), said(Thinking(thinking="x"), own=False)) == turns(HI)
    assert turns(UserMessage(content=" "), UserMessage(content=[])) == []


def test_a_longer_request_is_written_down_where_the_shorter_one_ended():
    """P10: what has been written once is not written again, and nothing of it changes."""
    written, growing = [], Growing([HI])

    class Counting(Collected):
        def write(self, turn):
            written.append(turn)
            super().write(turn)

        def fork(self):
            return Counting(self.turns)

    def request(messages):
        return arrange(messages, MODEL, lambda _: Counting(), key="k")[1].turns

    costs = []
    for number in range(20):
        growing.items += [said(call("t", f"{number}")), result(f"{number}")]
        for tail in ([], [said(call("t", "open"))]):
            written.clear()
            assert request(growing.view(tail)) == turns(*growing.items, *tail)
            costs.append(len(written))
    assert max(costs) == 3


def test_what_begins_the_transcript_is_the_prompt_and_the_rest_stays_in_place():
    first, second, later = (SystemMessage(content=word) for word in ("one", "two", "three"))
    found = arranged([first, second, HI, later], MODEL)
    assert found.system == "one\n\ntwo"
    assert found.turns == [UserTurn([text("Hi")]), SystemTurn(later)]


def test_a_call_by_an_impossible_name_gets_a_possible_one():
    got = turns(HI, said(ToolCall(id="1", name="rm -rf /", arguments={}), ToolCall(id="2", name="", arguments={})))
    assert [block.name for block in got[1].content] == ["rm_-rf__", "unnamed"]
