"""The office does a bit of everything, and the same in every life."""

from collections import Counter
from random import Random

import perdure
import pytest
from perdure.actors.agent.summaries import ROLE
from perdure.actors.chaos.simulation import simulate, undisturbed
from perdure.actors.chaos.trace import Began, Committed
from perdure.actors.chaos.workload import ACTIONS, Host, Office, brain
from perdure.actors.models import ModelRequest, SystemMessage, ToolCall, UserMessage
from perdure.storage.records import EntryRecord, MessageRecord, SubmissionRecord, TaskRecord, Terminal


def test_plans_are_those_of_the_dice():
    def plans(seed):
        return [(plan.session, plan.name, plan.actions) for plan in Office(Random(seed)).plans]

    assert plans(1) == plans(1)
    assert len({str(plans(seed)) for seed in range(20)}) == 20


def test_every_action_is_one_that_hosts_can_carry_out():
    assert all(callable(getattr(Host, f"_{kind}")) for kind in ACTIONS)


def test_over_many_seeds_all_that_can_be_done_is_done():
    """Letters between sessions, inputs and writes, forks, compactions, resets, aborts, safe and unsafe calls, subagents."""
    seen = Counter()
    with undisturbed():
        for seed in range(600, 700):
            run = simulate(seed)
            seen.update(f"{event.name}, {event.replay}" for event in run.trace.of(Began))
            seen.update(
                kind for event in run.trace.of(Committed) for write in event.batch.writes for kind in kinds(write)
            )
    assert {"look, safe", "file, unsafe", "pay, unsafe", "subagent, safe"} <= seen.keys()
    assert {"a fork", "a subagent's place", "a letter from elsewhere", "a dead letter"} <= seen.keys()
    assert {"input done", "input aborted", "input model_error", "write done"} <= seen.keys()
    assert {"pi.compaction", "pi.reset", "office.note", "office.heard"} <= seen.keys()
    assert {"office.nap Completed", "office.desk Completed", "office.post Completed"} <= seen.keys()
    assert {"pi.generation Aborted", "pi.tool Completed", "pi.tool Failed", "pi.compaction Completed"} <= seen.keys()


def kinds(write):
    if isinstance(write, perdure.ConversationRecord):
        if write.parent is not None:
            yield "a fork"
        if write.owner is not None:
            yield "a subagent's place"
    elif isinstance(write, SubmissionRecord) and write.settled:
        yield f"{write.type} {write.reason or write.status}"
    elif isinstance(write, TaskRecord) and isinstance(write.state, Terminal):
        yield f"{write.kind} {type(write.state.outcome).__name__}"
    elif isinstance(write, EntryRecord):
        yield write.kind
    elif isinstance(write, MessageRecord):
        if write.status == "dead":
            yield "a dead letter"
        elif write.sender is not None and write.sender.session is not None:
            yield "a letter from elsewhere"


def test_the_model_does_as_it_is_told():
    said = brain(ModelRequest(messages=[UserMessage(content="job look:cellar subagent:attic")]))
    calls = [part for part in said if isinstance(part, ToolCall)]
    assert [(one.name, one.arguments) for one in calls] == [
        ("look", {"place": "cellar"}),
        ("subagent", {"task": "look:attic file:attic"}),
    ]
    assert brain(ModelRequest(messages=[UserMessage(content="hello")])) == "so much for: hello"
    summary = ModelRequest(messages=[SystemMessage(content=ROLE), UserMessage(content="look:all")])
    assert brain(summary) == "what was done before"


def test_an_inbox_that_nobody_looks_at_is_a_mistake_unless_something_went_wrong_there():
    record = SubmissionRecord(id=2, conversation_id=1, type="input", status="queued")
    failed = SubmissionRecord(id=3, conversation_id=1, type="input", status="unanswered", reason="aborted")

    class Session:
        def __init__(self, *submissions):
            self.submissions = {one.id: one for one in submissions}

    office = Office(Random(1))
    office.check({"s0": Session(record, failed)})
    with pytest.raises(AssertionError, match="submission 2 was never settled"):
        office.check({"s0": Session(record)})
