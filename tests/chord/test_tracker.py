"""A tracker goes from revision to revision, and never changes one that it has handed out."""

import copy
import random

import pytest
from perdure.chord import (
    MAX_DEPTH,
    DraftRevoked,
    ListDraft,
    StaleChange,
    Tracker,
    apply,
    apply_immutable,
    copy_json,
)

LONG = "a line that is longer than the operations on it"


def adopt(tracker, edit, **how):
    """One change from begin to adoption; returns what was prepared."""
    change = tracker.begin_change()
    edit(change.state)
    prepared = change.prepare()
    tracker.adopt(prepared, **how)
    return prepared


def set_n(value):
    return lambda draft: draft.update(n=value)


# A change


def test_a_change_leads_from_one_revision_to_the_next_and_shares_the_rest():
    base = {"a": {"x": [1]}, "b": {"y": 1}, "c": [{"z": 1}, {"z": 2}]}
    before = copy.deepcopy(base)
    tracker = Tracker(base)

    def edit(draft):
        draft["b"]["y"] = 2
        draft["c"][1]["z"] = 3

    prepared = adopt(tracker, edit)

    assert prepared.ops == [["s", ["b", "y"], 2], ["s", ["c", 1, "z"], 3]]
    assert (prepared.base_revision, tracker.revision) == (0, 1)
    assert prepared.base is base
    assert base == before
    assert tracker.value is prepared.value
    assert tracker.value["a"] is base["a"]
    assert tracker.value["c"][0] is base["c"][0]


def test_a_change_without_edits_publishes_nothing():
    tracker = Tracker({"a": {"b": [1]}})

    def read(draft):
        assert draft["a"]["b"][0] == 1

    prepared = adopt(tracker, read)

    assert prepared.ops == []
    assert prepared.value is prepared.base


@pytest.mark.parametrize(
    "edit",
    [
        lambda draft: draft.update(n=1),
        lambda draft: (draft.update(n=2), draft.update(n=1)),
        lambda draft: (draft.update(new=2), draft.pop("new")),
        lambda draft: draft.update(rows=[{"a": 1}, 2]),
        lambda draft: (draft["rows"].pop(), draft["rows"].append(2)),
        lambda draft: draft["rows"][0].update(a=1),
        lambda draft: draft.append_text("text", ""),
    ],
)
def test_edits_that_come_to_nothing_publish_nothing(edit):
    assert adopt(Tracker({"n": 1, "rows": [{"a": 1}, 2], "text": "x"}), edit).ops == []


def test_numbers_and_booleans_that_python_holds_for_equal_are_changes():
    tracker = Tracker({"n": 1, "on": True, "f": 2, "in": [0]})

    prepared = adopt(tracker, lambda draft: draft.update(n=True, on=1, f=2.0, **{"in": [False]}))

    assert prepared.ops == [["s", ["n"], True], ["s", ["on"], 1], ["s", ["f"], 2.0], ["s", ["in", 0], False]]
    assert repr(tracker.value) == "{'n': True, 'on': 1, 'f': 2.0, 'in': [False]}"


def test_only_one_change_is_open_at_a_time():
    tracker = Tracker({})
    change = tracker.begin_change()

    with pytest.raises(StaleChange, match="one open change"):
        tracker.begin_change()
    change.abort()
    tracker.begin_change().prepare()
    tracker.begin_change()


def test_a_change_ends_once():
    tracker = Tracker({"n": 1})
    change = tracker.begin_change()
    change.state["n"] = 2
    change.prepare()

    for use in (change.prepare, lambda: change.state):
        with pytest.raises(DraftRevoked):
            use()
    change.abort()
    change.abort()
    assert (tracker.value, tracker.revision) == ({"n": 1}, 0)


def test_aborting_a_change_leaves_everything_as_it_was():
    tracker = Tracker({"n": 1})
    change = tracker.begin_change()
    change.state["n"] = 2
    change.abort()
    change.abort()

    assert (tracker.value, tracker.revision) == ({"n": 1}, 0)


@pytest.mark.parametrize("value", [None, 1, "text"])
def test_only_objects_and_arrays_can_be_edited(value):
    with pytest.raises(StaleChange, match="prepare_replace"):
        Tracker(value).begin_change()


def test_an_array_may_be_the_root():
    tracker = Tracker([1])

    prepared = adopt(tracker, lambda draft: draft.append(2))

    assert prepared.ops == [["p", [], 1, 0, [2]]]
    assert type(tracker.begin_change().state) is ListDraft


# Adoption


def test_a_replacement_is_one_operation():
    tracker = Tracker({"n": 1})
    value = {"m": 2}
    prepared = tracker.prepare_replace(value)

    assert prepared.ops == [["r", {"m": 2}]]
    assert prepared.value is value
    tracker.adopt(prepared)
    assert tracker.value is value


def test_a_prepared_change_is_adopted_on_its_own_revision_only():
    tracker = Tracker({"n": 1})
    first, second = tracker.prepare_replace({"n": 2}), tracker.prepare_replace({"n": 3})
    tracker.adopt(first)

    for stale in (first, second, Tracker({}).prepare_replace({})):
        with pytest.raises(StaleChange):
            tracker.adopt(stale)
    assert (tracker.value, tracker.revision) == ({"n": 2}, 1)


def edit_at_random(draft, choose, step):
    draft["map"][choose.choice("abc")] = {"x": step}
    draft.append_text("text", f"{step},")
    draft["rows"].insert(choose.randrange(4), {"step": step, "in": {"n": 0}})
    draft["rows"][choose.randrange(len(draft["rows"]))]["in"]["n"] += 1
    if choose.random() < 0.2:
        draft["rows"].sort(key=lambda row: row["in"]["n"])
    if choose.random() < 0.2:
        draft["constructor"]["rows"].append(step)
    if choose.random() < 0.2:
        del draft["rows"][5:]
    if choose.random() < 0.1:
        draft["moved"] = draft["rows"]


def test_what_was_handed_out_stays_as_it_was_whatever_is_adopted_later():
    tracker = Tracker({"map": {"a": {"x": 1}, "b": {}}, "text": "", "rows": [], "constructor": {"rows": []}})
    choose = random.Random(5)
    seen = []

    def look(thing):
        seen.append((thing, copy.deepcopy(thing)))

    for step in range(400):
        change = tracker.begin_change()
        edit_at_random(change.state, choose, step)
        prepared = change.prepare()
        look(prepared.ops)
        if choose.random() < 0.1:
            look(prepared.base)
        if choose.random() < 0.1:
            look(prepared.value)
        tracker.adopt(prepared, consume=choose.random() < 0.8)
        if choose.random() < 0.1:
            look(tracker.value)
        if choose.random() < 0.1:
            look(prepared.value)

    assert all(thing == then for thing, then in seen)
    assert tracker.value["text"] == "".join(f"{step}," for step in range(400))


def test_consuming_gives_up_the_base_and_says_so():
    tracker = Tracker({"n": 1})
    first = adopt(tracker, set_n(2), consume=True)
    with pytest.raises(StaleChange, match="given up"):
        _ = first.base
    assert first.value == {"n": 2}

    second = adopt(tracker, set_n(3), consume=True)
    third = adopt(tracker, set_n(4), consume=True)
    with pytest.raises(StaleChange, match="given up"):
        _ = second.value
    assert (first.value, third.value) == ({"n": 2}, {"n": 4})


def test_consuming_changes_in_place_only_what_nobody_has_seen():
    tracker = Tracker({"in": {"n": 1}})
    before = tracker.value
    adopt(tracker, lambda draft: draft["in"].update(n=2), consume=True)
    own = tracker._value
    adopt(tracker, lambda draft: draft["in"].update(n=3), consume=True)

    assert before == {"in": {"n": 1}}
    assert tracker._value is own
    seen = tracker.value
    adopt(tracker, lambda draft: draft["in"].update(n=4), consume=True)
    assert (seen, tracker.value) == ({"in": {"n": 3}}, {"in": {"n": 4}})


def test_a_change_that_is_open_is_not_disturbed_by_an_adoption():
    tracker = Tracker({"n": {"x": 1}, "m": 1})
    adopt(tracker, lambda draft: draft["n"].update(x=2), consume=True)
    prepared = tracker.prepare_replace({"n": {"x": 9}, "m": 1})
    change = tracker.begin_change()
    tracker.adopt(prepared, consume=True)

    assert change.state["n"]["x"] == 2
    with pytest.raises(StaleChange):
        tracker.adopt(change.prepare())


def test_a_tracker_does_not_keep_what_was_deleted():
    tracker = Tracker({"slots": {}})
    for step in range(2_000):
        adopt(tracker, lambda draft, step=step: draft["slots"].update({f"k{step}": {"x": 1}}), consume=True)
        adopt(tracker, lambda draft, step=step: draft["slots"][f"k{step}"].update(x=2), consume=True)
        adopt(tracker, lambda draft, step=step: draft["slots"].pop(f"k{step}"), consume=True)

    assert len(tracker._owned) < 300
    assert tracker.value == {"slots": {}}


# What is published


def test_an_object_assigned_anew_is_published_as_what_changed_in_it():
    tracker = Tracker({"view": {"title": "t", "lines": ["a", LONG], "foot": {"n": 1}}})
    view = {"title": "t", "lines": ["a", LONG + " more", "c"], "foot": {"n": 1}}

    assert adopt(tracker, lambda draft: draft.update(view=view)).ops == [
        ["a", ["view", "lines", 1], " more"],
        ["p", ["view", "lines"], 2, 0, ["c"]],
    ]


def test_a_window_of_text_is_published_as_trim_and_append():
    log = "".join(f"line {place}\n" for place in range(30))
    tracker = Tracker({"log": log})

    assert adopt(tracker, lambda draft: draft.update(log=log[70:] + "line 30 😀\n")).ops == [
        ["t", ["log"], 70],
        ["a", ["log"], "line 30 😀\n"],
    ]


def test_a_large_change_falls_back_to_a_replacement():
    tracker = Tracker({"grid": {f"k{place}": place for place in range(1_000)}, "n": 1})

    def rewrite(draft):
        for key in draft["grid"]:
            draft["grid"][key] += 1

    prepared = adopt(tracker, rewrite)

    assert [op[:2] for op in prepared.ops] == [["s", ["grid"]]]


def test_a_rewritten_document_is_replaced_at_its_root():
    tracker = Tracker({f"k{place}": place for place in range(100)})

    def rewrite(draft):
        for key in draft:
            draft[key] = -draft[key] - 1

    assert [op[0] for op in adopt(tracker, rewrite).ops] == ["r"]


@pytest.mark.parametrize("key", ["__proto__", "constructor", "prototype"])
def test_reserved_keys_are_data_and_travel_with_the_object_that_holds_them(key):
    tracker = Tracker({"words": {key: {"n": 1}, "other": 1}, "beside": 1})

    def count(draft):
        draft["words"][key]["n"] += 1
        draft["words"]["other"] = 2
        draft["beside"] = 2

    prepared = adopt(tracker, count)

    assert prepared.ops == [["s", ["words"], {key: {"n": 2}, "other": 2}], ["s", ["beside"], 2]]
    assert adopt(tracker, lambda draft: draft.update({key: 1})).ops == [["r", tracker.value]]
    assert adopt(tracker, lambda draft: draft.update(words={key: 1})).ops == [["s", ["words"], {key: 1}]]
    assert adopt(tracker, lambda draft: draft.update(beside=3)).ops == [["s", ["beside"], 3]]


def test_operations_are_detached_from_the_base():
    base = {"rows": [{"id": place, "text": "x" * 20} for place in range(3)]}
    tracker = Tracker(base)
    prepared = adopt(tracker, lambda draft: draft["rows"].append({"id": 3, "tags": []}))
    follower = copy.deepcopy(base)

    follower = apply(follower, copy.deepcopy(prepared.ops))
    follower = apply(follower, [["p", ["rows", 3, "tags"], 0, 0, [1]]])

    assert tracker.value["rows"][3] == {"id": 3, "tags": []}
    assert base == {"rows": [{"id": place, "text": "x" * 20} for place in range(3)]}


def test_the_deepest_document_is_changed_like_any_other():
    def nested(depth, inner):
        for level in range(depth):
            inner = [inner] if level % 2 else {"in": inner}
        return inner

    tracker = Tracker(nested(MAX_DEPTH, 1))

    def change_the_deepest(draft):
        for _ in range(MAX_DEPTH - 1):
            draft = draft[0] if isinstance(draft, ListDraft) else draft["in"]
        draft["in"] = 2

    def change_the_highest(draft):
        draft.extend(draft.to_json() * 10)
        draft.sort(key=repr)
        draft[0] = nested(MAX_DEPTH - 1, 3)
        assert draft != []

    assert [op[0] for op in adopt(tracker, change_the_deepest).ops] == ["s"]
    assert copy_json(tracker.value) == nested(MAX_DEPTH, 2)
    prepared = adopt(tracker, change_the_highest)
    assert apply_immutable(nested(MAX_DEPTH, 2), prepared.ops) == tracker.value


def test_elements_that_moved_travel_as_copies():
    tracker = Tracker([{"id": 1, "in": [1]}, {"id": 2, "in": [2]}])

    def turn_and_add(draft):
        draft.append("new")
        draft.reverse()

    prepared = adopt(tracker, turn_and_add)

    assert tracker.value == ["new", {"id": 2, "in": [2]}, {"id": 1, "in": [1]}]
    assert not any(payload is element for op in prepared.ops for payload in op[4] for element in prepared.base)


def test_text_from_a_javascript_peer_may_be_tracked_with_its_halves():
    tracker = Tracker({"t": "a"}, lone_surrogates=True)
    replica = tracker.value
    for chunk in ("\ud83d", "\ude00", "!"):
        prepared = adopt(tracker, lambda draft, chunk=chunk: draft.append_text("t", chunk))
        replica = apply_immutable(replica, prepared.ops)
        assert replica == tracker.value

    assert replica == {"t": "a😀!"}
