"""``pi.tool``: one tool call as a durable task.

The intent (final arguments and replay policy) is committed before the tool runs, its result after. A call that a crash
interrupted runs again only if it was declared safe then and still is; else the model is told that it was interrupted,
with the output committed so far. Proved by tests/actors/agent/test_tooltask.py.
"""

from typing import cast

import msgspec
import structlog

from ...storage.records import JsonObject, TaskRecord
from ..conversation.builtin import AgentDoc, LiveDoc, ToolResultEntry
from ..conversation.settings import Settings
from ..models import AssistantMessage, ToolCall, from_json, to_json, tool_calls
from ..session.tx import BaseTx
from ..task.definition import Phase, Task
from ..task.run import Run
from . import results, slots
from .cutoff import clean_up
from .errors import InvalidArguments
from .output import Output
from .pump import Pump
from .registry import Registry
from .stopping import told_to_stop
from .tool import Tool
from .toolcontext import ToolContext
from .usage import count_tool

log = structlog.get_logger("perdure.agent")


class ToolInput(msgspec.Struct, frozen=True, rename="camel"):
    """Which call of which assistant entry."""

    assistant: int
    call_id: str


class ToolOutcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result entry that a call ended with."""

    entry_id: int


class ToolTask(Task[ToolInput, ToolOutcome], name="pi.tool", version=1):
    """Validate, store the intent, execute, store the result."""

    class Call(Phase):
        """Nothing has happened yet."""

    class Execute(Phase):
        """The tool is about to run, or may have run: what it was to run with, and whether it may run again."""

        arguments: JsonObject
        replay: str

    async def call(self, run: Run[ToolInput], state: Call) -> None:
        """Check the call; store the intent; execute."""
        call = await _call(run)
        tool = await _tool(run, call.name)
        refusal = _refusal(call, tool)
        if tool is None or refusal is not None:
            await _settle(run, call, refusal or results.error("tool_unavailable", f"Tool {call.name} is not available"))
            return
        async with run.commit() as tx:
            tx.goto(self.Execute(arguments=call.arguments, replay=tool.replay))
            slot = await slots.slot_of(tx, run.conversation_id, run.id)
            if slot is not None:
                slot["status"] = "running"
        await _execute(run, call, tool, call.arguments)

    async def execute(self, run: Run[ToolInput], state: Execute) -> None:
        """Reached only when an execution was interrupted."""
        call = await _call(run)
        tool = await _tool(run, call.name)
        await clean_up(run, call, tool)
        if state.replay == "safe" and tool is not None and tool.replay == "safe":
            async with run.commit() as tx:
                slot = await slots.slot_of(tx, run.conversation_id, run.id)
                if slot is not None:
                    slots.clear_progress(slot)
            await _execute(run, call, tool, state.arguments)
            return
        message = f"Tool {call.name} was interrupted and may have partially run"
        await _settle(run, call, results.error("interrupted", message, await _shown(run), failed=True))

    async def abort(self, run: Run[ToolInput], state: Phase) -> None:
        """Answer the call as aborted, with what it had shown."""
        call = await _call(run)
        if isinstance(state, self.Execute):
            await clean_up(run, call, await _tool(run, call.name))
        draft = results.error("aborted", f"Tool {call.name} was aborted", await _shown(run))
        async with run.commit() as tx:
            tx.abort(result=ToolOutcome(entry_id=await _append(tx, run, call, draft)))

    @staticmethod
    async def undecided(tx: BaseTx, record: TaskRecord) -> None:
        """Close the slot; the context answers the call."""
        slot = await slots.slot_of(tx, record.conversation_id, record.id)
        if slot is not None:
            slots.finish(slot, None)


async def _call(run: Run[ToolInput]) -> ToolCall:
    entry = await run.entry(run.input.assistant)
    message = cast("AssistantMessage", from_json((entry.model or [])[0]))
    return next(call for call in tool_calls(message) if call.id == run.input.call_id)


async def _tool(run: Run[ToolInput], name: str) -> Tool | None:
    choice = await run.snapshot(AgentDoc, run.conversation_id) or {}
    return run.service(Registry).resolve(choice, run.service(Settings)).tool(name)


async def _shown(run: Run[ToolInput]) -> JsonObject:
    live = await run.snapshot(LiveDoc, run.conversation_id) or {}
    return next((slot for slot in live.get("tools", ()) if slot.get("taskId") == run.id), {})


def _refusal(call: ToolCall, tool: Tool | None) -> results.Draft | None:
    if tool is None:
        return None
    if call.arguments_error is not None:
        return results.error("invalid_arguments", call.arguments_error)
    try:
        tool.validate(call.arguments)
    except InvalidArguments as error:
        return results.error("invalid_arguments", str(error))
    return None


async def _execute(run: Run[ToolInput], call: ToolCall, tool: Tool, arguments: JsonObject) -> None:
    output = Output(tool.limits)
    context = ToolContext(run, call.id, output)

    async def flush() -> None:
        async with run.commit() as tx:
            slot = await slots.slot_of(tx, run.conversation_id, run.id)
            if slot is not None:
                slots.show_progress(slot, output.bounded(), context._details, context._diagnostics)

    context._pump = Pump(run.clock, run.service(Settings).progress.output_interval_ms, flush)
    started = run.clock.monotonic()
    try:
        draft = await _attempt(tool, context, arguments, output)
    finally:
        await context._pump.stop()
    await _settle(run, call, draft, duration_ms=round((run.clock.monotonic() - started) * 1_000))


async def _attempt(tool: Tool, context: ToolContext, arguments: JsonObject, output: Output) -> results.Draft:
    """Run the tool. Whatever it raises is an answer to the call; being told to stop is not.

    Nor is the end of this session's life: an answer made of it finds no way into storage, and the next life gives one.
    """
    try:
        value = await tool.run(context, arguments)
        return results.returned(value, output.finish(), context._details, context._diagnostics, tool.limits)
    except BaseException as error:
        if told_to_stop(error):
            raise
        return results.raised(tool.name, error, output.finish(), context._details, context._diagnostics)


async def _settle(run: Run[ToolInput], call: ToolCall, draft: results.Draft, duration_ms: int | None = None) -> None:
    async with run.commit() as tx:
        outcome = ToolOutcome(entry_id=await _append(tx, run, call, draft, duration_ms))
        if draft.failed:
            tx.fail(draft.diagnostics[-1]["message"], result=outcome)
        else:
            tx.complete(outcome)


async def _append(
    tx: BaseTx, run: Run[ToolInput], call: ToolCall, draft: results.Draft, duration_ms: int | None = None
) -> int:
    message = results.message(draft, call.id, call.name, run.now(), duration_ms)
    data = {"diagnostics": draft.diagnostics}
    entry = await tx.append(ToolResultEntry, data, conversation_id=run.conversation_id, model=[to_json(message)])
    await count_tool(tx, run.conversation_id, call.name, draft.usage)
    slot = await slots.slot_of(tx, run.conversation_id, run.id)
    if slot is not None:
        slots.finish(slot, entry.id)
    return entry.id
