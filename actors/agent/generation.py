"""``pi.generation``: one model response and its tool round, as a durable task.

prepare (prompt and context) -> request (stream, classify) -> answer | tools -> next generation | retry (parked) | failure.
The run's inputs live in ``pi.live.run``; whichever task it names settles them. Proved by
tests/actors/agent/test_generation.py.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec
import structlog

from ...chord import Draft
from ...storage.records import EntryRecord, Json, JsonObject, TaskRecord
from ..conversation.builtin import (
    AgentDoc,
    AssistantEntry,
    LiveDoc,
    ProviderDoc,
    SystemEntry,
    ToolResultEntry,
    ToolSlot,
)
from ..conversation.choice import model_name, model_ref
from ..conversation.context import ContextView
from ..conversation.handles import Conversation
from ..conversation.inbox import answered, end_run, final_boundary, place_selected, settle_inputs, why_unanswered
from ..conversation.settings import RetryPolicy, Settings
from ..models import (
    AssistantMessage,
    Done,
    ErrorInfo,
    Event,
    Model,
    ModelRequest,
    Models,
    Partial,
    ThinkingLevel,
    ToolCall,
    current_sections,
    current_tools,
    from_json,
    to_json,
    tool_calls,
)
from ..session.tx import BaseTx
from ..task.definition import Phase, Task
from ..task.ref import TaskRef
from ..task.run import Run
from ..task.tx import RunTx
from . import results
from .partials import commit_partial, keep_partial, pop_partial, take_partial
from .prompt import plan, render
from .pump import Pump
from .registry import PromptInput, Registry, Resolved
from .responses import broken_off, said, storable
from .stopping import told_to_stop
from .tooltask import ToolInput, ToolTask
from .usage import count_message

log = structlog.get_logger("perdure.agent")


class GenerationOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The assistant entry that a generation ended with."""

    entry_id: int


class Generation(Task[None, GenerationOutcome], name="pi.generation", version=1):
    """Ask the model, and see its tool calls through."""

    class Prepare(Phase):
        """Bring prompt and tools up to date, and fix the request."""

        attempt: int = 1

    class Request(Phase):
        """The request is fixed: the same one is sent again after a crash."""

        attempt: int
        model: dict[str, str]
        thinking_level: ThinkingLevel
        cutoff: int

    class Tools(Phase):
        """The round's tasks; ``pending`` are calls of a sequential round that have not been started."""

        assistant: int
        tools: list[int]
        pending: list[str]

    # --- phases

    async def prepare(self, run: Run[None], state: Prepare) -> None:
        """Append what has changed of prompt and tools; fix the request."""
        agent = await _agent(run)
        model = run.service(Models).get(agent.model) if agent.model is not None else None
        if agent.model is None or model is None:
            await _fail(run, "no_model", f"Model {agent.model or '(none chosen)'} is not available")
            return
        view = await _conversation(run).context()
        shown = current_sections(view.messages)
        given = PromptInput(
            session=run.session, conversation_id=run.conversation_id, agent=agent, snapshot=run.snapshot
        )
        sections = await render(agent.sections, given, shown)
        planned = plan(view.messages, sections, [tool.spec for tool in agent.tools], run.now())
        async with run.commit() as tx:
            cutoff = cast("int", view.newest)  # what is answered stands in an entry
            for message in planned:
                cutoff = (await tx.append(SystemEntry, model=[to_json(message)])).id
            live = await tx.doc(LiveDoc, run.conversation_id)
            live["generation"] = {"attempt": state.attempt}
            tx.goto(
                self.Request(
                    attempt=state.attempt,
                    model=model_ref(agent.model),
                    thinking_level=agent.thinking_level,
                    cutoff=cutoff,
                )
            )

    async def request(self, run: Run[None], state: Request) -> None:
        """Send the request, show the answer as it comes, and decide what follows from it."""
        async with run.commit() as tx:
            await take_partial(tx, run.conversation_id)
        model = run.service(Models).get(model_name(state.model))
        if model is None:
            await _fail(run, "no_model", f"Model {model_name(state.model)} is not available")
            return
        view = await _conversation(run).context(at=state.cutoff)
        message = unique_calls(await _stream(run, state, model, view))
        settings = run.service(Settings)
        async with run.commit() as tx:
            entry = await _store(tx, run, message)
            answering = message.stop_reason in ("stop", "length", "toolUse")
            if answering and tool_calls(message):
                await _start_round(tx, run, entry, message, view)
            elif answering:
                await _answer(tx, run, entry)
            elif may_retry(settings.retry, state.attempt, message.error):
                await _retry(tx, run, state.attempt, settings.retry, message.error)
            else:
                await _give_up(tx, run, "model_error", _said(message))
                tx.fail(_said(message), result=GenerationOutcome(entry_id=entry))

    async def tools(self, run: Run[None], state: Tools) -> None:
        """Go on after the tool round, or with the next call of a sequential one."""
        async with run.commit() as tx:
            if state.pending:
                await _next_call(tx, run, state)
                return
            live = await tx.doc(LiveDoc, run.conversation_id)
            live.pop("tools", None)
            following = await tx.create_task(Generation)
            if _runs(live, run.id):
                live["run"]["inputs"].extend(await place_selected(tx, run.conversation_id, "postTools"))
                live["run"]["taskId"] = following.id
            tx.complete(GenerationOutcome(entry_id=state.assistant))

    async def abort(self, run: Run[None], state: Phase) -> None:
        """Keep what was shown, answer the calls that never started, settle the inputs as aborted."""
        async with run.commit() as tx:
            await take_partial(tx, run.conversation_id)
            if isinstance(state, self.Tools):
                await _abort_pending(tx, run, state)
            await _give_up(tx, run, "aborted")
            tx.abort()

    @staticmethod
    async def undecided(tx: BaseTx, record: TaskRecord) -> None:
        """Settle the run of a generation that faulted or was orphaned. That nothing may prevent, so it comes first."""
        live = await tx.doc(LiveDoc, record.conversation_id)
        if _runs(live, record.id):
            shown = pop_partial(live)
            await end_run(tx, record.conversation_id, *why_unanswered(record))
            await keep_partial(tx, record.conversation_id, shown)


# --- preparing and asking


async def _agent(run: Run[None]) -> Resolved:
    choice = await run.snapshot(AgentDoc, run.conversation_id) or {}
    return run.service(Registry).resolve(choice, run.service(Settings))


def _conversation(run: Run[None]) -> Conversation:
    return Conversation(run.services, run.session, run.conversation_id)


async def _stream(run: Run[None], state: Generation.Request, model: Model, view: ContextView) -> AssistantMessage:
    settings = run.service(Settings)
    provider = await run.snapshot(ProviderDoc, run.conversation_id) or {}
    request = ModelRequest(
        messages=view.messages,
        thinking_level=state.thinking_level,
        session_id=provider.get("sessionId"),
        timeout_s=_seconds(settings.request_timeout_ms),
        idle_timeout_s=_seconds(settings.idle_timeout_ms),
    )
    partial = Partial()

    async def flush() -> None:
        async with run.commit() as tx:
            await commit_partial(tx, run.conversation_id, partial)

    interval = settings.progress.partial_interval_ms
    pump = Pump(run.clock, interval, flush, delay_ms=interval)
    try:
        shown = await _consume(model.stream(request), partial, pump)
        return storable(partial.message(), shown, model)
    except BaseException as error:
        if told_to_stop(error):
            raise
        log.warning("model_raised", session=run.session, task=run.id, model=model.name, error=said(error))
        return broken_off(partial, model, error)
    finally:
        await pump.stop()


async def _consume(stream: AsyncIterator[Event], partial: Partial, pump: Pump) -> AssistantMessage:
    """Take in a whole stream, and close it whatever happens. Gives what had come before the final message."""
    shown = AssistantMessage(content=[])
    try:
        async for event in stream:
            if isinstance(event, Done):
                shown = partial.message()
            partial.feed(event)
            if partial.has_content and not isinstance(event, Done):
                pump.touch()
    finally:
        await _close(stream)
    return shown


async def _close(stream: AsyncIterator[Event]) -> None:
    """Close a stream; that it cannot be closed takes nothing from what it said."""
    close = getattr(stream, "aclose", None)
    try:
        if close is not None:
            await close()
    except Exception as error:  # noqa: BLE001
        log.warning("stream_not_closed", error=said(error))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1_000


def unique_calls(message: AssistantMessage) -> AssistantMessage:
    """Give every call of a message an id of its own, since some servers repeat them or send none."""
    seen: set[str] = set()
    content: list[Any] = []
    for index, block in enumerate(message.content):
        own = block
        if isinstance(own, ToolCall):
            if not own.id or own.id in seen:
                own = msgspec.structs.replace(own, id=f"{own.id or 'call'}-{index}")
            seen.add(own.id)
        content.append(own)
    return msgspec.structs.replace(message, content=content)


def may_retry(policy: RetryPolicy, attempt: int, error: ErrorInfo | None) -> bool:
    """Whether a failed attempt (counted from 1) is followed by another."""
    return policy.enabled and error is not None and error.retryable and attempt <= policy.max_retries


def retry_delay(policy: RetryPolicy, attempt: int, error: ErrorInfo | None) -> int:
    """Decide how long to wait after a failed attempt, in ms: doubling up to a cap, and never less than asked for."""
    backoff: int = min(policy.base_delay_ms * 2 ** (attempt - 1), policy.max_delay_ms)
    return max(backoff, (error.retry_after_ms or 0) if error is not None else 0)


# --- what follows from a response


async def _store(tx: RunTx, run: Run[None], message: AssistantMessage) -> int:
    entry = await tx.append(AssistantEntry, model=[to_json(message)])
    await count_message(tx, run.conversation_id, message)
    live = await tx.doc(LiveDoc, run.conversation_id)
    live.pop("generation", None)
    return entry.id


async def _answer(tx: RunTx, run: Run[None], entry: int) -> None:
    live = await tx.doc(LiveDoc, run.conversation_id)
    if _runs(live, run.id):
        await settle_inputs(tx, list(live.pop("run")["inputs"]), answered(entry))
        await final_boundary(tx, run.conversation_id)
    tx.complete(GenerationOutcome(entry_id=entry))


def _runs(live: Draft, task: int) -> bool:
    """Whether the conversation's run is this task's to go on with and to settle."""
    return bool(live.get("run", {}).get("taskId") == task)


async def _retry(tx: RunTx, run: Run[None], attempt: int, policy: RetryPolicy, error: ErrorInfo | None) -> None:
    at = run.now() + retry_delay(policy, attempt, error)
    live = await tx.doc(LiveDoc, run.conversation_id)
    live["generation"] = {"attempt": attempt, "retry": {"at": at, "error": error.message if error else ""}}
    await tx.wait(until=at, then=Generation.Prepare(attempt=attempt + 1))


def _said(message: AssistantMessage) -> str:
    return message.error.message if message.error is not None else f"the model stopped: {message.stop_reason}"


async def _fail(run: Run[None], reason: str, message: str) -> None:
    async with run.commit() as tx:
        await _give_up(tx, run, reason)
        tx.fail(message, detail={"reason": reason})


async def _give_up(tx: RunTx, run: Run[None], reason: str, detail: Json = None) -> None:
    live = await tx.doc(LiveDoc, run.conversation_id)
    if _runs(live, run.id):
        await end_run(tx, run.conversation_id, reason, detail)


# --- tool rounds


async def _start_round(tx: RunTx, run: Run[None], entry: int, message: AssistantMessage, view: ContextView) -> None:
    """Create the tasks of a round; a call to a tool that the request did not offer is answered here."""
    offered = {tool.name for tool in current_tools(view.messages)}
    calls = tool_calls(message)
    sequential = await _sequential(run, calls)
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
            slot["taskId"] = await _call_task(tx, run, entry, call.id)
            tasks.append(slot["taskId"])
        slots.append(slot)
    live = await tx.doc(LiveDoc, run.conversation_id)
    live["tools"] = cast("list[JsonObject]", slots)
    await tx.wait(tasks, then=Generation.Tools(assistant=entry, tools=tasks, pending=pending))


async def _sequential(run: Run[None], calls: Sequence[ToolCall]) -> bool:
    agent = await _agent(run)
    tools = [agent.tool(call.name) for call in calls]
    return run.service(Settings).tool_execution == "sequential" or any(
        tool is not None and tool.execution == "sequential" for tool in tools
    )


async def _call_task(tx: RunTx, run: Run[None], assistant: int, call_id: str) -> int:
    task = await tx.create_task(ToolTask, ToolInput(assistant=assistant, call_id=call_id), owner=run.id)
    return task.id


async def _append_result(tx: RunTx, call: ToolCall, draft: results.Draft, now: int) -> int:
    message = results.message(draft, call.id, call.name, now)
    entry = await tx.append(ToolResultEntry, {"diagnostics": draft.diagnostics}, model=[to_json(message)])
    return entry.id


async def _next_call(tx: RunTx, run: Run[None], state: Generation.Tools) -> None:
    call_id, *pending = state.pending
    task = await _call_task(tx, run, state.assistant, call_id)
    slot = _slot(await tx.doc(LiveDoc, run.conversation_id), call_id)
    if slot is not None:
        slot["taskId"] = task
    tools = [*state.tools, task]
    await tx.wait([task], then=Generation.Tools(assistant=state.assistant, tools=tools, pending=pending))


def _slot(live: Draft, call_id: str) -> Draft | None:
    return next((slot for slot in live.get("tools", ()) if slot["callId"] == call_id), None)


async def _abort_pending(tx: RunTx, run: Run[None], state: Generation.Tools) -> None:
    entry = await tx.entry(state.assistant)
    message = cast("AssistantMessage", from_json((cast("EntryRecord", entry).model or [])[0]))
    for call in tool_calls(message):
        if call.id in state.pending:
            draft = results.error("aborted", f"Tool {call.name} was aborted")
            await _append_result(tx, call, draft, run.now())


class GenerationRunner:
    """Starts runs with a generation (see ``conversation.inbox.Runner``)."""

    async def start(self, tx: Any, conversation_id: int) -> int:
        """Create the generation that answers."""
        task: TaskRef[GenerationOutcome] = await tx.create_task(Generation, conversation_id=conversation_id)
        return task.id
