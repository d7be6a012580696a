"""The wire form beyond the vectors: what an encoder remembers, and two ends that stay in step."""

import json

from perdure.chord import Decoder, Encoder, Tracker, apply_immutable


def test_a_streaming_answer_costs_little_more_than_its_text():
    tracker, encoder, decoder = Tracker({"run": {"message": {"text": ""}}}), Encoder(), Decoder()
    replica, sizes = tracker.value, []

    for _ in range(5):
        change = tracker.begin_change()
        change.state["run"]["message"].append_text("text", "word ")
        prepared = change.prepare()
        tracker.adopt(prepared)
        line = json.dumps(encoder.encode(prepared.ops), separators=(",", ":"))
        sizes.append(len(line))
        replica = apply_immutable(replica, decoder.decode(json.loads(line)))

    assert replica == tracker.value
    assert sizes == [40, 50, 17, 17, 17]


def test_encoding_leaves_the_operations_as_they_are():
    ops = [["a", ["t"], "x"], ["a", ["t"], "y"]]
    encoder = Encoder()
    for _ in range(3):
        encoder.encode(ops)

    assert ops == [["a", ["t"], "x"], ["a", ["t"], "y"]]


def test_what_an_encoder_remembers_is_bounded_and_a_replacement_forgets_it():
    encoder, decoder = Encoder(), Decoder()

    for place in range(30_000):
        ops = [["s", ["entries", place % 15_000], place]]
        assert decoder.decode(encoder.encode(ops)) == ops

    assert len(encoder._used) == len(decoder._paths) == 10_000
    encoder.encode([["r", {}]])
    assert not encoder._used
    assert not encoder._ids
