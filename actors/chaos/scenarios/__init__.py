"""The shipped scenarios, by name: between them they use every kind of transition that an agent's work is made of."""

from ..scenario import Scenario
from .aborting import Aborting
from .approval import Approval
from .compaction import Compaction
from .fork import Fork
from .interrupt import Interrupt
from .migration import Migration
from .parallel import Parallel
from .payment import Payment
from .ping_pong import PingPong
from .steering import Steering
from .subagents import Subagents

ALL: tuple[type[Scenario], ...] = (
    Payment,
    Parallel,
    Subagents,
    Steering,
    Compaction,
    Fork,
    Approval,
    PingPong,
    Migration,
    Aborting,
    Interrupt,
)
SHIPPED: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in ALL}
