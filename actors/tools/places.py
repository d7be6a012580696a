"""Which environment a call works in, and what is noted down of the processes that it starts there.

Proved by tests/actors/tools/test_coding.py and test_bash.py.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from ..agent.toolcontext import ToolContext
from ..session.documents import Doc
from .environment import Environment, ProcessId
from .local import LocalEnvironment


class Place(Protocol):
    """Says which conversation it is about: a call's ``ToolContext``, or a section's ``PromptInput``."""

    @property
    def session(self) -> str:
        """The session's key."""

    @property
    def conversation_id(self) -> int:
        """The conversation in that session."""


EnvironmentOf = Callable[[Place], Environment | Awaitable[Environment]]
"""Gives a conversation's environment. Called for every call, also after a restart: the same place each time."""


async def environment_of(where: Environment | EnvironmentOf, place: Place) -> Environment:
    """Give the environment of a conversation: the one there is, or the one that a function gives."""
    if not callable(where):
        return where
    given: Any = where(place)
    environment: Environment = await given if inspect.isawaitable(given) else given
    return environment


ProcessesDoc: Doc[Any] = Doc("pi.processes", scope="task", initial=lambda: {"running": []})
"""The processes that a call has started, as ``ProcessId``s: what is ended when a crash has cut the call off."""


async def note_process(ctx: ToolContext, process: ProcessId) -> None:
    """Note down a process that has not begun yet."""
    async with ctx.commit() as tx:
        noted = await tx.doc(ProcessesDoc, ctx.task_id)
        noted["running"].append(msgspec.to_builtins(process))


async def end_processes(ctx: ToolContext, where: Environment | EnvironmentOf) -> None:
    """End what is left of the processes that were noted down, and forget them."""
    noted = await ctx.snapshot(ProcessesDoc, ctx.task_id)
    if not noted or not noted["running"]:
        return
    environment = await environment_of(where, ctx)
    for one in noted["running"]:
        await environment.end(msgspec.convert(one, ProcessId))
    async with ctx.commit() as tx:
        (await tx.doc(ProcessesDoc, ctx.task_id))["running"] = []


class LocalLeftovers:
    """Ends the processes on this machine of calls whose tool is no longer installed (see ``agent.cutoff.Leftovers``)."""

    async def clean_up(self, context: ToolContext) -> None:
        """End them. Those of another machine are never taken for some of this one."""
        await end_processes(context, LocalEnvironment())
