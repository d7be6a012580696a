"""Restart decisions of a supervisor: whether, whom, how often, how long apart.

``Restart`` puts the last two together for code that runs again where it crashed, whether or not an actor of it is left.

Pure: no clock, no random source, no actor; the caller passes times and random numbers in. The four questions never share
a branch: ``needs_restart`` (whether), ``plan_restart`` (whom), ``charge`` (how often), ``Backoff`` (how long apart).
Proved by tests/supervisors/test_restart.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
"""Whom one failure concerns: the child alone; every child; the child and those started after it."""

RestartType = Literal["permanent", "transient", "temporary"]
"""When a child comes back: after every end; after an abnormal end only; never."""

ExitKind = Literal["normal", "crashed", "killed"]


@dataclass(frozen=True, slots=True)
class Exit:
    """How one incarnation of an actor ended.

    ``normal``: it was asked to stop and did. ``crashed``: it raised something unexpected, or could not start; ``cause`` is
    what it raised. ``killed``: it was dropped from outside; ``cause`` is a ``Killed``.
    """

    kind: ExitKind
    cause: BaseException | None = None

    @property
    def abnormal(self) -> bool:
        """Whether a transient child comes back after this end."""
        return self.kind != "normal"

    def __str__(self) -> str:
        return self.kind if self.cause is None else f"{self.kind}: {self.cause!r}"


def needs_restart(restart: RestartType, ended: Exit) -> bool:
    """Decide whether a child comes back after an end that its supervisor did not ask for."""
    return restart == "permanent" or (restart == "transient" and ended.abnormal)


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """Whom one failure concerns.

    ``stop``: the others that must end first, in the order in which to stop them (reverse start order). ``start``: who
    comes back, in start order, the failed child included. ``forget``: those stopped that never come back (temporary).
    """

    stop: tuple[str, ...]
    start: tuple[str, ...]
    forget: tuple[str, ...]


def plan_restart(strategy: Strategy, children: Sequence[tuple[str, RestartType]], failed: str) -> RestartPlan:
    """Decide whom the failure of ``failed`` concerns; ``children`` are all children in start order."""
    concerned = _concerned(strategy, children, failed)
    others = [(child, restart) for child, restart in concerned if child != failed]
    return RestartPlan(
        stop=tuple(child for child, _ in reversed(others)),
        start=tuple(child for child, restart in concerned if child == failed or restart != "temporary"),
        forget=tuple(child for child, restart in others if restart == "temporary"),
    )


def _concerned(
    strategy: Strategy, children: Sequence[tuple[str, RestartType]], failed: str
) -> Sequence[tuple[str, RestartType]]:
    if strategy == "one_for_all":
        return children
    at = next(index for index, (child, _) in enumerate(children) if child == failed)
    return children[at:] if strategy == "rest_for_one" else children[at : at + 1]


@dataclass(frozen=True, slots=True)
class Intensity:
    """A restart budget: more than ``restarts`` restarts within ``period_s`` seconds (sliding) are too many.

    ``restarts=0`` allows none. Budgets multiply down a tree: a parent that allows 5 of a child that allows 5 sees 36
    failures of the grandchild before it gives up.
    """

    restarts: int = 5
    period_s: float = 60.0

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise ValueError(f"expected restarts to be 0 or more, got: {self.restarts}")
        if not self.period_s > 0:
            raise ValueError(f"expected period_s to be above 0 seconds, got: {self.period_s}")


def charge(intensity: Intensity, history: Sequence[float], now_s: float) -> tuple[float, ...] | None:
    """Decide how often: the restart times to remember with this one at ``now_s``, or None when it is one too many.

    ``history`` is what the previous call returned; times are monotonic seconds. Times older than the period drop out, so
    the result never holds more than ``intensity.restarts`` times.
    """
    recent = (*(at for at in history if now_s - at < intensity.period_s), now_s)
    return recent if len(recent) <= intensity.restarts else None


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a child stays down before restart ``attempt`` (from 1): exponential, bounded, jittered upwards.

    The delay is ``first_s * factor ** (attempt - 1)``, at most ``max_s``, and then up to ``jitter`` (a share: 0.2 = 20 %)
    longer, so that children that failed together do not come back together. ``first_s=0`` restarts at once.
    """

    first_s: float = 0.1
    factor: float = 2.0
    max_s: float = 5.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.first_s <= self.max_s < math.inf:
            raise ValueError(f"expected 0 <= first_s <= max_s, got: first_s={self.first_s}, max_s={self.max_s}")
        if not self.factor >= 1:
            raise ValueError(f"expected factor to be 1 or more, got: {self.factor}")
        if not self.jitter >= 0:
            raise ValueError(f"expected jitter to be 0 or more, got: {self.jitter}")

    def delay_s(self, attempt: int, random: float) -> float:
        """Seconds to wait before restart ``attempt`` (1 is the first); ``random`` lies in [0, 1)."""
        return self._base_s(attempt) * (1 + self.jitter * random)

    def longest_s(self, restarts: int) -> float:
        """The most seconds that ``restarts`` restarts in a row can spend waiting."""
        return sum(self._base_s(attempt) for attempt in range(1, restarts + 1)) * (1 + self.jitter)

    def _base_s(self, attempt: int) -> float:
        try:
            return min(self.max_s, self.first_s * self.factor ** (attempt - 1))
        except OverflowError:  # the power alone is beyond floats
            return self.max_s if self.first_s else 0.0


@dataclass(frozen=True, slots=True)
class Restart:
    """A budget for code that is run again where it crashed: ``max`` times ``within`` seconds (sliding), after a backoff.

    One crash more escalates. Raises ValueError for a budget that can never run out.
    """

    max: int = 3
    within: float = 60.0
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        check_budget(self.intensity, self.backoff)

    @property
    def intensity(self) -> Intensity:
        """How often."""
        return Intensity(self.max, self.within)


def check_budget(intensity: Intensity, backoff: Backoff) -> None:
    """Refuse a budget that can never run out.

    When the waits between restarts alone outlast the period, old restarts drop out of the window as fast as new ones come
    in, and a child that dies at every start is restarted for ever.

    Raises:
        ValueError: naming both sides.
    """
    waits_s = backoff.longest_s(intensity.restarts)
    if waits_s >= intensity.period_s:
        raise ValueError(
            f"expected period_s above {waits_s:.3g} s, the longest wait for {intensity.restarts} restarts, or the limit "
            f"can never be exceeded; got: {intensity.period_s:.3g} s"
        )


def check_strategy(strategy: str) -> None:
    """Refuse an unknown strategy.

    Raises:
        ValueError: naming the known ones.
    """
    if strategy not in get_args(Strategy):
        raise ValueError(f"expected strategy to be one of {', '.join(get_args(Strategy))}; got: {strategy!r}")


def check_restart_type(restart: str) -> None:
    """Refuse an unknown restart type.

    Raises:
        ValueError: naming the known ones.
    """
    if restart not in get_args(RestartType):
        raise ValueError(f"expected restart to be one of {', '.join(get_args(RestartType))}; got: {restart!r}")
