"""Steers and follow-ups: what is said while a run is under way is placed once, a steer in it, a follow-up behind it."""

import asyncio
from collections.abc import Iterable
from typing import Any

from ...agent.tool import Tool
from ...agent.toolcontext import ToolContext
from ...models import ModelRequest, UserMessage, call, plain_text
from ...system import System
from ..stored import Stored
from .common import KEY, AgentScenario, answers, asked, check_done, told, users


class Steering(AgentScenario):
    """One run with a tool; two steers, two follow-ups and a write come meanwhile."""

    name = "steering"

    def brain(self, request: ModelRequest) -> Any:
        """Dig once, then answer with what was said so far."""
        said = [plain_text(one.content) for one in request.messages if isinstance(one, UserMessage)]
        if asked(request) == "dig" and not told(request):
            return ["I dig. ", call("dig")]
        return "heard " + ", ".join(said)

    def tools(self) -> Iterable[Tool]:
        """One that takes a while."""

        async def dig(ctx: ToolContext) -> str:
            """Dig a hole."""
            for depth in range(3):
                ctx.output(f"{depth} m deep\n")
                await ctx.sleep(0.05)
            return "a hole"

        yield Tool(dig, replay="safe")

    async def run(self, system: System) -> None:
        """Say everything at once; whatever comes first goes first."""
        root = await self.root(system)
        await root.submit("dig", request_id="dig")
        await asyncio.gather(
            self.ask(root, "dig", "dig"),
            self.ask(root, "steer 1", "steer 1", "steer"),
            self.ask(root, "steer 2", "steer 2", "steer"),
            self.ask(root, "follow 1", "follow 1"),
            self.ask(root, "follow 2", "follow 2"),
        )
        await root.wait_for_idle()

    def check(self, stored: Stored) -> None:
        """Everything was placed once, steers and follow-ups in their order, and every question has its answer."""
        check_done(stored)
        said = users(stored[KEY])
        assert sorted(said) == ["dig", "follow 1", "follow 2", "steer 1", "steer 2"], said
        assert said[0] == "dig", said
        for kind in ("steer", "follow"):
            of_kind = [one for one in said if one.startswith(kind)]
            assert of_kind == sorted(of_kind), said
        assert answers(stored[KEY])[-1] == "heard " + ", ".join(said), answers(stored[KEY])
