from urllib.parse import unquote

import hypothesis.strategies as st
from hypothesis import example, given
from perdure.storage.jsonl_format import directory_name, is_directory_name, parse_side, read_lines, side_of

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


@given(keys)
@example("")
@example("..")
@example("store.lock")
@example("a\0/b")
def test_a_session_key_becomes_a_plain_file_name_and_back(key):
    name = directory_name(key)
    assert is_directory_name(name)
    assert "/" not in name
    assert name == name.lower()
    if key and "%-" not in name:
        assert unquote(name) == key


@given(
    st.lists(keys | st.sampled_from(["a", "A", "%61", "a" * 300, "a" * 301, "%", "", "é" * 90, "É" * 90]), unique=True)
)
def test_different_keys_have_different_names_of_moderate_length(keys):
    names = [directory_name(key) for key in keys]
    assert len(set(names)) == len(keys)
    assert all(len(name) <= 200 for name in names)


def test_a_plain_key_is_its_own_name():
    assert directory_name("customer-42_b") == "customer-42_b"


def test_files_of_a_store_are_no_sessions():
    for name in ("store.lock", "a.new", ".hidden", "A", "notes.txt", ""):
        assert not is_directory_name(name)


def test_sides_are_told_by_the_names_of_their_files():
    assert [side_of(name) for name in ("doc-7.jsonl", "task-70.jsonl")] == ["doc-7", "task-70"]
    for name in ("main.jsonl", "doc-0.jsonl", "doc-07.jsonl", "doc-7.jsonl.reclaim", "doc-.jsonl", "xdoc-1.jsonl"):
        assert side_of(name) is None
    assert parse_side("doc-7") == ("doc", 7)
    assert parse_side("task-70") == ("task", 70)


@given(st.binary(max_size=60) | st.lists(st.sampled_from([b"x", b"\n", b"\0"])).map(b"".join))
def test_lines_cover_a_file_and_are_whole_only_with_a_line_feed(data):
    lines = list(read_lines(data))
    assert b"".join(line.data for line in lines) == data
    assert [line.end for line in lines] == [
        len(b"".join(line.data for line in lines[: n + 1])) for n in range(len(lines))
    ]
    for line in lines:
        assert line.torn == (line.data[-1:] != b"\n" or line.data == b"\n" or b"\0" in line.data)
        assert b"\n" not in line.data[:-1]
