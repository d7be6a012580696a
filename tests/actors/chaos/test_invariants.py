"""Each invariant, on a real run: it holds, and it catches what is planted for it."""

import asyncio
import pathlib

import msgspec
import perdure
import pytest
from msgspec.structs import replace
from perdure.actors.chaos import counting, effects, invariants, visibility, work
from perdure.actors.chaos.invariants import INVARIANTS, check_stored
from perdure.actors.chaos.scenarios.compaction import Compaction
from perdure.actors.chaos.scenarios.fork import Fork
from perdure.actors.chaos.scenarios.migration import Migration
from perdure.actors.chaos.scenarios.parallel import Parallel
from perdure.actors.chaos.scenarios.ping_pong import PingPong
from perdure.actors.chaos.scenarios.subagents import Subagents
from perdure.actors.chaos.stored import read_store
from perdure.actors.chaos.trace import (
    Answered,
    Began,
    Committed,
    Deleted,
    Ended,
    Failed,
    Published,
    Shown,
    Trace,
    Unwatched,
)
from perdure.storage.records import (
    Base,
    Completed,
    Completing,
    DocumentChange,
    EntryRecord,
    MessageRecord,
    MessageSender,
    Pending,
    SubmissionRecord,
    TaskRecord,
    Terminal,
    Waiting,
)
from perdure.testing import check

from . import support

KEY = "a"


class Kept:
    """A finished run, with what is stored in the end."""

    def __init__(self, scenario, *crashes):
        kept = {}

        class Keeping(scenario):
            def check(self, stored):
                super().check(stored)
                kept.update(stored)

        report = support.run(Keeping(), *crashes)
        assert report.violations == []
        self.stored, self.trace = kept, Trace(report.trace.events)
        while not isinstance(self.trace.events[-1], Published | Shown):
            self.trace.events.pop()  # what the closing of the system has added


@pytest.fixture(scope="module")
def parallel():
    return Kept(Parallel, "after commit a/7")


@pytest.fixture(scope="module")
def mail():
    return Kept(PingPong)


@pytest.fixture(scope="module")
def tree():
    return Kept(Subagents)


def caught(invariant, stored, trace):
    """The promises that an invariant finds broken, by itself and among all."""
    found = list(invariant(stored, trace))
    assert set(map(str, found)) <= set(map(str, check_stored(stored, trace)))
    return {one.promise for one in found}


def changed(trace, change):
    """The trace with each event as ``change`` gives it: another one, or None for none."""
    return Trace([new for event in trace.events if (new := change(event)) is not None])


def moved(trace, event, to):
    """The trace with an event in another place."""
    events = [one for one in trace.events if one is not event]
    events.insert(to, event)
    return Trace(events)


def rewritten(trace, wanted, change):
    """The trace with the first write that is ``wanted`` changed, in its commit alone."""
    done = []

    def once(event):
        if isinstance(event, Committed) and not done:
            for at, write in enumerate(event.batch.writes):
                if wanted(write):
                    done.append(write)
                    new = change(write)
                    writes = [*event.batch.writes[:at], *([] if new is None else [new]), *event.batch.writes[at + 1 :]]
                    return Committed(batch=replace(event.batch, writes=writes))
        return event

    found = changed(trace, once)
    assert done, "nothing to plant it in"
    return found


def with_session(stored, **fields):
    return {**stored, KEY: replace(stored[KEY], **fields)}


def with_task(kept, wanted, **fields):
    """The store with the first task that is ``wanted`` changed."""
    session = kept.stored[KEY]
    task = next(one for one in session.tasks.values() if wanted(one))
    return with_session(kept.stored, tasks={**session.tasks, task.id: replace(task, **fields)})


@pytest.mark.parametrize("scenario", [Parallel, PingPong, Subagents, Fork, Compaction, Migration])
def test_a_run_that_went_well_breaks_nothing(scenario):
    kept = Kept(scenario)
    assert check_stored(kept.stored, kept.trace) == []


# --- visibility


def test_what_is_published_before_it_is_durable_is_caught(parallel):
    early = next(event for event in parallel.trace.events if isinstance(event, Published) and event.seq == 5)
    assert caught(visibility.only_durable_was_shown, parallel.stored, moved(parallel.trace, early, 3)) == {"P1"}


@pytest.mark.parametrize("rows", [lambda rows: rows[1:], lambda rows: rows + rows[:1]])
def test_what_is_published_otherwise_than_it_is_stored_is_caught(parallel, rows):
    trace = changed(
        parallel.trace, lambda one: replace(one, rows=rows(one.rows)) if isinstance(one, Published) else one
    )
    assert caught(visibility.only_durable_was_shown, parallel.stored, trace) == {"P1"}


def test_a_caller_who_was_told_what_is_not_stored_is_caught(parallel):
    told = parallel.trace.of(Answered)[-1]
    early = moved(parallel.trace, told, 2)
    assert caught(visibility.only_durable_was_shown, parallel.stored, early) == {"P1"}


@pytest.mark.parametrize("seq", [4, 6])
def test_a_commit_that_is_missing_or_comes_twice_is_caught(parallel, seq):
    def renumbered(event):
        if isinstance(event, Committed) and event.batch.seq == 5:
            return Committed(batch=replace(event.batch, seq=seq))
        return event

    assert caught(visibility.commits_are_in_order, parallel.stored, changed(parallel.trace, renumbered)) == {"P2"}


def test_a_commit_that_watchers_never_hear_of_is_caught(parallel):
    lost = [event for event in parallel.trace.events if isinstance(event, Published) and event.seq == 4]
    trace = changed(parallel.trace, lambda event: None if event in lost else event)
    assert caught(visibility.publications_are_in_order, parallel.stored, trace) == {"P2"}


def test_a_gap_in_what_watchers_hear_is_none_when_the_sessions_life_ended_in_it(parallel):
    def failed(event):
        return Failed(session=KEY) if isinstance(event, Published) and event.seq == 4 else event

    assert caught(visibility.publications_are_in_order, parallel.stored, changed(parallel.trace, failed)) == set()


def test_an_acknowledged_commit_that_is_lost_is_caught(parallel):
    session = parallel.stored[KEY]
    shorter = with_session(parallel.stored, record=replace(session.record, seq=session.record.seq - 1))
    assert caught(visibility.nothing_durable_is_lost, shorter, parallel.trace) == {"P3"}
    assert caught(visibility.nothing_durable_is_lost, {}, parallel.trace) == {"P3"}


@pytest.mark.parametrize("records", ["tasks", "submissions"])
def test_a_record_that_is_lost_or_otherwise_than_it_became_durable_is_caught(parallel, records):
    held = dict(getattr(parallel.stored[KEY], records))
    number, record = held.popitem()
    lost = with_session(parallel.stored, **{records: held})
    assert caught(visibility.nothing_durable_is_lost, lost, parallel.trace) == {"P3"}
    other = with_session(parallel.stored, **{records: {**held, number: replace(record, conversation_id=77)}})
    assert caught(visibility.nothing_durable_is_lost, other, parallel.trace) == {"P3"}


def test_a_session_that_was_deleted_owes_nothing(parallel):
    ended = [Unwatched(watch=event.watch) for event in parallel.trace.of(Shown)]
    trace = Trace([*parallel.trace.events, *ended, Deleted(session=KEY)])
    assert caught(visibility.nothing_durable_is_lost, {}, trace) == set()


def test_a_final_record_that_is_written_again_is_caught(parallel):
    task = next(one for one in parallel.stored[KEY].tasks.values())
    again = next(event.batch for event in reversed(parallel.trace.events) if isinstance(event, Committed))
    later = Committed(batch=replace(again, seq=again.seq + 1, writes=[replace(task, state=Pending(checkpoint={}))]))
    assert caught(visibility.final_records_stay, parallel.stored, Trace([*parallel.trace.events, later])) == {"P7"}


def test_an_id_that_is_used_again_is_caught(parallel):
    task = next(one for one in parallel.stored[KEY].tasks.values())
    again = EntryRecord(id=task.id, conversation_id=1, kind="x")
    last = next(event.batch for event in reversed(parallel.trace.events) if isinstance(event, Committed))
    later = Committed(batch=replace(last, seq=last.seq + 1, writes=[again]))
    found = caught(visibility.final_records_stay, parallel.stored, Trace([*parallel.trace.events, later]))
    assert found == {"P7", "P2"}


def test_a_view_that_was_never_stored_is_caught(parallel):
    def wrong(event):
        return replace(event, value={**event.value, "entries": []}) if is_first(event) else event

    def is_first(event):
        return isinstance(event, Shown) and event.ops is None and event.value["entries"]

    assert caught(visibility.replicas_equal_the_store, parallel.stored, changed(parallel.trace, wrong)) == {"P1"}


def test_a_watcher_who_misses_the_last_state_is_caught(parallel):
    last = [event for event in parallel.trace.events if isinstance(event, Shown)][-1]
    trace = changed(parallel.trace, lambda event: None if event is last else event)
    assert caught(visibility.replicas_equal_the_store, parallel.stored, trace) == {"P1"}


# --- effects


@pytest.mark.parametrize("kind", ["tool", "model"])
def test_an_effect_without_a_stored_intent_is_caught(parallel, kind):
    effect = next(one for one in parallel.trace.of(Began) if one.kind == kind)
    assert caught(effects.intent_comes_first, parallel.stored, moved(parallel.trace, effect, 0)) == {"P4"}


def test_an_effect_with_other_arguments_than_were_stored_is_caught(parallel):
    def other(event):
        return (
            replace(event, arguments={"place": "roof"}) if isinstance(event, Began) and event.kind == "tool" else event
        )

    assert caught(effects.intent_comes_first, parallel.stored, changed(parallel.trace, other)) == {"P4"}


def test_an_effect_of_a_task_that_does_not_run_is_caught(parallel):
    effect = Began(number=99, kind="task", name="bank", session=KEY, task=1)
    assert caught(effects.intent_comes_first, parallel.stored, Trace([*parallel.trace.events, effect])) == {"P4"}


def test_an_unsafe_call_that_is_executed_twice_is_caught_and_a_safe_one_is_not(parallel):
    for name, promises in (("file_ticket", {"P6"}), ("look", set())):
        effect = next(one for one in parallel.trace.of(Began) if one.name == name)
        trace = Trace([*parallel.trace.events, replace(effect, number=99)])
        assert caught(effects.unsafe_effects_happen_once, parallel.stored, trace) == promises


def test_a_good_result_of_a_call_that_never_ended_is_caught(parallel):
    trace = changed(parallel.trace, lambda event: None if isinstance(event, Ended) else event)
    assert caught(effects.results_tell_what_happened, parallel.stored, trace) == {"P6"}


# --- work


def test_work_below_an_owner_that_has_ended_is_caught(tree):
    below = with_task(tree, lambda task: task.conversation_id != 1, state=Pending(checkpoint={}))
    assert caught(work.no_work_is_orphaned, below, tree.trace) == {"P7"}
    background = with_task(tree, lambda task: task.conversation_id != 1, state=Pending(checkpoint={}), background=True)
    assert caught(work.no_work_is_orphaned, background, tree.trace) == set()


def test_an_owner_that_ends_before_its_work_is_caught(tree):
    """In any commit, though all is well in the end."""
    below = {one.id for one in tree.stored[KEY].tasks.values() if one.conversation_id != 1}
    owners = {one.owner.task_id for one in tree.stored[KEY].conversations.values() if one.owner is not None}

    def is_first_write(write):
        return isinstance(write, TaskRecord) and write.id in owners and write.live

    trace = rewritten(tree.trace, is_first_write, lambda task: replace(task, state=Terminal(outcome=Completed())))
    ended = next(write for event in trace.of(Committed) for write in event.batch.writes if _over(write, owners))
    trace = changed(trace, lambda event: _only(event, keep=ended, of=ended.id))
    assert below
    assert caught(work.owners_outlive_their_work, tree.stored, trace) == {"P7"}


def _over(write, owners):
    return isinstance(write, TaskRecord) and write.id in owners and not write.live


def _only(event, keep, of):
    """A commit without other versions of a task than one."""
    if not isinstance(event, Committed):
        return event
    writes = [
        one for one in event.batch.writes if not (isinstance(one, TaskRecord) and one.id == of and one is not keep)
    ]
    return Committed(batch=replace(event.batch, writes=writes))


@pytest.mark.parametrize(
    "state",
    [
        Pending(checkpoint={}),
        Waiting(checkpoint={}, on=[], policy="allSettled"),
        Completing(outcome=Completed()),
    ],
)
def test_work_that_nobody_goes_on_with_is_caught(parallel, state):
    forgotten = with_task(parallel, lambda task: True, state=state)
    assert caught(work.nothing_is_forgotten, forgotten, parallel.trace) == {"P8"}


def test_who_waits_for_mail_or_a_time_is_not_forgotten_unless_it_has_come(parallel):
    waiting = with_task(
        parallel, lambda task: True, state=Waiting(checkpoint={}, on=[], policy="allSettled", mail=True)
    )
    assert caught(work.nothing_is_forgotten, waiting, parallel.trace) == set()
    task = next(task.id for task in waiting[KEY].tasks.values() if task.live)
    message = MessageRecord(id=900, status="queued", task_id=task)
    unheard = {**waiting, KEY: replace(waiting[KEY], messages={900: message})}
    assert caught(work.nothing_is_forgotten, unheard, parallel.trace) == {"P8"}


def test_a_message_that_was_never_brought_is_caught(parallel):
    message = MessageRecord(id=900, status="outgoing", task_id=4, session="b")
    stored = with_session(parallel.stored, messages={900: message})
    assert caught(work.nothing_is_forgotten, stored, parallel.trace) == {"P9"}


@pytest.mark.parametrize("late", [lambda wake: None, lambda wake: wake + 1])
def test_a_deadline_that_a_commit_does_not_tell_of_is_caught(late):
    """A session whose task sleeps is in no memory: only its stored time wakes it."""
    kept = Kept(Migration)

    def forgetful(event):
        if isinstance(event, Committed) and event.batch.wake:
            return Committed(batch=replace(event.batch, wake=late(event.batch.wake)))
        return event

    assert caught(work.deadlines_are_stored, kept.stored, kept.trace) == set()
    assert caught(work.deadlines_are_stored, kept.stored, changed(kept.trace, forgetful)) == {"P8"}


# --- once


def test_a_request_that_is_admitted_twice_is_caught(parallel):
    session = parallel.stored[KEY]
    again = replace(next(iter(session.submissions.values())), id=900)
    stored = with_session(parallel.stored, submissions={**session.submissions, 900: again})
    assert caught(counting.requests_are_admitted_once, stored, parallel.trace) == {"P9"}


def test_an_entry_that_two_submissions_say_is_theirs_is_caught(parallel):
    session = parallel.stored[KEY]
    entry = next(iter(session.submissions.values())).entry
    other = SubmissionRecord(id=900, conversation_id=1, type="input", status="placed", entry=entry)
    stored = with_session(parallel.stored, submissions={**session.submissions, 900: other})
    assert caught(counting.requests_are_admitted_once, stored, parallel.trace) == {"P9"}


@pytest.mark.parametrize("change", [lambda row: None, lambda row: replace(row, body="another")])
def test_a_message_that_is_lost_or_changed_on_its_way_is_caught(mail, change):
    def arrived(write):
        return isinstance(write, MessageRecord) and write.status == "queued" and write.sender.session is not None

    trace = rewritten(mail.trace, arrived, change)
    assert caught(counting.messages_arrive_once, mail.stored, trace) == {"P9"}


def test_a_message_that_arrives_twice_is_caught(mail):
    last = mail.trace.batches("bob")[-1]
    task = next(iter(mail.stored["bob"].tasks))
    again = MessageRecord(id=900, status="queued", task_id=task, sender=MessageSender(session="ann", task_id=9), body=0)
    later = Committed(batch=replace(last, seq=last.seq + 1, writes=[again]))
    assert caught(counting.messages_arrive_once, mail.stored, Trace([*mail.trace.events, later])) == {"P9"}


def test_usage_that_is_counted_twice_or_not_at_all_is_caught(parallel):
    def counts(write):
        return isinstance(write, DocumentChange) and isinstance(write.content, Base) and "models" in write.content.value

    def twice(write):
        value = msgspec.json.decode(msgspec.json.encode(write.content.value))
        for spent in value["models"].values():
            spent["totalTokens"] *= 2
        return replace(write, content=Base(version=write.content.version, value=value))

    for change in (twice, lambda write: None):
        trace = rewritten(parallel.trace, counts, change)
        assert caught(counting.usage_is_counted_once, parallel.stored, trace) == {"P2"}


def test_a_call_with_two_results_is_caught(parallel):
    session = parallel.stored[KEY]
    result = next(one for one in session.entries[1] if one.kind == "pi.tool-result")
    stored = with_session(parallel.stored, entries={1: [*session.entries[1], replace(result, id=900)]})
    assert caught(counting.calls_are_answered_once, stored, parallel.trace) == {"P9"}


# --- transcripts


def test_a_transcript_that_a_provider_would_refuse_is_caught(parallel):
    session = parallel.stored[KEY]
    broken = EntryRecord(id=900, conversation_id=1, kind="x", model=[{"role": "assistant", "content": [{"type": "?"}]}])
    stored = with_session(parallel.stored, entries={1: [*session.entries[1], broken]})
    assert caught(invariants.transcripts_are_valid, stored, parallel.trace) == {"P11"}


def test_every_invariant_has_a_test_that_shows_what_it_catches():
    text = pathlib.Path(__file__).read_text()
    assert [one.__name__ for one in INVARIANTS if f".{one.__name__}," not in text] == []


def test_check_reads_the_store_itself(parallel):
    async def main():
        storage = perdure.MemoryStorage()
        await storage.open()
        for batch in parallel.trace.batches(KEY):
            await storage.write([batch])
        assert await check(storage, parallel.trace) == []
        stored = await read_store(storage)
        assert stored[KEY].tasks == parallel.stored[KEY].tasks
        assert await check(storage, Trace([*parallel.trace.events, Deleted(session="b")])) == []

    asyncio.run(main())
