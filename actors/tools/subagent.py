"""Subagents: an ordinary conversation owned by the tool call that asked for it.

The owner edge is the only record of it: a call that runs again after a crash finds its child by it and waits on, and
whatever ends the call ends the child. Built on what any extension could use. Proved by
tests/actors/tools/test_subagent.py.
"""

from ...chord import PerdureError
from ...storage.contract import ConversationQuery
from ..agent.registry import Registry
from ..agent.tool import Tool, ToolResult
from ..agent.toolcontext import ToolContext
from ..conversation.builtin import AgentDoc
from ..conversation.choice import Agent, configure
from ..conversation.settings import Settings


class SubagentFailed(PerdureError):
    """The subagent ended without an answer. Its conversation and what it did stay readable. ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the subagent ended without an answer: {reason}")
        self.reason = reason


def subagent(agent: Agent | None = None, *, name: str = "subagent", description: str | None = None) -> Tool:
    """Make a tool by which an agent delegates a task and gets the answer back.

    The child starts as a copy of the calling conversation's agent without this tool, changed by ``agent``. It works in a
    conversation of its own, which the call's details name (``conversationId``), and lives and dies with the call.
    """

    async def delegate(ctx: ToolContext, task: str) -> ToolResult:
        """Delegate a self-contained task to a subagent and get its answer back.

        Args:
            task: What to do, with everything that the subagent needs to know. It sees nothing of this conversation.
        """
        child = await _child(ctx, agent, name)
        ctx.details({"conversationId": child})
        submission = await ctx.conversation(child).submit(task, request_id=f"subagent:{ctx.task_id}")
        settled = await submission.wait()
        if settled.answer is None:
            raise SubagentFailed(settled.reason or settled.status)
        return ToolResult(content=settled.answer.text, details={"conversationId": child})

    return Tool(delegate, name=name, description=description, replay="safe")


async def _child(ctx: ToolContext, agent: Agent | None, name: str) -> int:
    """Find the conversation that an interrupted execution of this call has made, or make it."""
    choice = await ctx.snapshot(AgentDoc, ctx.conversation_id) or {}
    offered = ctx.service(Registry).resolve(choice, ctx.service(Settings)).tools
    async with ctx.commit() as tx:
        owned = await tx.scan_conversations(ConversationQuery(owner_task_id=ctx.task_id), 1)
        if owned.items:
            return owned.items[0].id
        child = await tx.create_conversation(owner=ctx.task_id)
        await configure(tx, child.id, Agent(tools=[tool.name for tool in offered if tool.name != name]))
        if agent is not None:
            await configure(tx, child.id, agent)
        return child.id
