"""Forks: a conversation is forked while it works, and both go on, each with its own documents and the shared past."""

import asyncio
from collections.abc import Iterable
from typing import Any

from ...agent.tool import Tool
from ...agent.toolcontext import ToolContext
from ...models import ModelRequest, call
from ...system import System
from ..stored import Stored
from .common import KEY, AgentScenario, answers, asked, check_done, told, users


class Fork(AgentScenario):
    """A question, a fork at its answer, then one more question to each; the fork is forked again."""

    name = "fork"

    def brain(self, request: ModelRequest) -> Any:
        """Look something up, then answer."""
        return f"re: {asked(request)}" if told(request) else [call("look")]

    def tools(self) -> Iterable[Tool]:
        """A safe one."""

        async def look(ctx: ToolContext) -> str:
            """Look something up."""
            await ctx.sleep(0.02)
            return "seen"

        yield Tool(look, replay="safe")

    async def run(self, system: System) -> None:
        """Ask, fork while the next answer is under way, ask both, fork the fork, ask that."""
        root = await self.root(system)
        first = await self.ask(root, "first", "first")
        assert first.answer is not None
        await root.submit("here", request_id="here")
        fork = await root.fork(first.answer.entry.id, request_id="fork")
        _, other = await asyncio.gather(self.ask(root, "here", "here"), self.ask(fork, "there", "there"))
        assert other.answer is not None
        again = await fork.fork(other.answer.entry.id, request_id="again")
        await self.ask(again, "beyond", "beyond")

    def check(self, stored: Stored) -> None:
        """Each transcript has its own past and nothing of the others."""
        check_done(stored)
        session = stored[KEY]
        root, fork, again = sorted(session.conversations)
        assert users(session, root) == ["first", "here"], users(session, root)
        assert users(session, fork) == ["first", "there"], users(session, fork)
        assert users(session, again) == ["first", "there", "beyond"], users(session, again)
        for conversation in session.conversations:
            expected = [f"re: {one}" for one in users(session, conversation)]
            assert answers(session, conversation) == expected, answers(session, conversation)
        identities = {str(session.of_conversation("pi.provider", one)) for one in session.conversations}
        assert len(identities) == 3, "forks share an identity at their provider"
