"""Deterministic simulation: one seed fixes everything that happens in a run, and the same seed gives the same trace.

The seed picks the scenario's inputs, who runs next, how long storage and models take, what fails, and where actors and the
process die. A process that has died is begun anew over what it had stored, until the work is done; then the invariants
are held against what is stored and what was seen. Proved by tests/actors/chaos/test_simulation.py.
"""

import asyncio
import gc
import inspect
import itertools
import logging
import random
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
import structlog

from ...storage.memory import MemoryStorage
from ..runtime import VirtualClock
from ..session import names
from ..session.errors import SessionFailed
from .faults import Faults, FlakyModel, SimStorage
from .invariants import check
from .loop import ProcessDied, SimLoop, Stalled
from .recording import EffectRecorder, ObservedSystem
from .scenario import Scenario
from .stored import read_store
from .trace import Crashed, Event, Opened, Sink, Trace
from .violations import Violation
from .workload import Office

Maker: TypeAlias = Callable[[], Scenario] | Callable[[Random], Scenario]
MAX_STEPS = 100_000
"""Turns of the loop in one life; more of them are work that never ends."""
LONGEST_LIFE = 3_000
"""The most turns after which something is planned to die."""
COLLECT_EVERY = 20
"""Runs between two collections of garbage, of which there is none while one lasts."""
_runs = itertools.count(1)


class Simulation(msgspec.Struct, frozen=True):
    """What became of a seed.

    ``digest`` is a hash of all that was seen and of every choice that was made: equal for equal runs. ``steps`` are turns of
    the loop over all ``lives`` of the process. ``violations`` is empty when all promises were kept.
    """

    seed: int
    digest: str
    steps: int
    lives: int
    violations: list[Violation]
    trace: Trace


def simulate(seed: int, scenario: Maker = Office, *, faults: Faults | None = None) -> Simulation:
    """Run a scenario as a seed says: a class, or anything that makes one. If it takes ``dice``, its inputs may be drawn there.

    The same seed gives the same run, in any process, if the scenario and its tools draw all chance from ``dice`` or the module
    ``random``, all time from the system's clock, and depend on no order of a set. While it lasts ``random`` is seeded,
    logging is off, and names (UUIDs) are the seed's, in this whole process. Not to be called where a loop runs.
    """
    with undisturbed(), _seeded(seed):
        return _World(seed, scenario, faults or Faults()).run()


def _make(scenario: Maker, dice: Random) -> Scenario:
    make: Callable[..., Scenario] = scenario
    return make(dice) if inspect.signature(make).parameters else make()


class _Mortal:
    """A trace as one life of the process writes it: what goes on in a process that has died is seen by nobody."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.dead = False

    def add(self, event: Event) -> None:
        if not self.dead:
            self._trace.add(event)


class _World:
    def __init__(self, seed: int, scenario: Maker, faults: Faults) -> None:
        self.seed = seed
        self.dice = _dice("schedule", seed)
        self.faults = faults
        self.trace = Trace()
        self.scenario = _make(scenario, _dice("inputs", seed))
        self.numbers = itertools.count(1)
        self.watches = itertools.count(1)
        self.clock = VirtualClock()
        self.store = MemoryStorage(clock=self._now)
        self.loops: list[SimLoop] = []
        self.violations: list[Violation] = []

    def run(self) -> Simulation:
        deaths = self.dice.randint(0, self.faults.process_deaths)
        while self._live(self._moment() if deaths > 0 else None):
            deaths -= 1
        if not self.violations:
            self.violations += _alone(self._check())
        digest = self._digest()
        steps, lives = sum(loop.steps for loop in self.loops), len(self.loops)
        self._bury()
        return Simulation(self.seed, digest, steps, lives, self.violations, self.trace)

    def _live(self, dies_at: int | None) -> bool:
        """Run one life of the process; tell whether it died."""
        if self.loops:
            self.clock = VirtualClock(self.clock.now() + self.dice.randrange(5_000))
        loop = SimLoop(
            self.dice, self.clock, unrest=self.dice.choice((0.0, 0.1, 0.5, 1.0)), dies_at=dies_at or MAX_STEPS
        )
        self.loops.append(loop)
        sink = self.scenario.trace = _Mortal(self.trace)
        self.trace.add(Opened(life=len(self.loops)))
        try:
            loop.run_until_complete(self._work(loop, sink))
        except ProcessDied:
            sink.dead = True
            self.trace.add(Crashed())
            if dies_at is None:
                self.violations.append(Violation("P8", f"the work did not end within {MAX_STEPS:,} turns of the loop"))
            return dies_at is not None
        except Stalled as error:
            sink.dead = True
            self.violations.append(Violation("P8", str(error)))
        except Exception as error:  # noqa: BLE001 - whatever comes out of the work
            sink.dead = True
            self.violations.append(Violation("end", f"the work ended with {error!r}"))
        return False

    def _now(self) -> int:
        """Tell the time in the life that lasts."""
        return self.clock.now()

    async def _work(self, loop: SimLoop, sink: Sink) -> None:
        storage = SimStorage(self.store, sink, self.dice, self.faults, self.clock)
        effects = self.scenario.effects = EffectRecorder(sink, numbers=self.numbers)
        models = [FlakyModel(one, self.dice, self.faults, self.clock) for one in self.scenario.models(self.clock)]
        system = ObservedSystem.observe(
            sink,
            storage,
            watches=self.watches,
            models=effects.models(models),
            extensions=effects.extensions(self.scenario.extensions()),
            settings=self.scenario.settings,
            clock=self.clock,
        )
        async with system:
            self._plan_deaths(loop, system, sink)
            async with asyncio.timeout(self.scenario.waits_s):
                await self._finish(system)
            storage.calm = True
            await self.clock.sleep(self.scenario.settle_s)

    async def _finish(self, system: ObservedSystem) -> None:
        while True:
            try:
                await self.scenario.run(system)
            except SessionFailed:
                continue
            return

    def _plan_deaths(self, loop: SimLoop, system: ObservedSystem, sink: Sink) -> None:
        for _ in range(self.dice.randint(0, self.faults.actor_deaths)):
            loop.at(loop.steps + self._moment(), lambda: self._kill_one(system, sink))

    def _kill_one(self, system: ObservedSystem, sink: Sink) -> None:
        actors = system._actors
        assert actors is not None
        mortal = [one for one in actors._table if one != "root"]
        if mortal and not actors.stopped:
            victim = self.dice.choice(mortal)
            sink.add(Crashed(actor=victim))
            ref = actors.ref(victim)
            assert ref is not None
            actors.kill(ref)

    def _moment(self) -> int:
        """Pick a number of turns: of ten thousand lives as many end between 10 and 100 of them as between 100 and 1,000."""
        return int(LONGEST_LIFE ** self.dice.random()) + 10

    async def _check(self) -> list[Violation]:
        await self.store.open()
        violations = await check(self.store, self.trace)
        try:
            self.scenario.check(await read_store(self.store))
        except AssertionError as error:
            violations.append(Violation("end", str(error)))
        return violations

    def _digest(self) -> str:
        seen = blake2b(self.trace.digest().encode(), digest_size=16)
        seen.update(f"{[loop.steps for loop in self.loops]} {self.dice.random()}".encode())
        return seen.hexdigest()

    def _bury(self) -> None:
        """End what the dead processes have left. It cannot do anything any more, and nobody hears what it complains of."""
        for loop in self.loops:
            loop.set_exception_handler(lambda loop, context: None)
            for task in asyncio.all_tasks(loop):
                _end(task.get_coro())
            loop.close()


def _end(coro: Any) -> None:
    """Close a coroutine, which may want to wait for something on its way out."""
    for _ in range(100):
        try:
            coro.close()
        except BaseException:  # noqa: BLE001, S112 - whatever it is, it happens in a world that has ended
            continue
        return


def _alone(coro: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing."""
    try:
        coro.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("expected a storage whose reads wait for nothing")


def _dice(purpose: str, seed: int) -> Random:
    """Give a source of chance of its own for each purpose, so that one more draw for one changes nothing in the others."""
    return Random(f"{purpose} {seed}")  # noqa: S311


@contextmanager
def undisturbed() -> Iterator[None]:
    """Have nothing happen by itself while simulations run: no garbage is collected but between two of them, nothing is
    logged, and what dead processes leave complains to nobody. One around many runs makes them faster.
    """
    if not gc.isenabled():  # we are in the middle of one
        yield
        return
    log, unraisable = structlog.get_config(), sys.unraisablehook
    gc.disable()
    gc.freeze()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), processors=[])
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = unraisable
        structlog.configure(**log)
        gc.unfreeze()
        gc.enable()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Make everything that chance decides a function of the seed."""
    state, make = random.getstate(), names.make
    dice = _dice("names", seed)
    random.seed(f"any {seed}")
    names.make = lambda: str(UUID(int=dice.getrandbits(128), version=4))
    try:
        yield
    finally:
        random.setstate(state)
        names.make = make
        if next(_runs) % COLLECT_EVERY == 0:
            gc.collect()
