"""The execution of a tool call: its intent, the tool's own code, and its result.

What happens before is in ``tooltask``. Proved by tests/actors/agent/test_tooltask.py.
"""

import msgspec
import structlog

from ...chord import Draft
from ...storage.records import JsonObject
from ..conversation.builtin import ToolResultEntry
from ..conversation.settings import Settings
from ..models import ToolCall, to_json
from ..session.tx import BaseTx
from ..task.run import Run
from ..task.tx import RunTx
from . import calls, results, slots
from .calls import ToolInput, ToolOutcome
from .errors import InvalidArguments
from .hooks import AgentHooks
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


def validated(call: ToolCall, tool: Tool) -> Validated | results.Draft:
    """Give the arguments as the tool takes them."""
    if call.arguments_error is not None:
        return results.error("invalid_arguments", call.arguments_error)
    try:
        return tool.validate(call.arguments)
    except InvalidArguments as error:
        return results.error("invalid_arguments", str(error))


async def begin(run: Run[ToolInput], call: ToolCall, tool: Tool, hooks: AgentHooks, given: Validated) -> None:
    """Store the intent, then execute."""
    async with run.commit() as tx:
        tx.goto(calls.Execute(arguments=call.arguments, replay=tool.replay))
        slot = await slot_of_call(tx, run)
        if slot is not None:
            slot.pop("approval", None)
            slot["status"] = "running"
    await execute(run, call, tool, hooks, given)


async def begin_again(run: Run[ToolInput], call: ToolCall, tool: Tool, agent: Resolved) -> None:
    """Execute once more what may run again, if the tool still takes it."""
    given = validated(call, tool)
    if isinstance(given, results.Draft):
        await settle(run, call, given)
        return
    if run.input.assistant is not None:
        async with run.commit() as tx:
            slot = await slot_of_call(tx, run)
            if slot is not None:
                slots.clear_progress(slot)
    await execute(run, call, tool, AgentHooks(run, agent), given, again=True)


async def execute(
    run: Run[ToolInput], call: ToolCall, tool: Tool, hooks: AgentHooks, given: Validated, *, again: bool = False
) -> None:
    """Run the tool, whose intent is stored, and store its result; or park, if that comes from outside."""
    output = Output(tool.limits)
    context = ToolContext(run, call.id, output, NestedCalls(run, call.id, again=again))

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
    draft = _fitting(run, tool, await heard(hooks, "after_tool", call, draft, tool.limits))
    await settle(run, call, draft, duration_ms=duration)


async def _show(tx: RunTx, run: Run[ToolInput], context: ToolContext) -> None:
    slot = await slot_of_call(tx, run)
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


async def slot_of_call(tx: BaseTx, run: Run[ToolInput]) -> Draft | None:
    """Give the call's slot in ``pi.live``, which is shown to people; a call that a tool makes has none."""
    return None if run.input.assistant is None else await slots.slot_of(tx, run.conversation_id, run.id)


async def heard(
    hooks: AgentHooks, point: str, call: ToolCall, draft: results.Draft, limits: OutputLimits
) -> results.Draft:
    """Give a result as the hooks would have it."""
    if not hooks.asked(point):
        return draft
    before = results.as_result(draft)
    after = await hooks.result(point, call, before)
    return draft if after is before else results.rewritten(draft, after, limits)


async def settle(
    run: Run[ToolInput],
    call: ToolCall,
    draft: results.Draft,
    *,
    duration_ms: int | None = None,
    request_id: str | None = None,
) -> None:
    """End the call with a result; calls of its own that it has left running end with it. Nothing may follow."""
    async with run.commit(wait=False) as tx:
        outcome = await outcome_of(tx, run, call, draft, duration_ms=duration_ms, request_id=request_id)
        for task in tx.owned_tasks():
            if task.kind == calls.KIND:
                await tx.abort_task(task.id)
        if draft.failed:
            tx.fail(draft.diagnostics[-1]["message"], result=outcome)
        else:
            tx.complete(outcome)


async def outcome_of(
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
    slot = await slot_of_call(tx, run)
    if slot is not None:
        slots.finish(slot, entry.id)
    return ToolOutcome(
        entry_id=entry.id,
        add_tools=list(draft.add_tools),
        terminate=draft.terminate,
        handoff=draft.handoff,
        request_id=request_id,
    )
