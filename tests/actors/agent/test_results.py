import perdure
import pytest
from perdure.actors.agent.output import Bounded
from perdure.actors.agent.results import MAX_REMARK, NO_OUTPUT, error, message, raised, returned, tidy
from perdure.actors.models import Image, Text, Usage, from_json, plain_text, text, to_json

LIMITS = perdure.OutputLimits(max_bytes=20, max_lines=3)
NOTHING = Bounded("")
PICTURE = Image(data="R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", mime_type="image/gif")


def result(value, *, shown=NOTHING, details=None, diagnostics=(), limits=LIMITS):
    """The message of a tool that returned, read back as it is stored."""
    draft = returned(value, shown, details, diagnostics, limits)
    made = message(draft, "call", "tool", 7)
    assert from_json(to_json(made)) == made
    return made


def said(value, **options):
    return plain_text(result(value, **options).content)


# --- values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (None, NO_OUTPUT),
        ("", NO_OUTPUT),
        (" \n", NO_OUTPUT),
        ([], "[]"),
        ({}, "{}"),
        (0, "0"),
        (False, "false"),
        (1.5, "1.5"),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        ({3}, "[3]"),
        (b"bytes \xff", "bytes \ufffd"),
        ("a\ud800b", "a\ufffdb"),
        (["a\ud800b"], '["a\ufffdb"]'),
        ("a\x1b[0m\r\n", "a[0m\n"),
    ],
)
def test_every_value_gives_a_well_formed_result_that_is_not_blank(value, text):
    """B104, B106."""
    assert said(value) == text


@pytest.mark.parametrize("value", [object(), float("nan"), (x for x in "ab"), [{1: object()}], lambda: None])
def test_a_value_without_a_json_form_raises(value):
    """B106."""
    with pytest.raises((perdure.PerdureError, TypeError)):
        returned(value, NOTHING, None, (), LIMITS)


def test_a_cycle_raises():
    knot: list = []
    knot.append(knot)
    with pytest.raises((perdure.PerdureError, RecursionError)):
        returned(knot, NOTHING, None, (), LIMITS)


# --- what was written while running


def test_written_output_is_the_result_of_a_tool_that_returns_nothing():
    """TO-21."""
    made = result(None, shown=Bounded("out"), details={"n": 1})
    assert (plain_text(made.content), made.details) == ("out", {"n": 1})


def test_returned_content_and_details_win_over_what_was_shown():
    """TO-21."""
    value = perdure.ToolResult(content="mine", details={"n": 2})
    made = result(value, shown=Bounded("out"), details={"n": 1})
    assert (plain_text(made.content), made.details) == ("mine", {"n": 2})


def test_details_that_are_false_are_details():
    made = result(perdure.ToolResult(content="x", details=False), details={"n": 1})
    assert made.details is False


# --- bounds


def test_long_text_is_bounded_and_the_model_is_told():
    """TO-22, TO-23, TO-24."""
    made = result("one\ntwo\nthree\nfour\n")
    assert [block.text for block in made.content] == [
        "one\ntwo\nthree\n",
        "<harness>\n[warn] Output truncated to its beginning: 1 lines, 5 bytes dropped\n</harness>",
    ]


def test_the_tail_is_kept_where_the_limits_say_so():
    """TO-16, TO-23."""
    limits = perdure.OutputLimits(max_lines=2, retain="tail")
    made = result("one\ntwo\nthree\nfour", limits=limits)
    assert made.content[0].text == "three\nfour"
    assert "Output truncated to its end" in made.content[1].text


def test_blocks_within_limits_are_left_alone():
    """TO-22."""
    blocks = [text("a"), PICTURE, text("b")]
    assert result(perdure.ToolResult(content=blocks)).content == blocks


def test_blocks_over_the_limits_are_joined_and_pictures_stay():
    """TO-22."""
    made = result(perdure.ToolResult(content=[text("x" * 15), PICTURE, text("y" * 15)]))
    assert [type(block) for block in made.content] == [Text, Image, Text]
    assert made.content[0].text == "x" * 15 + "y" * 5


def test_what_was_dropped_while_running_is_not_mentioned_when_the_content_is_another():
    """TO-23."""
    assert said("mine", shown=Bounded("out", 100, 3)) == "mine"
    assert "100 bytes dropped" in said(None, shown=Bounded("out", 100, 3))


def test_diagnostics_are_never_cut_by_the_bounds_on_output():
    """TO-24."""
    remarks = [{"severity": "info", "message": f"remark {n}"} for n in range(10)]
    made = result("x" * 50, diagnostics=remarks)
    assert made.content[-1].text.count("remark") == 10


# --- diagnostics


def test_diagnostics_come_in_the_order_of_their_making():
    """TO-21."""
    value = perdure.ToolResult(content="x" * 30, diagnostics=[{"severity": "warn", "message": "returned", "code": "c"}])
    draft = returned(value, NOTHING, None, [{"severity": "info", "message": "shown"}], LIMITS)
    assert [one["message"].split()[0] for one in draft.diagnostics] == ["shown", "returned", "Output"]
    assert draft.diagnostics[1]["code"] == "c"


def test_a_remark_is_bounded_and_valid_text():
    remark = tidy({"severity": "info", "message": "a\ud800" * MAX_REMARK, "code": "c\ud800"})
    assert len(remark["message"]) == MAX_REMARK
    assert "\ud800" not in remark["message"] + remark["code"]


@pytest.mark.parametrize(
    "given", [{}, {"message": "x"}, {"severity": "loud", "message": "x"}, {"severity": "info", "message": 5}, "text"]
)
def test_what_is_no_diagnostic_is_refused(given):
    with pytest.raises(perdure.InvalidValue):
        tidy(given)


# --- results of wrong types

WRONG = {
    "a number for content": perdure.ToolResult(content=5),
    "a dict for a block": perdure.ToolResult(content=[{"kind": "text"}]),
    "text that is none": perdure.ToolResult(content=[text(5)]),
    "an image that is none": perdure.ToolResult(content=[Image(data=None, mime_type="image/png")]),
    "an image that no provider takes": perdure.ToolResult(content=[Image(data="aGk=", mime_type="image/png")]),
    "an error that is none": perdure.ToolResult(content="x", is_error="yes"),
    "diagnostics": perdure.ToolResult(content="x", diagnostics=[{"message": "no severity"}]),
    "usage": perdure.ToolResult(content="x", usage={"input": "many"}),
    "details": perdure.ToolResult(content="x", details=object()),
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_a_result_of_wrong_types_raises_before_anything_is_stored(value):
    """P11, B107: a stored message that cannot be read again would end its conversation."""
    with pytest.raises(Exception):  # noqa: B017  (the caller turns any into an error result)
        returned(value, NOTHING, None, (), LIMITS)


@pytest.mark.parametrize("field", ["is_error", "terminate"])
@pytest.mark.parametrize("value", [0, 0.0])
def test_a_nought_for_false_is_stored_as_false(field, value):
    """P11, B107: it is equal, but nothing stored with it can be read again."""
    draft = returned(perdure.ToolResult(content="x", **{field: value}), NOTHING, None, (), LIMITS)
    assert getattr(draft, field) is False
    result(perdure.ToolResult(content="x", **{field: value}))


def test_usage_and_errors_of_a_tools_own_are_taken_over():
    made = result(perdure.ToolResult(content="x", is_error=True, usage=Usage(input=3, total_tokens=3)))
    assert (made.is_error, made.usage.input) == (True, 3)


# --- errors


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (ValueError("bad"), "Tool t failed: ValueError: bad"),
        (Exception(""), "Tool t failed: Exception"),
        (SystemExit(), "Tool t failed: SystemExit"),
        (KeyError("k"), "Tool t failed: KeyError: 'k'"),
        (perdure.InvalidArguments("words"), "Tool t failed: words"),
        (ValueError("a\ud800\x1b"), "Tool t failed: ValueError: a\ufffd"),
    ],
)
def test_what_was_raised_is_told_and_never_blank(problem, said):
    """B106, TO-07."""
    draft = raised("t", problem, NOTHING, None, ())
    made = message(draft, "call", "t", 7)
    assert plain_text(made.content) == f"<harness>\n[error] {said}\n</harness>"
    assert (made.is_error, draft.failed) == (True, True)


def test_an_exception_that_cannot_say_what_it_is_about_is_told_by_its_type():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert "Mute" in raised("t", Mute(), NOTHING, None, ()).diagnostics[-1]["message"]


def test_a_long_exception_is_bounded():
    assert len(raised("t", ValueError("x" * 10**6), NOTHING, None, ()).diagnostics[-1]["message"]) < 5_000


def test_an_error_keeps_what_the_call_had_shown():
    """TO-06."""
    slot = {
        "output": "half",
        "details": {"n": 1},
        "diagnostics": [{"severity": "info", "message": "progress"}],
        "droppedBytes": 9,
        "droppedLines": 2,
    }
    draft = error("interrupted", "it was interrupted", slot, failed=True)
    assert [block.text for block in draft.content] == ["half"]
    assert [one["message"] for one in draft.diagnostics] == [
        "progress",
        "Output truncated: 2 lines, 9 bytes dropped",
        "it was interrupted",
    ]
    assert (draft.details, draft.is_error) == ({"n": 1}, True)
