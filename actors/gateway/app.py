"""A gateway as one ASGI application, to be mounted in a host's own or served alone.

Proved by tests/actors/gateway/test_app.py.
"""

from collections.abc import Collection
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ... import Agent, Clock, MissingExtra, System, SystemClock
from .guard import Guard, Limits

if TYPE_CHECKING:
    from starlette.applications import Starlette


def create_app(
    system: System,
    *,
    token: str,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    agent: Agent | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
) -> "Starlette":
    """Make the application, to be served alone or mounted: ``Mount("/agents", perdure.gateway.create_app(...))``.

    Whoever has the ``token`` may do everything with every session of the system. Beside the names of the loopback
    interface only ``hosts`` are answered (without ports), and beside its own pages only those of ``origins``
    ("https://example.com"). ``agent`` is what new conversations run on when a client does not say. It belongs to the loop
    that the system runs on, starts nothing, and ends with its connections. ``app.state.house`` tells who is inside.
    ``clock`` is for limits on what clients do: real time, whatever the system's clock is.
    Raises MissingExtra without ``perdure[web]``, InvalidValue for a token that is too short.
    """
    require_web()
    from starlette.applications import Starlette
    from starlette.middleware import Middleware

    from .house import House
    from .routes import Gate, routes

    house = House(system, Guard(token, hosts, origins), limits or Limits(), clock or SystemClock(), agent)
    app = Starlette(routes=routes(house), middleware=[Middleware(Gate, house)])
    app.state.house = house
    return app


def require_web() -> None:
    """See that the extra is there, without importing it. Raises MissingExtra."""
    for package in ("starlette", "uvicorn", "websockets"):
        if find_spec(package) is None:
            raise MissingExtra("web", package)
