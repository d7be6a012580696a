"""What users need to test their own agents and backends; nothing here meets the network or really sleeps.

    VirtualClock          time that tests move, or that jumps when nothing else can happen
    ScriptedModel         a model that is a function of the request (``perdure.models`` has what it may answer)
    FaultyStorage         fails, delays or crashes at a chosen write
    StorageConformance    the suite that every storage backend has to pass; extend it, and pytest runs it
    ProtocolServer        a real HTTP server that plays a provider's protocol, faults included
    request_problems      what a strict provider would refuse a request for
    Scenario, explore     crash your own work at every point of it; ``python -m perdure.testing`` does so, too
    simulate              one seed, one run: who runs next, what fails and who dies, the same each time; ``simulate_seeds``
    check, Trace          what must hold of every run, over its store and what it has shown

A face of the rooms in which these live.
"""

from .actors.chaos.explorer import Exploration, Failure, explore, replay
from .actors.chaos.faults import Faults
from .actors.chaos.invariants import check
from .actors.chaos.scenario import Scenario
from .actors.chaos.seeds import BrokenSeed, Simulations, simulate_seeds
from .actors.chaos.simulation import Simulation, simulate
from .actors.chaos.stored import Stored, StoredSession, read_store
from .actors.chaos.trace import Trace
from .actors.chaos.violations import Violation
from .actors.models import ScriptedModel
from .actors.models.testing import Cut, ProtocolServer, Reply, Request, Silence
from .actors.models.testing_requests import request_problems
from .actors.runtime import VirtualClock
from .storage.conformance import StorageConformance
from .storage.faulty import FaultyStorage

__all__ = [
    "BrokenSeed",
    "Cut",
    "Exploration",
    "Failure",
    "Faults",
    "FaultyStorage",
    "ProtocolServer",
    "Reply",
    "Request",
    "Scenario",
    "ScriptedModel",
    "Silence",
    "Simulation",
    "Simulations",
    "StorageConformance",
    "Stored",
    "StoredSession",
    "Trace",
    "Violation",
    "VirtualClock",
    "check",
    "explore",
    "read_store",
    "replay",
    "request_problems",
    "simulate",
    "simulate_seeds",
]

if __name__ == "__main__":
    from .actors.chaos.commands import app

    app()
