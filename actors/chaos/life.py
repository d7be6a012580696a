"""A run of a scenario over all lives of its process: each ends at the crash that is planned for it, the last one in peace.

A process that crashes does nothing any more: from that moment on its storage takes nothing, no effect begins, and nothing
that is told inside is heard outside. Its remains are cleared away after its store was put aside.
Proved by tests/actors/chaos/test_life.py.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NoReturn

import msgspec

from ...storage.contract import Storage
from ...storage.errors import StorageClosed, StorageInUse
from ...storage.records import Batch
from ..runtime import VirtualClock
from ..session.errors import SessionFailed
from ..system import System
from .backends import Backend
from .invariants import check_stored
from .points import Counter, Crash, Point, Reached, Side, commit_kind, commits
from .recording import EffectRecorder, ObservedSystem, RecordingStorage
from .scenario import Scenario
from .stored import Stored, read_store
from .trace import Began, Crashed, Event, Opened, Trace
from .violations import Violation

REAL_LIMIT_S = 60.0
"""How long a life may take for real, before it is taken for one that never ends."""


class Report(msgspec.Struct):
    """What a run has shown: the points that it came to, its trace, and everything that did not hold."""

    reached: list[Reached]
    trace: Trace
    violations: list[Violation]
    crashed: int
    """How many of the planned crashes came about."""


async def perform(scenario: Scenario, backend: Backend, crashes: Sequence[Crash] = ()) -> Report:
    """Run a scenario to its end, with one planned crash in each life, and hold everything that must hold."""
    run = _Run(scenario, backend)
    violations = await run.through(list(crashes))
    return Report(run.reached, run.trace, violations, run.crashed)


class _Run:
    def __init__(self, scenario: Scenario, backend: Backend) -> None:
        self.scenario = scenario
        self.backend = backend
        self.trace = Trace()
        self.clock = VirtualClock(autojump=True, quiet_s=backend.quiet_s)
        self.counter = Counter()
        self.numbers = count(1)
        self.watches = count(1)
        self.reached: list[Reached] = []
        self.crashed = 0
        self.learns = True
        """Whether nothing is planned to crash."""

    async def through(self, crashes: list[Crash]) -> list[Violation]:
        self.learns = not crashes
        lives = 0
        while True:
            lives += 1
            life = Life(self, lives, crashes.pop(0) if crashes else None)
            await life.live()
            if not life.dead:
                return life.mistakes

    def judge(self, stored: Stored) -> Iterator[Violation]:
        """Hold what must hold now that everything is at rest."""
        yield from check_stored(stored, self.trace)
        try:
            self.scenario.check(stored)
        except AssertionError as error:
            yield Violation("end", str(error))


class Life:
    """One life of the process: a system over the store, until the work is done or the planned crash."""

    def __init__(self, run: _Run, number: int, crash: Crash | None) -> None:
        self._run = run
        self._number = number
        self._crash = crash
        self.dead = False
        self.died = asyncio.Event()
        self.buried = asyncio.Event()
        self.system: System | None = None
        self.mistakes: list[Violation] = []
        self._storage = MortalStorage(run.backend.store(run.clock), run.trace, self)

    def add(self, event: Event) -> None:
        """Hear of something, as long as the process is there to show it."""
        if not self.dead:
            self._run.trace.add(event)

    async def live(self) -> None:
        """Return when it is over."""
        release = self._run.clock.hold(self._in_threads)
        try:
            await self._live()
        finally:
            release()

    def _in_threads(self) -> bool:
        """Whether something is under way that a virtual clock cannot see."""
        return self._storage.in_flight + self._run.scenario.effects.in_threads > 0

    async def _live(self) -> None:
        self.add(Opened(life=self._number))
        self._run.scenario.trace = self
        driver = asyncio.ensure_future(self._drive())
        death = asyncio.ensure_future(self.died.wait())
        await asyncio.wait({driver, death}, return_when=asyncio.FIRST_COMPLETED, timeout=REAL_LIMIT_S)
        if not driver.done() and not self.dead:
            self.mistakes.append(Violation("P8", f"life {self._number} did not end within {REAL_LIMIT_S:.0f} s"))
        death.cancel()
        if self.dead:
            await self._bury()
        if not driver.done():
            driver.cancel()
        with suppress(asyncio.CancelledError):
            await driver

    async def _bury(self) -> None:
        """Put the store aside as the crash has left it; then what is left of the process may go."""
        await self._storage.drained()
        self._run.backend.crash()
        self.buried.set()

    # --- the work

    async def _drive(self) -> None:
        scenario, run = self._run.scenario, self._run
        recorder = scenario.effects = EffectRecorder(self, self, run.numbers)
        system = ObservedSystem.observe(
            self,
            self._storage,
            watches=self._run.watches,
            models=recorder.models(scenario.models(run.clock)),
            extensions=recorder.extensions(scenario.extensions()),
            settings=scenario.settings,
            clock=run.clock,
        )
        try:
            async with system:
                self.system = system
                await self._work(system)
                self.mistakes += self._run.judge(await read_store(self._storage))
        except Exception as error:  # noqa: BLE001 - whatever the work raises is reported
            if not self.dead:
                self.mistakes.append(Violation("end", f"{type(error).__name__} came out of the work: {error}"))

    async def _work(self, system: System) -> None:
        clock, scenario = self._run.clock, self._run.scenario
        work = asyncio.ensure_future(self._attempts(system))
        limit = asyncio.ensure_future(clock.sleep(scenario.waits_s))
        try:
            await asyncio.wait({work, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.mistakes.append(Violation("P8", f"the work did not end within {scenario.waits_s:,.0f} s"))
                return
            work.result()
            await clock.sleep(scenario.settle_s)
        finally:
            work.cancel()
            limit.cancel()
            await asyncio.gather(work, limit, return_exceptions=True)
        self.mistakes += [Violation("P8", f"{key} is down: {why}") for key, why in system.inspect().given_up.items()]

    async def _attempts(self, system: System) -> None:
        while True:
            with suppress(SessionFailed):
                return await self._run.scenario.run(system)

    # --- points

    async def __call__(self, side: Side, effect: Began) -> None:
        """Stand at an effect: see ``recording.Door``."""
        if self.dead:
            await asyncio.Event().wait()
        self._reach([Point(side, self._run.counter.name(effect))], effect.kind)
        if self.dead:
            await asyncio.Event().wait()

    def at_commit(self, side: Side, batches: Sequence[Batch]) -> None:
        """Stand at a group of commits. Raises StorageClosed in a process that has died."""
        if not self.dead:
            self._reach([Point(side, what) for what in commits(batches)], commit_kind(batches))
        if self.dead:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Answer whoever wants something of a process that has died."""
        raise StorageClosed("the process has died")

    def _reach(self, points: list[Point], kind: Any) -> None:
        actors = self._actors() if self._run.learns else []
        self._run.reached.append(Reached(points[0], kind, self._number, actors))
        if self._crash is not None and self._crash.point in points:
            crash, self._crash = self._crash, None
            self._run.crashed += 1
            self._happen(crash.actor)

    def _actors(self) -> list[str]:
        return [] if self.system is None else list(_ids(self.system.inspect().actors))

    def _happen(self, actor: str | None) -> None:
        self.add(Crashed(actor=actor))
        if actor is not None:
            if self.system is not None:
                self.system.kill(actor)
            return
        self.dead = True
        self.died.set()


def _ids(actors: list[dict[str, Any]]) -> Iterator[str]:
    for actor in actors:
        yield actor["id"]
        yield from _ids(actor["children"])


class MortalStorage(RecordingStorage):
    """The storage of one life: when that is over it takes nothing and gives nothing."""

    def __init__(self, inner: Storage, trace: Trace, life: Life) -> None:
        super().__init__(inner, trace)
        self._life = life
        self.in_flight = 0
        """How many calls wait for the inner storage, whose threads a virtual clock cannot see."""

    async def open(self) -> None:
        """Open the inner storage. A process that has died never gets it again."""
        if self._life.dead:
            raise StorageInUse("the store", pid=0, host="another life")
        with self._waiting():
            await super().open()

    async def close(self) -> None:
        """Close the inner storage, after a crash when it was put aside."""
        if self._life.dead:
            await self._life.buried.wait()
        with self._waiting():
            await super().close()

    async def _store(self, batches: Sequence[Batch]) -> None:
        with self._waiting():
            await super()._store(batches)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def _meet(self, number: int, when: Side) -> None:
        self._life.at_commit(when, self._group)
        await super()._meet(number, when)

    async def write(self, batches: Sequence[Batch]) -> None:
        """Store a group, between its two points."""
        self._group = batches
        await super().write(batches)

    async def _read(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        if self._life.dead:
            self._life.refuse()
        with self._waiting():
            answer = await super()._read(query, *args, **kwargs)
        if self._life.dead:
            self._life.refuse()
        return answer
