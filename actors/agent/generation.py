"""``pi.generation``: one model response and its tool round, as a durable task.

prepare (prompt and context) -> request (stream, classify) -> answer | tools -> next generation | retry (parked) | failure.
The run's inputs live in ``pi.live.run``; whichever task it names settles them. Proved by
tests/actors/agent/test_generation.py.
"""

from typing import Any

import msgspec

from ...chord import Draft
from ...storage.records import Json, TaskRecord
from ..conversation.builtin import (
    AgentDoc,
    AssistantEntry,
    LiveDoc,
    ProviderDoc,
    SystemEntry,
    UserEntry,
)
from ..conversation.choice import model_name, model_ref
from ..conversation.context import ContextView
from ..conversation.handles import Conversation
from ..conversation.inbox import after_tools, answered, end_run, final_boundary, settle_inputs, why_unanswered
from ..conversation.settings import RetryPolicy, Settings
from ..models import (
    AssistantMessage,
    ErrorInfo,
    Model,
    ModelRequest,
    Models,
    Partial,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    to_json,
    tool_calls,
)
from ..session.tx import BaseTx
from ..task.definition import Phase, Task
from ..task.ref import TaskRef
from ..task.run import Run
from ..task.tx import RunTx
from . import rounds
from .asking import ask, failure_text, may_retry, retry_delay, seconds
from .hooks import AgentHooks
from .partials import commit_partial, keep_partial, pop_partial, take_partial
from .prompt import plan, render, shown_sections
from .pump import Pump
from .registry import PromptInput, Registry, Resolved
from .responses import storable
from .usage import count_message

ANSWERS = ("stop", "length", "toolUse")
"""Stop reasons of a response that did what it was asked for."""


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

    Tools = rounds.Tools

    # --- phases

    async def prepare(self, run: Run[None], state: Prepare) -> None:
        """Append what has changed of prompt and tools; fix the request."""
        agent = await _agent(run)
        model = run.service(Models).get(agent.model) if agent.model is not None else None
        if agent.model is None or model is None:
            await _fail(run, "no_model", f"Model {agent.model or '(none chosen)'} is not available")
            return
        view = await _conversation(run).context()
        shown = shown_sections(view.messages)
        given = PromptInput(
            session=run.session, conversation_id=run.conversation_id, agent=agent, snapshot=run.snapshot
        )
        sections = await render(agent.sections, given, shown)
        planned = plan(view.messages, sections, [tool.spec for tool in agent.tools], run.now())
        async with run.commit() as tx:
            cutoff = max(entry.id for entry in view.entries)
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
        agent = await _agent(run)
        hooks = AgentHooks(run, agent)
        message = unique_calls(await _stream(run, state, model, view, hooks))
        message = storable(await hooks.after_response(message), message, model)
        settings = run.service(Settings)
        answering = message.stop_reason in ANSWERS
        more = await hooks.on_yield(message) if answering and not tool_calls(message) else None
        async with run.commit() as tx:
            entry = await _store(tx, run, message)
            if answering and tool_calls(message):
                await rounds.start_round(tx, run, agent, entry, message=message, shown=view.messages)
            elif answering:
                await _answer(tx, run, entry, more)
            elif may_retry(settings.retry, state.attempt, message.error):
                await _retry(tx, run, state.attempt, settings.retry, message.error)
            else:
                await _give_up(tx, run, "model_error", failure_text(message))
                tx.fail(failure_text(message), result=GenerationOutcome(entry_id=entry))

    async def tools(self, run: Run[None], state: rounds.Tools) -> None:
        """Go on after the tool round, or with the next call of a sequential one."""
        if state.pending:
            async with run.commit() as tx:
                await rounds.next_call(tx, run, state)
            return
        message = await rounds.round_message(run, state)
        asked = rounds.verdict(len(tool_calls(message)), await run.outcomes(state.tools))
        more = await _after_tools(run, message)
        async with run.commit() as tx:
            live = await tx.doc(LiveDoc, run.conversation_id)
            live.pop("tools", None)
            await rounds.add_tools(tx, run.conversation_id, asked.add_tools)
            if asked.terminate:
                await _answer(tx, run, state.assistant)
                return
            runs = _runs(live, run.id)
            if not runs or await after_tools(tx, run.conversation_id):
                await _say(tx, run, more)
                following = await tx.create_task(Generation)
                if runs:
                    live["run"]["taskId"] = following.id
            tx.complete(GenerationOutcome(entry_id=state.assistant))

    async def abort(self, run: Run[None], state: Phase) -> None:
        """Keep what was shown, answer the calls that never started, settle the inputs as aborted."""
        async with run.commit() as tx:
            await take_partial(tx, run.conversation_id)
            if isinstance(state, self.Tools):
                await rounds.abort_pending(tx, run, state)
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


async def _stream(
    run: Run[None], state: Generation.Request, model: Model, view: ContextView, hooks: AgentHooks
) -> AssistantMessage:
    settings = run.service(Settings)
    provider = await run.snapshot(ProviderDoc, run.conversation_id) or {}
    request = ModelRequest(
        messages=view.messages,
        thinking_level=state.thinking_level,
        session_id=provider.get("sessionId"),
        timeout_s=seconds(settings.request_timeout_ms),
        idle_timeout_s=seconds(settings.idle_timeout_ms),
    )
    request = await hooks.before_request(request)
    partial = Partial()

    async def flush() -> None:
        async with run.commit() as tx:
            await commit_partial(tx, run.conversation_id, partial)

    interval = settings.progress.partial_interval_ms
    pump = Pump(run.clock, interval, flush, delay_ms=interval)
    try:
        return await ask(model, request, partial, pump.touch)
    finally:
        await pump.stop()


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


# --- what follows from a response


async def _store(tx: RunTx, run: Run[None], message: AssistantMessage) -> int:
    entry = await tx.append(AssistantEntry, model=[to_json(message)])
    await count_message(tx, run.conversation_id, message)
    live = await tx.doc(LiveDoc, run.conversation_id)
    live.pop("generation", None)
    return entry.id


async def _answer(tx: RunTx, run: Run[None], entry: int, more: Json = None) -> None:
    """End the run with an answer; or go on with it, if a hook has ``more`` to say and no queued input comes first."""
    live = await tx.doc(LiveDoc, run.conversation_id)
    if _runs(live, run.id):
        answering = live.pop("run")
        placed = await final_boundary(tx, run.conversation_id)
        if more is None or placed.inputs or placed.reset:
            await settle_inputs(tx, answering["inputs"], answered(entry))
        else:
            await _say(tx, run, more)
            live["run"] = {**answering, "taskId": (await tx.create_task(Generation)).id}
    tx.complete(GenerationOutcome(entry_id=entry))


async def _say(tx: RunTx, run: Run[None], content: Json) -> None:
    """Have a hook speak to the model, in the place of a user."""
    if content is not None:
        message = to_json(UserMessage(content="", timestamp=run.now())) | {"content": content}
        await tx.append(UserEntry, model=[message])


async def _after_tools(run: Run[None], message: AssistantMessage) -> Json:
    """Ask the hooks, who get the round's results as the model will."""
    hooks = AgentHooks(run, await _agent(run))
    return await hooks.after_tools(message, await _round_results(run, message)) if hooks.asked("after_tools") else None


async def _round_results(run: Run[None], message: AssistantMessage) -> list[ToolResultMessage]:
    view = await _conversation(run).context()
    ids = {call.id for call in tool_calls(message)}
    results = [one for one in view.messages if isinstance(one, ToolResultMessage) and one.tool_call_id in ids]
    return results[-len(ids) :]


def _runs(live: Draft, task: int) -> bool:
    """Whether the conversation's run is this task's to go on with and to settle."""
    return bool(live.get("run", {}).get("taskId") == task)


async def _retry(tx: RunTx, run: Run[None], attempt: int, policy: RetryPolicy, error: ErrorInfo | None) -> None:
    at = run.now() + retry_delay(policy, attempt, error)
    live = await tx.doc(LiveDoc, run.conversation_id)
    live["generation"] = {"attempt": attempt, "retry": {"at": at, "error": error.message if error else ""}}
    await tx.wait(until=at, then=Generation.Prepare(attempt=attempt + 1))


async def _fail(run: Run[None], reason: str, message: str) -> None:
    async with run.commit() as tx:
        await _give_up(tx, run, reason)
        tx.fail(message, detail={"reason": reason})


async def _give_up(tx: RunTx, run: Run[None], reason: str, detail: Json = None) -> None:
    live = await tx.doc(LiveDoc, run.conversation_id)
    if _runs(live, run.id):
        await end_run(tx, run.conversation_id, reason, detail)


class GenerationRunner:
    """Starts runs with a generation (see ``conversation.inbox.Runner``)."""

    async def start(self, tx: Any, conversation_id: int) -> int:
        """Create the generation that answers."""
        task: TaskRef[GenerationOutcome] = await tx.create_task(Generation, conversation_id=conversation_id)
        return task.id
