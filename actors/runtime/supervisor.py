"""The actor that keeps others alive. What it does is in ``children.py``, what it decides in ``supervisors/restart.py``.

Proved by tests/actors/runtime/test_supervisor.py and test_supervision_matrix.py.
"""

from collections.abc import Coroutine, Sequence
from typing import Any

from ...supervisors.restart import Backoff, Exit, Intensity, Strategy
from .actor import Actor
from .child import ChildSpec
from .children import Children
from .incarnation import Incarnation
from .ref import ActorRef


class Supervisor(Actor):
    """Starts children, restarts those that fail, and stops them all before it ends itself.

    ``children`` are started in order before ``on_start`` runs; ``start_child`` adds more at any time. When one ends that
    must come back, ``strategy`` says whom that concerns; they come back after ``backoff``, in start order, each once
    the one before it has started (under one_for_one children are independent). More than ``intensity`` restarts within
    ``period_s`` seconds, over all children, are too many: the supervisor stops its children and crashes with
    ``RestartIntensityExceeded``, for its own supervisor to decide. Mail that waited for a start that failed waits for the
    next one.

    When it ends, for whatever reason, its children end first, in reverse start order: one after the other, but
    under one_for_one all at once, since none depends on another. When it is killed, so are they.

    Methods and hooks run on the loop's thread. A subclass that overrides ``__init__`` calls this one.

    Raises:
        ValueError: an unknown strategy, a child id used twice, or a budget that can never be exceeded.
    """

    def __init__(
        self,
        *,
        strategy: Strategy = "one_for_one",
        intensity: int = 5,
        period_s: float = 60.0,
        backoff: Backoff = Backoff(),  # noqa: B008 - immutable
        children: Sequence[ChildSpec] = (),
    ) -> None:
        super().__init__()
        if len({spec.id for spec in children}) < len(children):
            raise ValueError(f"expected child ids to differ, got: {[spec.id for spec in children]}")
        self.__first = tuple(children)
        self.__children = Children(self, strategy, Intensity(intensity, period_s), backoff)

    def start_child(self, spec: ChildSpec) -> ActorRef[Any]:
        """Add a child behind the others and start it at once. Not async: it can be called from anywhere on the loop.

        The ref is that of its first incarnation. It is dead already if the constructor failed; then the child comes
        back like any that crashed.

        Raises:
            ActorExists: the id belongs to a live actor or to a child that is about to come back.
            ActorDead: the supervisor is ending.
        """
        return self.__children.add(spec)

    async def stop_child(self, child_id: str) -> None:
        """Stop a child for good and forget it. Returns when it has ended; a wait for a restart ends at once.

        Raises:
            UnknownChild: there is none of this id.
        """
        await self.__children.remove(child_id)

    def children(self) -> dict[str, ActorRef[Any] | None]:
        """The refs of the children by id, in start order; None for one that is down between two incarnations."""
        return self.__children.refs()

    def on_child_started(self, child_id: str, ref: ActorRef[Any]) -> None:
        """Hear that a child's ``on_start`` has run; ``ref`` is its new incarnation. Not async; raising is a crash."""

    def on_child_ended(self, child_id: str, reason: Exit) -> None:
        """Hear that a child has ended, before anything is done about it. Not async; raising is a crash."""

    def describe_children(self) -> list[dict[str, Any]]:
        """What ``system.tree()`` says below this supervisor, in start order."""
        return self.__children.describe()

    # -- what the runtime calls -------------------------------------------------------------------------------------

    def child_started(self, child: Incarnation) -> None:
        """Parent protocol of incarnations."""
        self.__children.child_started(child)

    def child_ended(self, child: Incarnation, ended: Exit) -> None:
        """Parent protocol of incarnations."""
        self.__children.child_ended(child, ended)

    def _start_life(self) -> Any:
        return self.__start_with_children() if self.__first else self.on_start()

    async def __start_with_children(self) -> None:
        await self.__children.start_all(self.__first)
        started = self.on_start()
        if started is not None:
            await started

    def _end_children(self, *, kill: bool) -> Coroutine[Any, Any, None] | None:
        return self.__children.end_all(kill=kill)
