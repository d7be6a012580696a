"""The live tasks of one session: their records, who owns whom, who waits for whom.

A working set for decisions, not a store: it holds live records only, and what a commit changes in it can be undone until
the commit is admitted. Proved by tests/supervisors/test_settlement.py.
"""

from collections.abc import Iterator

from ..storage.records import Completing, TaskRecord, Waiting
from .deadlines import Deadlines
from .joins import has_completed, has_intent, is_joined, wanted
from .ownership import Ownership


class Forest:
    """Live task records by id, with their ownership tree and the reverse of their waits."""

    def __init__(self) -> None:
        self.ownership = Ownership()
        self._records: dict[int, TaskRecord] = {}
        self._waiters: dict[int, set[int]] = {}
        self._awaited: dict[int, int] = {}
        """How many live tasks each waiting task still waits for."""
        self._reached: dict[int, int] = {}
        """How many of those that each waiting task waited for are known to have completed."""
        self._completed: set[int] = set()
        """Ended tasks that completed, as long as somebody waits for them."""
        self._unawaited: set[int] = set()
        """Those of them that nobody waits for any more since the last checkpoint."""
        self._condemned: set[int] = set()
        """Waiting tasks whose wait has condemned the others already."""
        self._condemned_since: set[int] = set()
        """Those of them that have since the last checkpoint."""
        self._over: set[int] = set()
        """Waiting tasks whose wait has ended, or that have an abort mark."""
        self._intents: set[int] = set()
        self._before: dict[int, TaskRecord | None] = {}
        self._active: set[int] = set()
        self._deadlines: Deadlines[int] = Deadlines()
        self._mail: dict[int, int] = {}
        """How many messages are queued for each task that has any."""
        self._mail_before: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[TaskRecord]:
        return iter(self._records.values())

    def get(self, task: int) -> TaskRecord | None:
        """Give a live task's record."""
        return self._records.get(task)

    def kept(self, task: int) -> TaskRecord | None:
        """Give a live task's record as of the last checkpoint: without what a block has staged since."""
        return self._before[task] if task in self._before else self._records.get(task)

    def all_kept(self) -> list[TaskRecord]:
        """List the live tasks as of the last checkpoint, by id."""
        kept = (self.kept(task) for task in sorted({*self._records, *self._before}))
        return [record for record in kept if record is not None]

    def owned_kept(self, owner: int) -> list[TaskRecord]:
        """List the live tasks that a task owns directly, as of the last checkpoint, by id."""
        listed = {*self.ownership.children(owner), *self._before}
        kept = (self.kept(task) for task in sorted(listed))
        return [record for record in kept if record is not None and record.owner == owner]

    def is_live(self, task: int) -> bool:
        """Whether the task is live."""
        return task in self._records

    def waiters(self, task: int) -> list[int]:
        """Name the tasks that wait for this one, by id."""
        return sorted(self._waiters.get(task, ()))

    def wake(self) -> int | None:
        """Tell when the session must be active without being asked: 0 for now, a stored deadline in ms, or never."""
        return 0 if self._active or self._over else self.deadline()

    def deadline(self) -> int | None:
        """Tell the earliest deadline (ms) that was not taken yet."""
        return self._deadlines.first()

    def take_due(self, now: int) -> list[int]:
        """Take the deadlines that lie at or before ``now`` (ms) and name their tasks, in order of deadline.

        A deadline is taken once: its wait is over, whatever becomes of the tasks that it was for.
        """
        due = self._deadlines.take_due(now)
        for task in due:
            self._judge(task)
        return due

    def wait_is_over(self, task: int, wait: Waiting, now: int) -> bool:
        """Whether its tasks have ended a wait, or a message has, or its time has come (``now`` in ms)."""
        return self._is_answered(task, wait) or (wait.until is not None and wait.until <= now)

    def _is_answered(self, task: int, wait: Waiting) -> bool:
        """Whether the tasks or a message have ended a wait."""
        if wait.mail and task in self._mail:
            return True
        return is_joined(wait, self._awaited[task], self._reached[task])

    def mail(self, task: int) -> int:
        """Tell how many messages are queued for a task."""
        return self._mail.get(task, 0)

    def condemn_once(self, waiter: int) -> bool:
        """Note that a wait condemns its others; False when it has done so before."""
        if waiter in self._condemned:
            return False
        self._condemned.add(waiter)
        self._condemned_since.add(waiter)
        return True

    def below_intent(self, task: int) -> bool:
        """Whether some live owner above is cancelled without a background task in between. Free when nothing is."""
        if not self._intents:
            return False
        node: int | None = task
        while node is not None and (node not in self._intents or node == task):
            node = self.ownership.holder(node)
        return node is not None

    # --- changes, undone by rollback until the next checkpoint

    def put(self, record: TaskRecord) -> None:
        """Take a task's new record; its place in the tree must be known. An ended task leaves."""
        old, live = self._records.get(record.id), record.live
        self._before.setdefault(record.id, old)
        if old is None and live:
            parent = record.owner if record.owner is not None else record.conversation_id
            self.ownership.add_task(record.id, parent, background=record.background, live=True)
        elif old is not None and not live:
            self.ownership.end(record.id)
        if record.id in self._waiters and has_completed(record):
            self.completed(record.id)
        self._replace(record.id, record if live else None)

    def completed(self, task: int) -> None:
        """Take note that a task which somebody waits for has ended as completed; needed if it had before that."""
        if task in self._waiters and task not in self._completed:
            self._completed.add(task)
            self._reach(task, 1)

    def count_mail(self, task: int, change: int) -> None:
        """Take note that so many more messages, or fewer, are queued for a task."""
        self._mail_before.setdefault(task, self.mail(task))
        self._set_mail(task, self.mail(task) + change)

    def _set_mail(self, task: int, count: int) -> None:
        if count:
            self._mail[task] = count
        else:
            self._mail.pop(task, None)
        record = self._records.get(task)
        if record is not None and isinstance(record.state, Waiting):
            self._judge(task)

    def checkpoint(self) -> None:
        """Keep all changes so far."""
        self._mail_before.clear()
        self._condemned_since.clear()
        self._before.clear()
        self._forget_unawaited()
        self.ownership.checkpoint()

    def rollback(self) -> None:
        """Undo all changes since the last checkpoint."""
        for task, old in self._before.items():
            self._replace(task, old)
        self._before.clear()
        for task, count in self._mail_before.items():
            self._set_mail(task, count)
        self._mail_before.clear()
        self._condemned -= self._condemned_since
        self._condemned_since.clear()
        self._forget_unawaited()
        self.ownership.rollback()

    def _forget_unawaited(self) -> None:
        """Forget how tasks ended that nobody waits for; not before, since whoever did may wait for them again."""
        self._completed -= {task for task in self._unawaited if task not in self._waiters}
        self._unawaited.clear()

    def _replace(self, task: int, record: TaskRecord | None) -> None:
        old = self._records.get(task)
        if old is not None:
            self._unlink(task, old)
        if task in self._waiters and (record is None) != (old is None):
            self._count(task, -1 if record is None else 1)
        if record is None:
            self._records.pop(task, None)
            return
        if task in self._completed:  # its end is undone
            self._completed.discard(task)
            self._reach(task, -1)
        self._records[task] = record
        if has_intent(record):
            self._intents.add(task)
        if isinstance(record.state, Waiting):
            self._link_wait(task, record.state)
        elif not isinstance(record.state, Completing):
            self._active.add(task)

    def _count(self, task: int, change: int) -> None:
        """Have those who wait for a task take note that it has become live, or has ended."""
        for waiter in self._waiters.get(task, ()):
            self._awaited[waiter] += change
            self._judge(waiter)

    def _reach(self, task: int, change: int) -> None:
        """Have those who wait for a task take note that it has completed, or has not after all."""
        for waiter in self._waiters.get(task, ()):
            self._reached[waiter] += change
            self._judge(waiter)

    def _judge(self, waiter: int) -> None:
        """Take note of whether a waiting task's wait has ended."""
        record = self._records[waiter]
        assert isinstance(record.state, Waiting)
        timed_out = record.state.until is not None and waiter not in self._deadlines
        if record.abort_requested or timed_out or self._is_answered(waiter, record.state):
            self._over.add(waiter)
        else:
            self._over.discard(waiter)

    def _link_wait(self, task: int, wait: Waiting) -> None:
        awaited = set(wait.on)
        for other in awaited:
            self._waiters.setdefault(other, set()).add(task)
        self._awaited[task] = sum(other in self._records for other in awaited)
        self._reached[task] = sum(other in self._completed for other in awaited)
        if wait.until is not None:
            self._deadlines.set(task, wait.until)
        self._judge(task)

    def _unlink(self, task: int, old: TaskRecord) -> None:
        self._intents.discard(task)
        self._active.discard(task)
        if isinstance(old.state, Waiting):
            self._unlink_wait(task, old.state)

    def _unlink_wait(self, task: int, wait: Waiting) -> None:
        self._deadlines.drop(task)
        self._awaited.pop(task, None)
        self._reached.pop(task, None)
        self._condemned.discard(task)
        self._over.discard(task)
        for awaited in set(wait.on):
            self._drop_waiter(awaited, task)

    def _drop_waiter(self, awaited: int, task: int) -> None:
        waiting = self._waiters.get(awaited)
        if waiting is not None:
            waiting.discard(task)
            if not waiting:
                del self._waiters[awaited]
                if awaited in self._completed:
                    self._unawaited.add(awaited)


def closes_cycle(forest: Forest, waiter: int, on: list[int]) -> bool:
    """Whether ``waiter`` waiting for ``on`` could never end: following waits and holds leads back to it.

    A task depends on what it waits for and on its live ordinary owned work. Whatever the policy of a wait, it depends on
    all of them: the others may end without being enough. A wait with a deadline ends in any case, so it depends on
    nothing. The waiter's own children are where the walk would come back to by ownership alone, so they are not
    starting points.
    """
    seen: set[int] = set()
    stack = [task for task in on if _is_foreign(forest, waiter, task)]
    while stack:
        task = stack.pop()
        if task == waiter:
            return True
        if task not in seen:
            seen.add(task)
            stack.extend(_dependencies(forest, task))
    return False


def must_outlive(forest: Forest, task: int, other: int) -> bool:
    """Whether it is certain that ``task`` cannot end, unless it is aborted, before ``other`` does.

    It is for ``other`` itself, for those whose end its work holds open, and for those parked until all of some tasks have
    ended of which one is such. Unlike in ``closes_cycle`` a wait that may end early binds nobody.
    """
    seen: set[int] = set()
    stack = [task]
    while stack:
        task = stack.pop()
        if task == other:
            return True
        if task not in seen:
            seen.add(task)
            stack.extend(_certain_dependencies(forest, task))
    return False


def _certain_dependencies(forest: Forest, task: int) -> Iterator[int]:
    record = forest.kept(task)  # what a block has staged may yet be undone
    if record is None:
        return
    wait = record.state if isinstance(record.state, Waiting) and not record.abort_requested else None
    if wait is not None and wait.until is None and not wait.mail and wanted(wait.policy) is None:
        yield from wait.on
    yield from forest.ownership.holds(task)


def _is_foreign(forest: Forest, waiter: int, task: int) -> bool:
    record = forest.get(task)
    return record is not None and record.owner != waiter


def _dependencies(forest: Forest, task: int) -> Iterator[int]:
    record = forest.get(task)
    wait = None if record is None or not isinstance(record.state, Waiting) else record.state
    if wait is not None and wait.until is None and not wait.mail:
        yield from wait.on
    yield from forest.ownership.holds(task)
