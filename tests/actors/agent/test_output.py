import threading
from itertools import pairwise

import perdure
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.actors.agent.output import Bounded, Output, bound, clean, storable
from perdure.chord import InvalidJson

EXAMPLES = settings(derandomize=True, deadline=None, max_examples=80)


def limits(max_bytes=100, max_lines=100, retain="head"):
    return perdure.OutputLimits(max_bytes=max_bytes, max_lines=max_lines, retain=retain)


def fed(*chunks, **options):
    output = Output(limits(**options))
    for chunk in chunks:
        output.write(chunk)
    return output.finish()


# --- text


def test_control_characters_go_and_tabs_and_newlines_stay():
    assert clean("a\tb\r\nc\x00\x1b[31md\x7f") == "a\tb\nc[31md"


@pytest.mark.parametrize(
    ("given", "stored"),
    [("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "\U0001f600"), ("\\ud800", "\\ud800"), ("\udcff", "\ufffd")],
)
def test_half_surrogates_are_replaced_and_the_escape_of_one_is_just_text(given, stored):
    """B104."""
    assert clean(given) == stored


def test_json_from_outside_is_made_storable():
    """B104."""
    assert storable({"k\ud800": ["\udc00", (1, 2)], 3: {"x"}}) == {"k\ufffd": ["\ufffd", [1, 2]], "3": ["x"]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), (x for x in "ab"), lambda: 1])
def test_what_has_no_json_form_is_refused(value):
    with pytest.raises((perdure.PerdureError, TypeError)):
        storable([value])


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [300, 700, 5_000, 100_000])
def test_what_is_too_deep_is_refused_as_no_json(depth):
    with pytest.raises(InvalidJson):
        storable(nested(depth))


# --- bounds


def test_text_within_limits_is_kept_as_it_is():
    assert bound("a\nb", limits()) == Bounded("a\nb")


def test_the_head_keeps_whole_lines_from_the_beginning():
    """TO-23."""
    assert bound("one\ntwo\nthree\n", limits(max_lines=2)) == Bounded("one\ntwo\n", 6, 1)
    assert bound("one\ntwo\nthree\n", limits(max_bytes=9)) == Bounded("one\ntwo\n", 6, 1)


def test_the_tail_keeps_whole_lines_from_the_end():
    """TO-16."""
    assert bound("one\ntwo\nthree\nfour", limits(max_lines=2, retain="tail")) == Bounded("three\nfour", 8, 2)


def test_a_line_that_is_too_long_alone_is_cut_between_characters():
    text = "\u00e4" * 10
    assert bound(text, limits(max_bytes=5)).text == "\u00e4\u00e4"
    assert bound(text, limits(max_bytes=5, retain="tail")).text == "\u00e4\u00e4"
    assert bound(text, limits(max_bytes=5)).dropped_bytes == 16


def test_five_megabytes_are_bounded_quickly():
    """Must show 7 of issue 2."""
    for text in ("x" * 5_000_000, "line\n" * 1_000_000, "\u20ac" * 1_500_000):
        for retain in ("head", "tail"):
            kept = bound(text, perdure.OutputLimits(retain=retain))
            assert len(kept.text.encode()) <= 50 * 1024
            assert kept.text.count("\n") <= 2_000
            assert kept.dropped_bytes == len(text.encode()) - len(kept.text.encode())


TEXT = st.text(alphabet=st.sampled_from("ab\n\u00e4\u20ac\U0001f600"), max_size=60)
LIMITS = st.builds(
    limits, max_bytes=st.integers(4, 40), max_lines=st.integers(1, 6), retain=st.sampled_from(["head", "tail"])
)


@EXAMPLES
@given(TEXT, LIMITS)
def test_what_is_kept_is_a_slice_within_limits_and_the_rest_is_counted(text, limits):
    kept = bound(text, limits)
    assert text.startswith(kept.text) if limits.retain == "head" else text.endswith(kept.text)
    assert len(kept.text.encode()) <= limits.max_bytes
    assert len(kept.text.splitlines()) <= limits.max_lines
    assert len(kept.text.encode()) + kept.dropped_bytes == len(text.encode())
    assert kept.text.count("\n") + kept.dropped_lines == text.count("\n")


# --- a stream


@EXAMPLES
@given(TEXT, LIMITS, st.lists(st.integers(0, 120), max_size=6), st.booleans())
def test_a_stream_keeps_a_slice_of_the_same_text_however_it_is_cut(text, limits, cuts, look):
    """Split characters are whole again; looking in between changes nothing that counts."""
    data = text.encode()
    output = Output(limits)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        output.write(data[start:end])
        if look:
            output.bounded()
    kept = output.finish()
    assert text.startswith(kept.text) if limits.retain == "head" else text.endswith(kept.text)
    assert len(kept.text.encode()) <= limits.max_bytes
    assert len(kept.text.encode()) + kept.dropped_bytes == len(data)


def test_a_character_split_across_chunks_is_whole():
    """EN-36."""
    euro = "\u20ac".encode()
    assert fed(euro[:1], euro[1:2], euro[2:]).text == "\u20ac"
    assert fed("\ud83d", "\ude00").text == "\U0001f600"


def test_a_half_pair_is_held_back_until_the_other_half_comes():
    output = Output(limits())
    output.write("a\ud83d")
    assert output.bounded().text == "a"
    output.write("\ude00")
    assert output.bounded().text == "a\U0001f600"


def test_an_unfinished_character_at_the_end_is_replaced():
    """B104."""
    assert fed(b"a\xe2\x82").text == "a\ufffd"
    assert fed("a\ud83d").text == "a\ufffd"
    assert fed(b"\xe2\x82", "b").text == "\ufffdb"


def test_bytes_that_are_no_text_are_replaced():
    """B104."""
    assert set(fed(b"\xed\xa0\x80").text) == {"\ufffd"}
    assert fed(b"\xff").text == "\ufffd"


def test_the_head_is_full_once_something_was_dropped():
    output = Output(limits(max_bytes=10))
    for chunk in ("one\n", "a line that is much too long\n", "two\n"):
        output.write(chunk)
        output.bounded()
    assert output.finish() == Bounded("one\n", 33, 2)


def test_the_tail_moves_on():
    kept = fed(*(f"line {n}\n" for n in range(1000)), max_lines=2, retain="tail")
    assert (kept.text, kept.dropped_lines) == ("line 998\nline 999\n", 998)


@pytest.mark.parametrize("retain", ["head", "tail"])
def test_a_flood_is_kept_within_memory(retain):
    """B160's rule for tools."""
    output = Output(limits(max_bytes=1_000, retain=retain))
    for _ in range(2_000):
        output.write("x" * 1_000)
        assert output._buffered <= 5_000
    assert output.finish().dropped_bytes == 2_000_000 - 1_000


def test_nothing_is_lost_when_a_thread_writes_while_another_looks():
    output = Output(limits(max_bytes=10_000_000, max_lines=1_000_000))
    done = threading.Event()

    def write():
        for n in range(2_000):
            output.write(f"{n}\n")
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.wait(0.0001):
        output.bounded()
    thread.join()
    assert output.finish().text == "".join(f"{n}\n" for n in range(2_000))
