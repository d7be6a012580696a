import pytest
from perdure.actors.chaos.scenarios.compaction import Compaction
from perdure.actors.chaos.scenarios.fork import Fork
from perdure.actors.chaos.scenarios.parallel import Parallel
from perdure.actors.chaos.trace import Shown
from perdure.actors.chaos.views import stored_view, view_states

from .test_invariants import KEY, Kept


@pytest.mark.parametrize("scenario", [Parallel, Fork, Compaction])
def test_the_commits_of_a_session_lead_to_what_is_stored(scenario):
    kept = Kept(scenario)
    for conversation in kept.stored[KEY].conversations:
        states = list(view_states(kept.trace.batches(KEY), conversation))
        assert states[-1] == stored_view(kept.stored[KEY], conversation)
        assert len(states) <= len(kept.trace.batches(KEY))


def test_a_view_begins_with_the_commit_that_creates_its_conversation():
    """A fork begins with the past that it shares, and the documents that it has copied."""
    kept = Kept(Fork)
    root, fork, _ = sorted(kept.stored[KEY].conversations)
    first, *_ = view_states(kept.trace.batches(KEY), fork)
    assert [entry["conversationId"] for entry in first["entries"]] == [root] * len(first["entries"])
    assert first["entries"]
    assert set(first["docs"]) == {"pi.live", "pi.inbox", "pi.usage", "pi.provider", "pi.agent"}


def test_who_watches_is_shown_each_of_these_states_or_a_later_one():
    kept = Kept(Parallel)
    shown = [event for event in kept.trace.events if isinstance(event, Shown)]
    assert shown[0].value in list(view_states(kept.trace.batches(KEY), 1))
    assert len(shown) > 10
