"""The diff of an edit, by its examples and by applying it."""

import re

from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.tools.diffs import Change, apply, first_line, unified

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


def change(old, new, text=TEXT):
    start = text.index(old)
    return Change(start, start + len(old), new)


def test_a_changed_line_is_shown_with_three_lines_around_it():
    assert unified(TEXT, [change("line 10", "LINE 10\nand more")]) == (
        "@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n-line 10\n+LINE 10\n+and more\n line 11\n line 12\n line 13\n"
    )
    assert first_line(TEXT, [change("line 10", "x")]) == 10


def test_a_deleted_and_an_added_line_are_only_that():
    assert "-line 10\n line 11" in unified(TEXT, [change("line 10\n", "")])
    assert " line 10\n+new\n line 11" in unified(TEXT, [change("line 10\n", "line 10\nnew\n")])


def test_a_last_line_without_newline_says_so():
    assert unified("a\nb", [Change(2, 3, "c")]) == (
        "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    )


def test_all_can_be_taken_away():
    assert unified("a\nb\n", [Change(0, 4, "")]) == "@@ -1,2 +0,0 @@\n-a\n-b\n"


def changes_of(draw, text):
    """Changes in order that do not overlap."""
    points = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pairs = list(zip(points[::2], points[1::2], strict=False))
    return [Change(start, end, draw(st.text("ab\n", max_size=6))) for start, end in pairs]


@st.composite
def edits(draw):
    text = draw(st.text("ab\n", max_size=60))
    return text, changes_of(draw, text)


def patched(text, diff):
    """Apply a diff as any program would, holding it to what it says of the old text."""
    old, new, at = re.findall(r"[^\n]*\n|[^\n]+", text), [], 0
    lines = re.sub(r"\n\\ No newline at end of file\n", "\0", diff).splitlines(keepends=True)
    lines = [piece for line in lines for piece in re.findall(r"[^\0]*\0|[^\0]+", line)]
    for line in lines:
        content = line[1:].replace("\0", "")
        if line.startswith("@@"):
            start, count, new_start, new_count = map(int, re.findall(r"\d+", line))
            start -= count > 0
            new += old[at:start]
            at = start
            assert len(new) == new_start - (new_count > 0)
        elif line[0] in " -":
            assert old[at] == content
            at += 1
        if line[0] in " +" and not line.startswith("@@"):
            new.append(content)
    return "".join(new + old[at:])


@given(edits())
def test_whoever_applies_the_diff_gets_the_edited_text(edit):
    text, changes = edit
    assert patched(text, unified(text, changes)) == apply(text, changes)
