"""A tree of subagents: the root asks two, one of which asks a third; each works with an unsafe tool of its own."""

from collections.abc import Iterable
from typing import Any

from ...agent.tool import Tool
from ...agent.toolcontext import ToolContext
from ...models import ModelRequest, call
from ...system import System
from ...tools.subagent import subagent
from ..stored import Stored
from .common import KEY, AgentScenario, answers, asked, check_done, check_once, results, told


class Subagents(AgentScenario):
    """Three conversations below the root, two levels deep."""

    name = "subagents"

    def __init__(self) -> None:
        super().__init__()
        self.ledger: list[str] = []

    def brain(self, request: ModelRequest) -> Any:
        """Whoever is asked for an audit has others do it; they sign."""
        if told(request):
            return " + ".join(sorted("interrupted" if "interrupted" in one else one for one in told(request)))
        match asked(request):
            case "audit":
                return ["Two of you. ", call("subagent", task="attic"), call("delegate", task="cellar")]
            case "cellar":
                return [call("subagent", task="barrels")]
        return [call("sign", place=asked(request))]

    def tools(self) -> Iterable[Tool]:
        """Subagents of two kinds, and what they sign with."""

        async def sign(ctx: ToolContext, place: str) -> str:
            """Sign for a place."""
            self.ledger.append(ctx.idempotency_key)
            await ctx.sleep(0.03)
            return place

        yield Tool(sign)
        yield subagent()
        yield subagent(name="delegate")

    async def run(self, system: System) -> None:
        """Ask once."""
        await self.ask(await self.root(system), "audit", "job")

    def check(self, stored: Stored) -> None:
        """Four conversations, each asked and answered once; two signatures, at most once each."""
        check_done(stored)
        session = stored[KEY]
        assert len(session.conversations) == 4, f"{len(session.conversations)} conversations"
        for conversation in session.conversations:
            assert len(answers(session, conversation)) == 1, f"{conversation}: {answers(session, conversation)}"
        found = {
            task: one for conversation in session.conversations for task, one in results(session, conversation).items()
        }
        signed = {f"{KEY}:{task}": one for task, one in found.items() if one.tool_name == "sign"}
        assert len(signed) == 2, f"{len(signed)} signatures"
        check_once(self.ledger, signed)
