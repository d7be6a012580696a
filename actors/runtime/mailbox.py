"""The queue in front of one actor, and the wake-up that brings it to the scheduler.

Responsible for taking messages from any thread without losing one and without waking anybody twice for the same edge.
An idle mailbox costs no task and no thread: the message that makes it non-empty puts it on its loop's ready queue.
Proved by tests/actors/runtime/test_mailbox.py.
"""

import abc
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any

from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from .errors import MailboxFull, WouldBlock

if TYPE_CHECKING:
    from .future import ActorFuture
    from .scheduler import Scheduler


class Letter(Envelope[Any]):
    """A message and the future that wants the answer; None for a message that was told."""

    __slots__ = ()

    reply_to: "ActorFuture[Any] | None"


class Mailbox(abc.ABC):
    """Pykka's inbox protocol (``put``, ``get``, ``empty``) over the ready queue of one loop.

    ``scheduled`` is true from the moment a message makes the mailbox non-empty until its owner has nothing left to do.
    ``limit`` bounds the waiting messages (None: unbounded); a request to stop is always taken.
    """

    __slots__ = ("context", "id", "limit", "queue", "scheduled", "scheduler")

    def __init__(self, id: str, scheduler: "Scheduler", context: Context, limit: int | None = None) -> None:
        self.id = id
        self.scheduler = scheduler
        self.context = context
        self.limit = limit
        self.queue: deque[Letter] = deque()
        self.scheduled = False

    @abc.abstractmethod
    def activate(self) -> None:
        """Do what there is to do. The scheduler calls it on the loop's thread, inside ``context``."""

    @abc.abstractmethod
    def bury(self) -> None:
        """Answer whatever waits, on any thread: the loop will never activate this mailbox again."""

    def put(self, envelope: Envelope[Any]) -> None:
        """Queue one message. Any thread; never waits.

        Raises:
            MailboxFull: ``limit`` messages are waiting.
        """
        if self.limit is not None and len(self.queue) >= self.limit and type(envelope.message) is not _ActorStop:
            raise MailboxFull(self.id, self.limit)
        self.queue.append(envelope)  # type: ignore[arg-type]  # every sender here sends letters
        if not self.scheduled:  # only the edge from idle pays for a wake-up
            self.scheduled = True
            self.scheduler.wake(self)

    def get(self) -> Envelope[Any]:
        """Take the oldest message. For Pykka's protocol; the runtime itself drains the queue.

        Raises:
            WouldBlock: the mailbox is empty.
        """
        if not self.queue:
            raise WouldBlock(f"the mailbox of {self.id} is empty, and nothing may wait for it; tell the actor instead")
        return self.queue.popleft()

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self.queue

    def go_on(self) -> None:
        """End an activation: come back if messages wait, else go idle.

        The second look closes the race with a thread that queued after the last look and saw ``scheduled`` still set.
        """
        self.scheduled = False
        if self.queue:
            self.scheduled = True
            self.scheduler.wake(self)
