"""The slow, obvious model of one session's work: everything is kept for ever, everything is recomputed from scratch.

Nodes are tasks and conversations; a task hangs below its owner or else below its conversation, a conversation below the
task that owns it or else at the top.
"""

import msgspec
from perdure.storage.records import (
    Aborted,
    Completed,
    Completing,
    Failed,
    Faulted,
    Orphaned,
    OutcomeError,
    Pending,
    Quorum,
    TaskRecord,
    Terminal,
    Waiting,
)

NOW = 1_000
POLICIES = ["allSettled", "failFast", "firstCompleted", Quorum(2)]
OUTCOMES = [
    Completed(result=1),
    Failed(error=OutcomeError(message="failed")),
    Aborted(reason="asked to"),
    Orphaned(reason="missing_task"),
    Faulted(error=OutcomeError(message="raised")),
]


def task(id, conversation=1, owner=None, *, state=None, background=False, marked=False):
    return TaskRecord(
        id=id,
        conversation_id=conversation,
        kind="test.kind",
        version=1,
        state=state or Pending(checkpoint={"phase": "run"}),
        background=background,
        abort_requested=marked,
        owner=owner,
    )


def waiting(on, policy="allSettled", until=None):
    return Waiting(checkpoint={"phase": "resume"}, on=list(on), policy=policy, until=until)


def with_state(record, state):
    return msgspec.structs.replace(record, state=state)


def marked(record):
    return msgspec.structs.replace(record, abort_requested=True)


def has_failed(record):
    return isinstance(record.state, Completing | Terminal) and not isinstance(record.state.outcome, Completed)


class World:
    """All tasks and conversations that there ever were."""

    def __init__(self):
        self.tasks: dict[int, TaskRecord] = {}
        self.owners: dict[int, int | None] = {}
        """Of conversations."""
        self.now = NOW

    def copy(self):
        other = World()
        other.tasks, other.owners, other.now = dict(self.tasks), dict(self.owners), self.now
        return other

    # --- the tree

    def parent(self, node):
        record = self.tasks.get(node)
        if record is None:
            return self.owners[node]
        return record.owner if record.owner is not None else record.conversation_id

    def nodes(self):
        return [*self.owners, *self.tasks]

    def above(self, node):
        """All nodes above, nearest first."""
        found = []
        while (node := self.parent(node)) is not None:
            found.append(node)
        return found

    def live(self):
        return {tid for tid, record in self.tasks.items() if not isinstance(record.state, Terminal)}

    def is_background(self, node):
        return node in self.tasks and self.tasks[node].background

    def ordinary_ancestors(self, node):
        """The nodes above whose ordinary owned work this node is, or is part of, nearest first."""
        found = []
        while not self.is_background(node):
            node = self.parent(node)
            if node is None:
                break
            found.append(node)
        return found

    def work(self, node):
        """All live foreground tasks below, not looking past background tasks."""
        return {tid for tid in self.live() if not self.is_background(tid) and node in self.ordinary_ancestors(tid)}

    def holder(self, node):
        live = self.live()
        return next((above for above in self.ordinary_ancestors(node) if above in live), None)

    def listed(self):
        """Live tasks and everything above them."""
        return {node for tid in self.live() for node in (tid, *self.above(tid))}

    # --- decisions

    def has_intent(self, node):
        return node in self.live() and (self.tasks[node].abort_requested or has_failed(self.tasks[node]))

    def below_intent(self, node):
        return any(self.has_intent(above) for above in self.ordinary_ancestors(node))

    def turn(self, tid):
        record = self.tasks[tid]
        if isinstance(record.state, Completing | Terminal):
            return None
        if record.abort_requested:
            return None if self.work(tid) else "abort"
        if self.below_intent(tid):
            return None
        if isinstance(record.state, Waiting):
            return "run" if self.wait_is_over(record.state) else None
        return "run"

    def wait_is_over(self, wait):
        if wait.until is not None and wait.until <= self.now:
            return True
        if not wait.on:
            return wait.until is None
        ended = [self.tasks[tid] for tid in wait.on if tid not in self.live()]
        completed = len([record for record in ended if not has_failed(record)])
        still = len(wait.on) - len(ended)
        if wait.policy in ("allSettled", "failFast"):
            return still == 0
        if wait.policy == "firstCompleted":
            return completed > 0 or still == 0
        return completed >= wait.policy.quorum or completed + still < wait.policy.quorum

    def to_be_marked(self):
        """Live tasks that nobody has cancelled yet: below a cancelled owner, or beside a failure in a failFast wait."""
        condemned = {
            other
            for waiter in self.live()
            if isinstance(wait := self.tasks[waiter].state, Waiting) and wait.policy == "failFast"
            for failed in wait.on
            if has_failed(self.tasks[failed])
            for other in wait.on
            if other != failed
        }
        return {tid for tid in self.live() if not self.has_intent(tid) and (tid in condemned or self.below_intent(tid))}

    def settle(self):
        """Mark until nothing is left to mark, then end what has drained until nothing is left to end."""
        while ids := self.to_be_marked():
            for tid in ids:
                self.tasks[tid] = marked(self.tasks[tid])
        while ids := {
            tid for tid in self.live() if isinstance(self.tasks[tid].state, Completing) and not self.work(tid)
        }:
            for tid in ids:
                held = self.tasks[tid]
                ended = Terminal(outcome=held.state.outcome)
                self.tasks[tid] = msgspec.structs.replace(held, state=ended, ended_at=self.now)

    # --- waits

    def closes_cycle(self, waiter, on):
        """Whether waits and holds lead from what is waited for back to the waiter; its own children are no way to begin."""
        found, new = set(), {tid for tid in on if tid in self.live() and self.tasks[tid].owner != waiter}
        while new:
            found |= new
            new = {other for tid in new for other in self.dependencies(tid)} - found
        return waiter in found

    def dependencies(self, tid):
        state = self.tasks[tid].state
        waits = state.on if isinstance(state, Waiting) and state.until is None else []
        return {other for other in waits if other in self.live()} | self.work(tid)
