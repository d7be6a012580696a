from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.cli.keys import BACKSPACE, CLEAR, ENTER, ESCAPE, WORD, Key, Keyboard, edit


def typed(*pieces):
    keyboard = Keyboard()
    keys = [key for piece in pieces for key in keyboard.feed(piece)]
    return [key.name or key.text for key in keys + keyboard.settle()]


def test_letters_of_any_language_and_named_keys_are_told_apart():
    assert typed("aé月\r".encode()) == ["a", "é", "月", ENTER]
    assert typed(b"\x7f\x15\x17\x03\x04") == [BACKSPACE, CLEAR, WORD, "interrupt", "end"]


def test_a_letter_may_arrive_in_pieces():
    assert typed("é".encode()[:1], "é".encode()[1:]) == ["é"]


def test_an_escape_is_a_key_only_if_nothing_follows():
    assert typed(b"\x1b") == [ESCAPE]
    assert typed(b"\x1b\x1b") == [ESCAPE, ESCAPE]
    assert typed(b"\x1b[A", b"\x1bOP", b"\x1b[1;5C", b"a") == ["a"]
    assert typed(b"\x1b[", b"A", b"b") == ["b"]


def test_what_is_pasted_is_text_with_all_its_lines():
    assert typed(b"\x1b[200~one\rtwo\x1b[2", b"01~\r") == ["one\ntwo", ENTER]
    assert typed(b"\x1b[200~one") == []


@given(st.lists(st.binary(max_size=12)))
def test_no_bytes_are_an_error_and_none_hold_others_up(pieces):
    keyboard = Keyboard()
    for piece in pieces:
        keyboard.feed(piece)
    keyboard.settle()
    keyboard.feed(b"\x1b[201~")  # ends a paste, if that is what it was
    keyboard.settle()
    assert keyboard.feed(b"xx")[-1] == Key(text="x")


def test_a_line_is_written_and_corrected():
    line = ""
    for key in (Key(text="say "), Key(text="hello"), Key(BACKSPACE), Key(text="o")):
        line = edit(line, key)
    assert line == "say hello"
    assert edit(line, Key(WORD)) == "say "
    assert edit(line, Key(CLEAR)) == ""
