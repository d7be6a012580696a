"""The asyncio actor on Pykka: what runs, what sends, what keeps it alive, and what time it is.

Layers, each importing only from those above it::

    errors, events                   what can go wrong; what is logged
    clock, virtual_clock             time, and time for tests
    future, background               answers; a loop in a thread of its own
    scheduler, mailbox, steps        one ready queue per loop, one queue per actor, one step at a time
    ref, incarnation, actor          the address, the life and the code of one actor
    child, children, supervisor      who keeps actors alive (decisions: supervisors/restart.py)
    system                           the table of live actors and the top of their tree
"""

from ...supervisors.restart import Backoff, Exit, RestartType, Strategy
from .actor import Actor
from .background import BackgroundThread
from .child import ChildSpec
from .clock import Clock, SystemClock, Timer
from .errors import (
    ActorCrashed,
    ActorDead,
    ActorError,
    ActorExists,
    AskCycle,
    AskTimeout,
    Killed,
    MailboxFull,
    RestartIntensityExceeded,
    SystemStopped,
    UnknownChild,
    WouldBlock,
    WrongThread,
)
from .future import ActorFuture, adopt
from .ref import ActorRef
from .scheduler import Scheduler
from .supervisor import Supervisor
from .system import ActorSystem
from .virtual_clock import VirtualClock

__all__ = [
    "Actor",
    "ActorCrashed",
    "ActorDead",
    "ActorError",
    "ActorExists",
    "ActorFuture",
    "ActorRef",
    "ActorSystem",
    "AskCycle",
    "AskTimeout",
    "BackgroundThread",
    "Backoff",
    "ChildSpec",
    "Clock",
    "Exit",
    "Killed",
    "MailboxFull",
    "RestartIntensityExceeded",
    "RestartType",
    "Scheduler",
    "Strategy",
    "Supervisor",
    "SystemClock",
    "SystemStopped",
    "Timer",
    "UnknownChild",
    "VirtualClock",
    "WouldBlock",
    "WrongThread",
    "adopt",
]
