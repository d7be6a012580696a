"""Files of a JSONL store that end anywhere: what opens is what was stored by some commit, and it goes on from there."""

import asyncio
import itertools

import pytest
from perdure.storage.errors import StorageCorrupt

from .jsonl_disk import SimulatedDisk
from .jsonl_support import CHAPTERS, catch_up, expected_states, opened, snapshot, tell


def told(root, chapters):
    """Tell the first chapters of the story on a simulated disk."""
    disk = SimulatedDisk(root)

    async def run():
        async with opened(root, files=disk) as rig:
            return [None async for _ in tell(rig.storage, chapters)]

    asyncio.run(run())
    return disk


async def open_and_go_on(root, disk):
    """Open the store, and give what it holds; check that further commits of all sessions stay."""
    async with opened(root, files=disk) as rig:
        found = snapshot(rig.storage)
        others = [rig.other(key) for key in "stu"]
        for other in others:
            await catch_up(other)
        await rig.storage.write([other.batch() for other in others])
        after = snapshot(rig.storage)
    async with opened(root, files=disk) as rig:
        assert snapshot(rig.storage) == after
    return found


def check_no_mixture(found, expected):
    """Check that every session stands after some group of the last three, and every group is whole over its sessions."""
    for key in found:
        assert found[key] in [state.get(key) for state in expected[-3:]]
    seqs = {key: tables[0].seq for key, tables in found.items()}
    for before, after in itertools.pairwise(expected):
        written = [key for key in after if after[key] != before.get(key)]
        assert len({seqs.get(key, 0) >= after[key][0].seq for key in written}) == 1, f"a group of {written} is torn"


@pytest.mark.parametrize(("chapters", "tail"), [(6, b"\n"), (CHAPTERS, b"")])
def test_a_file_cut_at_any_byte_of_the_last_two_commits(tmp_path, chapters, tail):
    """B017: the tear is cut, and what is written next is readable; or the damage is named. Never a mixture.

    A blank line behind the cut is a tear too; behind half a line it makes a malformed one.
    """
    expected = expected_states()[: chapters + 1]
    disk, before = told(tmp_path, chapters), told(tmp_path, chapters - 2).files()

    async def run():
        outcomes = set()
        for name, size in cuts(disk.files(), before):
            outcome = await outcome_of(tmp_path, disk.cut(name, size, tail))
            outcomes.add(type(outcome))
            if type(outcome) is dict:
                check_no_mixture(outcome, expected)
            else:
                assert f"/{name.split('/')[0]}/" in str(outcome) or "which another session" in str(outcome)
        return outcomes

    assert asyncio.run(run()) == {dict, StorageCorrupt}


def cuts(files, before):
    """List all places within what the last two commits have written."""
    for name, node in files.items():
        earlier = before[name].data if name in before else b""
        yield from (
            (name, size) for size in range(len(earlier) if node.data.startswith(earlier) else 0, len(node.data))
        )


async def outcome_of(root, disk):
    try:
        return await open_and_go_on(root, disk)
    except StorageCorrupt as error:
        return error


def test_a_main_file_cut_within_the_last_commit_loses_that_commit_only(tmp_path):
    """The commit before it, which is acknowledged, is there; so is all of a group that the last commit does not end."""
    expected = expected_states()[: CHAPTERS + 1]
    disk, before = told(tmp_path, CHAPTERS), told(tmp_path, CHAPTERS - 1).files()
    data = disk.files()["s/main.jsonl"].data
    for size in range(len(before["s/main.jsonl"].data), len(data)):
        assert asyncio.run(open_and_go_on(tmp_path, disk.cut("s/main.jsonl", size))) == expected[-2]


def test_a_group_without_its_last_commit_is_cut_from_every_session(tmp_path):
    expected = expected_states()
    disk, before = told(tmp_path, 6), told(tmp_path, 5).files()
    data = disk.files()["t/main.jsonl"].data  # t ends the sixth group, which s and u take part in
    for size in range(len(before["t/main.jsonl"].data), len(data)):
        assert asyncio.run(open_and_go_on(tmp_path, disk.cut("t/main.jsonl", size))) == expected[5]


def test_a_session_that_lost_a_confirmed_commit_is_named(tmp_path):
    disk, before = told(tmp_path, 6), told(tmp_path, 5).files()
    for key in "su":
        cut = disk.cut(f"{key}/main.jsonl", len(before[f"{key}/main.jsonl"].data))
        with pytest.raises(StorageCorrupt, match=f"{key}/main.jsonl lacks commit .*, which another session confirms"):
            asyncio.run(open_and_go_on(tmp_path, cut))
