"""The local environment's file operations, on real files."""

import asyncio
import errno
import math
import os
import stat
import threading

import perdure
import pytest
from perdure.actors.tools import disk
from perdure.actors.tools.blocking import in_thread

from ..conversation.support import go


@pytest.fixture
def env(tmp_path):
    return perdure.LocalEnvironment(tmp_path, temp=tmp_path)


def failing(code, work):
    """Run an operation that must fail; give its error."""
    with pytest.raises(perdure.FileError) as caught:
        go(lambda: work)
    assert caught.value.code == code
    return caught.value


# --- what the operations do


def test_files_are_written_appended_read_listed_and_removed(env, tmp_path):
    """EN-01"""

    async def main():
        await env.write("a.txt", "one\n")
        await env.append("a.txt", "t")
        assert await env.read_text("a.txt") == "one\nt"
        assert await env.read_bytes(str(tmp_path / "a.txt")) == b"one\nt"
        assert await env.read_lines("a.txt", 10) == ["one", "t"]
        [listed] = await env.list_directory(".")
        assert listed == perdure.FileInfo("a.txt", str(tmp_path / "a.txt"), "file", 5, listed.mtime)
        assert isinstance(listed.mtime, int)
        assert await env.exists("a.txt")
        await env.remove("a.txt")
        assert not await env.exists("a.txt")

    go(main)


def test_info_does_not_follow_a_link_and_the_canonical_path_does(env, tmp_path):
    """EN-03"""

    async def main():
        await env.make_directory("d")
        await env.write("d/f", "x")
        (tmp_path / "link").symlink_to("d/f")
        assert [(await env.info(name)).kind for name in ("d", "d/f", "link")] == ["directory", "file", "symlink"]
        assert await env.canonical("link") == os.path.realpath(tmp_path / "d" / "f")

    go(main)


def test_a_listing_is_by_name_shows_links_as_links_and_leaves_out_what_is_neither(env, tmp_path):
    """EN-04, EN-22: the listing."""

    async def main():
        await env.write("b", "")
        (tmp_path / "a").symlink_to("nowhere")
        os.mkfifo(tmp_path / "pipe")
        assert [(one.name, one.kind) for one in await env.list_directory(".")] == [("a", "symlink"), ("b", "file")]

    go(main)


def test_an_entry_that_vanishes_while_a_directory_is_listed_is_an_error(env, tmp_path, monkeypatch):
    """EN-22: the plain listing."""
    (tmp_path / "here").touch()
    monkeypatch.setattr(os, "listdir", lambda path: ["gone", "here"])
    error = failing("not_found", env.list_directory("."))
    assert error.path == str(tmp_path / "gone")


def test_reading_lines_stops_at_the_limit_and_a_limit_of_none_opens_nothing(env):
    """EN-05"""

    async def main():
        await env.write("f", "1\n2\n3")
        assert await env.read_lines("f", 2) == ["1", "2"]
        assert await env.read_lines("missing", 0) == []
        assert await env.read_lines("missing", -1) == []

    go(main)


def test_a_missing_path_is_an_error_with_its_absolute_path(env, tmp_path):
    """EN-06"""

    async def main():
        for work in (env.read_text("no"), env.info("no"), env.canonical("no"), env.list_directory("no")):
            with pytest.raises(perdure.FileError) as caught:
                await work
            assert (caught.value.code, caught.value.path) == ("not_found", str(tmp_path / "no"))
        assert not await env.exists("no")

    go(main)


def test_listing_a_file_is_an_error(env, tmp_path):
    """EN-07"""
    (tmp_path / "f").touch()
    failing("not_directory", env.list_directory("f"))


def test_a_rename_replaces_its_target(env):
    """EN-09"""

    async def main():
        await env.write("new", "new")
        await env.write("old", "old")
        await env.rename("new", "old")
        assert await env.read_text("old") == "new"
        assert not await env.exists("new")

    go(main)


def test_a_rename_of_nothing_names_the_source_and_leaves_the_target(env, tmp_path):
    """EN-10"""
    (tmp_path / "old").write_text("old")
    error = failing("not_found", env.rename("no", "old"))
    assert error.path == str(tmp_path / "no")
    assert (tmp_path / "old").read_text() == "old"


def test_a_rename_into_a_missing_directory_names_the_target(env, tmp_path):
    (tmp_path / "f").touch()
    assert failing("not_found", env.rename("f", "no/f")).path == str(tmp_path / "no" / "f")


def test_temporary_files_and_directories_are_there_and_nobody_elses(env, tmp_path):
    """EN-11"""

    async def main():
        folder, file = await env.temp_directory("d-"), await env.temp_file("f-", ".txt")
        assert os.path.isdir(folder)
        assert os.path.basename(folder).startswith("d-")
        assert os.path.getsize(file) == 0
        assert os.path.basename(file).startswith("f-")
        assert file.endswith(".txt")
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        assert os.path.dirname(file) == str(tmp_path)

    go(main)


def test_making_and_removing_directories(env):
    """EN-12"""

    async def main():
        with pytest.raises(perdure.FileError) as missing:
            await env.make_directory("a/b")
        assert missing.value.code == "not_found"
        await env.make_directory("a/b", recursive=True)
        await env.make_directory("a/b", recursive=True)
        with pytest.raises(perdure.FileError) as directory:
            await env.remove("a")
        assert directory.value.code == "is_directory"
        await env.remove("a", recursive=True)
        with pytest.raises(perdure.FileError) as gone:
            await env.remove("a")
        assert gone.value.code == "not_found"
        await env.remove("a", force=True)

    go(main)


def test_removing_a_link_to_a_directory_leaves_the_directory(env, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").touch()
    (tmp_path / "link").symlink_to("d")
    go(lambda: env.remove("link", recursive=True))
    assert (tmp_path / "d" / "f").exists()
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("size", [-1, 1.5, math.nan, math.inf, 2**53, True, "1"])
def test_a_file_cannot_be_cut_to_what_is_no_size(env, tmp_path, size):
    """EN-15"""
    (tmp_path / "f").write_text("abc")
    failing("invalid", env.truncate("f", size))
    assert (tmp_path / "f").read_text() == "abc"


def test_cutting_a_file(env, tmp_path):
    """EN-15"""
    (tmp_path / "f").write_text("abc")
    go(lambda: env.truncate("f", 2))
    assert (tmp_path / "f").read_text() == "ab"
    failing("not_found", env.truncate("no", 1))
    assert not (tmp_path / "no").exists()


def test_flushing_keeps_content_and_makes_nothing(env, tmp_path):
    """EN-16"""
    (tmp_path / "f").write_text("abc")
    (tmp_path / "d").mkdir()
    go(lambda: env.flush("f"))
    assert (tmp_path / "f").read_text() == "abc"
    failing("not_found", env.flush("no"))
    failing("is_directory", env.flush("d"))
    assert not (tmp_path / "no").exists()


def test_flushing_syncs_through_one_descriptor_and_closes_it_when_that_fails(env, tmp_path, monkeypatch):
    """EN-17"""
    (tmp_path / "f").touch()
    synced, closed, close = [], [], os.close

    def fsync(descriptor):
        synced.append(descriptor)
        raise OSError(errno.EIO, "the disk is on fire")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "close", lambda descriptor: (closed.append(descriptor), close(descriptor)))
    assert "the disk is on fire" in str(failing("unknown", env.flush("f")))
    assert len(synced) == 1
    assert synced[0] in closed


def test_closing_with_nothing_running_does_nothing(env):
    """EN-18"""
    go(env.close)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, "permission_denied"),
        (errno.EPERM, "permission_denied"),
        (errno.ENOENT, "not_found"),
        (errno.ENOTDIR, "not_directory"),
        (errno.EISDIR, "is_directory"),
        (errno.ENOSPC, "unknown"),
    ],
)
def test_what_the_system_refuses_is_told_by_code(number, code):
    """EN-19: and "aborted" is asyncio's CancelledError here, as everywhere in Python."""
    with pytest.raises(perdure.FileError) as caught, disk.reporting("/x"):
        raise OSError(number, os.strerror(number))
    assert (caught.value.code, caught.value.path) == (code, "/x")


def test_what_is_no_regular_file_is_refused_and_never_waited_for(env, tmp_path):
    """EN-19"""
    os.mkfifo(tmp_path / "pipe")
    failing("invalid", env.read_text("pipe"))
    failing("invalid", env.write("pipe", "x"))
    failing("invalid", env.append("pipe", "x"))
    failing("invalid", env.info("pipe"))
    failing("is_directory", env.read_text("."))
    failing("is_directory", env.write(".", "x"))


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", None, 7])
def test_what_cannot_be_a_path_is_refused(env, path):
    failing("invalid", env.read_text(path))
    failing("invalid", env.write(path, "x"))


def test_a_name_that_is_too_long_is_refused(env):
    failing("invalid", env.write("x" * 5_000, "x"))


# --- writing


def test_a_file_is_replaced_as_a_whole_and_keeps_its_permissions(env, tmp_path):
    file = tmp_path / "f"
    file.write_text("old")
    file.chmod(0o750)
    with file.open() as reader:
        go(lambda: env.write("f", "new"))
        assert reader.read() == "old"
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert os.listdir(tmp_path) == ["f"]


def test_writing_to_a_link_changes_what_it_leads_to(env, tmp_path):
    (tmp_path / "f").write_text("old")
    (tmp_path / "link").symlink_to("f")
    go(lambda: env.write("link", "new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "f").read_text() == "new"


def test_a_write_that_fails_leaves_the_old_file_and_no_part_of_a_new_one(env, tmp_path, monkeypatch):
    (tmp_path / "f").write_text("old")

    def fsync(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    failing("unknown", env.write("f", "new"))
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def test_half_a_character_is_written_as_a_question_mark(env, tmp_path):
    """B104: a file."""
    go(lambda: env.write("f", "a\ud800b"))
    assert (tmp_path / "f").read_bytes() == b"a?b"


# --- cancel

OPERATIONS = {
    "read_bytes": lambda env: env.read_bytes("f"),
    "read_text": lambda env: env.read_text("f"),
    "read_lines": lambda env: env.read_lines("f", 1),
    "write": lambda env: env.write("f", "new"),
    "append": lambda env: env.append("f", "more"),
    "truncate": lambda env: env.truncate("f", 0),
    "flush": lambda env: env.flush("f"),
    "rename": lambda env: env.rename("f", "g"),
    "remove": lambda env: env.remove("f"),
    "make_directory": lambda env: env.make_directory("new"),
    "list_directory": lambda env: env.list_directory("."),
    "info": lambda env: env.info("f"),
    "canonical": lambda env: env.canonical("f"),
    "exists": lambda env: env.exists("f"),
    "temp_directory": lambda env: env.temp_directory(),
    "temp_file": lambda env: env.temp_file(),
    "open_file": lambda env: env.open_file("f"),
    "open_lines": lambda env: env.open_lines("f"),
    "open_directory": lambda env: env.open_directory("."),
    "run": lambda env: env.run("touch made"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_a_cancelled_task_does_nothing(env, tmp_path, name):
    """EN-13, EN-43: a cancel is asyncio's."""
    (tmp_path / "f").write_text("old")

    async def main():
        asyncio.current_task().cancel()
        with pytest.raises(asyncio.CancelledError):
            await OPERATIONS[name](env)
        asyncio.current_task().uncancel()

    go(main)
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_text() == "old"


def test_a_cancel_in_the_middle_waits_for_the_thread_and_a_second_one_does_not():
    async def main():
        began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        def work():
            began.set()
            may_end.wait(10)
            ended.set()

        for cancels in (1, 2):
            task = asyncio.ensure_future(in_thread(work))
            await asyncio.to_thread(began.wait)
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert task.done() == (cancels == 2)
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(ended.wait)
            for event in (began, may_end, ended):
                event.clear()

    go(main)
