"""The system that a command runs: what ``--app module:factory`` describes, over a store's file.

    def factory() -> dict[str, Any]: ...              # keyword arguments of System.open for that file; "agent", the Agent
                                                      # of conversations that the command creates; "limits", the
                                                      # perdure.gateway.Limits of perdure serve
    def factory(file: str) -> AsyncContextManager[System]: ...   # or the system, which the factory itself opens

A factory may take the file in any form. The module is looked for in the working directory first. Without ``--app`` there
are the models that the environment has keys for. Tests: tests/actors/cli/test_app.py.
"""

import importlib
import inspect
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...chord import PerdureError
from ..conversation.choice import Agent
from ..models import from_env
from ..runtime.clock import Clock
from ..system import System

if TYPE_CHECKING:
    from ..gateway.guard import Limits


class AppInvalid(PerdureError):
    """``--app`` names nothing that a system can be made of. Nothing was opened."""


class App(msgspec.Struct, frozen=True, kw_only=True):
    """An open system, the agent of conversations that the command creates (None: without any), and what else was given."""

    system: System
    agent: Agent | None = None
    limits: "Limits | None" = None
    clock: Clock | None = None


@asynccontextmanager
async def open_app(
    file: str | os.PathLike[str], spec: str | None = None, *, model: str | None = None
) -> AsyncIterator[App]:
    """Open what ``spec`` ("module:factory") describes over a file; ``model`` takes the place of the agent's model.

    Raises AppInvalid, and what ``System.open`` raises.
    """
    made = default_app() if spec is None else _call(load(spec), os.fspath(file), spec)
    options: dict[str, Any] = {}
    if isinstance(made, dict):
        options = {"agent": None, "limits": None, "clock": None} | made
        with_system = {name: value for name, value in options.items() if name not in ("agent", "limits")}
        opened: AbstractAsyncContextManager[System] = _open(file, with_system, spec)
    elif isinstance(made, AbstractAsyncContextManager):
        opened = made
    else:
        raise AppInvalid(
            f"{spec} must give a dict of keyword arguments for System.open, or an async context manager that gives a "
            f"System, not {type(made).__name__}"
        )
    async with opened as system:
        agent = _with_model(options.get("agent"), model)
        yield App(system=system, agent=agent, limits=options.get("limits"), clock=options.get("clock"))


def load(spec: str) -> Any:
    """Import what "module:factory" names. Raises AppInvalid, and what the module itself raises."""
    name, colon, attributes = spec.partition(":")
    if not (name and colon and attributes):
        raise AppInvalid(f'expected "module:factory", got: {spec!r}')
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise AppInvalid(f"{spec} cannot be loaded: {error}") from error
    return found


def default_app() -> dict[str, Any]:
    """Give what runs without ``--app``."""
    return {"models": from_env()}


def _call(factory: Any, file: str, spec: str) -> Any:
    if not callable(factory):
        raise AppInvalid(f"{spec} is no function: {factory!r}")
    return factory(file) if _takes_file(factory) else factory()


def _takes_file(factory: Any) -> bool:
    try:
        inspect.signature(factory).bind()
    except TypeError:
        return True
    return "file" in inspect.signature(factory).parameters


def _open(file: str | os.PathLike[str], options: dict[str, Any], spec: str | None) -> System:
    try:
        return System.open(file, **options)
    except TypeError as error:
        raise AppInvalid(f"{spec} gives what System.open does not take: {error}") from error


def _with_model(agent: Agent | None, model: str | None) -> Agent | None:
    if model is None:
        return agent
    return msgspec.structs.replace(agent or Agent(), model=model)
