"""What a supervisor knows of one child: how to make it, and how it fares over all its incarnations.

A child is in one of four phases:

``starting``  its ``on_start`` runs or waits to
``running``   it takes messages
``stopping``  its supervisor told it to end
``down``      it is not there; ``due_s`` says whether and when it comes back

Proved by tests/actors/runtime/test_supervisor.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ...supervisors.restart import RestartType, check_restart_type
from .clock import Timer
from .incarnation import Incarnation, describe
from .mailbox import Letter

if TYPE_CHECKING:
    from .actor import Actor

Phase = Literal["starting", "running", "stopping", "down"]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to make one child, again and again.

    ``actor`` is a class or any callable that makes one actor from ``args`` and ``kwargs``. ``restart``: see ``RestartType``.
    ``shutdown_s``: seconds that it may take to stop before it is killed; 0 kills at once, None waits for ever (right for
    supervisors, which bound their own children).

    Raises:
        ValueError: an unknown restart type or a negative time.
    """

    id: str
    actor: "Callable[..., Actor]"
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    restart: RestartType = "permanent"
    shutdown_s: float | None = 5.0

    def __post_init__(self) -> None:
        check_restart_type(self.restart)
        if self.shutdown_s is not None and self.shutdown_s < 0:
            raise ValueError(f"expected shutdown_s to be 0 or more, or None; got: {self.shutdown_s}")


class Child:
    """What a supervisor remembers of one child, over all its incarnations."""

    __slots__ = ("attempt", "due_s", "incarnation", "leaving", "mail", "phase", "spec", "starts", "timer", "up_since_s")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.phase: Phase = "down"
        self.incarnation: Incarnation | None = None
        self.due_s: float | None = None  # when to start it, by the monotonic clock
        self.leaving = False  # once it is down it is forgotten
        self.mail: list[Letter] = []  # what waited for a start that failed, until one works
        self.starts = 0
        self.attempt = 0  # restarts in a row without a whole period up
        self.up_since_s: float | None = None
        self.timer: Timer | None = None  # what it waits for: its backoff, or the end of its shutdown time

    @property
    def concerned(self) -> bool:
        """Whether its end, if it comes now, was wanted: nothing further follows from it."""
        return self.phase == "stopping" or self.due_s is not None or self.leaving

    def wait_until(self, due_s: float | None) -> None:
        """Come back at ``due_s`` and not before; None: do not come back."""
        self.due_s = due_s
        if self.phase == "down":
            self.forget_timer()

    def forget_timer(self) -> None:
        """Wait for nothing."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def describe(self) -> dict[str, Any]:
        """What ``system.tree()`` says of it."""
        restarts = max(0, self.starts - 1)
        if self.incarnation is not None:
            return {**describe(self.incarnation), "restarts": restarts}
        name = getattr(self.spec.actor, "__name__", type(self.spec.actor).__name__)
        return {
            "id": self.spec.id,
            "class": name,
            "state": "restarting",
            "restarts": restarts,
            "mailbox": 0,
            "children": [],
        }
