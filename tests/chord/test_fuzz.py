"""Operations from anywhere: they do what they say or raise what is documented, and never touch what is immutable."""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.chord import (
    Decoder,
    Encoder,
    InvalidOp,
    OutOfRange,
    PathMissing,
    UnsafePath,
    apply,
    apply_immutable,
)

DOCUMENTED = (InvalidOp, OutOfRange, PathMissing, UnsafePath)

KEYS = st.sampled_from(["a", "b", "0", "", "length", "constructor", "__proto__"])
NUMBERS = st.sampled_from(
    [0, 1, 2, 3, 7, -1, 2.0, 0.5, -0.0, 1e300, 2**53 + 1, 2**80, 10**400, float("inf"), float("nan")]
)
TEXT = st.text(st.sampled_from("aé😀\ud83d\ude00"), max_size=5)
ATOMS = st.none() | st.booleans() | NUMBERS | TEXT | KEYS
JSON = st.recursive(
    ATOMS, lambda part: st.lists(part, max_size=4) | st.dictionaries(KEYS, part, max_size=4), max_leaves=10
)
PATHS = st.lists(KEYS | st.integers(0, 3) | ATOMS, max_size=3)
COUNTS = st.integers(0, 4) | ATOMS
VALID = st.one_of(
    st.tuples(st.just("r"), JSON),
    st.tuples(st.just("s"), PATHS, JSON),
    st.tuples(st.just("d"), PATHS),
    st.tuples(st.just("a"), PATHS, TEXT),
    st.tuples(st.just("t"), PATHS, COUNTS),
    st.tuples(st.just("p"), PATHS, COUNTS, COUNTS, st.lists(JSON, max_size=2)),
    st.tuples(st.just("m"), PATHS, st.permutations(range(3)) | st.lists(COUNTS, max_size=3)),
    st.tuples(st.just("#"), COUNTS, PATHS),
).map(list)


@st.composite
def mutated(draw):
    """An operation with a part left out, put in twice or replaced by something else."""
    op = draw(VALID)
    place = draw(st.integers(0, len(op) - 1))
    op[place : place + 1] = draw(
        st.sampled_from([[], [op[place]], [op[place]] * 2]) | st.lists(JSON, min_size=1, max_size=1)
    )
    return op


OPS = st.lists(VALID | mutated() | JSON, max_size=6) | JSON
some = settings(deadline=None, max_examples=150)


def text(value):
    return json.dumps(value, sort_keys=True)


def outcome(function, *args):
    try:
        return function(*args), None
    except DOCUMENTED as error:
        return None, type(error)


@given(JSON, OPS)
@some
def test_apply_raises_only_what_is_documented_and_both_applies_agree(base, ops):
    before, given_ops = text(base), text(ops)

    immutable, error = outcome(apply_immutable, base, ops)

    assert (text(base), text(ops)) == (before, given_ops)
    in_place, same_error = outcome(apply, copy.deepcopy(base), copy.deepcopy(ops))
    assert error is same_error
    assert text(immutable) == text(in_place)


@given(st.lists(st.lists(VALID | mutated() | JSON, max_size=5) | JSON, max_size=4))
@some
def test_the_decoder_raises_only_what_is_documented(batches):
    decoder = Decoder()
    before = text(batches)

    for batch in batches:
        outcome(decoder.decode, batch)

    assert text(batches) == before


@given(JSON, OPS, st.lists(OPS, max_size=2))
@some
def test_a_replica_survives_a_hostile_stream(base, first, rest):
    decoder, value = Decoder(), base
    for wire in [first, *rest]:
        before = text(value)
        ops, error = outcome(decoder.decode, wire)
        if error is None:
            changed, error = outcome(apply_immutable, value, ops)
            assert text(value) == before
            value = changed if error is None else value


@given(st.lists(st.lists(VALID, max_size=5), max_size=5))
@some
def test_what_the_encoder_writes_the_decoder_reads(batches):
    encoder, reader = Encoder(), Decoder()

    for batch in batches:
        spelled_out, error = outcome(Decoder().decode, batch)
        if error is None:
            wire = encoder.encode(spelled_out)
            assert text(reader.decode(json.loads(json.dumps(wire)))) == text(spelled_out)
            assert len(text(wire)) <= len(text(spelled_out)) + 30
