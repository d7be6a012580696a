"""The write tool, called by a model, on real files."""

import asyncio
import os

import perdure
from perdure.actors.models import call
from perdure.actors.tools.write import file_key

from ..conversation.support import go
from .desk import answers, said


def test_a_file_is_made_with_its_directories_or_replaced(tmp_path):
    async def main():
        for content in ("one", "é\r\ntwo"):
            [result] = await answers(tmp_path, call("write", path="a/b/f", content=content))
            assert not result.is_error
            assert said(result) == f"Wrote {len(content.encode())} bytes to a/b/f"
            assert result.details == {"path": "a/b/f", "bytes": len(content.encode())}
            assert (tmp_path / "a/b/f").read_bytes() == content.encode()

    go(main)


def test_what_cannot_be_written_is_an_error_of_the_call(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "f").touch()

    async def main():
        paths = ["d", "f/below", "", "a\0b"]
        for result in await answers(tmp_path, *(call("write", path=path, content="x") for path in paths)):
            assert result.is_error
        assert sorted(os.listdir(tmp_path)) == ["d", "f"]

    go(main)


def test_nothing_is_written_outside_of_a_root(tmp_path):
    """B179"""
    (tmp_path / "root").mkdir()
    where = perdure.LocalEnvironment(tmp_path / "root", root=tmp_path / "root")

    async def main():
        for result in await answers(where, *(call("write", path=path, content="x") for path in ("../f", "../d/f"))):
            assert result.is_error
            assert "outside" in said(result)

    go(main)
    assert os.listdir(tmp_path) == ["root"]


def test_a_file_has_one_key_whatever_its_path_and_another_one_than_its_neighbours(tmp_path):
    """EN-54: file system and canonical path."""
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "dangling").symlink_to("d/not-yet")
    env = perdure.LocalEnvironment(tmp_path)

    async def main():
        same = [
            "d/not-yet",
            "link/not-yet",
            "./d/../link/not-yet",
            str(tmp_path / "d" / "not-yet"),
            "link/no/../not-yet",
        ]
        assert len({await file_key(env, path) for path in same}) == 1
        assert await file_key(env, "d/other") != await file_key(env, "d/not-yet")
        assert await file_key(env, "d") == await file_key(env, "link")
        await env.write("d/not-yet", "")
        assert await file_key(env, "dangling") == await file_key(env, "d/not-yet")

    go(main)


class Watched(perdure.LocalEnvironment):
    """Tells how many work on a file at once."""

    def __init__(self, cwd):
        super().__init__(cwd)
        self.at_work, self.most = 0, 0

    async def write(self, path, data):
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await asyncio.sleep(0.01)
        await super().write(path, data)
        self.at_work -= 1


def test_parallel_writes_and_edits_of_one_file_come_one_after_another(tmp_path):
    """EN-54"""
    (tmp_path / "f").write_text("a0 a1 a2 a3 a4")
    (tmp_path / "link").symlink_to("f")
    where = Watched(tmp_path)
    edits = [
        call("edit", path="link" if n % 2 else "f", edits=[{"oldText": f"a{n}", "newText": f"b{n}"}]) for n in range(5)
    ]

    async def main():
        assert not any(result.is_error for result in await answers(where, *edits))

    go(main)
    assert (tmp_path / "f").read_text() == "b0 b1 b2 b3 b4"
    assert where.most == 1
