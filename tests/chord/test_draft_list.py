"""An array draft has the manners of a list, and publishes splices, orders and edits of the elements it kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.chord import Draft, DraftRevoked, InvalidJson, ListDraft, Tracker, apply_immutable


class Array:
    """A document that is one array, its open change, and the draft of it."""

    def __init__(self, *elements):
        self.tracker = Tracker(list(elements))
        self.change = self.tracker.begin_change()
        self.draft = self.change.state

    def ops(self):
        prepared = self.change.prepare()
        assert apply_immutable(self.tracker.value, prepared.ops) == prepared.value
        return prepared.ops


def rows(count):
    return [{"id": place, "text": f"row {place}"} for place in range(count)]


def test_reading_gives_plain_atoms_and_drafts_of_containers():
    draft = Array("text", 1, {"a": 1}, [2]).draft

    assert [type(element) for element in draft] == [str, int, Draft, ListDraft]
    assert draft[-1] is draft[3]
    assert draft[2] is draft[2]
    assert draft[1:3] == [1, {"a": 1}]
    assert draft[::-2] == [[2], 1]
    assert list(reversed(draft))[:2] == [[2], {"a": 1}]


@pytest.mark.parametrize("index", [3, -4, 100])
def test_an_index_out_of_range_behaves_as_in_a_list(index):
    array = Array(1, 2, 3)
    for use in (
        lambda: array.draft[index],
        lambda: array.draft.__setitem__(index, 1),
        lambda: array.draft.__delitem__(index),
        lambda: array.draft.pop(index),
        lambda: array.draft.append_text(index, "x"),
    ):
        with pytest.raises(IndexError):
            use()
    assert array.ops() == []


def test_an_index_that_is_no_integer_is_a_type_error():
    with pytest.raises(TypeError):
        Array(1).draft["0"]


def test_searching_goes_by_value():
    draft = Array({"a": 1}, 2, {"a": 1}, "x").draft
    draft[2]["a"] = 5

    assert {"a": 5} in draft
    assert draft[0] in draft
    assert draft.index({"a": 5}) == 2
    assert draft.index("x", 1, 4) == 3
    assert draft.count({"a": 1}) == 1
    with pytest.raises(ValueError):
        draft.index("gone")
    draft.remove({"a": 5})
    assert draft == [{"a": 1}, 2, "x"]


def test_growing_and_shrinking():
    draft = Array(1, 2).draft
    draft.append([3])
    draft.extend(iter([4, 5]))
    draft += [6]
    draft.insert(0, 0)
    draft.insert(-1, "before the last")
    draft.insert(100, "end")

    assert draft == [0, 1, 2, [3], 4, 5, "before the last", 6, "end"]
    assert (len(draft), draft.pop(), draft.pop(0), draft.pop(-1)) == (9, "end", 0, 6)
    draft.clear()
    assert (len(draft), list(draft)) == (0, [])


def test_slices_are_replaced_and_deleted():
    draft, twin = Array(*range(10)).draft, list(range(10))
    for array in (draft, twin):
        array[2:4] = ["a", "b", "c"]
        array[::5] = ["x", "y", "z"]
        del array[1:4]
        del array[::-3]
        array[-2:] = []
        array[8:2] = ["clamped"]

    assert draft == twin
    with pytest.raises(ValueError, match="extended slice"):
        draft[::2] = [1]


def test_several_values_are_checked_before_any_is_taken():
    array = Array([1])

    for use in (lambda rows: rows.extend([2, b"x"]), lambda rows: rows.__setitem__(slice(1, 1), [2, b"x"])):
        with pytest.raises(InvalidJson, match=r"bytes at \$\[0\]\[2\]$"):
            use(array.draft[0])

    assert array.ops() == []


def test_a_draft_keeps_to_its_element_wherever_that_moves():
    array = Array(*rows(4))
    held = array.draft[2]
    array.draft.insert(0, "first")
    del array.draft[1]
    array.draft.reverse()
    held["seen"] = True

    assert array.draft[1] == {"id": 2, "text": "row 2", "seen": True}
    assert array.draft[1] is held
    array.draft.remove(held)
    held["seen"] = "too late"
    assert "too late" not in str(array.ops())


def test_what_is_popped_is_detached():
    array = Array(*rows(2))
    taken = array.draft.pop(0)
    taken["id"] = "mine"

    assert taken == {"id": "mine", "text": "row 0"}
    assert array.tracker.value == rows(2)
    assert array.ops() == [["p", [], 0, 1, []]]


def test_exchanging_two_elements_exchanges_their_values():
    array = Array(*rows(2))
    array.draft[0], array.draft[1] = array.draft[1], array.draft[0]
    array.draft[0]["text"] = "edited"

    assert array.draft == [{"id": 1, "text": "edited"}, {"id": 0, "text": "row 0"}]
    array.ops()


def test_augmented_assignment_of_an_element_edits_it_in_place():
    array = Array([1], {"a": 1})
    array.draft[0] += [2]
    array.draft[1] |= {"b": 2}

    assert array.ops() == [["p", [0], 1, 0, [2]], ["s", [1, "b"], 2]]


def test_sorting_is_stable_and_gives_the_key_what_reading_gives():
    array = Array({"k": 2, "n": 1}, {"k": 1, "n": 2}, {"k": 2, "n": 3})
    array.draft.sort(key=lambda row: row["k"], reverse=True)

    assert [row["n"] for row in array.draft] == [1, 3, 2]
    plain = Array("b", "a", "c").draft
    plain.sort()
    assert plain == ["a", "b", "c"]


def test_sorting_what_cannot_be_compared_changes_nothing():
    array = Array(1, "x")
    with pytest.raises(TypeError):
        array.draft.sort()
    assert array.ops() == []


# What is published


def test_appending_is_a_splice_at_the_end_with_the_final_state():
    array = Array(*rows(3))
    array.draft.append({"new": 1})
    array.draft[3]["new"] = 2

    assert array.ops() == [["p", [], 3, 0, [{"new": 2}]]]


def test_a_queue_publishes_its_two_ends():
    array = Array(*rows(5))
    array.draft.append("in")
    del array.draft[0]

    assert array.ops() == [["p", [], 0, 1, []], ["p", [], 4, 0, ["in"]]]


def test_edits_of_kept_elements_are_addressed_after_the_splices():
    array = Array(*rows(6))
    array.draft[5]["text"] += "!"
    array.draft.insert(2, "new")
    del array.draft[0]

    assert array.ops() == [["p", [], 0, 1, []], ["p", [], 1, 0, ["new"]], ["a", [5, "text"], "!"]]


def test_what_comes_and_goes_within_a_change_is_not_published():
    array = Array(1, 2, 3)
    array.draft.append("guest")
    array.draft.insert(1, "guest")
    array.draft.remove("guest")
    array.draft.pop()

    assert array.ops() == []


def test_text_in_an_element_is_appended_to():
    array = Array("log", 1)
    array.draft[0] += " more"
    array.draft.append_text(0, " and more")

    assert array.draft[0] == "log more and more"
    assert array.ops() == [["a", [0], " more and more"]]


def test_append_text_wants_text():
    array = Array(1)
    with pytest.raises(InvalidJson, match="str to int at 0"):
        array.draft.append_text(0, "x")


def test_a_new_order_is_published_as_one_when_that_is_shorter():
    array = Array(*rows(5))
    array.draft.reverse()
    array.draft[0]["text"] += "!"

    assert array.ops() == [["m", [], [4, 3, 2, 1, 0]], ["a", [0, "text"], "!"]]


def test_one_element_that_moved_is_published_as_a_move_in_a_long_array():
    array = Array(*rows(500))
    array.draft[400]["id"] = -1
    array.draft.sort(key=lambda row: row["id"])

    assert array.ops() == [["p", [], 0, 0, [{"id": -1, "text": "row 400"}]], ["p", [], 401, 1, []]]


def test_inserting_in_order_is_published_as_the_insertion_alone():
    array = Array(*rows(50))
    array.draft.append({"id": 20.5})
    array.draft.sort(key=lambda row: row["id"])

    assert array.ops() == [["p", [], 21, 0, [{"id": 20.5}]]]


def test_sorting_what_is_sorted_publishes_nothing():
    array = Array(1, 2, 3)
    array.draft.sort()

    assert array.ops() == []


def test_many_edits_far_apart_are_still_published_one_by_one():
    array = Array(*rows(2_000))
    for place in range(0, 2_000, 40):
        array.draft[place] = "edited"

    assert array.ops() == [["s", [place], "edited"] for place in range(0, 2_000, 40)]


@given(
    st.integers(0, 120),
    st.lists(st.tuples(st.sampled_from("sssiiddaapkkkr"), st.integers(0, 200), st.integers(0, 4)), max_size=100),
)
@settings(deadline=None, max_examples=60)
def test_many_edits_of_a_long_array_come_out_right(count, edits):
    array, plain = Array(*rows(count)), rows(count)

    for number, (kind, place, width) in enumerate(edits):
        for target in (array.draft, plain):
            edit(target, kind, place % (len(target) + 1), width, number)

    assert array.draft == plain
    assert len(array.draft) == len(plain)
    assert apply_immutable(array.tracker.value, array.ops()) == plain


def edit(target, kind, place, width, number):
    """One edit: set, insert, delete, add, pop, edit a kept element, or turn round."""
    if kind == "s":
        target[place : place + width] = [{"set": number + extra} for extra in range(width)]
    elif kind == "i":
        target.insert(place, number)
    elif kind == "d":
        del target[place : place + width]
    elif kind == "a":
        target.append({"added": number})
    elif kind == "p":
        target.pop() if target else None
    elif kind == "k" and place < len(target) and not isinstance(target[place], int):
        target[place]["kept"] = number
    elif kind == "r" and width == 0:
        target.reverse()


READS = [
    lambda draft: draft[0],
    lambda draft: draft[0:0],
    len,
    list,
    lambda draft: list(reversed(draft)),
    lambda draft: 1 in draft,
    lambda draft: draft.index(1),
    lambda draft: draft.count(1),
    lambda draft: draft == [],
    lambda draft: draft.copy(),
    lambda draft: draft.to_json(),
]

WRITES = [
    lambda draft: draft.__setitem__(0, 1),
    lambda draft: draft.__setitem__(slice(0, 0), []),
    lambda draft: draft.__delitem__(0),
    lambda draft: draft.__delitem__(slice(0, 0)),
    lambda draft: draft.append(1),
    lambda draft: draft.extend([]),
    lambda draft: draft.__iadd__([]),
    lambda draft: draft.insert(0, 1),
    lambda draft: draft.pop(),
    lambda draft: draft.remove(1),
    lambda draft: draft.clear(),
    lambda draft: draft.reverse(),
    lambda draft: draft.sort(),
    lambda draft: draft.sort(key=str),
    lambda draft: draft.append_text(0, "x"),
]


@pytest.mark.parametrize("use", READS + WRITES)
@pytest.mark.parametrize("end", ["prepare", "abort"])
def test_a_revoked_draft_refuses_every_read_and_write(end, use):
    array = Array(1, [1])
    inner = array.draft[1]
    getattr(array.change, end)()

    for revoked in (array.draft, inner):
        with pytest.raises(DraftRevoked):
            use(revoked)
