"""Chord agrees with the reference implementation, on data that the reference made.

vectors/README.md says where the data is from. Tags that bind nobody, by the data's own account, are skipped by name
below: drafts copy what is assigned, so reference semantics (`alias`, `held`) and edits the reference forbids (`throws`)
mean something else here.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from perdure.chord import (
    Decoder,
    Encoder,
    InvalidOp,
    OutOfRange,
    PathMissing,
    Tracker,
    UnsafePath,
    apply,
    apply_immutable,
)
from perdure.chord.diff import text_changes

ERRORS = {
    "invalid-op": InvalidOp,
    "unsafe-path": UnsafePath,
    "out-of-range": OutOfRange,
    "path-missing": PathMissing,
}


def load(name):
    lines = (Path(__file__).parent / "vectors" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]


def same(one, other):
    """Equal as JavaScript sees it: numbers as doubles, text as UTF-16 units, true apart from 1."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return float(one) == float(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, str):
        return units(one) == units(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return len(one) == len(other) and all(map(same, one, other))


def units(text):
    return text.encode("utf-16-le", "surrogatepass")


def outcome(function, *args):
    """The result of a call, or the class of the error that it raised."""
    try:
        return function(*args), None
    except tuple(ERRORS.values()) as error:
        return None, type(error)


def size(ops):
    """Bytes of the JSON text as JavaScript writes it, lone surrogates escaped."""
    return len(json.dumps(ops, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace"))


# Operations


@pytest.mark.parametrize("case", load("apply"))
def test_apply_gives_the_reference_result_or_error(case):
    base = copy.deepcopy(case.get("base"))

    result, error = outcome(apply, base, copy.deepcopy(case["ops"]))

    assert error is ERRORS.get(case.get("error"))
    if error is None:
        assert same(result, case.get("result"))
    else:
        assert same(base, case.get("base_after", case.get("base")))


@pytest.mark.parametrize("case", load("apply"))
def test_apply_immutable_gives_the_same_and_changes_nothing(case):
    base, ops = copy.deepcopy(case.get("base")), copy.deepcopy(case["ops"])

    result, error = outcome(apply_immutable, base, ops)

    # The reference looks at the path before the operation here, so both classes are right where it names two.
    allowed = {ERRORS.get(case.get("error")), ERRORS.get(case.get("immutable", case).get("error"))}
    assert error in allowed
    assert error is not None or same(result, case.get("result"))
    assert same(base, case.get("base"))
    assert same(ops, case["ops"])


@pytest.mark.parametrize("case", [case for case in load("apply") if "shared" in case.values[0]])
def test_apply_immutable_shares_exactly_what_the_reference_shares(case):
    base = copy.deepcopy(case["base"])

    result = apply_immutable(base, copy.deepcopy(case["ops"]))

    old = {id(container): path for path, container in containers(base)}
    shared = {json.dumps(path): json.dumps(old[id(part)]) for path, part in containers(result) if id(part) in old}
    expected = {json.dumps(new): json.dumps(path) for new, path in case["shared"]}
    assert expected.items() <= shared.items()
    assert all(any(inside(json.loads(path), json.loads(top)) for top in expected) for path in shared)


def containers(value, path=()) -> Iterator[tuple[list, object]]:
    if isinstance(value, dict | list):
        yield list(path), value
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from containers(item, (*path, key))


def inside(path, top):
    return path[: len(top)] == top


# Wire


@pytest.mark.parametrize("case", [case for case in load("wire") if case.values[0]["kind"] == "encode"])
def test_encoder_writes_exactly_what_the_reference_writes(case):
    encoder = Encoder()

    wire = [encoder.encode(batch) for batch in copy.deepcopy(case["batches"])]

    assert json.dumps(wire) == json.dumps(case["wire"])


@pytest.mark.parametrize("case", load("wire"))
def test_decoder_reads_what_the_reference_reads_and_fails_where_it_fails(case):
    decoder = Decoder()
    batches, error = [], None

    for wire in case["wire"]:
        batch, error = outcome(decoder.decode, wire)
        if error is not None:
            break
        batches.append(batch)

    assert error is ERRORS.get(case.get("error"))
    assert len(batches) == case.get("error_batch", len(case["wire"]))
    assert same(batches, case["batches"])


# Tracking

FREE = {"alias", "held", "throws"}


class Producer:
    """Plays the steps of a track case on a tracker, one change from one flush to the next."""

    def __init__(self, base):
        self.tracker = Tracker(base, lone_surrogates=True)
        self.opening = True  # the next flush is a replacement, as the first one is
        self.edited = False
        self.change = self.tracker.begin_change()

    def play(self, steps):
        """Yield for each flush its operations, and whether they must be exactly those of the reference."""
        for step in steps:
            ((name, arguments),) = step.items()
            if name == "flush":
                yield self.flush()
            elif name == "repeat":
                yield from self.play(arguments[1] * arguments[0])
            else:
                self.edited = True
                getattr(self, name)(*arguments if isinstance(arguments, list) else [arguments])

    def flush(self):
        ops, exactly = self.commit(), self.opening or not self.edited
        if self.opening:
            ops = self.tracker.prepare_replace(self.tracker.value).ops
        self.opening = self.edited = False
        return ops, exactly

    def commit(self):
        prepared = self.change.prepare()
        self.tracker.adopt(prepared)
        self.change = self.tracker.begin_change()
        return prepared.ops

    def replace_root(self, value):
        self.change.abort()
        self.tracker.adopt(self.tracker.prepare_replace(value))
        self.change = self.tracker.begin_change()
        self.opening = True

    def rebase(self, _):
        self.opening = True

    def discard(self, _):
        self.commit()

    def at(self, path):
        place = self.change.state
        for segment in path:
            place = place[segment]
        return place

    def set(self, path, value):
        if not path:
            self.replace_root(value)
            return
        parent = self.at(path[:-1])
        if path[-1] == len(parent) and not isinstance(path[-1], str):
            parent.append(value)
        else:
            parent[path[-1]] = value

    def append(self, path, text):
        self.at(path[:-1])[path[-1]] += text

    def splice(self, path, index, count, items):
        self.at(path)[index : index + count] = items

    def push(self, path, items):
        self.at(path).extend(items)

    def unshift(self, path, items):
        self.at(path)[0:0] = items

    def pop(self, path):
        del self.at(path)[-1:]

    def shift(self, path):
        del self.at(path)[:1]

    def reverse(self, path):
        self.at(path).reverse()

    def sort(self, path, how):
        by = how.get("by")
        self.at(path).sort(key=None if by is None else lambda row: row[by], reverse=how.get("desc", False))

    def swap(self, path, one, other):
        rows = self.at(path)
        rows[one], rows[other] = rows[other], rows[one]

    def move(self, path, start, end):
        rows = self.at(path)
        rows.insert(end, rows.pop(start))

    def length(self, path, count):
        rows = self.at(path)
        del rows[count:]
        rows.extend([None] * (count - len(rows)))

    def fill(self, path, value, start, end):
        self.at(path)[start:end] = [value] * (end - start)

    def copy_within(self, path, to, start, end):
        rows = self.at(path)
        rows[to : to + end - start] = rows[start:end]


# `del` is no name for a method.
setattr(Producer, "del", lambda self, path: self.at(path[:-1]).pop(path[-1], None))


TRACKED = [case for case in load("track") if not FREE & set(case.values[0].get("tags", []))]


@pytest.mark.parametrize("case", TRACKED)
def test_tracking_converges(case):
    producer = Producer(copy.deepcopy(case["base"]))
    replica = None

    for (ops, exactly), expected in zip(producer.play(case["steps"]), case["flushes"], strict=True):
        replica = apply_immutable(replica, ops)
        assert same(producer.tracker.value, expected["value"])
        assert "discard" in case.get("tags", []) or same(replica, expected["value"])
        assert not exactly or same(ops, expected["ops"])
        assert "r" not in [op[0] for op in ops[1:]]


def test_tracking_is_as_compact_as_the_reference():
    ours = theirs = 0
    for (case,) in (case.values for case in TRACKED):
        if "discard" in case.get("tags", []):
            continue
        produced = Producer(copy.deepcopy(case["base"])).play(case["steps"])
        for (ops, _), expected in zip(produced, case["flushes"], strict=True):
            ours += size(ops)
            theirs += expected["bytes"]

    assert ours <= 0.9 * theirs


# Text


@pytest.mark.parametrize("case", load("overlap"))
def test_text_changes_lead_from_one_text_to_the_other(case):
    ops = text_changes(case["before"], case["after"], ["s"])

    assert same(apply_immutable({"s": case["before"]}, ops), {"s": case["after"]})


def test_text_changes_are_as_compact_as_the_reference():
    cases = [case for (case,) in (case.values for case in load("overlap"))]

    ours = sum(size(text_changes(case["before"], case["after"], ["s"])) for case in cases)

    assert ours <= sum(case["bytes"] for case in cases)
