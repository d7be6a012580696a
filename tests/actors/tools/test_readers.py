"""Readers of files by position and by lines, and of directories by pages."""

import os

import perdure
import pytest
from perdure.actors.tools import readers

from ..conversation.support import go


@pytest.fixture
def env(tmp_path):
    return perdure.LocalEnvironment(tmp_path)


async def lines_of(env, path, **options):
    reader = await env.open_lines(path, **options)
    lines = []
    while (line := await reader.next()) is not None:
        lines.append(line)
    assert await reader.next() is None
    assert await reader.next() is None
    await reader.close()
    return lines


def texts(lines):
    return [(line.text, line.terminated) for line in lines]


async def refused(code, work):
    with pytest.raises(perdure.FileError) as caught:
        await work
    assert caught.value.code == code
    return caught.value


# --- lines


def test_lines_end_with_lf_only_and_the_last_may_not_be_terminated(env, tmp_path):
    """EN-23"""
    (tmp_path / "f").write_bytes(b"a\r\nb\x0b\xc2\x85\n\nlast")

    async def main():
        assert texts(await lines_of(env, "f")) == [("a\r", True), ("b\x0b\x85", True), ("", True), ("last", False)]

    go(main)


def test_an_empty_file_has_no_lines_and_a_newline_is_one(env, tmp_path):
    """EN-24"""
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "newline").write_bytes(b"\n")

    async def main():
        assert await lines_of(env, "empty") == []
        assert texts(await lines_of(env, "newline")) == [("", True)]

    go(main)


def test_characters_across_the_edges_of_chunks_and_long_lines_come_whole(env, tmp_path):
    """EN-25"""
    edge = "x" * (readers.CHUNK - 1) + "😀"
    long = "é" * 100_000
    (tmp_path / "f").write_text(f"{edge}\n{long}\nend\n")

    async def main():
        assert texts(await lines_of(env, "f")) == [(edge, True), (long, True), ("end", True)]

    go(main)


def test_what_is_no_utf8_is_replaced_and_half_a_character_at_the_end_too(env, tmp_path):
    (tmp_path / "f").write_bytes(b"a\xffb\n\xf0\x9f")

    async def main():
        assert texts(await lines_of(env, "f")) == [("a\ufffdb", True), ("\ufffd", False)]

    go(main)


def test_a_line_can_be_cut_and_tells_how_much_was_dropped(env, tmp_path):
    (tmp_path / "f").write_text("x" * 200_000 + "\nshort\n" + "y" * 11)

    async def main():
        lines = await lines_of(env, "f", longest=10)
        assert [(line.text, line.dropped, line.terminated) for line in lines] == [
            ("x" * 10, 199_990, True),
            ("short", 0, True),
            ("y" * 10, 1, False),
        ]

    go(main)


def test_a_line_reader_can_be_closed_twice_and_is_not_read_after(env, tmp_path):
    """EN-27"""
    (tmp_path / "f").write_text("a\nb\n")

    async def main():
        reader = await env.open_lines("f")
        assert (await reader.next()).text == "a"
        await reader.close()
        await reader.close()
        assert (await refused("invalid", reader.next())).path == str(tmp_path / "f")

    go(main)


def test_a_missing_file_has_no_line_reader(env):
    """EN-28"""
    go(lambda: refused("not_found", env.open_lines("no")))


# --- bytes


def test_bytes_are_read_at_positions_in_steps(env, tmp_path, monkeypatch):
    """EN-21"""
    data = os.urandom(2 * readers.STEP + 10)
    (tmp_path / "f").write_bytes(data)
    asked = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: (asked.append(n), pread(fd, n, at))[1])

    async def main():
        reader = await env.open_file("f")
        assert reader.size == len(data)
        assert await reader.read(3, len(data)) == data[3:]
        assert max(asked) == readers.STEP
        assert await reader.read(len(data), 5) == b""
        assert await reader.read(0, 0) == b""
        for offset, length in ((-1, 1), (0, -1), (0.5, 1), (0, 2**53), (True, 1)):
            await refused("invalid", reader.read(offset, length))
        await reader.close()
        await reader.close()
        await refused("invalid", reader.read(0, 1))

    go(main)


def test_only_regular_files_are_opened_and_a_link_only_if_it_may_be(env, tmp_path):
    """EN-21"""
    (tmp_path / "f").write_text("x")
    (tmp_path / "link").symlink_to("f")
    os.mkfifo(tmp_path / "pipe")

    async def main():
        await (await env.open_file("link")).close()
        await (await env.open_file("f", no_follow=True)).close()
        await refused("invalid", env.open_file("link", no_follow=True))
        await refused("is_directory", env.open_file("."))
        await refused("invalid", env.open_file("pipe"))

    go(main)


# --- directories


def test_a_directory_is_read_by_pages_without_what_vanishes_and_without_pipes(env, tmp_path):
    """EN-22"""
    for name in "abcde":
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe")

    async def main():
        reader = await env.open_directory(".")
        found = [one.name for one in await reader.next(2)]
        assert len(found) == 2
        gone = next(name for name in "abcde" if name not in found)
        (tmp_path / gone).unlink()
        while page := await reader.next(2):
            found += [one.name for one in page]
        assert sorted(found) == sorted(set("abcde") - {gone})
        await reader.close()
        await reader.close()
        await refused("invalid", reader.next(1))
        await refused("not_directory", env.open_directory(found[0]))

    go(main)
