"""What counts as strict JSON, and what a copy of it promises."""

import copy
import enum
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.chord import MAX_DEPTH, InvalidJson, Tracker, copy_json
from perdure.chord.values import clone, same_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


class Colour(enum.StrEnum):
    RED = "red"


def nested(depth):
    value = "deep"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


def containers(value):
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers(item)


@given(JSON)
@settings(deadline=None)
def test_a_copy_is_equal_and_shares_no_container(value):
    twin = copy_json(value)

    assert json.dumps(twin) == json.dumps(value)
    assert not {id(part) for part in containers(twin)} & {id(part) for part in containers(value)}


@pytest.mark.parametrize("number", [2**53 + 1, -(2**200), 0.1, -0.0, 1e308])
def test_numbers_are_kept_as_they_are(number):
    twin = copy_json([number])[0]

    assert type(twin) is type(number)
    assert (twin, math.copysign(1, twin)) == (number, math.copysign(1, number))


@pytest.mark.parametrize(
    ("value", "where", "fault"),
    [
        ({"a": [1, float("nan")]}, "$['a'][1]", "nan"),
        ([float("inf")], "$[0]", "inf"),
        ({"a": {2: "x"}}, "$['a']", "the key 2"),
        ({"a": {None: "x"}}, "$['a']", "the key None"),
        ({10**5_000: "x"}, "$", "the key <int>"),
        ({"a": {"\ud800": 1}}, "$['a']", "the key '\\ud800'"),
        ({"a": b"bytes"}, "$['a']", "bytes"),
        ({"a": (1, 2)}, "$['a']", "tuple"),
        ([{1}], "$[0]", "set"),
        ([Colour.RED], "$[0]", "Colour"),
        ({"a": {"b": object()}}, "$['a']['b']", "object"),
        ({"a": "ok \ud83d"}, "$['a']", "lone surrogate"),
        (float("-inf"), "$", "-inf"),
        ([10**400], "$[0]", "an int of 1329 bits"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_path(value, where, fault):
    with pytest.raises(InvalidJson) as caught:
        copy_json(value)

    assert fault in str(caught.value)
    assert str(caught.value).endswith(f" at {where}")


def test_the_path_in_the_message_begins_where_the_caller_says():
    with pytest.raises(InvalidJson, match=r"at \$\['rows'\]\[3\]\['x'\]"):
        copy_json({"x": {1, 2}}, path=("rows", 3))


def test_a_cycle_is_refused():
    value = {"a": []}
    value["a"].append(value)

    with pytest.raises(InvalidJson, match=r"a cycle at \$\['a'\]\[0\]"):
        copy_json(value)


def test_an_object_at_two_places_is_no_cycle_and_becomes_two():
    shared = {"x": 1}

    twin = copy_json([shared, shared])

    assert twin == [{"x": 1}, {"x": 1}]
    assert twin[0] is not twin[1]


def test_nesting_is_bounded():
    assert copy_json(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    with pytest.raises(InvalidJson, match=f"nesting deeper than {MAX_DEPTH} containers"):
        copy_json(nested(MAX_DEPTH + 1))


def test_a_stack_that_is_nearly_used_up_is_an_error_of_the_value_not_a_crash():
    def dive(levels):
        return dive(levels - 1) if levels else copy_json(nested(MAX_DEPTH))

    with pytest.raises((InvalidJson, RecursionError)) as caught:
        for levels in range(600, 1000, 20):
            dive(levels)

    assert caught.type is InvalidJson


def test_a_draft_counts_as_its_current_value():
    draft = Tracker({"a": [1], "t": "x"}).begin_change().state
    draft["a"].append({"b": 2})
    draft.append_text("t", "y")

    assert copy_json({"all": draft, "part": draft["a"]}) == {
        "all": {"a": [1, {"b": 2}], "t": "xy"},
        "part": [1, {"b": 2}],
    }


@given(JSON, JSON)
@settings(deadline=None)
def test_same_json_is_equality_of_json_text_without_key_order(one, other):
    def text(value):
        return json.dumps(value, sort_keys=True).replace("-0.0", "0.0")

    assert same_json(one, copy.deepcopy(one))
    assert same_json(one, other) == (text(one) == text(other))


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ([1], [True]), ({"a": 0}, {"a": False})])
def test_same_json_tells_apart_what_python_holds_for_equal(one, other):
    assert not same_json(one, other)


@given(JSON)
@settings(deadline=None)
def test_a_clone_is_equal_and_shares_no_container(value):
    twin = clone(value)

    assert json.dumps(twin) == json.dumps(value)
    assert not {id(part) for part in containers(twin)} & {id(part) for part in containers(value)}
