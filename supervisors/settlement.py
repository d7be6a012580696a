"""What follows from a change to tasks, decided in one pass: drained holds end, cancellation flows down, waits end.

``settle`` runs inside the commit that made the change, so that no crash can come between a cause and its consequences.
Told of every live task, as when a session is opened, it derives again what somebody else may have left out. It wakes
nobody: it names the tasks whose turn may have come. Proved by tests/supervisors/test_settlement.py.
"""

from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from ..storage.records import Completing, Pending, Running, TaskRecord, Terminal, Waiting
from .forest import Forest
from .joins import condemned, has_failed, has_intent


class Settlement(msgspec.Struct):
    """What a pass did: every task that it changed or that may now run, and what others must follow up."""

    changed: dict[int, TaskRecord] = msgspec.field(default_factory=dict)
    """The last record of every task that the pass changed."""
    ended: list[TaskRecord] = msgspec.field(default_factory=list)
    """Tasks that became terminal, in the order in which they did: owned before owners."""
    marked: list[int] = msgspec.field(default_factory=list)
    """Tasks that got an abort mark."""
    withdrawn: dict[int, None] = msgspec.field(default_factory=dict)
    """Conversations below cancelled owners, whose queued inputs are to be withdrawn."""
    candidates: dict[int, None] = msgspec.field(default_factory=dict)
    """Tasks that may have something to do now; see ``turn``."""


def settle(forest: Forest, touched: Iterable[int], now: int, ended: Iterable[TaskRecord] = ()) -> Settlement:
    """Follow up the changes made to ``touched`` in ``forest``, which takes the consequences in.

    ``touched`` are tasks that are new or whose state or mark has changed; ``ended`` are tasks that had ended before
    somebody began to wait for them. ``now`` is in ms since the epoch.
    """
    return _Pass(forest, now).run(touched, ended)


def turn(forest: Forest, record: TaskRecord, now: int) -> Literal["run", "abort"] | None:
    """Decide what a task without an invocation should do now: "run", "abort", or nothing.

    An abort handler's turn comes when the owned work below has drained; work below a cancelled owner never runs.
    """
    if isinstance(record.state, Completing | Terminal):
        return None
    if record.abort_requested:
        return None if forest.ownership.has_work(record.id) else "abort"
    if not record.background and forest.below_intent(record.id):
        return None
    if isinstance(record.state, Waiting):
        return "run" if forest.wait_is_over(record.id, record.state, now) else None
    return "run"


def reserved(record: TaskRecord, now: int) -> TaskRecord:
    """Give the record of a task that is handed to an invocation (``now`` in ms)."""
    if isinstance(record.state, Running) and record.started_at is not None:
        return record
    assert isinstance(record.state, Pending | Running | Waiting)
    started = record.started_at if record.started_at is not None else now
    return msgspec.structs.replace(record, state=Running(checkpoint=record.state.checkpoint), started_at=started)


class _Pass:
    """One run of two worklists: first every mark, then every end. Everything is queued, nothing recurses.

    An end calls for no mark, since what it means for others was passed on when it was held. So what a pass does is
    the same in whatever order it is told of changes.
    """

    def __init__(self, forest: Forest, now: int) -> None:
        self.forest = forest
        self.now = now
        self.done = Settlement()
        self.news: deque[int] = deque()
        self.drained: deque[int] = deque()

    def run(self, touched: Iterable[int], ended: Iterable[TaskRecord]) -> Settlement:
        self.news.extend(touched)
        for record in ended:
            self._note_end(record)
        while self.news:
            self._spread(self.news.popleft())
        self.drained.extend(self.done.candidates)
        while self.drained:
            self._finish(self.drained.popleft())
        return self.done

    def _put(self, record: TaskRecord) -> None:
        self.forest.put(record)
        self.done.changed[record.id] = record

    def _note_end(self, record: TaskRecord) -> None:
        if has_failed(record):
            self._fail_fast(record.id)
        else:
            self.forest.completed(record.id)

    # --- marks

    def _spread(self, task: int) -> None:
        """Pass on what a new record means for others; done once for each change."""
        record = self.forest.get(task)
        if record is None:
            return
        self.done.candidates[task] = None
        if not record.background and not has_intent(record) and self.forest.below_intent(task):
            record = self._mark(record)
        if has_intent(record):
            self._cascade(task)
        if has_failed(record):
            self._fail_fast(task)
        if isinstance(record.state, Waiting):
            self._join(record.state)

    def _join(self, wait: Waiting) -> None:
        """Somebody has begun to wait: see whether one of those waited on holds a failure already."""
        for task in wait.on:
            awaited = self.forest.get(task)
            if awaited is not None and has_failed(awaited):
                self._fail_fast(task)

    def _fail_fast(self, failed: int) -> None:
        for waiter in self.forest.waiters(failed):
            wait = self.forest.get(waiter)
            if wait is None or not isinstance(wait.state, Waiting) or wait.state.policy != "failFast":
                continue
            if self.forest.condemn_once(waiter):
                for task in condemned(wait.state, failed):
                    self._condemn(task)

    def _condemn(self, task: int) -> None:
        """Mark a task, unless it is cancelled already: by a mark, or by a failure of its own that it holds."""
        record = self.forest.get(task)
        if record is not None and not has_intent(record):
            self._mark(record)
            self.news.append(task)

    def _mark(self, record: TaskRecord) -> TaskRecord:
        marked = msgspec.structs.replace(record, abort_requested=True)
        self._put(marked)
        self.done.marked.append(record.id)
        return marked

    def _cascade(self, source: int) -> None:
        """Mark the work below, leaving out what a cancelled task below covers by its own walk."""
        for node in list(self.forest.ownership.walk(source, self._enters)):
            if self.forest.ownership.is_task(node):
                self._condemn(node)
            else:
                self.done.withdrawn[node] = None

    def _enters(self, node: int) -> bool:
        record = self.forest.get(node)
        if record is not None and has_intent(record):
            return False
        return not self.forest.ownership.is_background(node)

    # --- ends

    def _finish(self, task: int) -> None:
        """End a task that holds an outcome and whose work has drained, and look at whoever that concerns."""
        self.done.candidates[task] = None
        record = self.forest.get(task)
        if record is None or not isinstance(record.state, Completing) or self.forest.ownership.has_work(task):
            return
        holder = self.forest.ownership.holder(task)
        ended = msgspec.structs.replace(record, state=Terminal(outcome=record.state.outcome), ended_at=self.now)
        self._put(ended)
        self.done.ended.append(ended)
        self.done.candidates |= dict.fromkeys(self.forest.waiters(task))
        if holder is not None:
            self.drained.append(holder)
