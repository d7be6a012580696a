"""``pi.tool``: one tool call as a durable task.

call (check, ask hooks) -> approval (parked) -> execute -> external (parked) -> result. The intent (final arguments and
replay policy) is committed before the tool runs, its result after; a call that another tool makes may be stored with its
intent (see ``nested``). A call that a crash interrupted runs again only if it was declared safe then and still is; else the
model is told that it was interrupted, with the output committed so far.
Proved by tests/actors/agent/test_tooltask.py and test_calls.py.
"""

import inspect
from typing import Any, cast

import msgspec
import structlog

from ...storage.records import JsonObject, TaskRecord
from ..conversation.builtin import LiveDoc
from ..models import AssistantMessage, ToolCall, from_json, tool_calls
from ..session.tx import BaseTx
from ..task.definition import Phase, Task
from ..task.run import Run
from . import calls, results, slots
from .asking import agent_of
from .calls import ToolInput, ToolOutcome
from .cutoff import clean_up
from .execution import begin, begin_again, execute, heard, outcome_of, settle, slot_of_call, validated
from .hooks import AgentHooks, Deny
from .nested import NestedCalls
from .output import OutputLimits
from .registry import Resolved
from .responses import said
from .stopping import told_to_stop
from .tool import Tool, Validated

log = structlog.get_logger("perdure.agent")


class ToolTask(Task[ToolInput, ToolOutcome], name=calls.KIND, version=1):
    """Validate, store the intent, execute, store the result."""

    class Call(Phase):
        """Nothing has happened yet."""

    Execute = calls.Execute
    Approval = calls.Approval
    Approved = calls.Approved
    Denied = calls.Denied
    External = calls.External

    def initial(self, input: ToolInput) -> Phase:
        """Begin with the execution if the intent is stored with the call."""
        return self.Call() if input.replay is None else calls.Execute(replay=input.replay)

    async def call(self, run: Run[ToolInput], state: Call) -> None:
        """Check the call; ask the hooks, and somebody, whether it may run; execute."""
        await _answer(run, await _call(run), await agent_of(run))

    async def approval(self, run: Run[ToolInput], state: calls.Approval) -> None:
        """Reached only when nobody has decided in time."""
        call = await _call(run)
        await settle(run, call, results.error("denied", f"Tool {call.name} was not approved in time"))

    async def denied(self, run: Run[ToolInput], state: calls.Denied) -> None:
        """Answer the call with the denial."""
        call = await _call(run)
        await settle(run, call, results.error("denied", f"Tool {call.name} {state.reason}"))

    async def approved(self, run: Run[ToolInput], state: calls.Approved) -> None:
        """Execute with exactly the arguments that were approved, if the tool still takes them."""
        call, agent = _intended(await _call(run), state), await agent_of(run)
        tool = agent.tool(call.name)
        given = _unavailable(call) if tool is None else validated(call, tool)
        if tool is None or isinstance(given, results.Draft):
            await settle(run, call, cast("results.Draft", given))
            return
        await begin(run, call, tool, AgentHooks(run, agent), given)

    async def execute(self, run: Run[ToolInput], state: calls.Execute) -> None:
        """Reached when an execution was interrupted, and at once by a call that was stored with its intent."""
        call, agent = _intended(await _call(run), state), await agent_of(run)
        if run.first:
            await _answer(run, call, agent, intended=state.replay)
            return
        tool = agent.tool(call.name)
        await clean_up(run, call, tool, NestedCalls(run, call.id, again=True))
        if calls.completion_of((await run.memos()).get(calls.ANNOUNCED)) is not None:
            await run.goto(self.External())
        elif state.replay == "safe" and tool is not None and tool.replay == "safe":
            await begin_again(run, call, tool, agent)
        else:
            message = f"Tool {call.name} was interrupted and may have partially run"
            await settle(run, call, results.error("interrupted", message, await _shown(run), failed=True))

    async def external(self, run: Run[ToolInput], state: calls.External) -> None:
        """Take over the result that was given from outside, or tell that none was in time."""
        call, agent = await _call(run), await agent_of(run)
        tool = agent.tool(call.name)
        completion = calls.completion_of((await run.memos()).get(calls.ANNOUNCED))
        if completion is None:
            message = f"Tool {call.name} was not completed in time"
            await settle(run, call, results.error("timeout", message, await _shown(run), failed=True))
            return
        draft = results.over(await _shown(run), completion.result, _limits(tool))
        draft = await heard(AgentHooks(run, agent), "after_tool", call, draft, _limits(tool))
        await settle(run, call, draft, request_id=completion.request_id)

    async def abort(self, run: Run[ToolInput], state: Phase) -> None:
        """Answer the call as aborted, with what it had shown and what the hooks make of that."""
        call, agent = _intended(await _call(run), state), await agent_of(run)
        if isinstance(state, calls.Execute):
            await clean_up(run, call, agent.tool(call.name), NestedCalls(run, call.id, again=True))
        draft = results.error("aborted", f"Tool {call.name} was aborted", await _shown(run))
        limits = _limits(agent.tool(call.name))
        draft = await heard(AgentHooks(run, agent), "on_abort", call, draft, limits)
        draft = msgspec.structs.replace(draft, is_error=True)
        async with run.commit() as tx:
            tx.abort(result=await outcome_of(tx, run, call, draft))

    @staticmethod
    def describe_span(record: TaskRecord) -> tuple[str, dict[str, Any]]:
        """Name the call and its tool."""
        called = msgspec.convert(record.input, ToolInput)
        return f"execute_tool {called.name}", {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": called.name,
            "gen_ai.tool.call.id": called.call_id,
            "gen_ai.tool.type": "function",
        }

    @staticmethod
    async def undecided(tx: BaseTx, record: TaskRecord) -> None:
        """Close the slot; the context answers the call."""
        slot = await slots.slot_of(tx, record.conversation_id, record.id)
        if slot is not None:
            slots.finish(slot, None)


# --- the call and its tool


async def _call(run: Run[ToolInput]) -> ToolCall:
    if run.input.assistant is None:
        return ToolCall(id=run.input.call_id, name=run.input.name, arguments=run.input.arguments)
    entry = await run.entry(run.input.assistant)
    message = cast("AssistantMessage", from_json((entry.model or [])[0]))
    return next(call for call in tool_calls(message) if call.id == run.input.call_id)


def _intended(call: ToolCall, state: Phase) -> ToolCall:
    """Give a call with the arguments that were decided on, if that was done."""
    if isinstance(state, calls.Execute | calls.Approval | calls.Approved) and state.arguments is not None:
        return msgspec.structs.replace(call, arguments=state.arguments)
    return call


async def _shown(run: Run[ToolInput]) -> JsonObject:
    live = await run.snapshot(LiveDoc, run.conversation_id) or {}
    return next((slot for slot in live.get("tools", ()) if slot.get("taskId") == run.id), {})


def _limits(tool: Tool | None) -> OutputLimits:
    return OutputLimits() if tool is None else tool.limits


def _unavailable(call: ToolCall) -> results.Draft:
    return results.error("tool_unavailable", f"Tool {call.name} is not available")


async def _checked(hooks: AgentHooks, call: ToolCall, tool: Tool) -> tuple[ToolCall, Validated] | results.Draft:
    """Validate, let the hooks change the arguments or deny the call, and validate what they have made of them."""
    given = validated(call, tool)
    if isinstance(given, results.Draft):
        return given
    asked = await hooks.before_tool(call)
    if isinstance(asked, Deny):
        return results.error("blocked", f"Tool call blocked: {asked.reason}")
    if asked is not call:
        given = validated(asked, tool)
    return given if isinstance(given, results.Draft) else (asked, given)


async def _answer(run: Run[ToolInput], call: ToolCall, agent: Resolved, intended: str | None = None) -> None:
    """Check the call; ask the hooks, and somebody, whether it may run; execute, at once if just that is ``intended``."""
    tool = agent.tool(call.name)
    if tool is None:
        await settle(run, call, _unavailable(call))
        return
    hooks = AgentHooks(run, agent)
    checked = await _checked(hooks, call, tool)
    if isinstance(checked, results.Draft):
        await settle(run, call, checked)
        return
    ready, given = checked
    if await _needs_approval(tool, ready):
        await _ask(run, ready, tool)
    elif ready is call and intended == tool.replay:
        await execute(run, ready, tool, hooks, given)
    else:
        await begin(run, ready, tool, hooks, given)


# --- approval


async def _needs_approval(tool: Tool, call: ToolCall) -> bool:
    """Ask the tool's policy. One that fails has somebody asked."""
    if tool.approval is None or tool.approval == "always":
        return tool.approval is not None
    try:
        needed = tool.approval(call)
        return bool(await needed if inspect.isawaitable(needed) else needed)
    except BaseException as error:
        if told_to_stop(error):
            raise
        log.warning("approval_policy_failed", tool=tool.name, error=said(error))
        return True


async def _ask(run: Run[ToolInput], call: ToolCall, tool: Tool) -> None:
    """Park until somebody decides; what is asked is shown in ``pi.live``."""
    asked = calls.Approval(arguments=call.arguments, hash=calls.arguments_hash(call.name, call.arguments))
    async with run.commit() as tx:
        slot = await slot_of_call(tx, run)
        if slot is not None:
            slot["approval"] = {"arguments": call.arguments, "hash": asked.hash, "at": run.now()}
        until = _until(run, tool.approval_timeout_s)
        await tx.wait(mail=True, until=until, then=asked)


def _until(run: Run[ToolInput], seconds: float | None) -> int | None:
    return None if seconds is None else run.now() + round(seconds * 1_000)
