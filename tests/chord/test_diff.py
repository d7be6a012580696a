"""What is assigned over something is published as what changed in it, where that is shorter."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.chord import apply_immutable
from perdure.chord.diff import fits, json_size, text_changes, value_changes

KEYS = st.sampled_from(["a", "b", "constructor", "é"])
ATOMS = (
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([1.0, "x", "long text " * 4, "long text 😀" * 4])
)
JSON = st.recursive(
    ATOMS, lambda part: st.lists(part, max_size=4) | st.dictionaries(KEYS, part, max_size=3), max_leaves=15
)
WORDS = st.text(st.sampled_from("ab😀"), max_size=200)

ROWS = [{"id": place, "text": "some text in a row"} for place in range(6)]


def exact(value):
    return json.dumps(value, sort_keys=True)


@given(JSON, JSON)
@settings(deadline=None, max_examples=150)
def test_the_operations_lead_from_one_value_to_the_other(old, new):
    ops = value_changes(old, new, ["at"])

    assert exact(apply_immutable({"at": old}, ops)) == exact({"at": new})
    assert len(exact(ops)) <= len(exact([["s", ["at"], new]])) + len('"p", 0, 0, ')
    assert ops or exact(old) == exact(new)


@given(WORDS, WORDS, WORDS)
@settings(deadline=None, max_examples=100)
def test_text_is_led_by_append_trim_or_set(before, shared, after):
    old, new = before + shared, shared + after

    ops = text_changes(old, new, ["t"])

    assert apply_immutable({"t": old}, ops) == {"t": new}
    assert [op[0] for op in ops] in ([], ["a"], ["t"], ["t", "a"], ["s"])


@pytest.mark.parametrize(
    ("old", "new", "ops"),
    [
        ("abc", "abc", []),
        ("abc", "abcd", [["a", ["t"], "d"]]),
        ("", "abc", [["a", ["t"], "abc"]]),
        ("abcdef", "def", [["t", ["t"], 3]]),
        ("😀" * 40, "😀" * 39 + "!", [["t", ["t"], 2], ["a", ["t"], "!"]]),
        ("abc", "cde", [["s", ["t"], "cde"]]),
        ("abc", "", [["s", ["t"], ""]]),
    ],
)
def test_which_operations_a_text_takes(old, new, ops):
    assert text_changes(old, new, ["t"]) == ops


def test_rows_are_paired_from_the_front_when_one_grew_and_one_came():
    new = [*ROWS[:5], {"id": 5, "text": "some text in a row and more"}, {"id": 6}]

    assert value_changes(ROWS, new, ["rows"]) == [
        ["a", ["rows", 5, "text"], " and more"],
        ["p", ["rows"], 6, 0, [{"id": 6}]],
    ]


def test_rows_that_came_in_the_middle_are_spliced_in():
    assert value_changes(ROWS, [*ROWS[:3], {"id": "new"}, *ROWS[3:]], ["rows"]) == [
        ["p", ["rows"], 3, 0, [{"id": "new"}]]
    ]


def test_very_repetitive_text_takes_no_long_search():
    text_changes("ab" * 200_000, "ba" * 200_000 + "c", ["t"])
    text_changes("a" * 400_000, "a" * 399_999 + "b", ["t"])


@given(JSON)
@settings(deadline=None)
def test_whether_a_value_fits_is_nearly_its_size(value):
    size = json_size(value)

    assert fits(value, 2 * size + 20)
    assert not fits(value, size // 6 - 1)


def test_the_size_of_text_with_lone_surrogates_is_known_too():
    assert json_size(["\ud800"]) == 10
