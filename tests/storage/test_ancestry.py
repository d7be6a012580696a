from hypothesis import given
from hypothesis import strategies as st
from perdure.storage.ancestry import segments


@given(st.data(), st.integers(1, 60), st.integers(1, 60))
def test_segments_are_what_a_walk_entry_by_entry_would_show(data, low, high):
    forks = data.draw(st.lists(st.integers(0, 50), max_size=6))
    chain = [(100 - n, at) for n, at in enumerate(forks)] + [(1, None)]

    def visible(position, entry):
        """Walk down: own entries lie above the fork point, the parent's at or below it."""
        number, at = chain[position]
        if at is None or entry > at:
            return number
        return visible(position + 1, entry)

    found = {
        entry: part.conversation_id for part in segments(chain, low, high) for entry in range(part.low, part.high + 1)
    }
    assert found == {entry: visible(0, entry) for entry in range(low, high + 1)}


def test_a_chain_is_read_no_further_than_it_shows():
    def chain():
        yield 3, 20
        yield 2, 10
        raise AssertionError("read too far")

    assert [part.conversation_id for part in segments(chain(), low=11)] == [3, 2]
