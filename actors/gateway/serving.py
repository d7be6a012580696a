"""A daemon of its own: the gateway of an open system, until it is stopped, or until nothing is left to do.

With ``exit_when_idle_s`` the process ends when nobody has been connected for so long and nothing runs or is due within that
time. It leaves the time when it must be started again beside the file: everything else is in the file already.
Proved by tests/actors/gateway/test_serving.py.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ... import Agent, Clock, InvalidValue, System, SystemClock
from .app import create_app, require_web
from .guard import Limits

if TYPE_CHECKING:
    from uvicorn import Server

    from .house import House

LOOK_S = 1.0
"""How often it is asked whether the process may end."""
GRACE_S = 5.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Served(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How serving has ended: ``next_deadline`` (ms since the epoch) is when the process must run again, None: never."""

    next_deadline: int | None = None
    idle: bool = False


def token_of(file: Path | None) -> str:
    """Give the token that a file keeps, making it at first, for its owner's eyes only; without a file, a new one."""
    if file is None:
        return secrets.token_urlsafe(32)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text().strip()
    with os.fdopen(descriptor, "w") as out:
        token = secrets.token_urlsafe(32)
        out.write(token + "\n")
    return token


def check(host: str, hosts: Iterable[str]) -> None:
    """See that serving there is possible and safe: other machines may come only if the names are given by which.

    Raises MissingExtra, InvalidValue.
    """
    require_web()
    if host not in LOOPBACK and not list(hosts):
        raise InvalidValue(f"{host} is no loopback address: say with --allow-host under which names others may come")


async def serve(
    system: System,
    *,
    token: str,
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Iterable[str] = (),
    agent: Agent | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
    exit_when_idle_s: float | None = None,
    ready: Callable[[str, int], object] = lambda host, port: None,
) -> Served:
    """Serve an open system until the process is told to stop; ``ready`` is called with where, when it listens.

    ``clock`` is the system's, if it has one of its own. The system stays open.
    Raises MissingExtra, InvalidValue, and OSError when it cannot listen there.
    """
    hosts, limits, clock = tuple(hosts), limits or Limits(), clock or SystemClock()
    check(host, hosts)
    app = create_app(system, token=token, hosts=hosts, agent=agent, limits=limits)
    with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
        server = _server(app, limits)
        ready(*listening.getsockname()[:2])
        idle = await _run(server, listening, _until_idle(system, app.state.house, clock, exit_when_idle_s))
    return Served(next_deadline=await system.next_deadline(), idle=idle)


def _server(app: Any, limits: Limits) -> "Server":
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="websockets-sansio",
        ws_max_size=limits.request_bytes,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=int(GRACE_S),
    )
    return uvicorn.Server(config)


async def _run(server: "Server", listening: socket.socket, until_idle: Coroutine[Any, Any, None]) -> bool:
    """Serve until told to stop, or until there is nothing to do any more; tell whether that was it."""
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    idle = asyncio.ensure_future(until_idle)
    try:
        await asyncio.wait({serving, idle}, return_when=asyncio.FIRST_COMPLETED)
        ended = idle.done()
        server.should_exit = True
        await serving
        if ended:
            await idle  # it may have failed
    finally:
        idle.cancel()
        await asyncio.gather(idle, return_exceptions=True)
    return ended


async def _until_idle(system: System, house: "House", clock: Clock, idle_s: float | None) -> None:
    """Return when nobody has been connected for so long and nothing runs or is due within that time; without it, never.

    Deadlines are by the system's ``clock``, connections by the gateway's.
    """
    while True:
        await house.clock.sleep(LOOK_S)
        if idle_s is None or house.inside or house.clock.monotonic() - house.left_at < idle_s:
            continue
        deadline = await system.next_deadline()
        if may_end(deadline, clock.now(), idle_s) and not house.inside:
            return


def may_end(deadline: int | None, now: int, idle_s: float) -> bool:
    """Decide whether nothing runs, and nothing is due so soon that ending is not worth it (times in ms)."""
    return deadline is None or deadline > now + idle_s * 1000


def leave_deadline(file: Path, served: Served) -> None:
    """Store when the process must run again, atomically."""
    wanted = served.next_deadline
    said = {"nextDeadline": wanted, "at": None if wanted is None else when(wanted)}
    new = file.with_name(file.name + ".new")
    new.write_bytes(msgspec.json.encode(said) + b"\n")
    new.replace(file)


def when(ms: int) -> str:
    """Write a time for people and for systemd's ``OnCalendar=``: UTC, the whole second before it."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
