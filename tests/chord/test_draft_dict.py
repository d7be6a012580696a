"""An object draft has the manners of a dict, copies what it is given, and ends with its change."""

import copy
import gc

import pytest
from perdure.chord import Draft, DraftRevoked, InvalidJson, ListDraft, Tracker


@pytest.fixture
def change():
    return Tracker({"name": "x", "n": 1, "on": True, "none": None, "in": {"a": {"b": 1}}, "rows": [1]}).begin_change()


@pytest.fixture
def draft(change):
    return change.state


def published(change):
    return change.prepare().ops


def test_reading_gives_plain_atoms_and_drafts_of_containers(draft):
    assert draft["name"] == "x"
    assert type(draft["name"]) is str
    assert draft["on"] is True
    assert draft["none"] is None
    assert type(draft["in"]["a"]) is Draft
    assert type(draft["rows"]) is ListDraft
    assert draft["in"] is draft["in"]


def test_a_missing_key_behaves_as_in_a_dict(draft):
    assert "gone" not in draft
    assert 5 not in draft
    assert draft.get("gone") is None
    assert draft.get("gone", 7) == 7
    assert draft.pop("gone", 7) == 7
    for missing in (lambda: draft["gone"], lambda: draft.pop("gone"), lambda: draft.append_text("gone", "x")):
        with pytest.raises(KeyError, match="gone"):
            missing()
    with pytest.raises(KeyError):
        del draft["gone"]


def test_keys_are_counted_and_listed_as_edited(draft):
    del draft["n"]
    draft["new"] = 1
    draft["name"] = "y"

    assert len(draft) == 6
    assert list(draft) == ["name", "on", "none", "in", "rows", "new"]
    assert list(reversed(draft)) == ["new", "rows", "in", "none", "on", "name"]
    assert next(iter(draft.values())) == "y"
    assert dict(draft.items())["new"] == 1
    assert "n" not in draft.keys()  # noqa: SIM118 - the view is what is asked


def test_a_key_deleted_and_set_again_is_there_once(draft, change):
    del draft["n"]
    draft["n"] = 2

    assert (len(draft), draft["n"]) == (6, 2)
    assert published(change) == [["s", ["n"], 2]]


def test_update_sets_all_or_none(draft, change):
    draft.update({"n": 2}, extra={"x": [1]})
    with pytest.raises(InvalidJson, match=r"\$\['bad'\]"):
        draft.update(n=3, bad=float("nan"))
    draft |= [("on", False)]

    assert published(change) == [["s", ["n"], 2], ["s", ["extra"], {"x": [1]}], ["s", ["on"], False]]


def test_update_takes_another_draft(draft, change):
    draft["in"].update(draft["in"]["a"])

    assert published(change) == [["s", ["in", "b"], 1]]


def test_setdefault_returns_what_stands_there_then(draft):
    assert draft.setdefault("n", 5) == 1
    draft.setdefault("log", []).append("first")

    assert draft["log"] == ["first"]


def test_union_gives_a_plain_dict(draft):
    union = draft["in"] | {"c": 2}

    assert (type(union), union) == (dict, {"a": {"b": 1}, "c": 2})
    assert {"a": 0, "z": 1} | draft["in"] == {"a": {"b": 1}, "z": 1}


def test_popitem_takes_the_last_key(draft):
    assert draft.popitem() == ("rows", [1])
    draft.clear()

    with pytest.raises(KeyError):
        draft.popitem()


def test_clear_removes_old_and_new_keys(draft, change):
    draft["new"] = 1
    draft.clear()
    draft["n"] = 3

    assert draft == {"n": 3}
    value = change.prepare().value
    assert value == {"n": 3}


def test_what_is_assigned_is_copied_at_once(draft, change):
    mine = {"list": [1]}
    draft["mine"] = mine
    mine["list"].append(2)
    draft["mine"]["list"].append(3)

    assert mine == {"list": [1, 2]}
    assert published(change) == [["s", ["mine"], {"list": [1, 3]}]]


def test_what_is_popped_is_detached(draft, change):
    held = draft["in"]
    taken = draft.pop("in")
    taken["a"]["b"] = 5
    held["a"]["b"] = 6

    assert (type(taken), taken) == (dict, {"a": {"b": 5}})
    assert published(change) == [["d", ["in"]]]


def test_assigning_a_draft_copies_its_current_value(draft, change):
    draft["in"]["a"]["b"] = 2
    draft["twin"] = draft["in"]
    draft["in"]["a"]["b"] = 3

    assert draft["twin"] == {"a": {"b": 2}}
    assert published(change) == [["s", ["in", "a", "b"], 3], ["s", ["twin"], {"a": {"b": 2}}]]


def test_augmented_assignment_of_a_container_edits_it_in_place(draft, change):
    held = draft["rows"]
    draft["rows"] += [2]
    draft["in"] |= {"c": 1}
    held.append(3)

    assert published(change) == [["p", ["rows"], 1, 0, [2, 3]], ["s", ["in", "c"], 1]]


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, b"x", "\ud800", {"a": [object()]}])
def test_an_invalid_value_is_refused_where_it_is_assigned(draft, change, value):
    with pytest.raises(InvalidJson, match=r"\$\['bad'\]"):
        draft["bad"] = value

    assert "bad" not in draft
    assert published(change) == []


@pytest.mark.parametrize("key", [5, None, ("a",), "\ud800"])
def test_an_invalid_key_is_refused(draft, change, key):
    with pytest.raises(InvalidJson):
        draft[key] = 1

    assert published(change) == []


def test_the_message_names_the_path_from_the_root(draft):
    draft["rows"].append({"x": {}})
    for use in (
        lambda: draft["rows"][1]["x"].update(bad=[float("nan")]),
        lambda: draft["rows"][1]["x"].__setitem__("bad", [float("nan")]),
    ):
        with pytest.raises(InvalidJson, match=r"nan at \$\['rows'\]\[1\]\['x'\]\['bad'\]\[0\]$"):
            use()


def test_text_that_grows_is_checked_where_it_is_new(draft, change):
    draft["name"] = "né 日本"
    draft["name"] += " 😀"
    with pytest.raises(InvalidJson, match="lone surrogate"):
        draft["name"] += "\ud83d"

    assert published(change) == [["s", ["name"], "né 日本 😀"]]


def test_copying_a_draft_gives_a_plain_value(draft):
    assert type(copy.copy(draft["in"])) is dict
    assert copy.deepcopy({"all": [draft["in"]]}) == {"all": [{"a": {"b": 1}}]}


def test_a_document_cannot_grow_deeper_than_its_bound():
    draft = Tracker({"in": {}}).begin_change().state["in"]

    with pytest.raises(InvalidJson, match="nesting deeper"):
        for _ in range(300):
            draft["in"] = {}
            draft = draft["in"]


def test_append_text_grows_text_without_reading_it(draft, change):
    for _ in range(3):
        draft.append_text("name", "ab")

    assert draft["name"] == "xababab"
    draft.append_text("name", "!")
    draft["name"] += "?"
    assert published(change) == [["a", ["name"], "ababab!?"]]


def test_append_text_goes_for_text_assigned_in_the_same_change_too(draft, change):
    draft["say"] = {"text": "a"}
    draft["say"].append_text("text", "b")

    assert draft["say"] == {"text": "ab"}
    assert published(change) == [["s", ["say"], {"text": "ab"}]]


@pytest.mark.parametrize(("key", "chunk"), [("n", "x"), ("in", "x"), ("none", "x"), ("name", 5), ("name", "\ud83d")])
def test_append_text_wants_text_on_both_sides(draft, change, key, chunk):
    with pytest.raises(InvalidJson):
        draft.append_text(key, chunk)

    assert published(change) == []


def test_comparing_goes_by_value(draft):
    assert draft["in"] == {"a": {"b": 1}}
    assert draft["in"] != {"a": {"b": 2}}
    assert draft["in"] == draft["in"].copy()
    with pytest.raises(TypeError):
        hash(draft)


def test_a_copy_is_plain_and_detached(draft):
    twin = draft.to_json()
    twin["in"]["a"]["b"] = 9

    assert (type(twin["in"]), draft["in"]["a"]["b"]) == (dict, 1)


def test_the_representation_shows_the_value_while_it_lasts(draft, change):
    assert repr(draft["in"]) == "Draft({'a': {'b': 1}})"
    change.abort()
    assert repr(draft) == "<Draft, revoked>"


READS = [
    lambda draft: draft["n"],
    lambda draft: draft.get("n"),
    lambda draft: "n" in draft,
    len,
    list,
    lambda draft: list(reversed(draft)),
    lambda draft: list(draft.keys()),
    lambda draft: list(draft.values()),
    lambda draft: list(draft.items()),
    lambda draft: draft == {},
    lambda draft: draft | {},
    lambda draft: {} | draft,
    lambda draft: draft.copy(),
    lambda draft: draft.to_json(),
]

WRITES = [
    lambda draft: draft.update(n=1),
    lambda draft: draft.update(),
    lambda draft: draft.setdefault("n", 1),
    lambda draft: draft.setdefault("new", 1),
    lambda draft: draft.pop("n"),
    lambda draft: draft.pop("new", None),
    lambda draft: draft.popitem(),
    lambda draft: draft.clear(),
    lambda draft: draft.append_text("name", "x"),
    lambda draft: draft.__setitem__("n", 1),
    lambda draft: draft.__delitem__("n"),
    lambda draft: draft.__ior__({"n": 1}),
]


@pytest.mark.parametrize("use", READS + WRITES)
@pytest.mark.parametrize("end", ["prepare", "abort"])
def test_a_revoked_draft_refuses_every_read_and_write(change, draft, end, use):
    inner = draft["in"]
    getattr(change, end)()

    for revoked in (draft, inner):
        with pytest.raises(DraftRevoked):
            use(revoked)


def test_an_iteration_ends_with_the_draft(change, draft):
    keys = iter(draft)
    next(keys)
    change.abort()

    with pytest.raises(DraftRevoked):
        next(keys)


def test_a_finished_draft_is_freed_without_the_garbage_collector():
    def drafts():
        return sum(isinstance(thing, Draft | ListDraft) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = drafts()
        change = Tracker({"in": {"rows": [{"x": 1}]}}).begin_change()
        change.state["in"]["rows"].append({"y": []})
        change.state["in"]["rows"][1]["y"].append(change.state["in"]["rows"][0])
        assert drafts() > before
        change.prepare()
        assert drafts() == before
    finally:
        gc.enable()
