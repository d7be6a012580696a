"""Tool rounds: the calls of one response as tasks, in parallel or one after the other, and what they ask for together.

Proved by tests/actors/agent/test_generation.py and test_rounds.py.
"""

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from ...chord import Draft
from ...storage.records import Completed, EntryRecord, Json, JsonObject, Outcome
from ..conversation.builtin import AgentDoc, LiveDoc, ToolResultEntry, ToolSlot
from ..conversation.handles import Conversation
from ..conversation.settings import Settings
from ..models import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    current_tools,
    from_json,
    to_json,
    tool_calls,
)
from ..task.definition import Phase
from ..task.run import Run
from ..task.tx import RunTx
from . import results
from .asking import agent_of
from .calls import ToolInput, ToolOutcome
from .hooks import AgentHooks
from .registry import Resolved
from .tooltask import ToolTask


class Tools(Phase):
    """The round's tasks; ``pending`` are calls of a sequential round that have not been started."""

    assistant: int
    tools: list[int]
    pending: list[str]


class Verdict(msgspec.Struct, frozen=True):
    """What a round's calls ask for together: tools to offer from now on, whether the run ends with the round, and how on."""

    add_tools: list[str]
    terminate: bool
    handoff: str | None = None


def verdict(calls: int, outcomes: Sequence[Outcome]) -> Verdict:
    """Judge a round of ``calls`` calls by its tasks' outcomes, in call order.

    Every completed call may add tools. The run ends only if each call had a task that completed asking for it, or if any
    hands off; the last one's text counts.
    """
    asked = [_asked(outcome) for outcome in outcomes if isinstance(outcome, Completed)]
    added = dict.fromkeys(name for one in asked for name in one.add_tools)
    ends = calls > 0 and len(asked) == calls and all(one.terminate for one in asked)
    handoffs = [one.handoff for one in asked if one.handoff is not None]
    return Verdict(list(added), ends or bool(handoffs), handoffs[-1] if handoffs else None)


def _asked(outcome: Completed) -> ToolOutcome:
    return msgspec.convert(outcome.result, ToolOutcome)


# --- starting


async def start_round(
    tx: RunTx, run: Run[None], agent: Resolved, entry: int, *, message: AssistantMessage, shown: Iterable[Message]
) -> None:
    """Create the tasks of a round; a call to a tool that the request (``shown``) did not offer is answered here."""
    offered = {tool.name for tool in current_tools(shown)}
    calls = tool_calls(message)
    sequential = _sequential(run, agent, calls)
    slots: list[ToolSlot] = []
    tasks: list[int] = []
    pending: list[str] = []
    for call in calls:
        slot: ToolSlot = {"callId": call.id, "name": call.name, "status": "pending"}
        if call.name not in offered:
            draft = results.error("tool_unavailable", f"Tool {call.name} is not available")
            slot["status"] = "done"
            slot["entry"] = await _append_result(tx, call, draft, run.now())
        elif sequential and tasks:
            pending.append(call.id)
        else:
            slot["taskId"] = await _call_task(tx, run, entry, call)
            tasks.append(slot["taskId"])
        slots.append(slot)
    live = await tx.doc(LiveDoc, run.conversation_id)
    live["tools"] = cast("list[JsonObject]", slots)
    await tx.wait(tasks, then=Tools(assistant=entry, tools=tasks, pending=pending))


def _sequential(run: Run[None], agent: Resolved, calls: Sequence[ToolCall]) -> bool:
    tools = [agent.tool(call.name) for call in calls]
    return run.service(Settings).tool_execution == "sequential" or any(
        tool is not None and tool.execution == "sequential" for tool in tools
    )


async def next_call(tx: RunTx, run: Run[None], state: Tools) -> None:
    """Create the task of the next call of a sequential round."""
    call_id, *pending = state.pending
    called = _message(cast("EntryRecord", await tx.entry(state.assistant)))
    call = next(call for call in tool_calls(called) if call.id == call_id)
    task = await _call_task(tx, run, state.assistant, call)
    slot = _slot(await tx.doc(LiveDoc, run.conversation_id), call_id)
    if slot is not None:
        slot["taskId"] = task
    tools = [*state.tools, task]
    await tx.wait([task], then=Tools(assistant=state.assistant, tools=tools, pending=pending))


async def _call_task(tx: RunTx, run: Run[None], assistant: int, call: ToolCall) -> int:
    given = ToolInput(assistant=assistant, call_id=call.id, name=call.name)
    task = await tx.create_task(ToolTask, given, owner=run.id)
    return task.id


async def _append_result(tx: RunTx, call: ToolCall, draft: results.Draft, now: int) -> int:
    message = results.message(draft, call.id, call.name, now)
    entry = await tx.append(ToolResultEntry, {"diagnostics": draft.diagnostics}, model=[to_json(message)])
    return entry.id


def _slot(live: Draft, call_id: str) -> Draft | None:
    return next((slot for slot in live.get("tools", ()) if slot["callId"] == call_id), None)


# --- ending


async def round_message(run: Run[None], state: Tools) -> AssistantMessage:
    """Give the message whose calls a round answers."""
    return _message(await run.entry(state.assistant))


async def after_round(run: Run[None], message: AssistantMessage) -> Json:
    """Ask the hooks whether they have something to say; they get the round's results as the model will."""
    hooks = AgentHooks(run, await agent_of(run))
    return await hooks.after_tools(message, await _results(run, message)) if hooks.asked("after_tools") else None


async def _results(run: Run[None], message: AssistantMessage) -> list[ToolResultMessage]:
    view = await Conversation(run.services, run.session, run.conversation_id).context()
    ids = {call.id for call in tool_calls(message)}
    found = [one for one in view.messages if isinstance(one, ToolResultMessage) and one.tool_call_id in ids]
    return found[-len(ids) :]


async def add_tools(tx: RunTx, conversation_id: int, names: Sequence[str]) -> None:
    """Offer more tools from now on, where a conversation has chosen some; else it is offered all of them anyway."""
    agent = await tx.doc(AgentDoc, conversation_id)
    if "tools" in agent:
        agent["tools"].extend(name for name in names if name not in agent["tools"].to_json())


async def abort_pending(tx: RunTx, run: Run[None], state: Tools) -> None:
    """Answer the calls of a sequential round that were never started."""
    entry = await tx.entry(state.assistant)
    for call in tool_calls(_message(cast("EntryRecord", entry))):
        if call.id in state.pending:
            draft = results.error("aborted", f"Tool {call.name} was aborted")
            await _append_result(tx, call, draft, run.now())


def _message(entry: EntryRecord) -> AssistantMessage:
    return cast("AssistantMessage", from_json((entry.model or [])[0]))
