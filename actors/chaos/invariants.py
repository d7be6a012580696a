"""What must hold of every run, however it was interrupted: pure functions over what is stored and what was observed.

Each names the promise of the design that a violation breaks. They are for a store at rest: the work is done, or waits for
somebody. Proved by tests/actors/chaos/test_invariants.py, where each catches what was planted for it.
"""

from collections.abc import Iterator

from ...storage.contract import Reading
from .counting import (
    calls_are_answered_once,
    messages_arrive_once,
    requests_are_admitted_once,
    usage_is_counted_once,
)
from .effects import intent_comes_first, results_tell_what_happened, unsafe_effects_happen_once
from .requests import transcript_problems
from .stored import Stored, read_store
from .trace import Trace
from .violations import Invariant, Violation
from .visibility import (
    commits_are_in_order,
    final_records_stay,
    nothing_durable_is_lost,
    only_durable_was_shown,
    publications_are_in_order,
    replicas_equal_the_store,
)
from .work import deadlines_are_stored, no_work_is_orphaned, nothing_is_forgotten, owners_outlive_their_work


async def check(storage: Reading, trace: Trace) -> list[Violation]:
    """Read a store at rest and hold all invariants over it and the trace of what has led to it."""
    return check_stored(await read_store(storage), trace)


def check_stored(stored: Stored, trace: Trace) -> list[Violation]:
    """Hold all invariants."""
    return [violation for invariant in INVARIANTS for violation in invariant(stored, trace)]


def transcripts_are_valid(stored: Stored, trace: Trace) -> Iterator[Violation]:
    """P11, CX-08: no provider would refuse the request that a transcript makes, in any protocol."""
    for key, session in stored.items():
        for conversation, entries in session.entries.items():
            for problem in transcript_problems(entries):
                yield Violation("P11", f"{key}: conversation {conversation}: {problem}")


INVARIANTS: tuple[Invariant, ...] = (
    only_durable_was_shown,
    commits_are_in_order,
    publications_are_in_order,
    nothing_durable_is_lost,
    final_records_stay,
    intent_comes_first,
    unsafe_effects_happen_once,
    results_tell_what_happened,
    calls_are_answered_once,
    no_work_is_orphaned,
    owners_outlive_their_work,
    nothing_is_forgotten,
    deadlines_are_stored,
    requests_are_admitted_once,
    messages_arrive_once,
    usage_is_counted_once,
    transcripts_are_valid,
    replicas_equal_the_store,
)
