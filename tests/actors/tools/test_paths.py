"""B179 for tools: no path, by dots or by links, leads out of a root."""

import os
from contextlib import suppress

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.tools.paths import absolute, confined

from ..conversation.support import go


@pytest.fixture
def root(tmp_path):
    """A root with a way in and ways out, beside a secret."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root-too").mkdir()
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "f").write_text("inside")
    (root / "in").symlink_to("inner")
    (root / "out").symlink_to("..")
    (root / "leak").symlink_to(tmp_path / "secret")
    (root / "fresh").symlink_to(tmp_path / "made")
    return root


OUTSIDE = ["../secret", "/etc/passwd", "inner/../../secret", "out/secret", "leak", "in/../../secret", "../root-too/x"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_of_a_root_is_read_written_or_listed(root, path):
    """B179"""
    env = perdure.LocalEnvironment(root, root=root)

    async def main():
        works = [env.read_text(path), env.write(path, "x"), env.append(path, "x"), env.list_directory(path)]
        works += [env.open_file(path), env.open_lines(path), env.truncate(path, 0), env.flush(path)]
        works += [env.canonical(path), env.make_directory(path, recursive=True)]
        for work in works:
            with pytest.raises(perdure.FileError) as caught:
                await work
            assert caught.value.code == "outside_root"

    go(main)
    assert (root.parent / "secret").read_text() == "secret"


def test_a_link_that_leads_nowhere_yet_makes_no_file_outside(root):
    """B179"""
    env = perdure.LocalEnvironment(root, root=root)
    with pytest.raises(perdure.FileError, match="outside"):
        go(lambda: env.write("fresh", "x"))
    with pytest.raises(perdure.FileError, match="outside"):
        go(lambda: env.rename("inner/f", "out/f"))
    assert sorted(os.listdir(root.parent)) == ["root", "root-too", "secret"]


def test_a_link_itself_may_be_looked_at_and_removed_and_links_inside_lead_on(root):
    env = perdure.LocalEnvironment(root, root=root)

    async def main():
        assert await env.read_text("in/f") == "inside"
        assert await env.read_text(str(root / "inner" / "f")) == "inside"
        assert (await env.info("leak")).kind == "symlink"
        await env.remove("leak")

    go(main)
    assert (root.parent / "secret").exists()


def test_without_a_root_any_path_will_do(root):
    env = perdure.LocalEnvironment(root)
    assert go(lambda: env.read_text("../secret")) == "secret"


def test_the_place_for_temporary_files_is_inside_too(root, tmp_path):
    (tmp_path / "temp").mkdir()
    env = perdure.LocalEnvironment(root, root=root, temp=tmp_path / "temp")

    async def main():
        await env.write(await env.temp_file(), "x")

    go(main)


@given(st.lists(st.sampled_from(["..", ".", "a", "b", "", "/"]), max_size=8).map("/".join))
def test_whatever_the_dots_a_path_is_absolute_and_below_its_root_or_refused(path):
    with suppress(perdure.FileError):
        used = confined(absolute("/nowhere/root", path), ["/nowhere/root"], follow=True)
        assert (used + "/").startswith("/nowhere/root/")
        assert ".." not in used.split("/")
