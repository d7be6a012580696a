"""Text in UTF-16 units, and surrogates that are repaired where text comes in."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.chord import valid_text
from perdure.chord.text import append, drop_units, join_halves, utf16_length

HALVES = "\ud83d\ude00\udbff\udc00"
MIXED = st.text(st.sampled_from("aé日😀𠜎" + HALVES), max_size=12)


def units(text):
    """The UTF-16 code units of a text."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[place : place + 2], "little") for place in range(0, len(data), 2)]


def well_formed(codes):
    """The text that units stand for, with U+FFFD for each half that has no partner."""
    text, place = "", 0
    while place < len(codes):
        high, low = codes[place], codes[place + 1] if place + 1 < len(codes) else 0
        if 0xD800 <= high < 0xDC00 <= low < 0xE000:
            text += chr(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)
            place += 2
        else:
            text += "\ufffd" if 0xD800 <= high < 0xE000 else chr(high)
            place += 1
    return text


@given(MIXED)
@settings(deadline=None)
def test_valid_text_joins_pairs_and_replaces_each_lone_half(text):
    assert valid_text(text) == well_formed(units(text))


@pytest.mark.parametrize("text", ["", "plain", "né 日本 😀"])
def test_valid_text_returns_the_same_object_when_nothing_is_wrong(text):
    assert valid_text(text) is text


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [("\ud83d\ude00", "😀"), ("a\ud83d", "a\ufffd"), ("\ude00a", "\ufffda"), ("\ud83d\ud83d\ude00", "\ufffd😀")],
)
def test_halves_are_repaired(broken, repaired):
    assert valid_text(broken) == repaired


@given(MIXED)
@settings(deadline=None)
def test_join_halves_changes_no_unit_and_leaves_no_split_pair(text):
    joined = join_halves(text)

    assert units(joined) == units(text)
    assert not any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff" for a, b in pairwise(joined))


@given(MIXED)
@settings(deadline=None)
def test_length_counts_units(text):
    assert utf16_length(text) == len(units(text))


@given(MIXED, st.integers(0, 30))
@settings(deadline=None)
def test_dropping_counts_units_and_may_split_a_pair(text, count):
    text = join_halves(text)

    assert units(drop_units(text, count)) == units(text)[count:]


@given(MIXED, MIXED)
@settings(deadline=None)
def test_appending_joins_what_meets(text, chunk):
    text, chunk = join_halves(text), join_halves(chunk)

    assert append(text, chunk) == join_halves(text + chunk)
