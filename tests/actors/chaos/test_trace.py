from perdure.actors.chaos.scenarios.parallel import Parallel
from perdure.actors.chaos.trace import Answered, Committed, Crashed, Opened, Trace

from .support import Once, run


def test_two_runs_that_show_the_same_have_the_same_digest():
    """The names that are new in every run, UUIDs and what follows from them, mean the same by their first place."""
    first, second = (run(Parallel()).trace for _ in range(2))
    assert first.digest() == second.digest()
    assert first.digest() != run(Parallel(), "before commit a/5").trace.digest()


def test_whatever_is_different_in_a_trace_makes_another_digest():
    trace = run(Once()).trace
    digests = {Trace(trace.events[:end]).digest() for end in range(len(trace.events) + 1)}
    assert len(digests) == len(trace.events) + 1


def test_names_that_are_new_in_each_run_are_told_apart_by_their_order():
    one, other = "0191c0de-0000-7000-8000-000000000001", "0191c0de-0000-7000-8000-000000000002"

    def lines(*values):
        return list(Trace([Answered(session="a", about="x", value=value) for value in values]).lines())

    assert lines(one, other, one) == lines(other, one, other)
    assert lines(one, other, one) != lines(one, other, other)


def test_a_trace_gives_its_events_by_kind_and_its_commits_by_session():
    trace = run(Once(), "after commit a/3").trace
    assert [event.life for event in trace.of(Opened)] == [1, 2]
    assert len(trace.of(Crashed)) == 1
    assert trace.sessions() == ["a"]
    assert [batch.seq for batch in trace.batches("a")] == list(range(1, len(trace.of(Committed)) + 1))
