"""The edit tool: what it replaces, what it refuses, and what a file keeps."""

import json

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.models import call
from perdure.actors.tools.diffs import apply
from perdure.actors.tools.edit import Edit, EditRefused, edited

from ..conversation.support import go
from .desk import answers, said


def edit(where, **arguments):
    [result] = go(lambda: answers(where, call("edit", **arguments)))
    return result


def made(data, *pairs):
    return edited("f", data, [Edit(old, new) for old, new in pairs])[0]


def refused(data, *pairs):
    with pytest.raises(EditRefused) as caught:
        made(data, *pairs)
    return str(caught.value)


# --- as a call


def test_text_is_replaced_and_the_details_show_how(tmp_path):
    (tmp_path / "f").write_text("one\ntwo\nthree\n")
    result = edit(tmp_path, path="f", edits=[{"oldText": "two", "newText": "2"}, {"oldText": "one\n", "newText": ""}])
    assert (said(result), result.is_error) == ("Replaced 2 block(s) in f", False)
    assert (tmp_path / "f").read_text() == "2\nthree\n"
    assert result.details == {
        "path": "f",
        "diff": "@@ -1,3 +1,2 @@\n-one\n-two\n+2\n three\n",
        "firstChangedLine": 1,
    }


ONE = {"oldText": "two", "newText": "2"}


@pytest.mark.parametrize(
    "given", [{"edits": [ONE]}, {"edits": json.dumps([ONE])}, {"edits": json.dumps(ONE)}, {"edits": ONE}, ONE]
)
def test_edits_are_taken_in_every_form_that_models_give_them_in(tmp_path, given):
    """EN-55"""
    (tmp_path / "f").write_text("one\ntwo\n")
    assert not edit(tmp_path, path="f", **given).is_error
    assert (tmp_path / "f").read_text() == "one\n2\n"


@pytest.mark.parametrize(
    "given", [{}, {"edits": "no json"}, {"edits": "7"}, {"edits": [{"oldText": "x"}]}, {"oldText": "x"}]
)
def test_what_is_no_edit_is_told_to_the_model_and_changes_nothing(tmp_path, given):
    """EN-55, B110"""
    (tmp_path / "f").write_text("x")
    result = edit(tmp_path, path="f", **given)
    assert result.is_error
    assert "Validation failed for tool edit" in said(result)
    assert (tmp_path / "f").read_text() == "x"


def test_the_model_is_offered_one_form_only():
    [spec] = [tool.spec for tool in perdure.coding_tools().tools if tool.name == "edit"]
    assert list(spec.parameters["properties"]) == ["path", "edits"]
    assert spec.parameters["properties"]["edits"]["type"] == "array"
    assert "oldText" in json.dumps(spec.parameters)


def test_what_cannot_be_edited_is_an_error_of_the_call(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path in ("missing", ".", "binary"):
        assert edit(tmp_path, path=path, edits=[ONE]).is_error
    assert (tmp_path / "binary").read_bytes() == b"\xff\xfe"


# --- what is refused


def test_text_that_is_not_there_is_refused_and_a_hint_says_when_only_white_space_differs():
    assert "edit 2 does not occur." in refused(b"a\nb c\n", ("a", "x"), ("no", "y"))
    assert "Line 2 differs from it in white space only" in refused(b"a\n  b   c\n", ("b c", "x"))


def test_text_that_is_there_more_than_once_is_refused_with_its_lines():
    assert "more than once (lines 1 and 3)" in refused(b"x\ny\nx\n", ("x", "z"))
    assert "more than once" in refused(b"aaa", ("aa", "b"))


def test_an_edit_that_changes_nothing_or_says_no_place_is_refused():
    assert "empty" in refused(b"a", ("", "x"))
    assert "equal" in refused(b"a", ("a", "a"))
    assert "no edit" in refused(b"a")


def test_edits_that_overlap_are_refused():
    assert "overlap" in refused(b"abc", ("ab", "x"), ("bc", "y"))


# --- what a file keeps


def test_a_byte_order_mark_stays():
    assert made(b"\xef\xbb\xbfone\n", ("one", "1")) == b"\xef\xbb\xbf1\n"


def test_windows_lines_match_text_with_plain_ones_and_stay_windows_lines():
    assert made(b"one\r\ntwo\r\nthree\r\n", ("one\ntwo", "1\n2\n3")) == b"1\r\n2\r\n3\r\nthree\r\n"
    assert made(b"one\r\ntwo\r\n", ("one\r\ntwo", "1\r\n2")) == b"1\r\n2\r\n"


def test_lines_that_are_not_edited_keep_their_ends_in_a_file_that_mixes_them():
    assert made(b"a\r\nb\nc\nd\n", ("b", "x\ny")) == b"a\r\nx\ny\nc\nd\n"
    assert made(b"a\nb\r\nc\r\nd", ("c", "x\ny")) == b"a\nb\r\nx\r\ny\r\nd"
    assert made(b"a\rb\r\n", ("a", "x")) == b"x\rb\r\n"


@st.composite
def files(draw):
    lines = draw(
        st.lists(st.tuples(st.text("ab", max_size=3), st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=8)
    )
    marker = draw(st.integers(0, len(lines) - 1))
    return lines, marker, draw(st.text("xy\n", max_size=5))


@given(files())
def test_around_an_edit_every_byte_stays(file):
    lines, marker, new = file
    before = "".join(text + end for text, end in lines[:marker]) + lines[marker][0]
    after = lines[marker][1] + "".join(text + end for text, end in lines[marker + 1 :])
    result = made((before + "MARK" + after).encode(), ("MARK", new)).decode()
    assert result.startswith(before)
    assert result.endswith(after)
    assert result[len(before) : len(result) - len(after)].replace("\r\n", "\n") == new


@given(st.text("ab\n", max_size=30), st.text("ab\n", max_size=30))
def test_the_diff_is_of_the_text_as_edits_see_it(before, after):
    text = f"{before}MARK{after}"
    new, seen, changes = edited("f", text.replace("\n", "\r\n").encode(), [Edit("MARK", "q")])
    assert seen == text
    assert new.decode().replace("\r\n", "\n") == apply(seen, changes)
