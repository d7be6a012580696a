"""Refuses waits in memory that could never end: of a task's code for what cannot end before that very task.

Only what is certain is refused: a wait for the task itself, for an owner whose end it holds open, for a task that is parked
until it ends, for the idleness of what it works in. And only where the task's own handler waits, since a helper that it
started may outlive it. Proved by tests/actors/session/test_waits.py.
"""

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar

from ...storage.records import Completing
from ...supervisors.forest import Forest, must_outlive
from .errors import WaitCycle

_code: ContextVar[tuple[Forest, int, "asyncio.Task[object] | None"] | None] = ContextVar("perdure_code", default=None)


class CodeOf:
    """Says that what runs inside is the code of a task."""

    __slots__ = ("_code", "_token")

    def __init__(self, forest: Forest, task: int) -> None:
        self._code = (forest, task, asyncio.current_task())

    def __enter__(self) -> None:
        self._token = _code.set(self._code)

    def __exit__(self, *_: object) -> None:
        _code.reset(self._token)


def refuse_wait_for(forest: Forest, tasks: Iterable[int]) -> None:
    """Refuse to wait for tasks that cannot end before the one whose code asks. Raises WaitCycle."""
    waiter = _waiter(forest)
    for task in tasks if waiter is not None else ():
        if waiter is not None and must_outlive(forest, task, waiter):
            raise WaitCycle(f"task {waiter} waits for task {task}, which cannot end before it")


def refuse_wait_for_idle(forest: Forest, nodes: Iterable[int]) -> None:
    """Refuse to wait for the idleness of conversations that the asking task's own work is part of. Raises WaitCycle."""
    waiter = _waiter(forest)
    for node in nodes if waiter is not None else ():
        if waiter is not None and forest.ownership.is_work_of(waiter, node):
            raise WaitCycle(f"task {waiter} waits for conversation {node} to be idle, which is busy with it")


def _waiter(forest: Forest) -> int | None:
    """The task whose handler runs now and keeps that task from ending."""
    code = _code.get()
    if code is None or code[0] is not forest or code[2] is not asyncio.current_task():
        return None
    record = forest.kept(code[1])
    return None if record is None or isinstance(record.state, Completing) else record.id
