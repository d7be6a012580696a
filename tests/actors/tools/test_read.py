"""The read tool, called by a model, on real files."""

import base64

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.agent.output import OutputLimits
from perdure.actors.models import Image, call
from perdure.actors.tools.read import _Page

from ..conversation.support import go
from ..models.test_images import GIF, png
from .desk import answers, said


def read(where, *, limits=None, **arguments):
    [result] = go(lambda: answers(where, call("read", **arguments), limits=limits))
    return result


def test_a_text_file_is_shown_as_it_is(tmp_path):
    (tmp_path / "f").write_text("one\ntwo\n")
    result = read(tmp_path, path="f")
    assert (said(result), result.is_error) == ("one\ntwo\n", False)
    assert said(read(tmp_path, path=str(tmp_path / "f"))) == "one\ntwo\n"


def test_an_empty_file_is_an_answer(tmp_path):
    """B106: an empty file."""
    (tmp_path / "f").touch()
    result = read(tmp_path, path="f")
    assert (said(result), result.is_error) == ("(no output)", False)


def test_a_part_is_shown_from_a_line_up_to_a_limit_and_tells_how_to_go_on(tmp_path):
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(1, 11)))
    result = read(tmp_path, path="f", offset=3, limit=2)
    assert said(result) == (
        "3\n4\n<harness>\n[info] Lines 3 to 4 are shown; if there are more, they begin at offset=5\n</harness>"
    )
    assert said(read(tmp_path, path="f", offset=9, limit=5)) == "9\n10\n"


def test_of_a_long_file_the_first_2000_lines_are_shown(tmp_path):
    (tmp_path / "f").write_text("x\n" * 2_001)
    shown, _, told = said(read(tmp_path, path="f")).partition("<harness>")
    assert shown == "x\n" * 2_000
    assert "offset=2001" in told
    (tmp_path / "f").write_text("x\n" * 2_000)
    assert said(read(tmp_path, path="f", offset=2_000)) == "x\n"


def test_of_a_large_file_50_kib_of_whole_lines_are_shown(tmp_path):
    line = "é" * 511 + "xy\n"  # 1,025 bytes
    (tmp_path / "f").write_text(line * 60)
    shown, _, told = said(read(tmp_path, path="f")).partition("<harness>")
    assert shown == line * 49
    assert len(shown.encode()) <= 50 * 1024
    assert "offset=50" in told


def test_of_a_line_that_is_too_long_the_beginning_is_shown(tmp_path):
    (tmp_path / "f").write_text("é" * 100_000 + "\nnext\n")
    shown, _, told = said(read(tmp_path, path="f")).partition("<harness>")
    assert shown.strip() == "é" * (25 * 1024)
    assert "Line 1 is too long" in told
    assert "offset=2" in told
    assert said(read(tmp_path, path="f", offset=2)) == "next\n"


def test_there_is_nothing_behind_the_end(tmp_path):
    (tmp_path / "f").write_text("1\n2\n")
    result = read(tmp_path, path="f", offset=4)
    assert result.is_error
    assert "has 2 lines" in said(result)


def test_a_byte_order_mark_and_bytes_that_are_no_text_do_no_harm(tmp_path):
    """B104: a file, and EN-57."""
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa\xffb\\ud800\r\n\xed\xa0\x80")
    assert said(read(tmp_path, path="f")) == "a\ufffdb\\ud800\n\ufffd\ufffd\ufffd"


@pytest.mark.parametrize("path", ["missing", ".", "binary", "pipe", "a\0b", ""])
def test_what_is_no_text_file_is_an_error_of_the_call(tmp_path, path):
    import os

    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    os.mkfifo(tmp_path / "pipe")
    result = read(tmp_path, path=path)
    assert result.is_error
    assert said(result).startswith("<harness>\n[error] Tool read failed: ")


def test_a_picture_is_shown_as_what_it_is(tmp_path):
    """B107: a GIF that calls itself JPEG."""
    (tmp_path / "p.jpg").write_bytes(GIF)
    result = read(tmp_path, path="p.jpg")
    assert result.content == [Image(data=base64.b64encode(GIF).decode(), mime_type="image/gif")]


@pytest.mark.parametrize("data", [png(9_000, 10), png(3, 3)[:-1], GIF[:20], png(5, 5, b"x" * 9_000_000)])
def test_a_picture_that_no_provider_takes_is_an_error_of_the_call_and_the_run_goes_on(tmp_path, data):
    """B107"""
    (tmp_path / "p").write_bytes(data)
    result = read(tmp_path, path="p")
    assert result.is_error
    assert not any(isinstance(block, Image) for block in result.content)


def test_reading_may_be_repeated(tmp_path):
    tools = {tool.name: tool.replay for tool in perdure.coding_tools(tmp_path).tools}
    assert tools == {"read": "safe", "write": "unsafe", "edit": "unsafe", "bash": "unsafe"}


@given(st.lists(st.text("aé😀", max_size=9), max_size=9), st.integers(1, 5), st.integers(4, 40))
def test_a_page_is_whole_lines_within_its_limits(lines, max_lines, max_bytes):
    page = _Page(max_lines, max_bytes)
    for line in lines:
        if not page.full:
            page.add(line + "\n", cut=False)
    shown = "".join(page.taken)
    assert len(shown.encode()) <= max_bytes
    assert len(page.taken) <= max_lines
    assert "".join(line + "\n" for line in lines).startswith(shown)
    whole = len(shown) == sum(len(line) + 1 for line in lines)
    assert page.full or whole


def test_limits_can_be_set(tmp_path):
    (tmp_path / "f").write_text("1\n2\n3\n")
    assert said(read(tmp_path, path="f", limits=OutputLimits(max_lines=1))).startswith("1\n<harness>")
