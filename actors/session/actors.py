"""The actors that keep sessions: each session's own, the guard that restarts it, and the supervisor of all guards.

    sessions            one_for_one over guards; a guard that gives up is reported and gone, others never notice
      guard:KEY         restarts its session within an intensity, with backoff
        session:KEY     owns the core; supervises the invocations of its tasks

Proved by tests/actors/session/test_supervision.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import structlog

from ...chord import valid_text
from ...storage.contract import Storage
from ...storage.records import Batch
from ...supervisors.restart import Exit
from ..runtime import Backoff, ChildSpec, Clock, Supervisor, Timer
from .core import SessionCore
from .courier import Courier
from .environment import Hooks, Scheduler, Services
from .errors import InvalidValue, SessionClosed, SessionFailed
from .outside import waiting_outside
from .subscribers import Dormant

R = TypeVar("R")

log = structlog.get_logger("perdure.session")

MAX_KEY_BYTES = 512
RESTARTS, PERIOD_S = 5, 300.0
"""A session that fails more often than this is given up until somebody asks for it again.

The period is longer than so many of its lives take when one of its tasks crashes in a loop, or the limit would never trip.
"""
TASK_RESTARTS, TASK_PERIOD_S = 40, 60.0
"""Crashes of invocations, over all tasks of a session, that end the session."""
TASK_BACKOFF = Backoff(first_s=0.02, max_s=1.0)
BACKOFF = Backoff(first_s=0.05)
PASSIVATED_AT_ONCE = 100
MOMENT_S = 0.001
"""How soon idle sessions are looked at again at the earliest: less may be rounded away, and time would stand still."""


class Environment(msgspec.Struct, kw_only=True):
    """What all sessions of a system share."""

    storage: Storage
    clock: Clock
    services: Services
    hooks: Hooks
    make_scheduler: Callable[[SessionCore, "SessionActor"], Scheduler]
    write: Callable[[SessionCore, Batch], None]
    """Hands a batch to the storage actor."""
    alarm: Callable[[str, int | None], None]
    """Tells the timer a session's earliest deadline, None when it has none."""
    gave_up: Callable[[str, BaseException | None], None]
    """Hears of a session that could not be kept alive."""
    asleep: Callable[[str, int | None], None]
    """Tells it that a session has left memory: from now on its deadline is storage's to know."""
    caught_up: Callable[[str], Awaitable[None]]
    """Returns once all batches of a session that were handed over are stored."""
    idle_after_s: Callable[[], float | None] = lambda: None
    """Tells how long a session stays in memory that nobody uses; None: for ever."""
    undrained: set[str] = msgspec.field(default_factory=set)
    """Sessions whose last incarnation died with commits on their way to storage."""


class Due:
    """Tells a session that a stored deadline has come."""


class Sweep:
    """Tells the supervisor of all sessions that some may have been idle for long enough."""


class Replace:
    """Tells the supervisor of all sessions that a session is wanted whose guard has ended."""

    def __init__(self, key: str) -> None:
        self.key = key


class CoreFailed:
    """Tells a session's actor that its core is dead, so that it crashes and is built again."""

    def __init__(self, core: SessionCore, cause: BaseException | None) -> None:
        self.core = core
        self.cause = cause


class SessionActor(Supervisor):
    """One incarnation of one active session."""

    def __init__(self, key: str, environment: Environment, sessions: "Sessions") -> None:
        super().__init__(strategy="one_for_one", intensity=TASK_RESTARTS, period_s=TASK_PERIOD_S, backoff=TASK_BACKOFF)
        self._environment = environment
        self._sessions = sessions
        self.core = SessionCore(
            key,
            storage=environment.storage,
            clock=environment.clock,
            services=environment.services,
            hooks=environment.hooks,
            write=environment.write,
            alarm=environment.alarm,
            failed=self._core_failed,
            used=sessions.used,
        )
        self._scheduler = environment.make_scheduler(self.core, self)
        self.core.scheduler = self._scheduler
        self._courier = Courier(self.core, self.system.random)

    async def on_start(self) -> None:
        """Load what is stored, once the last incarnation's commits are, and go on with it."""
        if self.core.key in self._environment.undrained:
            await self._environment.caught_up(self.core.key)
            self._environment.undrained.discard(self.core.key)
        with waiting_outside(self):
            await self.core.load()
            for hook in self._environment.hooks.opened:
                await hook(self.core)
        self._scheduler.resume()
        self._courier.start()
        self._sessions.opened(self.core)

    def on_receive(self, message: Any) -> None:
        """Take deadlines and the death of the core."""
        if isinstance(message, CoreFailed) and message.core is self.core:
            raise SessionCrash(self.core.key) from message.cause
        if isinstance(message, Due):
            self._scheduler.due()
            self.core.tell_deadline(again=True)

    def on_child_ended(self, child_id: str, reason: Exit) -> None:
        """Hand an invocation that has ended back to the scheduler; one that crashed is started again."""
        if not reason.abnormal:
            self._scheduler.invocation_ended(child_id)

    def _end_children(self, *, kill: bool) -> Coroutine[Any, Any, None] | None:
        """Begin the end: of a stop by refusing commits, of a crash or kill by telling everybody that waits."""
        ended = self._incarnation.exit
        if ended is not None and ended.abnormal:
            self.core.fail(ended.cause)
        else:
            self.core.seal()
        self._courier.stop()
        self._scheduler.signal()
        return super()._end_children(kill=kill)

    async def on_stop(self) -> None:
        """Let admitted commits settle; whoever still waits learns that the session is closed."""
        try:
            await self.core.finish()
        except SessionFailed:
            return

    def _core_failed(self, cause: BaseException | None) -> None:
        if self.actor_ref.is_alive():
            self.actor_ref.tell(CoreFailed(self.core, cause))


class SessionCrash(Exception):
    """Raised in a session's actor when its core is dead; its cause is why."""


class Guard(Supervisor):
    """Keeps one session alive."""

    def __init__(self, key: str, environment: Environment, sessions: "Sessions") -> None:
        spec = ChildSpec(
            f"session:{key}", SessionActor, (key, environment, sessions), restart="transient", shutdown_s=None
        )
        super().__init__(
            strategy="one_for_one",
            intensity=RESTARTS,
            period_s=PERIOD_S,
            backoff=BACKOFF,
            children=(spec,),
        )
        self._key = key
        self._sessions = sessions

    def on_child_ended(self, child_id: str, reason: Exit) -> None:
        """The incarnation that handles may hold is gone, even when it was killed and could not say so."""
        self._sessions.lost(self._key, reason)


class Sessions(Supervisor):
    """Activates sessions, knows their current incarnations (see ``directory.Directory``), and passivates idle ones."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(strategy="one_for_one", intensity=RESTARTS, period_s=PERIOD_S)
        self._environment = environment
        self._cores: dict[str, SessionCore] = {}
        self._opening: dict[str, asyncio.Future[SessionCore]] = {}
        self._ended: dict[str, asyncio.Future[None]] = {}
        """Sessions that are kept from being activated until something is done."""
        self.given_up: dict[str, BaseException | None] = {}
        """Sessions whose guards have given up, and why. They stay down until somebody asks for them."""
        self._reported: dict[str, str] = {}
        """Why sessions were given up, as told, until they have ended in peace: whoever asks again learns it by himself."""
        self._dormant = Dormant()
        self._sweep: Timer | None = None
        self._ending = False

    async def core(self, key: str) -> SessionCore:
        """Give a session's living incarnation, activating it or waiting for its restart.

        Raises SessionClosed when all sessions end, SessionFailed when this one cannot be brought back.
        """
        while True:
            core = self._cores.get(key)
            if core is not None and core.usable:
                core.use.note()
                return core
            if key in self._ended:
                await asyncio.shield(self._ended[key])
            elif self._ending or not self.actor_ref.is_alive():
                raise SessionClosed("the system is closing")
            else:
                await asyncio.shield(self._open(key))

    def _open(self, key: str) -> asyncio.Future[SessionCore]:
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.get_running_loop().create_future()
            self._activate(key)
        return opening

    async def end(self, key: str, then: Callable[[], Awaitable[R]]) -> R:
        """Stop a session's actors, and let nobody activate it again before ``then`` is done."""
        while key in self._ended:
            await asyncio.shield(self._ended[key])
        self._dormant.end(key)
        return await self._stop_session(key, then)

    async def _stop_session(self, key: str, then: Callable[[], Awaitable[R]]) -> R:
        done = self._ended[key] = asyncio.get_running_loop().create_future()
        try:
            if f"guard:{key}" in self.children():
                await self.stop_child(f"guard:{key}")
            self.given_up.pop(key, None)
            return await then()
        finally:
            del self._ended[key]
            done.set_result(None)

    def _activate(self, key: str) -> None:
        child = f"guard:{key}"
        if child not in self.children():
            self.start_child(
                ChildSpec(child, Guard, (key, self._environment, self), restart="temporary", shutdown_s=None)
            )

    def opened(self, core: SessionCore) -> None:
        """Take note of a session's new incarnation."""
        self._cores[core.key] = core
        self.given_up.pop(core.key, None)
        self._dormant.wake(core)
        core.use.note()
        opening = self._opening.pop(core.key, None)
        if opening is not None and not opening.done():
            opening.set_result(core)

    def lost(self, key: str, reason: Exit) -> None:
        """Take note that a session's incarnation has ended."""
        core = self._cores.pop(key, None)
        if core is not None:
            core.fail(reason.cause)
            if core.seq > core.gate.durable:
                self._environment.undrained.add(key)

    def fail_all(self, cause: BaseException | None) -> None:
        """Let all incarnations die at once: storage has."""
        for core in list(self._cores.values()):
            core.fail(cause)

    async def drain(self) -> None:
        """Have no session start a phase any more; return when all phases that run have ended."""
        schedulers = [core.scheduler for core in self._cores.values()]
        await asyncio.gather(*(one.drain() for one in schedulers if one is not None))

    def active(self) -> list[SessionCore]:
        """List the living incarnations."""
        return list(self._cores.values())

    def on_child_ended(self, child_id: str, reason: Exit) -> None:
        """Whoever waits for the session of a guard that has given up is told why; one that was killed is replaced.

        So is one that had been stopped when somebody asked for its session.
        """
        key = child_id.removeprefix("guard:")
        self.lost(key, reason)
        if not self._ending and (reason.kind == "killed" or (key in self._opening and not reason.abnormal)):
            self.actor_ref.tell(Replace(key))  # its place is free when this has returned
            return
        if reason.abnormal:
            self._give_up(key, reason.cause)
        else:
            self._reported.pop(key, None)
        opening = self._opening.pop(key, None)
        if opening is not None and not opening.done():
            opening.set_exception(SessionFailed(key, reason.cause))
            opening.exception()

    def _give_up(self, key: str, cause: BaseException | None) -> None:
        self.given_up[key] = cause
        if self._reported.get(key) != repr(cause):
            self._reported[key] = repr(cause)
            self._environment.gave_up(key, cause)

    def on_receive(self, message: Any) -> Any:
        """Start another guard in the place of one that has ended; passivate idle sessions."""
        if isinstance(message, Replace) and not self._ending and message.key not in self._ended:
            self._activate(message.key)
        return self._passivate_idle() if isinstance(message, Sweep) else None

    def _end_children(self, *, kill: bool) -> Coroutine[Any, Any, None] | None:
        self._ending = True
        if self._sweep is not None:
            self._sweep.cancel()
        self._dormant.end_all()
        for key, opening in list(self._opening.items()):
            if not opening.done():
                opening.set_exception(SessionClosed(f"session {key!r} was not opened: the system is closing"))
                opening.exception()
        return super()._end_children(kill=kill)

    # --- passivation

    def used(self) -> None:
        """Take note that some session is used at this moment: see later whether it still is. One timer serves all."""
        if self._sweep is None and not self._ending:
            idle_after_s = self._environment.idle_after_s()
            if idle_after_s is not None:
                self._sweep_in(idle_after_s)

    def _sweep_in(self, delay_s: float) -> None:
        self._sweep = self.clock.call_later(delay_s, self._say_sweep)

    def _say_sweep(self) -> None:
        if self.actor_ref.is_alive():
            self.actor_ref.tell(Sweep())

    async def _passivate_idle(self) -> None:
        """Passivate who has been idle for long enough, a few at a time, and let others rest.

        Whoever is busy makes itself heard when it no longer is. So the timer is set again only for what is idle already.
        """
        self._sweep = None
        idle_after_s = self._environment.idle_after_s()
        if idle_after_s is None:
            return
        before = self.clock.monotonic() - idle_after_s
        idle = [core for core in self._cores.values() if self._may_leave(core, before)]
        for start in range(0, len(idle), PASSIVATED_AT_ONCE):
            some = idle[start : start + PASSIVATED_AT_ONCE]
            await asyncio.gather(*(self._passivate(core, before) for core in some))
        self._sweep_again(before)

    def _may_leave(self, core: SessionCore, before: float) -> bool:
        return core.idle and core.use.last <= before and core.key not in self._ended

    def _sweep_again(self, before: float) -> None:
        """Set the timer for the first of those who are idle already."""
        cores = self._cores.values()
        rested = [core.use.last for core in cores if core.idle]
        rested += [self.clock.monotonic() for core in cores if core.rest(before)]
        if rested and self._sweep is None:
            self._sweep_in(max(MOMENT_S, min(rested) - before))

    async def _passivate(self, core: SessionCore, before: float) -> None:
        """Let a session leave memory if it is idle. From looking to refusing new commits there is no step of the loop."""
        if self._may_leave(core, before):
            core.seal()
            self._dormant.keep(core)
            self._environment.asleep(core.key, core.forest.deadline())
            await self._stop_session(core.key, _nothing)


async def _nothing() -> None:
    """Nothing has to be done before a passivated session may come back."""


def check_key(key: str) -> str:
    """Give a session key back. Raises InvalidValue for one that cannot be stored."""
    if not isinstance(key, str) or not key or valid_text(key) != key or len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidValue(f"a session key is text of 1 to {MAX_KEY_BYTES} bytes of valid Unicode")
    return key
