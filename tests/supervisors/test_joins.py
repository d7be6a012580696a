"""Join policies alone: when a wait ends, against the words that say so; and the JSON that they are stored as."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.storage.records import JoinPolicy, Quorum
from perdure.supervisors.joins import condemned, is_joined, wanted

from .model import POLICIES, waiting

counts = st.integers(0, 5)


@given(st.sampled_from([*POLICIES, Quorum(1), Quorum(3)]), counts, counts, counts)
def test_a_wait_ends_as_its_policy_says(policy, live, completed, failed):
    total = live + completed + failed
    if total == 0 or (isinstance(policy, Quorum) and policy.quorum > total):
        return
    joined = is_joined(waiting(range(total), policy), live, completed)
    if policy in ("allSettled", "failFast"):
        assert joined == (live == 0)
    else:
        n = 1 if policy == "firstCompleted" else policy.quorum
        reached, lost = completed >= n, failed > total - n
        assert joined == (reached or lost)


@given(st.sampled_from(POLICIES), counts, counts, counts)
def test_a_wait_that_is_over_stays_over(policy, live, completed, failed):
    """Whatever the live ones do next: what ended it cannot be taken back by a later end."""
    total = live + completed + failed
    if live and is_joined(waiting(range(total), policy), live, completed):
        assert is_joined(waiting(range(total), policy), live - 1, completed)
        assert is_joined(waiting(range(total), policy), live - 1, completed + 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_wait_for_no_tasks_is_over_at_once_unless_it_is_for_a_time(policy):
    """TS-12."""
    assert is_joined(waiting([], policy), 0, 0)
    assert not is_joined(waiting([], policy, until=5), 0, 0)


def test_only_fail_fast_condemns_and_only_the_early_policies_count_completions():
    assert {str(policy): list(condemned(waiting([2, 3, 4], policy), 3)) for policy in POLICIES} == {
        "allSettled": [],
        "failFast": [2, 4],
        "firstCompleted": [],
        "Quorum(quorum=2)": [],
    }
    assert [wanted(policy) for policy in POLICIES] == [None, None, 1, 2]


@pytest.mark.parametrize(
    ("policy", "stored"),
    [
        ("allSettled", b'"allSettled"'),
        ("failFast", b'"failFast"'),
        ("firstCompleted", b'"firstCompleted"'),
        (Quorum(2), b'{"quorum":2}'),
    ],
)
def test_a_policy_is_stored_as_a_word_or_as_its_number(policy, stored):
    assert msgspec.json.encode(policy) == stored
    assert msgspec.json.decode(stored, type=JoinPolicy) == policy


@pytest.mark.parametrize("stored", [b'"firstOf"', b'{"quorum":0}', b'{"quorum":2,"of":3}', b"{}", b"2", b"null"])
def test_another_form_is_refused(stored):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(stored, type=JoinPolicy)
