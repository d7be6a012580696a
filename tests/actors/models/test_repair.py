import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.models.repair import MAX_QUOTED, TextJoiner, cut_arguments, read_arguments, valid_json

READABLE = {
    "": {},
    " \n": {},
    "{}": {},
    '{"a": [1, 2.5, true, null, "x"]}': {"a": [1, 2.5, True, None, "x"]},
    '{"a": "one\ntwo\tthree"}': {"a": "one\ntwo\tthree"},
    r'{"a": "C:\windows\users"}': {"a": "C:\\windows\\users"},
    r'{"a": "\d+\.\\d \"q\" \n \u00e9 \u12"}': {"a": '\\d+\\.\\d "q" \n é \\u12'},
    r'{"a": "\ud83d\ude00 \ud800"}': {"a": "\U0001f600 \ufffd"},
    r'{"\ud800": 1}': {"\ufffd": 1},
    r'{"a": "\\ud800"}': {"a": r"\ud800"},
}

UNREADABLE = [
    '{"a":1,,}',
    "[1]",
    '"text"',
    "null",
    '{"a":NaN}',
    '{"a":-Infinity}',
    '{"a":1e999}',
    '{"a": a.txt}',
    '{"a":1}{"b":2}',
    '{"a":1} trailing',
    '{"a": "cut',
    "{'a': 1}",
    '{"a": ' + "1" * 5_000 + "}",
    '{"a": ' + "[" * 200 + "]" * 200 + "}",
    '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}",
]


@pytest.mark.parametrize(("text", "arguments"), READABLE.items())
def test_readable_arguments_are_read(text, arguments):
    """B110 and the two repairs that change no meaning."""
    assert read_arguments(text) == (arguments, None)


@pytest.mark.parametrize("text", UNREADABLE, ids=range(len(UNREADABLE)))
def test_anything_else_is_never_guessed(text):
    arguments, error = read_arguments(text)
    assert arguments == {}
    assert text[:100] in error
    assert len(error) < MAX_QUOTED + 300


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=5)))
def test_all_json_objects_are_read_as_they_are(value):
    text = json.dumps(value)
    arguments, error = read_arguments(text)
    if "NaN" in text or "Infinity" in text:
        assert arguments == {} or error is None
    else:
        assert (arguments, error) == (value, None)


def test_cut_arguments_say_how_long_they_were():
    assert "after 9 characters" in cut_arguments('{"a": "on')
    assert '{"a": "on' in cut_arguments('{"a": "on')


@given(st.text(alphabet=st.characters(categories=("Cs", "Ll", "So")), max_size=30), st.data())
def test_streamed_text_is_the_same_in_whatever_pieces_it_comes(text, data):
    """B104: halves that meet are joined, halves that stay alone are replaced."""
    joiner, out, rest = TextJoiner(), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        piece, rest = rest[:size], rest[size:]
        shown = joiner.feed(piece)
        shown.encode()
        out += shown
    out += joiner.end()
    assert out == TextJoiner().feed(text + "x")[:-1]
    assert joiner.end() == ""


def test_json_is_repaired_in_keys_and_values():
    assert valid_json({"a\ud800": ["b\udc00", {"c": 1.5, "d": None, "e": True}]}) == {
        "a\ufffd": ["b\ufffd", {"c": 1.5, "d": None, "e": True}]
    }
