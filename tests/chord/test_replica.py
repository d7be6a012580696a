"""A replicated state has an atomic beginning, misses nothing, and keeps its subscribers apart."""

import asyncio
import json

import pytest
from perdure.chord import Decoder, Encoder, Feed, ReplicatedState, Tracker, WatchEnd, WatchTaken, apply_immutable
from perdure.chord.watch import MAX_PENDING


def op(number):
    return [["s", ["n"], number]]


def publish(feed, *numbers):
    for number in numbers:
        feed.publish({"n": number}, op(number))


class Notes:
    """A subscriber that notes what it is given."""

    def __init__(self):
        self.frames = []

    def __call__(self, value, ops):
        self.frames.append((value["n"], ops))

    def numbers(self):
        return [number for number, _ in self.frames]


def test_a_state_has_its_value_from_the_start_and_follows():
    feed = Feed({"n": 0})
    publish(feed, 1)
    state, notes = ReplicatedState(feed), Notes()
    state.subscribe(notes)
    assert state.value == {"n": 1}

    publish(feed, 2, 3)

    assert state.value is feed.value
    assert notes.frames == [(2, op(2)), (3, op(3))]


def test_frames_published_between_attachment_and_activation_are_kept():
    feed, notes = Feed({"n": 0}), Notes()
    attachment = feed.attach()
    publish(feed, 1, 2)

    assert attachment.snapshot == {"n": 0}
    attachment.activate(notes)
    publish(feed, 3)
    assert notes.frames == [(1, op(1)), (2, op(2)), (3, op(3))]


def test_no_more_is_kept_than_a_watch_would_keep():
    feed, notes = Feed({"n": 0}), Notes()
    attachment = feed.attach()
    publish(feed, *range(1, MAX_PENDING + 3))
    attachment.activate(notes)

    assert notes.frames == [(101, [["r", {"n": 101}]]), (102, op(102))]


def test_what_is_published_during_activation_comes_in_order():
    feed, seen = Feed({"n": 0}), []
    attachment = feed.attach()
    publish(feed, 1, 2)

    def listener(value, _ops):
        seen.append(value["n"])
        if value["n"] == 1:
            publish(feed, 3)

    attachment.activate(listener)
    assert seen == [1, 2, 3]


def test_an_attachment_has_one_listener():
    attachment = Feed({"n": 0}).attach()
    attachment.activate(Notes())

    with pytest.raises(WatchTaken):
        attachment.activate(Notes())


def test_a_subscriber_may_end_its_subscription_and_others_during_a_delivery():
    feed = Feed({"n": 0})
    state, first, last = ReplicatedState(feed), Notes(), Notes()
    state.subscribe(first)
    state.subscribe(lambda _value, _ops: end_last())
    end_last = state.subscribe(last)

    publish(feed, 1, 2)
    end_last()

    assert (first.numbers(), last.numbers()) == ([1, 2], [])


def test_the_same_function_may_subscribe_twice():
    feed, notes = Feed({"n": 0}), Notes()
    state = ReplicatedState(feed)
    end = state.subscribe(notes)
    state.subscribe(notes)
    publish(feed, 1)
    end()
    publish(feed, 2)

    assert notes.numbers() == [1, 1, 2]


def test_a_frame_published_by_a_subscriber_comes_after_the_present_one_for_everybody():
    feed, notes = Feed({"n": 0}), Notes()
    state = ReplicatedState(feed)
    state.subscribe(lambda value, _ops: publish(feed, 2) if value["n"] == 1 else None)
    state.subscribe(notes)
    state.subscribe(lambda value, _ops: values.append((value["n"], state.value["n"])))
    values = []

    publish(feed, 1)

    assert notes.numbers() == [1, 2]
    assert values == [(1, 1), (2, 2)]


def test_an_error_of_a_subscriber_goes_to_on_error_and_disturbs_nobody():
    feed, notes, errors = Feed({"n": 0}), Notes(), []
    state = ReplicatedState(feed, on_error=errors.append)

    def fail(_value, _ops):
        raise OSError("mine")

    state.subscribe(fail)
    state.subscribe(notes)
    publish(feed, 1)

    assert notes.numbers() == [1]
    assert [str(error) for error in errors] == ["mine"]


def test_an_error_without_a_handler_is_logged(caplog):
    feed = Feed({"n": 0})
    state = ReplicatedState(feed)
    state.subscribe(lambda _value, _ops: 1 // 0)
    publish(feed, 1)

    assert "a subscriber of a replicated state raised" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_disposed_state_keeps_its_last_value_and_hears_no_more():
    feed, notes = Feed({"n": 0}), Notes()
    state = ReplicatedState(feed)
    state.subscribe(notes)
    publish(feed, 1)
    state.dispose()
    state.dispose()
    publish(feed, 2)

    assert (state.value, notes.numbers(), feed.followed) == ({"n": 1}, [1], False)


def test_the_end_of_a_feed_ends_its_watches_and_leaves_states_with_their_value():
    async def scenario():
        feed = Feed({"n": 0})
        watch, state = feed.watch(), ReplicatedState(feed)
        publish(feed, 1)
        feed.end("closed")
        publish(feed, 2)
        assert await watch.closed == WatchEnd("closed")
        assert (state.value, feed.followed) == ({"n": 1}, False)

    asyncio.run(scenario())


def test_a_watch_begins_with_the_newest_value_and_unregisters_itself():
    async def scenario():
        feed = Feed({"n": 0})
        publish(feed, 1)
        async with feed.watch() as watch:
            assert watch.value == {"n": 1}
            publish(feed, 2)
            assert await anext(watch) == ({"n": 2}, op(2))
            assert feed.followed
        assert not feed.followed

    asyncio.run(scenario())


def test_a_replica_across_a_stream_follows_a_tracker():
    tracker = Tracker({"log": [], "text": ""})
    near, far = Feed(tracker.value), Feed(tracker.value)
    encoder, decoder = Encoder(), Decoder()
    replica = ReplicatedState(far)

    def send(_value, ops):
        received = decoder.decode(json.loads(json.dumps(encoder.encode(ops))))
        far.publish(apply_immutable(far.value, received), received)

    ReplicatedState(near).subscribe(send)
    for step in range(20):
        change = tracker.begin_change()
        change.state["log"].append({"step": step})
        change.state["text"] += f"{step} "
        prepared = change.prepare()
        tracker.adopt(prepared)
        near.publish(prepared.value, prepared.ops)

    assert replica.value == tracker.value
