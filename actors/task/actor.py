"""The actor that runs one invocation of a task: phase after phase, each from a durable checkpoint.

It ends by itself when the task parks or ends. Killed or crashed, it is started again by its supervisor and goes on from
the record. Proved by tests/actors/task/test_actor.py.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ...storage.records import Faulted, OutcomeError, Running, TaskRecord, Waiting
from ..runtime import Actor
from ..session.commit import Commit
from ..session.directory import at_work
from ..session.errors import SessionClosed, SessionFailed
from ..session.tracing import under
from ..session.tx import BaseTx
from ..session.waits import CodeOf
from . import events
from .engine import Engine, Invocation
from .run import Run
from .spans import place
from .steps import Fault, Go, restarted, step
from .tx import finish, restage

_GO = object()


class TaskActor(Actor):
    """Runs an invocation once told to, then stops."""

    def __init__(self, engine: Engine, invocation: Invocation) -> None:
        super().__init__()
        self._engine = engine
        self._core = engine.core
        self._invocation = invocation
        if invocation.run is not None:
            invocation.run.ended = True  # code of a killed actor before this one may still be running
        self._error: BaseException | None = None

    def on_start(self) -> None:
        """Go as soon as the supervisor knows that this actor is there, and the commit that wants it is durable."""
        self._core.gate.call(self._invocation.seq, self._go)

    def _go(self) -> None:
        if self.actor_ref.is_alive():
            self.actor_ref.tell(_GO)

    async def on_receive(self, message: Any) -> None:
        """Run the invocation to its end. The session's end, and being told to stop, are not crashes."""
        self._invocation.handler = asyncio.current_task()
        at_work.set(True)
        events.invocation(events.TASK_STARTED, self._core.key, self._invocation.task, mode=self._invocation.mode)
        try:
            await self._run_phases()
        except asyncio.CancelledError:
            if not self._invocation.signalled:
                raise
        except (SessionFailed, SessionClosed):
            if self._core.usable:
                raise
        finally:
            self._invocation.handler = None
        events.invocation(events.TASK_STOPPED, self._core.key, self._invocation.task, mode=self._invocation.mode)
        self.stop()

    async def _run_phases(self) -> None:
        invocation, task = self._invocation, self._invocation.task
        ran: dict[str, Any] | None = None
        while not invocation.signalled:
            record = self._core.forest.kept(task)
            verdict = step(invocation.mode, record, ran, self._error)
            if isinstance(verdict, Fault):
                await self._fault(verdict)
                return
            if not isinstance(verdict, Go) or record is None or self._handed_over(record) or self._engine.halted:
                return
            assert isinstance(record.state, Running)
            ran = record.state.checkpoint
            await self._core.drained()  # the checkpoint, and all that it could depend on
            await self._run_phase(record)

    def _handed_over(self, record: TaskRecord) -> bool:
        """Whether another definition has taken this one's place and can go on from here: the next invocation is its.

        Also before the first phase: an actor that was restarted still has the code that its first incarnation was given.
        """
        newest = self._engine.definitions.get(record.kind)
        if newest is None or newest is self._invocation.definition:
            return False
        return self._engine.can_take(record, newest)

    async def _run_phase(self, record: TaskRecord) -> None:
        """Run one handler. What it raises is remembered for the step, unless the session or somebody else ends us."""
        definition = self._invocation.definition
        self._error = None
        run: Run[Any] | None = None
        try:
            assert isinstance(record.state, Running)
            first = self._invocation.fresh and self._invocation.run is None
            run = self._invocation.run = Run(self._core, record, definition, self._invocation.mode, first=first)
            state = definition.decode_state(record.state.checkpoint)
            handler = definition.abort if self._invocation.mode == "abort" else definition.handler(state)
            with CodeOf(self._core.forest, record.id), under(place(self._core.key, record)):
                await handler(run, state)
        except (SessionFailed, SessionClosed) as error:
            self._core.check()  # another session's end is a failure like any other
            self._error = error
        except asyncio.CancelledError as error:
            if self._is_our_end():
                raise
            _take_back_cancel()
            self._error = error
        except BaseException as error:  # noqa: BLE001
            self._error = error
        finally:
            if run is not None:
                run.ended = True

    def _is_our_end(self) -> bool:
        """Whether a cancel means that this actor is to end: told to, killed, or with its loop.

        The end of the loop cannot be told from code that cancels its own task. So the first unexplained cancel is taken
        for a crash, after which the phase runs again if anything still does; the second is the code's own failure.
        """
        if self._invocation.signalled or not self.actor_ref.is_alive():
            return True
        self._invocation.cancels += 1
        return self._invocation.cancels == 1

    async def _fault(self, fault: Fault) -> None:
        """Have the phase run again later, or end the task as faulted, without its definition's clean-up if that fails.

        If even that cannot be stored, the session dies: running the phase again would not be better.
        """
        if self._error is not None:
            self._log(events.TASK_CRASHED, error=fault.message, exc_info=self._error)
        for clean_up in (True, False):
            try:
                await self._store_fault(fault, clean_up=clean_up)
            except (SessionFailed, SessionClosed):
                raise
            except Exception as error:  # noqa: BLE001
                self._log(events.FAULT_NOT_STORED, report=events.error, exc_info=error)
                if not clean_up:
                    self._core.fail(error)
            else:
                return

    async def _store_fault(self, fault: Fault, *, clean_up: bool) -> None:
        async with Commit(self._core, lambda: BaseTx(self._core)) as tx:
            tx.clean_up = clean_up
            record = self._core.forest.get(self._invocation.task)
            if record is None or not isinstance(record.state, Running):
                return
            again = self._restarted(record) if fault.crashed else None
            if again is None:
                finish(tx, record, Faulted(error=OutcomeError(message=fault.message)))
            else:
                restage(tx, again)
        self._log_fault(fault, record, again)

    def _restarted(self, record: TaskRecord) -> TaskRecord | None:
        restart = self._invocation.definition.restart
        return restarted(record, restart, self._core.clock.now(), self.system.random())

    def _log_fault(self, fault: Fault, record: TaskRecord, again: TaskRecord | None) -> None:
        if again is not None:
            assert isinstance(again.state, Waiting)
            self._log(events.TASK_RESTARTING, attempt=len(again.restarts or ()), until=again.state.until)
            return
        if fault.crashed and self._invocation.definition.restart is not None:
            self._log(events.TASK_ESCALATED, report=events.error, restarts=len(record.restarts or ()))
        self._log(events.TASK_FAULTED, error=fault.message)

    def _log(self, event: str, report: Callable[..., None] = events.warning, **fields: Any) -> None:
        invocation = self._invocation
        report(event, session=self._core.key, task=invocation.task, kind=invocation.definition.name, **fields)


def _take_back_cancel() -> None:
    current = asyncio.current_task()
    while current is not None and current.cancelling():
        current.uncancel()
