"""``pi.tool``: one tool call as a durable task.

call (check, ask hooks) -> approval (parked) -> execute -> external (parked) -> result. The intent (final arguments and
replay policy) is committed before the tool runs, its result after. A call that a crash interrupted runs again only if it
was declared safe then and still is; else the model is told that it was interrupted, with the output committed so far.
Proved by tests/actors/agent/test_tooltask.py and test_calls.py.
"""

import inspect
from typing import Any, cast

import msgspec
import structlog

from ...chord import Draft
from ...storage.records import JsonObject, TaskRecord
from ..conversation.builtin import LiveDoc, ToolResultEntry
from ..conversation.settings import Settings
from ..models import AssistantMessage, ToolCall, from_json, to_json, tool_calls
from ..session.tx import BaseTx
from ..task.definition import Phase, Task
from ..task.run import Run
from ..task.tx import RunTx
from . import calls, results, slots
from .asking import agent_of
from .calls import ToolInput, ToolOutcome
from .cutoff import clean_up
from .errors import InvalidArguments
from .hooks import AgentHooks, Deny
from .nested import NestedCalls
from .output import Output, OutputLimits
from .pump import Pump
from .registry import Resolved
from .responses import said
from .stopping import told_to_stop
from .timelimit import within
from .tool import Tool, Validated
from .toolcontext import External, ToolContext
from .usage import count_tool

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
        await _settle(run, call, results.error("denied", f"Tool {call.name} was not approved in time"))

    async def denied(self, run: Run[ToolInput], state: calls.Denied) -> None:
        """Answer the call with the denial."""
        call = await _call(run)
        await _settle(run, call, results.error("denied", f"Tool {call.name} {state.reason}"))

    async def approved(self, run: Run[ToolInput], state: calls.Approved) -> None:
        """Execute with exactly the arguments that were approved, if the tool still takes them."""
        call, agent = _intended(await _call(run), state), await agent_of(run)
        tool = agent.tool(call.name)
        given = _unavailable(call) if tool is None else _validated(call, tool)
        if tool is None or isinstance(given, results.Draft):
            await _settle(run, call, cast("results.Draft", given))
            return
        await _begin(run, call, tool, AgentHooks(run, agent), given)

    async def execute(self, run: Run[ToolInput], state: calls.Execute) -> None:
        """Reached when an execution was interrupted, and at once by a call that was stored with its intent."""
        call, agent = _intended(await _call(run), state), await agent_of(run)
        if run.first:
            await _answer(run, call, agent, intended=state.replay)
            return
        tool = agent.tool(call.name)
        await clean_up(run, call, tool, _nested(run, call, again=True))
        if calls.completion_of((await run.memos()).get(calls.ANNOUNCED)) is not None:
            await run.goto(self.External())
        elif state.replay == "safe" and tool is not None and tool.replay == "safe":
            await _begin_again(run, call, tool, agent)
        else:
            message = f"Tool {call.name} was interrupted and may have partially run"
            await _settle(run, call, results.error("interrupted", message, await _shown(run), failed=True))

    async def external(self, run: Run[ToolInput], state: calls.External) -> None:
        """Take over the result that was given from outside, or tell that none was in time."""
        call, agent = await _call(run), await agent_of(run)
        tool = agent.tool(call.name)
        completion = calls.completion_of((await run.memos()).get(calls.ANNOUNCED))
        if completion is None:
            message = f"Tool {call.name} was not completed in time"
            await _settle(run, call, results.error("timeout", message, await _shown(run), failed=True))
            return
        draft = results.over(await _shown(run), completion.result, _limits(tool))
        draft = await _heard(AgentHooks(run, agent), "after_tool", call, draft, _limits(tool))
        await _settle(run, call, draft, request_id=completion.request_id)

    async def abort(self, run: Run[ToolInput], state: Phase) -> None:
        """Answer the call as aborted, with what it had shown and what the hooks make of that."""
        call, agent = _intended(await _call(run), state), await agent_of(run)
        if isinstance(state, calls.Execute):
            await clean_up(run, call, agent.tool(call.name), _nested(run, call, again=True))
        draft = results.error("aborted", f"Tool {call.name} was aborted", await _shown(run))
        limits = _limits(agent.tool(call.name))
        draft = await _heard(AgentHooks(run, agent), "on_abort", call, draft, limits)
        draft = msgspec.structs.replace(draft, is_error=True)
        async with run.commit() as tx:
            tx.abort(result=await _outcome(tx, run, call, draft))

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


async def _slot(tx: BaseTx, run: Run[ToolInput]) -> Draft | None:
    """Give the call's slot in ``pi.live``, which is shown to people; a call that a tool makes has none."""
    return None if run.input.assistant is None else await slots.slot_of(tx, run.conversation_id, run.id)


def _limits(tool: Tool | None) -> OutputLimits:
    return OutputLimits() if tool is None else tool.limits


def _unavailable(call: ToolCall) -> results.Draft:
    return results.error("tool_unavailable", f"Tool {call.name} is not available")


def _validated(call: ToolCall, tool: Tool) -> Validated | results.Draft:
    """Give the arguments as the tool takes them."""
    if call.arguments_error is not None:
        return results.error("invalid_arguments", call.arguments_error)
    try:
        return tool.validate(call.arguments)
    except InvalidArguments as error:
        return results.error("invalid_arguments", str(error))


async def _checked(hooks: AgentHooks, call: ToolCall, tool: Tool) -> tuple[ToolCall, Validated] | results.Draft:
    """Validate, let the hooks change the arguments or deny the call, and validate what they have made of them."""
    given = _validated(call, tool)
    if isinstance(given, results.Draft):
        return given
    asked = await hooks.before_tool(call)
    if isinstance(asked, Deny):
        return results.error("blocked", f"Tool call blocked: {asked.reason}")
    if asked is not call:
        given = _validated(asked, tool)
    return given if isinstance(given, results.Draft) else (asked, given)


async def _heard(
    hooks: AgentHooks, point: str, call: ToolCall, draft: results.Draft, limits: OutputLimits
) -> results.Draft:
    """Give a result as the hooks would have it."""
    if not hooks.asked(point):
        return draft
    before = results.as_result(draft)
    after = await hooks.result(point, call, before)
    return draft if after is before else results.rewritten(draft, after, limits)


async def _answer(run: Run[ToolInput], call: ToolCall, agent: Resolved, intended: str | None = None) -> None:
    """Check the call; ask the hooks, and somebody, whether it may run; execute, at once if just that is ``intended``."""
    tool = agent.tool(call.name)
    if tool is None:
        await _settle(run, call, _unavailable(call))
        return
    hooks = AgentHooks(run, agent)
    checked = await _checked(hooks, call, tool)
    if isinstance(checked, results.Draft):
        await _settle(run, call, checked)
        return
    ready, given = checked
    if await _needs_approval(tool, ready):
        await _ask(run, ready, tool)
    elif ready is call and intended == tool.replay:
        await _execute(run, ready, tool, hooks, given)
    else:
        await _begin(run, ready, tool, hooks, given)


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
        slot = await _slot(tx, run)
        if slot is not None:
            slot["approval"] = {"arguments": call.arguments, "hash": asked.hash, "at": run.now()}
        until = _until(run, tool.approval_timeout_s)
        await tx.wait(mail=True, until=until, then=asked)


def _until(run: Run[ToolInput], seconds: float | None) -> int | None:
    return None if seconds is None else run.now() + round(seconds * 1_000)


# --- execution


async def _begin(run: Run[ToolInput], call: ToolCall, tool: Tool, hooks: AgentHooks, given: Validated) -> None:
    """Store the intent, then execute."""
    async with run.commit() as tx:
        tx.goto(calls.Execute(arguments=call.arguments, replay=tool.replay))
        slot = await _slot(tx, run)
        if slot is not None:
            slot.pop("approval", None)
            slot["status"] = "running"
    await _execute(run, call, tool, hooks, given)


async def _begin_again(run: Run[ToolInput], call: ToolCall, tool: Tool, agent: Resolved) -> None:
    """Execute once more what may run again, if the tool still takes it."""
    given = _validated(call, tool)
    if isinstance(given, results.Draft):
        await _settle(run, call, given)
        return
    if run.input.assistant is not None:
        async with run.commit() as tx:
            slot = await _slot(tx, run)
            if slot is not None:
                slots.clear_progress(slot)
    await _execute(run, call, tool, AgentHooks(run, agent), given, again=True)


def _nested(run: Run[ToolInput], call: ToolCall, *, again: bool) -> NestedCalls:
    return NestedCalls(run, call.id, ToolTask, again=again)


async def _execute(
    run: Run[ToolInput], call: ToolCall, tool: Tool, hooks: AgentHooks, given: Validated, *, again: bool = False
) -> None:
    output = Output(tool.limits)
    context = ToolContext(run, call.id, output, _nested(run, call, again=again))

    async def flush() -> None:
        async with run.commit() as tx:
            await _show(tx, run, context)

    if run.input.assistant is not None:
        context._pump = Pump(run.clock, run.service(Settings).progress.output_interval_ms, flush)
    started = run.clock.monotonic()
    try:
        draft = await _attempt(run, tool, context, call.arguments, given)
    finally:
        if context._pump is not None:
            await context._pump.stop()
    if draft is None:
        await _park(run, context)
        return
    duration = round((run.clock.monotonic() - started) * 1_000)
    draft = _fitting(run, tool, await _heard(hooks, "after_tool", call, draft, tool.limits))
    await _settle(run, call, draft, duration_ms=duration)


async def _show(tx: RunTx, run: Run[ToolInput], context: ToolContext) -> None:
    slot = await _slot(tx, run)
    if slot is not None:
        slots.show_progress(slot, context._output.bounded(), context._details, context._diagnostics)


async def _attempt(
    run: Run[ToolInput], tool: Tool, context: ToolContext, arguments: JsonObject, given: Validated
) -> results.Draft | None:
    """Run the tool; None when it is to be completed from outside. Whatever it raises is an answer to the call.

    Being told to stop is none. Nor is the end of this session's life: an answer made of it finds no way into storage,
    and the next life gives one.
    """
    output = context._output
    try:
        value = await within(run.clock, tool.timeout_s, tool.run(context, arguments, given))
        if isinstance(value, External):
            return None
        return results.returned(value, output.finish(), context._details, context._diagnostics, tool.limits)
    except BaseException as error:
        if told_to_stop(error):
            raise
        return results.raised(tool.name, error, output.finish(), context._details, context._diagnostics)


def _fitting(run: Run[ToolInput], tool: Tool, draft: results.Draft) -> results.Draft:
    """Hold details to the type that the tool declares: a tool that has called gets an error, the model a result without."""
    if tool.details_type is None or draft.details is None or draft.is_error:
        return draft
    try:
        msgspec.convert(draft.details, tool.details_type)
    except msgspec.ValidationError as error:
        log.warning("details_invalid", session=run.session, task=run.id, tool=tool.name, error=said(error))
        if run.input.assistant is not None:
            return msgspec.structs.replace(draft, details=None)
        return results.error("invalid_details", f"Tool {tool.name} gave details of a wrong type: {error}", failed=True)
    return draft


async def _park(run: Run[ToolInput], context: ToolContext) -> None:
    """Wait for the completion from outside, unless it has come before the tool returned."""
    context._output.finish()
    async with run.commit() as tx:
        await _show(tx, run, context)
        if calls.completion_of(tx.memo(calls.ANNOUNCED, value=True)) is not None:
            tx.goto(calls.External())
        else:
            await tx.wait(mail=True, until=context._external_until, then=calls.External())


# --- the result


async def _settle(
    run: Run[ToolInput],
    call: ToolCall,
    draft: results.Draft,
    *,
    duration_ms: int | None = None,
    request_id: str | None = None,
) -> None:
    """End the call with a result; calls of its own that it has left running end with it. Nothing may follow."""
    async with run.commit(wait=False) as tx:
        outcome = await _outcome(tx, run, call, draft, duration_ms=duration_ms, request_id=request_id)
        for task in tx.owned_tasks():
            if task.kind == calls.KIND:
                await tx.abort_task(task.id)
        if draft.failed:
            tx.fail(draft.diagnostics[-1]["message"], result=outcome)
        else:
            tx.complete(outcome)


async def _outcome(
    tx: BaseTx,
    run: Run[ToolInput],
    call: ToolCall,
    draft: results.Draft,
    *,
    duration_ms: int | None = None,
    request_id: str | None = None,
) -> ToolOutcome:
    """Put a result where it belongs: into the transcript, or into the outcome for the tool that has made the call."""
    await count_tool(tx, run.conversation_id, call.name, draft.usage)
    if run.input.assistant is None:
        return ToolOutcome(result=results.as_result(draft), request_id=request_id)
    message = results.message(draft, call.id, call.name, run.now(), duration_ms)
    data = {"diagnostics": draft.diagnostics}
    entry = await tx.append(ToolResultEntry, data, conversation_id=run.conversation_id, model=[to_json(message)])
    slot = await _slot(tx, run)
    if slot is not None:
        slots.finish(slot, entry.id)
    return ToolOutcome(
        entry_id=entry.id,
        add_tools=list(draft.add_tools),
        terminate=draft.terminate,
        handoff=draft.handoff,
        request_id=request_id,
    )
