"""What the rooms above bring into a session: services, callbacks in commits, and a scheduler."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from ...storage.records import ConversationRecord, EntryRecord, TaskRecord
from .errors import UnknownRecord
from .tracing import EndedSpan

S = TypeVar("S")


class Services:
    """Things that belong to the whole system and that any room or user code may ask for by type."""

    def __init__(self) -> None:
        self._by_type: dict[type[Any], Any] = {}

    def provide(self, kind: type[S], service: S) -> None:
        """Make a service available, replacing an earlier one of its type."""
        self._by_type[kind] = service

    def get(self, kind: type[S]) -> S:
        """Give the service of a type. Raises UnknownRecord when there is none."""
        try:
            service: S = self._by_type[kind]
        except KeyError:
            raise UnknownRecord("service", kind.__name__) from None
        return service


class Hooks:
    """Callbacks by which upper rooms take part in a session; all but ``opened`` run on the line, inside a commit's block."""

    def __init__(self) -> None:
        self.conversation_created: list[Callable[[Any, ConversationRecord], Awaitable[None]]] = []
        self.opened: list[Callable[[Any], Awaitable[None]]] = []
        """Called with the core of a session that has just been opened, before anybody else may use it."""
        self.check_entry: list[Callable[[EntryRecord], None]] = []
        """Called with entries that are about to be appended; what it raises is raised to whoever appends."""
        self.undecided: list[Callable[[Any, TaskRecord], Awaitable[None]]] = []
        """Called for tasks that became terminal with an outcome that none of their own code decided: faulted, orphaned."""
        self.span_of: list[Callable[[Any, TaskRecord], EndedSpan | None]] = []
        """Called with traced tasks that became terminal."""
        self.withdrawn: list[Callable[[Any, int], Awaitable[None]]] = []
        """Called with conversations below a cancelled owner."""


class Scheduler(Protocol):
    """What gives ready tasks to invocations."""

    @property
    def waiting(self) -> bool:
        """Whether it wants to look at tasks in the next commit, whatever that changes."""

    @property
    def idle(self) -> bool:
        """Whether no invocation runs and nothing is about to be decided."""

    def reserve(self, tx: Any, candidates: Iterable[int]) -> None:
        """Stage what follows for tasks whose turn may have come."""

    def admitted(self, tx: Any, concerned: Iterable[int]) -> None:
        """Act on what has been admitted: start, signal."""

    def signal(self) -> None:
        """Ask all invocations to end, and start none any more: the session closes, or has failed."""

    async def drain(self) -> None:
        """Start no phase any more; return when the phases that run have ended."""

    def resume(self) -> None:
        """Look at every live task: the session has just been opened."""

    def due(self) -> None:
        """Look at the tasks whose deadlines have come."""

    def invocation_ended(self, child: str) -> None:
        """Take note that the invocation which a child of the session's actor ran has ended."""
