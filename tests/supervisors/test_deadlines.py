"""Deadlines against a plain dict."""

from hypothesis import given
from hypothesis import strategies as st
from perdure.supervisors.deadlines import Deadlines

changes = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 30)),
        st.tuples(st.just("drop"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("take"), st.just(0), st.integers(0, 30)),
    )
)


@given(changes)
def test_the_earliest_and_the_due_are_those_of_a_plain_dict(history):
    deadlines, plain = Deadlines(), {}
    for what, key, when in history:
        if what == "set":
            deadlines.set(key, when)
            plain[key] = when
        elif what == "drop":
            deadlines.drop(key)
            plain.pop(key, None)
        else:
            due = [key for at, key in sorted((at, key) for key, at in plain.items()) if at <= when]
            assert deadlines.take_due(when) == due
            for taken in due:
                del plain[taken]
        assert deadlines.first() == min(plain.values(), default=None)
        assert len(deadlines) == len(plain)


def test_a_key_that_gets_the_same_deadline_again_is_due_once():
    deadlines = Deadlines()
    for _ in range(3):
        deadlines.set("a", 5)
    assert deadlines.take_due(5) == ["a"]
    assert deadlines.take_due(5) == []


def test_deadlines_that_were_replaced_behind_an_early_one_do_not_pile_up():
    """P10."""
    deadlines = Deadlines()
    deadlines.set("early", 1)
    for when in range(10, 10_000):
        deadlines.set("late", when)
    assert len(deadlines._queue) < 100
    assert deadlines.first() == 1
