"""Subagents that stay: each works in a conversation of its own, beside the conversation that spawned it, until stopped.

A subagent is a background task that owns its conversation. It is told things and waits without memory, and what it
answers comes back as input to its parent, once, in the commit that takes note of it. It survives restarts, and the
parent's runs; an abort of the parent ends it only with ``background=True``. Built on what any extension could use.
Proved by tests/actors/tools/test_subagents.py.
"""

import asyncio
from typing import Any, Literal

import msgspec

from ...chord import Draft, PerdureError
from ...storage.contract import TaskQuery
from ...storage.records import Json, TaskRecord, Waiting
from ..agent.registry import Extension, Registry
from ..agent.tool import Tool, tool
from ..agent.toolcontext import ToolContext
from ..conversation.builtin import AgentDoc, LiveDoc
from ..conversation.choice import Agent, configure
from ..conversation.errors import InboxFull
from ..conversation.inbox import submit_input, withdraw
from ..conversation.settings import Settings
from ..session.documents import Doc
from ..task.definition import Phase, Task
from ..task.run import Run
from ..task.tx import RunTx
from .answers import answer_said

Report = Literal["steer", "follow_up", "off"]
KIND = "perdure.subagent"
TOOLS = ("spawn_agent", "message_agent", "wait_agent", "stop_agent", "list_agents")
LIVE: tuple[Literal["pending", "running", "waiting", "completing"], ...] = (
    "pending",
    "running",
    "waiting",
    "completing",
)
RETRY_MS = 30_000
"""How long a report waits whose parent has a full inbox."""

SubagentDoc: Doc[Json] = Doc(
    KIND,
    scope="task",
    initial=lambda: {"name": "", "conversationId": 0, "open": []},
    checkpoint_when=lambda value, ops, deltas: True,
)
"""A subagent: its ``name`` and ``conversationId``, ``open`` submissions that are not reported, the last ``report``."""


class NoSuchAgent(PerdureError, LookupError):
    """The conversation has no subagent of this name that lives, or has one already. Nothing was changed."""


class SubagentInput(msgspec.Struct, frozen=True, rename="camel"):
    """Who the subagent is, what it begins with, and how it reports."""

    name: str
    task: str
    tools: list[str]
    agent: dict[str, Any]
    report: Report


class Subagent(Task[SubagentInput, None], name=KIND, version=1):
    """See its conversation's work through, and report."""

    class Begin(Phase):
        """There is no conversation yet."""

    class Watch(Phase):
        """Look what has been answered; wait for more."""

    async def begin(self, run: Run[SubagentInput], state: Begin) -> None:
        """Make the conversation and give it its task, all at once."""
        given = run.input
        async with run.commit() as tx:
            child = await tx.create_conversation(owner=run.id)
            await configure(tx, child.id, Agent(tools=given.tools))
            await configure(tx, child.id, msgspec.convert(given.agent, Agent))
            asked = await submit_input(tx, child.id, given.task, when_busy="follow_up", request_id=None)
            doc = await tx.doc(SubagentDoc, run.id)
            doc.update({"name": given.name, "conversationId": child.id, "open": [asked.id]})
            tx.goto(self.Watch())

    async def watch(self, run: Run[SubagentInput], state: Watch) -> None:
        """Report what has been answered since, in the commit that takes note of it; then wait."""
        try:
            async with run.commit() as tx:
                doc = await tx.doc(SubagentDoc, run.id)
                if run.input.report != "off":
                    await _report(tx, run, doc)
                live = await tx.doc(LiveDoc, doc["conversationId"])
                working = [live["run"]["taskId"]] if "run" in live else []
                await tx.wait(working, mail=True, then=self.Watch())
        except InboxFull:
            await run.wait(mail=True, until=run.now() + RETRY_MS, then=self.Watch())


async def _report(tx: RunTx, run: Run[SubagentInput], doc: Draft) -> None:
    said = await _answers(tx, doc)
    if said:
        text = f"The subagent {run.input.name!r} reports:\n{said}"
        assert run.input.report != "off"
        sent = await submit_input(tx, run.conversation_id, text, when_busy=run.input.report, request_id=None)
        doc["report"] = {"id": sent.id, "text": said}


async def _answers(tx: RunTx, doc: Draft) -> str:
    """Take what has been answered of what is open, each answer once."""
    said: dict[int | None, str] = {}
    still: list[int] = []
    for asked in doc["open"].to_json():
        record = await tx.submission(asked)
        if record is None or not record.settled:
            still.append(asked)
        else:
            said[record.answer] = await answer_said(tx, record)
    doc["open"] = still
    return "\n\n".join(said.values())


def subagents(agent: Agent | None = None, *, report: Report = "steer") -> Extension:
    """Make the extension that lets an agent spawn, message, wait for, stop and list subagents that work beside it.

    A subagent starts as a copy of its parent's agent without these tools, changed by ``agent``. What it answers is
    submitted to the parent as a steer or a follow-up; with ``report="off"`` the parent has to wait for it.
    """
    spawn = _spawning(msgspec.to_builtins(agent or Agent()), report)
    return Extension(name="subagents", tools=[spawn, message, wait, stop, agents], tasks=[Subagent])


# --- the tools


def _spawning(changes: dict[str, Any], report: Report) -> Tool:
    @tool(name="spawn_agent", replay="safe")
    async def spawn(ctx: ToolContext, name: str, task: str) -> str:
        """Start a subagent that works beside you, and go on at once. Its answer is reported to you later.

        Args:
            name: A short name to call it by, not that of another subagent that you have.
            task: What to do, with everything that it needs to know. It sees nothing of this conversation.
        """
        choice = await ctx.snapshot(AgentDoc, ctx.conversation_id) or {}
        offered = ctx.service(Registry).resolve(choice, ctx.service(Settings)).tools
        tools = [one.name for one in offered if one.name not in TOOLS]
        given = SubagentInput(name=name, task=task, tools=tools, agent=changes, report=report)
        async with ctx.commit() as tx:
            if not await _spawned_before(tx, ctx):
                if name in await _living(tx, ctx.conversation_id):
                    raise NoSuchAgent(f"there is a subagent {name!r} already; choose another name")
                made = await tx.create_task(Subagent, given, background=True)
                tx.memo(KIND, made.id)
        return f"Subagent {name!r} has begun."

    return spawn


@tool(name="message_agent")
async def message(ctx: ToolContext, name: str, text: str, steer: bool = False) -> str:
    """Tell a subagent something more. Its answer is reported to you later.

    Args:
        name: The subagent's name.
        text: What to tell it.
        steer: Whether it hears this in the middle of what it does, instead of when it has answered.
    """
    async with ctx.commit() as tx:
        record, doc = await _find(tx, ctx.conversation_id, name)
        when = "steer" if steer else "follow_up"
        asked = await submit_input(tx, doc["conversationId"], text, when_busy=when, request_id=None)  # type: ignore[arg-type]
        doc["open"].append(asked.id)
        await _wake(tx, record)
    return f"Subagent {name!r} has been told."


@tool(name="wait_agent", replay="safe")
async def wait(ctx: ToolContext, name: str, timeout_s: float = 600) -> str:
    """Wait until a subagent has answered all that it was told, and get its answer.

    Args:
        name: The subagent's name.
        timeout_s: How many seconds to wait at most.
    """
    async with ctx.commit() as tx:
        _, doc = await _find(tx, ctx.conversation_id, name)
        child = ctx.conversation(doc["conversationId"])
    if not await _in_time(child.wait_for_idle(), ctx.sleep(timeout_s)):
        return f"Subagent {name!r} still works."
    async with ctx.commit() as tx:
        _, doc = await _find(tx, ctx.conversation_id, name)
        return await _collect(tx, doc) or f"Subagent {name!r} has reported everything already."


@tool(name="stop_agent", replay="safe")
async def stop(ctx: ToolContext, name: str) -> str:
    """Stop a subagent for good, whatever it does.

    Args:
        name: The subagent's name.
    """
    async with ctx.commit() as tx:
        record, _ = await _find(tx, ctx.conversation_id, name)
        await tx.abort_task(record.id)
    return f"Subagent {name!r} is stopped."


@tool(name="list_agents", replay="safe")
async def agents(ctx: ToolContext) -> list[dict[str, Any]]:
    """List your subagents: their names, and whether they work or wait for you."""
    async with ctx.commit() as tx:
        found = await _living(tx, ctx.conversation_id)
        docs = {name: await tx.doc(SubagentDoc, record.id) for name, record in found.items()}
        return [
            {"name": name, "conversationId": doc.get("conversationId"), "working": bool(doc["open"])}
            for name, doc in docs.items()
        ]


# --- what they share


async def _spawned_before(tx: RunTx, ctx: ToolContext) -> bool:
    """Whether an execution of this call that was interrupted has spawned already."""
    call = await tx.task(ctx.task_id)
    return call is not None and KIND in (call.memos or {})


async def _living(tx: RunTx, conversation_id: int) -> dict[str, TaskRecord]:
    """Give the subagents of a conversation that live, by name, oldest first."""
    found: list[TaskRecord] = []
    for status in LIVE:
        query = TaskQuery(conversation_id=conversation_id, kind=KIND, status=status)
        found += (await tx.scan_tasks(query, 1_000)).items
    return {record.input["name"]: record for record in sorted(found, key=lambda one: one.id) if _stays(record)}


def _stays(record: TaskRecord) -> bool:
    return not record.abort_requested


async def _find(tx: RunTx, conversation_id: int, name: str) -> tuple[TaskRecord, Draft]:
    """Find a subagent that has begun. Raises NoSuchAgent."""
    living = await _living(tx, conversation_id)
    if name not in living:
        raise NoSuchAgent(f"there is no subagent {name!r}; there are: {', '.join(living) or 'none'}")
    doc = await tx.doc(SubagentDoc, living[name].id)
    if not doc["conversationId"]:
        raise NoSuchAgent(f"the subagent {name!r} has not begun yet; try again")
    return living[name], doc


async def _wake(tx: RunTx, record: TaskRecord) -> None:
    """Have a subagent look again. One that does not wait is about to look anyway."""
    if isinstance(record.state, Waiting):
        await tx.wake(record.id, Subagent.Watch())


async def _collect(tx: RunTx, doc: Draft) -> str:
    """Take what has not been reported, or back what has been and nobody has seen yet."""
    said = await _answers(tx, doc)
    report = doc.pop("report", None)
    if report is not None and await withdraw(tx, report["id"]) == "aborted":
        said = "\n\n".join(part for part in (report["text"], said) if part)
    return said


async def _in_time(work: Any, limit: Any) -> bool:
    """Whether work ends before a limit does. What has not ended is cancelled."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(limit)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended: bool = tasks[0].done()
        if ended:
            tasks[0].result()
        return ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
