"""The asyncio actor on Pykka: what runs, what sends, what keeps it alive, and what time it is.

Layers, each importing only from those above it::

    errors, events                     what can go wrong; what is logged
    clock, virtual_clock, future       time; answers
    mailbox, scheduler                 one queue per actor, one ready queue per loop
    ref, incarnation, actor            the address, the life, and the code of one actor
    children, supervisor               keeps children alive (decisions: supervisors/restart.py)
    background, system                 a loop for synchronous hosts; the table and the top of the tree
"""

from ...supervisors.restart import Backoff, Exit, RestartType, Strategy
from .actor import Actor
from .background import BackgroundThread
from .children import ChildSpec
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
