"""Approval: calls wait, parked, until somebody decides; what was approved runs once, what was denied never."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ...agent.errors import ApprovalMismatch, CallNotWaiting, UnknownCall
from ...agent.tool import Tool
from ...agent.toolcontext import ToolContext
from ...conversation.handles import Conversation
from ...conversation.submissions import Submission
from ...models import ModelRequest, call, plain_text
from ...system import System
from ..stored import Stored
from .common import KEY, AgentScenario, answers, check_done, check_once, results, told


class Approval(AgentScenario):
    """Three payments: two are approved, one is denied."""

    name = "approval"

    def __init__(self) -> None:
        super().__init__()
        self.paid: list[str] = []

    def brain(self, request: ModelRequest) -> Any:
        """Pay three people."""
        return (
            f"{len(told(request))} decided" if told(request) else [call("pay", to=to) for to in ("ann", "bob", "eve")]
        )

    def tools(self) -> Iterable[Tool]:
        """One that somebody must approve."""

        async def pay(ctx: ToolContext, to: str) -> str:
            """Pay somebody."""
            self.paid.append(ctx.idempotency_key)
            await ctx.sleep(0.03)
            return f"paid {to}"

        yield Tool(pay, approval="always")

    async def run(self, system: System) -> None:
        """Ask, decide whatever waits for a decision, until there is an answer."""
        root = await self.root(system)
        submission = await root.submit("pay them", request_id="job")
        while not (await submission.status()).settled:
            await self._attend(root, submission)
        self.heard(root, "job", (await submission.wait()).record)

    async def _attend(self, root: Conversation, submission: Submission) -> None:
        """Decide as long as the session lives, or until there is an answer."""
        async with await root.watch() as watch:
            await self._decide(root, watch.value)
            if (await submission.status()).settled:
                return
            async for value, _ in watch:
                await self._decide(root, value)
                if (await submission.status()).settled:
                    return

    async def _decide(self, root: Conversation, view: Any) -> None:
        for slot in view["docs"].get("pi.live", {}).get("tools", ()):
            if "approval" in slot:
                with suppress(CallNotWaiting, UnknownCall):  # it was decided already, and the view is older
                    await self._verdict(root, slot["callId"], slot["approval"])

    async def _verdict(self, root: Conversation, call_id: str, asked: Any) -> None:
        with suppress(ApprovalMismatch):
            await root.approve(call_id, "the hash of other arguments")
            raise AssertionError("other arguments than those that were asked about were approved")
        if asked["arguments"]["to"] == "eve":
            await root.deny(call_id, asked["hash"], reason="was denied: not to her")
        else:
            await root.approve(call_id, asked["hash"])

    def check(self, stored: Stored) -> None:
        """Three results; the denied one was never paid, the others at most once."""
        check_done(stored)
        found = results(stored[KEY])
        assert answers(stored[KEY]) == ["3 decided"], answers(stored[KEY])
        denied = [task for task, one in found.items() if "not to her" in plain_text(one.content)]
        assert len(denied) == 1, f"{len(denied)} were denied"
        check_once(self.paid, {f"{KEY}:{task}": one for task, one in found.items() if task not in denied})
