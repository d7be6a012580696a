"""A daemon of its own: a system over a file and its gateway, until it is stopped, or until nothing is left to do.

With ``exit_when_idle_s`` the process ends when nobody has been connected for so long and nothing runs or is due within that
time. It leaves the time when it must be started again beside the file: everything else is in the file already.
Proved by tests/actors/gateway/test_serving.py.
"""

import asyncio
import importlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ... import Agent, Clock, Extension, InvalidValue, Model, Models, Settings, System, SystemClock
from .app import create_app, require_web
from .guard import Limits

if TYPE_CHECKING:
    from uvicorn import Server

    from .house import House

LOOK_S = 1.0
"""How often it is asked whether the process may end."""
GRACE_S = 5.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon needs to open a system: a factory named on the command line returns it, or a dict of the same."""

    models: Models | Iterable[Model] = ()
    extensions: Iterable[Extension] = ()
    settings: Settings | None = None
    durability: Literal["power", "process"] = "power"
    agent: Agent | None = None
    limits: Limits | None = None
    clock: Clock | None = None


class Served(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How serving has ended: ``next_deadline`` (ms since the epoch) is when the process must run again, None: never."""

    next_deadline: int | None = None
    idle: bool = False


def load_setup(name: str) -> Setup:
    """Call the factory ``module:function`` and give what it returns. Raises InvalidValue."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise InvalidValue(f'name a factory as "module:function", not {name!r}')
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise InvalidValue(f"the factory {name!r} cannot be found: {error}") from error
    return checked_setup(made, name)


def checked_setup(made: Any, name: str) -> Setup:
    """Take a Setup, or the same as a mapping. Raises InvalidValue."""
    if isinstance(made, Setup):
        return made
    if not isinstance(made, Mapping):
        raise InvalidValue(f"the factory {name!r} returns a perdure.gateway.Setup, not {type(made).__name__}")
    try:
        return Setup(**made)
    except TypeError as error:
        raise InvalidValue(f"the factory {name!r} returns what no Setup has: {error}") from None


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


def check_host(host: str, hosts: Iterable[str]) -> None:
    """Refuse to be reached from other machines unless the names are given by which. Raises InvalidValue."""
    if host not in LOOPBACK and not list(hosts):
        raise InvalidValue(f"{host} is no loopback address: say with --allow-host under which names others may come")


async def serve(
    store: str | os.PathLike[str],
    setup: Setup,
    *,
    token: str,
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Iterable[str] = (),
    exit_when_idle_s: float | None = None,
    ready: Callable[[str, int], object] = lambda host, port: None,
) -> Served:
    """Open a system and serve it until the process is told to stop; ``ready`` is called with where, when it listens.

    Raises MissingExtra, InvalidValue, OSError when it cannot listen there, and what opening the system raises.
    """
    require_web()
    check_host(host, hosts)
    clock = setup.clock or SystemClock()
    opened = System.open(
        store,
        models=setup.models,
        extensions=setup.extensions,
        settings=setup.settings,
        durability=setup.durability,
        clock=setup.clock,
    )
    async with opened as system:
        app = create_app(system, token=token, hosts=tuple(hosts), agent=setup.agent, limits=setup.limits)
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
            server = _server(app, setup.limits or Limits())
            ready(*listening.getsockname()[:2])
            idle = await _run(server, listening, _until_idle(system, app.state.house, clock, exit_when_idle_s))
        deadline = await system.next_deadline()
        await system.close(grace_s=GRACE_S)
        return Served(next_deadline=deadline, idle=idle)


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
