"""Parallel tools: one answer makes five calls; safe ones may run again, unsafe ones must not. One of them fails.

The code of later lives declares one of the unsafe tools safe, which does not make safe what had begun before.
"""

from collections.abc import Iterable
from typing import Any

from ...agent.tool import Tool
from ...agent.toolcontext import ToolContext
from ...models import ModelRequest, call
from ...system import System
from ..stored import Stored
from .common import KEY, AgentScenario, answers, check_done, check_once, results, told


class Parallel(AgentScenario):
    """Two looks, a ticket, a stamp, and a look at nothing."""

    name = "parallel"
    tokens_per_second = 200.0

    def __init__(self) -> None:
        super().__init__()
        self.ledger: list[str] = []
        self.lives = 0

    def brain(self, request: ModelRequest) -> Any:
        """Call all at once, then count the results."""
        if told(request):
            return f"{len(told(request))} results"
        looks = [call("look", place=place) for place in ("attic", "cellar", "nowhere")]
        return [
            "I shall look around and file a ticket. ",
            *looks,
            call("file_ticket", text="a barrel leaks"),
            call("stamp"),
        ]

    def tools(self) -> Iterable[Tool]:
        """A safe one, one that must not run twice, and one that changes."""
        self.lives += 1

        async def look(ctx: ToolContext, place: str) -> str:
            """Look at a place."""
            ctx.output(f"going to the {place}\n")
            await ctx.sleep(0.04 if place == "attic" else 0.06)
            if place == "nowhere":
                raise LookupError("there is no such place")
            return f"seen: {place}"

        async def file_ticket(ctx: ToolContext, text: str) -> str:
            """File a ticket."""
            self.ledger.append(ctx.idempotency_key)
            ctx.output("sent to the office\n")
            await ctx.sleep(0.06)
            return f"filed: {text}"

        async def stamp(ctx: ToolContext) -> str:
            """Stamp it."""
            await ctx.sleep(0.05)
            return "stamped"

        yield Tool(look, replay="safe")
        yield Tool(file_ticket)
        yield Tool(stamp, replay="safe" if self.lives > 1 else "unsafe")

    async def run(self, system: System) -> None:
        """Ask once."""
        await self.ask(await self.root(system), "Look around", "job")

    def check(self, stored: Stored) -> None:
        """Five results, in one answer."""
        check_done(stored)
        found = results(stored[KEY])
        assert answers(stored[KEY]) == ["5 results"], answers(stored[KEY])
        check_once(self.ledger, {f"{KEY}:{task}": one for task, one in found.items() if one.tool_name == "file_ticket"})
        looks = sorted(one.is_error for one in found.values() if one.tool_name == "look")
        assert looks == [False, False, True], f"looks failed: {looks}"
