"""The children of one supervisor: carries out what the pure functions of ``supervisors/restart.py`` decide.

It hears of starts and ends by signals beside the supervisor's mailbox, so a handler that takes long delays no restart.
Invariants: a child's failure, at start too, never ends the supervisor except by exceeding the intensity; nothing is
restarted without a wait on the clock; what was decided later wins. Proved by tests/actors/runtime/test_supervisor.py and
test_supervision_matrix.py.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...supervisors.restart import (
    Backoff,
    Exit,
    Intensity,
    Strategy,
    charge,
    check_budget,
    check_strategy,
    needs_restart,
    plan_restart,
)
from . import events
from .child import Child, ChildSpec
from .errors import ActorDead, ActorError, ActorExists, RestartIntensityExceeded, UnknownChild
from .future import ActorFuture
from .incarnation import Incarnation
from .ref import ActorRef

if TYPE_CHECKING:
    from .supervisor import Supervisor


class Children:
    """Starts, restarts and stops the children of ``supervisor``, in start order. Loop thread only."""

    def __init__(self, supervisor: "Supervisor", strategy: Strategy, intensity: Intensity, backoff: Backoff) -> None:
        check_strategy(strategy)
        check_budget(intensity, backoff)
        self._supervisor = supervisor
        self._strategy = strategy
        self._intensity = intensity
        self._backoff = backoff
        self._clock = supervisor.clock
        self._children: dict[str, Child] = {}
        self._history: tuple[float, ...] = ()
        self._all_up: ActorFuture[None] | None = None
        self._closing = False

    # -- what the supervisor asks for -------------------------------------------------------------------------------

    def refs(self) -> dict[str, ActorRef[Any] | None]:
        """The refs by id, in start order; None for a child that is down."""
        return {
            child_id: None if child.incarnation is None else child.incarnation.ref
            for child_id, child in self._children.items()
        }

    def describe(self) -> list[dict[str, Any]]:
        """What ``system.tree()`` says of them, in start order."""
        return [child.describe() for child in self._children.values()]

    def add(self, spec: ChildSpec) -> ActorRef[Any]:
        """Start a child behind the others, at once."""
        supervisor = self._supervisor
        if self._closing or not supervisor.actor_ref.is_alive():
            raise ActorDead(supervisor.id, "it is ending and starts no more children")
        if spec.id in self._children:
            raise ActorExists(spec.id)
        child = Child(spec)
        ref = self._start(child)
        self._children[spec.id] = child
        return ref

    async def start_all(self, specs: Iterable[ChildSpec]) -> None:
        """Start children in order. Returns when all are up, however often it takes."""
        now_s = self._clock.monotonic()
        for spec in specs:
            child = self._children[spec.id] = Child(spec)
            child.due_s = now_s
        all_up: ActorFuture[None] = ActorFuture()
        self._all_up = all_up
        for child in list(self._children.values()):
            self._advance(child)
        await all_up

    async def remove(self, child_id: str) -> None:
        """Stop a child for good and forget it; returns when it has ended."""
        child = self._children.get(child_id)
        if child is None:
            raise UnknownChild(self._supervisor.id, child_id)
        child.leaving = True
        child.wait_until(None)
        incarnation = child.incarnation
        if incarnation is None:
            self._forget(child)
            self._advance(child)
        else:
            self._stop(child)
            await incarnation.when_ended()

    def end_all(self, *, kill: bool) -> Coroutine[Any, Any, None] | None:
        """Start nothing more; what is left to wait for until every child has ended, or None."""
        self._closing = True
        for child in self._children.values():
            if child.phase == "down":
                child.wait_until(None)
                self._return_mail(child)
        living = [
            (child, child.incarnation) for child in reversed(self._children.values()) if child.incarnation is not None
        ]
        if not living:
            return None
        return self._kill_living(living) if kill else self._stop_living(living)

    # -- what the children report: in the middle of their steps, so what follows from it is posted ------------------

    def child_started(self, incarnation: Incarnation) -> None:
        """``on_start`` has run."""
        self._post(lambda: self._on_started(incarnation))

    def child_ended(self, incarnation: Incarnation, ended: Exit) -> None:
        """Nothing of it runs any more. Its queue holds something only if it failed to start."""
        child = self._children.get(incarnation.id)
        if child is not None and not self._closing:
            child.mail.extend(incarnation.take_mail())
        self._post(lambda: self._on_ended(incarnation, ended))

    def _post(self, step: Callable[[], None]) -> None:
        """Run ``step`` soon, in the supervisor's context but outside of its handlers; what it raises crashes it."""
        supervisor = self._supervisor._incarnation

        def run() -> None:
            if supervisor.actor is None:
                return
            try:
                step()
            except BaseException as exc:  # noqa: BLE001 - as a handler's
                supervisor.crash(exc)

        supervisor.scheduler.post(supervisor.context, run)

    def _on_started(self, incarnation: Incarnation) -> None:
        child = self._children.get(incarnation.id)
        if child is None or child.incarnation is not incarnation:
            return
        child.up_since_s = self._clock.monotonic()
        if child.phase == "starting":
            child.phase = "running"
        self._supervisor.on_child_started(incarnation.id, incarnation.ref)
        self._advance(child)

    def _on_ended(self, incarnation: Incarnation, ended: Exit) -> None:
        child = self._children.get(incarnation.id)
        if child is None or child.incarnation is not incarnation:
            return
        comes_back = not child.concerned and not self._closing and needs_restart(child.spec.restart, ended)
        child.forget_timer()
        child.incarnation = None
        child.phase = "down"
        self._supervisor.on_child_ended(incarnation.id, ended)
        if comes_back:
            self._restart(child, ended)
            return
        if child.due_s is None:
            self._forget(child)
        self._advance(child)

    # -- carrying out decisions -------------------------------------------------------------------------------------

    def _restart(self, failed: Child, ended: Exit) -> None:
        now_s = self._clock.monotonic()
        history = charge(self._intensity, self._history, now_s)
        if history is None:
            self._escalate(failed, ended)
            return
        self._history = history
        delay_s = self._next_delay_s(failed, now_s)
        events.warning(
            events.CHILD_RESTARTING,
            supervisor=self._supervisor.id,
            child=failed.spec.id,
            attempt=failed.attempt,
            delay_s=round(delay_s, 3),
            reason=str(ended),
        )
        order = [(child_id, child.spec.restart) for child_id, child in self._children.items()]
        plan = plan_restart(self._strategy, order, failed.spec.id)
        for child_id in plan.forget:
            self._children[child_id].leaving = True
        for child_id in plan.start:
            self._children[child_id].wait_until(now_s + delay_s)
        self._advance(failed)

    def _next_delay_s(self, child: Child, now_s: float) -> float:
        up_s = 0.0 if child.up_since_s is None else now_s - child.up_since_s
        child.attempt = 1 if up_s >= self._intensity.period_s else child.attempt + 1
        child.up_since_s = None
        return self._backoff.delay_s(child.attempt, self._supervisor.system.random())

    def _escalate(self, failed: Child, ended: Exit) -> None:
        supervisor, limit = self._supervisor, self._intensity
        exc = RestartIntensityExceeded(supervisor.id, failed.spec.id, limit.restarts, limit.period_s, ended.cause)
        events.error(
            events.SUPERVISOR_ESCALATED,
            supervisor=supervisor.id,
            child=failed.spec.id,
            restarts=limit.restarts,
            period_s=limit.period_s,
            exc_info=exc,
        )
        supervisor._incarnation.crash(exc)

    def _advance(self, child: Child) -> None:
        """Take the next steps towards what was decided, as far as they can be taken now. Called after every change."""
        if self._closing:
            return
        if self._strategy == "one_for_one":
            self._start_if_due(child)
        else:
            self._advance_in_order()
        if self._all_up is not None and all(each.phase == "running" for each in self._children.values()):
            self._all_up.settle(None)
            self._all_up = None

    def _advance_in_order(self) -> None:
        """Stop who must go, the last first; then start who must come back, the first first; one at a time."""
        for child in reversed(self._children.values()):
            if child.incarnation is not None and (child.due_s is not None or child.leaving):
                self._stop(child)
                return
        for child in self._children.values():
            if child.due_s is not None:
                self._start_if_due(child)
                return
            if child.phase == "starting":
                return

    def _start_if_due(self, child: Child) -> None:
        if child.due_s is None or child.incarnation is not None or child.timer is not None:
            return
        wait_s = child.due_s - self._clock.monotonic()
        if wait_s > 0:
            self._wait(child, wait_s)
        else:
            self._come_back(child)

    def _wait(self, child: Child, wait_s: float) -> None:
        def end() -> None:
            if child.timer is timer:  # else something else was decided between the timer and now
                child.timer = None
                self._come_back(child)

        timer = child.timer = self._clock.call_later(wait_s, lambda: self._post(end))

    def _come_back(self, child: Child) -> None:
        try:
            self._start(child)
        except ActorError as exc:  # somebody else took the id meanwhile
            self._restart(child, Exit("crashed", exc))

    def _start(self, child: Child) -> ActorRef[Any]:
        incarnation = self._supervisor.system.start_child_of(self._supervisor, child.spec)
        child.due_s = None
        child.starts += 1
        child.incarnation = incarnation
        child.phase = "starting"
        if incarnation.actor is not None:
            incarnation.take_over_mail(child.mail)
            child.mail = []
        return incarnation.ref

    def _stop(self, child: Child) -> None:
        incarnation, shutdown_s = child.incarnation, child.spec.shutdown_s
        if child.phase == "stopping" or incarnation is None:
            return
        child.phase = "stopping"
        if shutdown_s == 0:
            incarnation.kill("its shutdown time is 0")
            return
        incarnation.ref.stop(block=False)
        if shutdown_s is not None:
            why = f"it did not stop within {shutdown_s:g} s"
            child.timer = self._clock.call_later(shutdown_s, lambda: incarnation.kill(why))

    def _forget(self, child: Child) -> None:
        child.forget_timer()
        self._return_mail(child)
        del self._children[child.spec.id]

    def _return_mail(self, child: Child) -> None:
        self._supervisor.system.answer_unhandled(child.spec.id, child.mail)
        child.mail = []

    async def _stop_living(self, living: Sequence[tuple[Child, Incarnation]]) -> None:
        """One after the other, but at once where no child may depend on another. Some may have ended before this begins."""
        in_order = self._strategy != "one_for_one"
        for child, incarnation in living:
            self._stop(child)
            if in_order:
                await incarnation.when_ended()
        for _, incarnation in living:
            await incarnation.when_ended()

    async def _kill_living(self, living: Sequence[tuple[Child, Incarnation]]) -> None:
        for _, incarnation in living:
            incarnation.kill("its supervisor was killed")
        for _, incarnation in living:
            await incarnation.when_ended()
