"""What `apply` and `apply_immutable` promise beyond the vectors: ownership, cost and messages."""

import copy
import time

import pytest
from perdure.chord import InvalidOp, PathMissing, UnsafePath, apply, apply_immutable


def test_apply_adopts_payloads_and_works_in_place():
    value, payload = {"rows": [1]}, {"x": 1}

    result = apply(value, [["s", ["in"], payload], ["s", ["in", "x"], 2], ["p", ["rows"], 1, 0, [2]]])

    assert result is value
    assert value == {"rows": [1, 2], "in": {"x": 2}}
    assert payload == {"x": 2}


def test_apply_immutable_leaves_payloads_alone_and_shares_those_it_did_not_edit():
    edited, kept = {"x": 1}, {"y": 1}
    ops = [["s", ["edited"], edited], ["s", ["kept"], kept], ["s", ["edited", "x"], 2]]

    value = apply_immutable({}, ops)

    assert value == {"edited": {"x": 2}, "kept": {"y": 1}}
    assert edited == {"x": 1}
    assert value["kept"] is kept


def test_apply_immutable_of_nothing_is_the_value_itself():
    value = {"a": []}

    assert apply_immutable(value, []) is value


def test_a_wide_object_is_copied_once_for_a_batch():
    wide = {f"k{place}": place for place in range(100_000)}

    def cost(count):
        started = time.process_time()
        apply_immutable(wide, [["s", [f"k{place}"], -1] for place in range(count)])
        return time.process_time() - started

    assert min(cost(1_000) for _ in range(3)) < 100 * min(cost(1) for _ in range(3))


def test_appending_in_place_does_not_copy_the_text():
    def cost(length):
        value = {"text": "x" * length}
        value["text"] += "y"  # a text of its own, not a shared constant
        started = time.process_time()
        for _ in range(300):
            apply(value, [["a", ["text"], "chunk"]])
        return time.process_time() - started

    assert min(cost(20_000_000) for _ in range(3)) < 10 * min(cost(20_000) for _ in range(3)) + 0.02


def test_a_text_that_somebody_holds_is_not_changed_by_an_append():
    value = {"text": "a" * 100}
    held = value["text"] = value["text"] + "b"
    before = copy.copy(held.encode())

    apply(value, [["a", ["text"], "c"]])

    assert held.encode() == before
    assert value["text"] == held + "c"


@pytest.mark.parametrize(
    ("ops", "error", "message"),
    [
        ("ops", InvalidOp, "expected a list of operations, got 'ops'"),
        ([["x", []]], InvalidOp, r"starts with one of r s d a t p m, got \['x', \[\]\]"),
        ([["s", [], 1]], InvalidOp, r'expected \["s", path, value\] with a path that is not empty, got'),
        ([["s", ["a", "__proto__"], 1]], UnsafePath, "the key '__proto__' is reserved"),
        ([["s", ["rows", "0"], 1]], UnsafePath, "the key '0' cannot address an array"),
        ([["s", ["gone", "x"], "y" * 500]], PathMissing, r"nothing stands at 'gone' on the path of .{1,80}$"),
        ([["t", ["rows"], -(10**5_000)]], InvalidOp, "got <list>"),
        ([["p", ["rows"], 0, 0, 5]], InvalidOp, 'expected .*"p", path, index, count, items'),
    ],
)
def test_a_message_says_what_was_expected_and_quotes_the_operation(ops, error, message):
    with pytest.raises(error, match=message):
        apply({"rows": [1]}, ops)


def test_a_large_operation_does_not_make_a_large_message():
    op = ["s", ["gone", "x"], [["y" * 100_000] * 100] * 100]

    with pytest.raises(PathMissing) as caught:
        apply_immutable({}, [op])

    assert len(str(caught.value)) < 250
