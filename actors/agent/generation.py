"""``pi.generation``: one model response and its tool round, as a durable task.

prepare (prompt, context, room) -> request (stream, classify) -> answer | tools -> next generation | retry (parked) | failure.
A context that leaves no room is compacted first, or beside the request while there is some left.
The run's inputs live in ``pi.live.run``; whichever task it names settles them. Proved by
tests/actors/agent/test_generation.py.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

import msgspec
import structlog

from ...chord import Draft
from ...storage.records import Json, JsonObject, TaskRecord
from ..conversation.budget import pause
from ..conversation.builtin import (
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
from ..conversation.tracing import end_span, in_run
from ..conversation.writes import RESET, reset_model
from ..models import (
    AssistantMessage,
    DeferredHandle,
    ErrorInfo,
    Model,
    ModelRequest,
    Models,
    Partial,
    ThinkingLevel,
    UserMessage,
    current_sections,
    to_json,
    tool_calls,
)
from ..session.tx import BaseTx
from ..task.definition import Phase, Task, encode
from ..task.ref import TaskRef
from ..task.run import Run
from ..task.tx import RunTx
from . import deferred, room, rounds
from .asking import agent_of, ask, may_retry, retry_delay, seconds, why_given_up
from .compaction import CompactionInput, CompactionReason, create_compaction
from .failover import fails_over, model_for
from .fitting import fit_results
from .hooks import AgentHooks
from .partials import commit_partial, keep_partial, pop_partial, take_partial
from .prompt import Change, changes, render, wants_baseline
from .pump import Pump
from .registry import PromptInput, Resolved
from .repetition import repeated_rounds
from .responses import failure_text, storable, unique_calls
from .usage import count_message

log = structlog.get_logger("perdure.agent")

ANSWERS = ("stop", "length", "toolUse")
"""Stop reasons of a response that did what it was asked for."""


class GenerationOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The assistant entry that a generation ended with."""

    entry_id: int


class Generation(Task[None, GenerationOutcome], name="pi.generation", version=1):
    """Ask the model, and see its tool calls through."""

    class Prepare(Phase):
        """Bring prompt and tools up to date, and fix the request. ``compacted`` is the compaction that this run has awaited.

        ``overflow`` is what the provider said of the request that was too long for it.
        """

        attempt: int = 1
        compacted: int | None = None
        overflow: str | None = None

    class Request(Phase):
        """The request is fixed: the same one is sent again after a crash."""

        attempt: int
        model: dict[str, str]
        thinking_level: ThinkingLevel
        cutoff: int
        compacted: int | None = None

    class Poll(Phase):
        """Parked until ``at``, then its provider is asked whether the response is there. ``asked`` is the request."""

        asked: JsonObject
        handle: DeferredHandle
        at: int

    Tools = rounds.Tools

    # --- phases

    async def prepare(self, run: Run[None], state: Prepare) -> None:
        """Append what has changed of prompt and tools; fix the request, once it is sure to find room."""
        if state.overflow is not None and not await room.made_room(run, state.compacted):
            text = room.too_long(state.overflow, await _conversation(run).context())
            await _fail(run, "model_error", text, text)
            return
        agent = await agent_of(run)
        model = await model_for(run, agent)
        if model is None:
            await _fail(run, "no_model", f"Model {agent.model or '(none chosen)'} is not available")
            return
        view = await _conversation(run).context()
        limit = run.service(Settings).max_repeated_rounds
        if limit is not None and repeated_rounds(view.messages, limit) >= limit:
            log.warning("run_repeats", session=run.session, conversation=run.conversation_id, rounds=limit)
            await _fail(run, "repetition", f"The model has repeated the same {limit} rounds of calls and results")
            return
        planned = await _prompt_changes(run, agent, view)
        need = None if state.compacted is not None else await room.need(run, model, view, planned)
        async with run.commit() as tx:
            if await _pause(tx, run):
                return
            if need == "blocking":
                await _compact_first(tx, run, "threshold", state.attempt)
                return
            cutoff = await _append_changes(tx, planned) or cast(
                "int", view.newest
            )  # what is answered stands in an entry
            live = await tx.doc(LiveDoc, run.conversation_id)
            live["generation"] = {"attempt": state.attempt}
            if need == "background" and "compactions" not in live:
                await create_compaction(tx, run.conversation_id, CompactionInput("threshold"))
            tx.goto(
                self.Request(
                    attempt=state.attempt,
                    model=model_ref(model.name),
                    thinking_level=agent.thinking_level,
                    cutoff=cutoff,
                    compacted=state.compacted,
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
        agent = await agent_of(run)
        message = await _stream(run, state, model, view, agent)
        await _conclude(run, state, model, view, agent=agent, message=message)

    async def poll(self, run: Run[None], state: Poll) -> None:
        """Look for a response that its provider computes in the background."""
        asked = msgspec.convert(state.asked, self.Request)
        model = run.service(Models).get(model_name(asked.model))
        if model is None:
            await _fail(run, "no_model", f"Model {model_name(asked.model)} is not available")
            return
        message = await deferred.fetch(run, model, state.handle)
        view = await _conversation(run).context(at=asked.cutoff)
        agent = await agent_of(run)
        await _conclude(run, asked, model, view, agent=agent, message=message, polled_at=state.at)

    async def tools(self, run: Run[None], state: rounds.Tools) -> None:
        """Go on after the tool round, or with the next call of a sequential one."""
        if state.pending:
            async with run.commit() as tx:
                await rounds.next_call(tx, run, state)
            return
        message = await rounds.round_message(run, state)
        asked = rounds.verdict(len(tool_calls(message)), await run.outcomes(state.tools))
        more = await rounds.after_round(run, message)
        async with run.commit() as tx:
            live = await tx.doc(LiveDoc, run.conversation_id)
            live.pop("tools", None)
            await rounds.add_tools(tx, run.conversation_id, asked.add_tools)
            if asked.handoff is not None:
                await tx.append(RESET, model=reset_model(asked.handoff, run.now()), head="self")
            if asked.terminate:
                await _answer(tx, run, state.assistant)
                return
            runs = _runs(live, run.id)
            if not runs or await after_tools(tx, run.conversation_id):
                await _say(tx, run, more)
                with in_run(tx, live["run"].to_json()) if runs else nullcontext():
                    following = await tx.create_task(Generation)
                if runs:
                    live["run"]["taskId"] = following.id
            tx.complete(GenerationOutcome(entry_id=state.assistant))

    async def abort(self, run: Run[None], state: Phase) -> None:
        """Keep what was shown, answer the calls that never started, settle the inputs as aborted."""
        if isinstance(state, self.Poll):
            await deferred.cancel(run, run.service(Models).get(model_name(state.asked["model"])), state.handle)
        async with run.commit() as tx:
            await take_partial(tx, run.conversation_id)
            if isinstance(state, self.Tools):
                await rounds.abort_pending(tx, run, state)
            await _give_up(tx, run, "aborted")
            tx.abort()

    @staticmethod
    def describe_span(record: TaskRecord) -> tuple[str, dict[str, Any]]:
        """Call it what it is for whoever reads the trace."""
        return "turn", {}

    @staticmethod
    async def undecided(tx: BaseTx, record: TaskRecord) -> None:
        """Settle the run of a generation that faulted or was orphaned. That nothing may prevent, so it comes first."""
        live = await tx.doc(LiveDoc, record.conversation_id)
        if _runs(live, record.id):
            shown = pop_partial(live)
            await end_run(tx, record.conversation_id, *why_unanswered(record))
            await keep_partial(tx, record.conversation_id, shown)


# --- preparing and asking


def _conversation(run: Run[None]) -> Conversation:
    return Conversation(run.services, run.session, run.conversation_id)


async def _shown_sections(run: Run[None], view: ContextView) -> dict[str, str]:
    """Give the sections in effect: right after a head, those from before it, which a section that fails now falls back on."""
    if view.head is None or not wants_baseline(view):
        return current_sections(view.messages)
    conversation = _conversation(run)
    newest = (await conversation.entries(limit=100)).items
    before = next((entry.id for entry in newest if entry.id < view.head.id), None)
    return {} if before is None else current_sections((await conversation.context(at=before)).messages)


async def _prompt_changes(run: Run[None], agent: Resolved, view: ContextView) -> list[Change]:
    given = PromptInput(session=run.session, conversation_id=run.conversation_id, agent=agent, snapshot=run.snapshot)
    sections = await render(agent.sections, given, await _shown_sections(run, view))
    return changes(view, sections, [tool.spec for tool in agent.tools], run.now())


async def _append_changes(tx: RunTx, planned: Sequence[Change]) -> int | None:
    newest = None
    for change in planned:
        said = None if change.message is None else [to_json(change.message)]
        newest = (await tx.append(SystemEntry, model=said, edits=change.edits or None)).id
    return newest


async def _stream(
    run: Run[None], state: Generation.Request, model: Model, view: ContextView, agent: Resolved
) -> AssistantMessage:
    settings = run.service(Settings)
    provider = await run.snapshot(ProviderDoc, run.conversation_id) or {}
    request = ModelRequest(
        messages=fit_results(view.messages, model.context_window),
        thinking_level=state.thinking_level,
        session_id=provider.get("sessionId"),
        timeout_s=seconds(settings.request_timeout_ms),
        idle_timeout_s=seconds(settings.idle_timeout_ms),
        deferred=agent.deferred,
    )
    request = await AgentHooks(run, agent).before_request(request)
    partial = Partial()

    async def flush() -> None:
        async with run.commit() as tx:
            await commit_partial(tx, run.conversation_id, partial)

    interval = settings.progress.partial_interval_ms
    pump = Pump(run.clock, interval, flush, delay_ms=interval)
    try:
        return await ask(model, request, partial, pump.touch, of=run)
    finally:
        await pump.stop()


# --- what follows from a response


async def _conclude(
    run: Run[None],
    state: Generation.Request,
    model: Model,
    view: ContextView,
    *,
    agent: Resolved,
    message: AssistantMessage,
    polled_at: int = 0,
) -> None:
    """Store a response and decide what follows from it."""
    if message.stop_reason == "deferred" and message.deferred is not None:
        await _defer(run, state, message.deferred, polled_at)
        return
    hooks = AgentHooks(run, agent)
    message = storable(await hooks.after_response(unique_calls(message)), message, model)
    settings = run.service(Settings)
    answering = message.stop_reason in ANSWERS
    more = await hooks.on_yield(message) if answering and not tool_calls(message) else None
    async with run.commit() as tx:
        entry = await _store(tx, run, message)
        live = await tx.doc(LiveDoc, run.conversation_id)
        if answering and tool_calls(message):
            await rounds.start_round(tx, run, agent, entry, message=message, shown=view.messages)
        elif answering:
            await _answer(tx, run, entry, more)
        elif may_retry(settings.retry, state.attempt, message.error):
            await _retry(tx, run, state, settings.retry, message.error)
        elif room.overflows(message) and room.may_compact(run, state.compacted, model, view):
            await _compact_first(tx, run, "overflow", state.attempt, failure_text(message))
        elif fails_over(run, live, agent, model.name, message.error):
            tx.goto(Generation.Prepare(compacted=state.compacted))
        else:
            why = why_given_up(settings.retry, message)
            text = room.too_long(why, view) if room.overflows(message) else why
            await _give_up(tx, run, "model_error", text)
            tx.fail(text, result=GenerationOutcome(entry_id=entry))


async def _defer(run: Run[None], state: Generation.Request, handle: DeferredHandle, polled_at: int) -> None:
    at = deferred.poll_at(handle, run.now(), polled_at)
    async with run.commit() as tx:
        await deferred.show_poll(tx, run.conversation_id, state.attempt, at)
        await tx.wait(until=at, then=Generation.Poll(asked=encode(state), handle=handle, at=at))


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
            end_span(tx, run.conversation_id, answering)
            await settle_inputs(tx, answering["inputs"], answered(entry))
        else:
            await _say(tx, run, more)
            with in_run(tx, answering):
                following = await tx.create_task(Generation)
            live["run"] = {**answering, "taskId": following.id}
    tx.complete(GenerationOutcome(entry_id=entry))


async def _say(tx: RunTx, run: Run[None], content: Json) -> None:
    """Have a hook speak to the model, in the place of a user."""
    if content is not None:
        message = to_json(UserMessage(content="", timestamp=run.now())) | {"content": content}
        await tx.append(UserEntry, model=[message])


def _runs(live: Draft, task: int) -> bool:
    """Whether the conversation's run is this task's to go on with and to settle."""
    return bool(live.get("run", {}).get("taskId") == task)


async def _retry(
    tx: RunTx, run: Run[None], state: Generation.Request, policy: RetryPolicy, error: ErrorInfo | None
) -> None:
    attempt = state.attempt
    at = run.now() + retry_delay(policy, attempt, error, run.id)
    live = await tx.doc(LiveDoc, run.conversation_id)
    live["generation"] = {"attempt": attempt, "retry": {"at": at, "error": error.message if error else ""}}
    await tx.wait(until=at, then=Generation.Prepare(attempt=attempt + 1, compacted=state.compacted))


async def _fail(run: Run[None], reason: str, message: str, detail: Json = None) -> None:
    async with run.commit() as tx:
        await _give_up(tx, run, reason, detail)
        tx.fail(message, detail={"reason": reason})


async def _pause(tx: RunTx, run: Run[None]) -> bool:
    """End the run where a budget forbids to ask the model; its inputs get no answer, what is queued stays."""
    reached = await pause(tx, run.conversation_id)
    if reached is not None:
        await _give_up(tx, run, "budget", reached)
        tx.abort("budget")
    return reached is not None


async def _give_up(tx: RunTx, run: Run[None], reason: str, detail: Json = None) -> None:
    live = await tx.doc(LiveDoc, run.conversation_id)
    if _runs(live, run.id):
        await end_run(tx, run.conversation_id, reason, detail)


async def _compact_first(
    tx: RunTx, run: Run[None], reason: CompactionReason, attempt: int, overflow: str | None = None
) -> None:
    """Wait for a compaction; then prepare again, whatever became of it."""
    task = await create_compaction(tx, run.conversation_id, CompactionInput(reason), owner=run.id)
    await tx.wait([task], then=Generation.Prepare(attempt=attempt, compacted=task.id, overflow=overflow))


class GenerationRunner:
    """Starts runs with a generation (see ``conversation.inbox.Runner``)."""

    async def start(self, tx: Any, conversation_id: int) -> int:
        """Create the generation that answers."""
        task: TaskRef[GenerationOutcome] = await tx.create_task(Generation, conversation_id=conversation_id)
        return task.id
