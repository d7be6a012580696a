"""``pi.compaction``: a summary that takes the place of the older part of a transcript, as a durable task.

select (where to cut; hooks) -> summarize (piece by piece; retries are parked) -> a head entry, appended or submitted.
Nothing changes until one commit puts the whole summary in place, and storage keeps every entry. One that a generation
owns is waited for and appended; any other is a write of its conversation, which takes its place at a boundary. Proved by
tests/actors/agent/test_compaction.py.
"""

from typing import Any, Literal

import msgspec

from ...chord import Draft
from ...storage.records import JsonObject, TaskRecord
from ..conversation.budget import pause
from ..conversation.builtin import LiveDoc, ProviderDoc
from ..conversation.choice import model_name, model_ref
from ..conversation.compaction import CompactionEntry
from ..conversation.context import ContextView
from ..conversation.cutting import Range, range_before, select_range
from ..conversation.errors import InboxFull
from ..conversation.handles import Conversation
from ..conversation.inbox import submit_write
from ..conversation.settings import Settings
from ..conversation.writes import first_active, write_draft
from ..models import AssistantMessage, Model, ModelRequest, Models, Partial, ThinkingLevel
from ..session.tx import BaseTx
from ..task.definition import Phase, Task
from ..task.ref import TaskRef
from ..task.run import Run
from ..task.tx import RunTx, Tx
from .asking import agent_of, ask, may_retry, retry_delay, seconds
from .failover import model_for
from .hooks import AgentHooks
from .registry import Resolved
from .responses import failure_text
from .summaries import (
    CompactionPlan,
    Decline,
    Summary,
    blocks,
    newest_instruction,
    piece,
    request_messages,
    summary_model,
    summary_of,
    why_none,
)
from .thresholds import MIN_PIECE, Limits, keep_after_overflow, limits
from .usage import count_summary

CompactionReason = Literal["manual", "threshold", "overflow"]
BUILT_IN = ("pi.generation", "pi.tool", "pi.compaction")
"""Work of the conversation's own run: its transcript tells of it."""


class CompactionInput(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why, and what the summary should pay attention to."""

    reason: CompactionReason
    instructions: str | None = None


class CompactionOutcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The summary's entry, or the submission by which it becomes one; neither when nothing was compacted."""

    entry_id: int | None = None
    submission_id: int | None = None
    declined: bool = False


class Compaction(Task[CompactionInput, CompactionOutcome], name="pi.compaction", version=1):
    """Summarize the older part of a conversation's context."""

    class Select(Phase):
        """Find out what to summarize."""

    class Summarize(Phase):
        """The request is fixed: the same one is sent again after a crash. ``done`` blocks are covered by ``notes``."""

        attempt: int
        model: dict[str, str]
        thinking_level: ThinkingLevel
        max_tokens: int
        tail: int
        first_kept: int
        piece: int
        keep: int
        done: int = 0
        notes: str = ""

    # --- phases

    async def select(self, run: Run[CompactionInput], state: Select) -> None:
        """Cut, ask the hooks, and fix the request."""
        if await _waits_for_others(run):
            return
        agent = await agent_of(run)
        model = await model_for(run, agent)
        if model is None:
            await _fail(run, f"Model {agent.model or '(none chosen)'} is not available", "no_model")
            return
        view = await _conversation(run).context()
        sizes = limits(run.service(Settings).compaction, model.context_window, model.max_tokens)
        cut = select_cut(view, sizes, run.input.reason)
        if cut is None or not blocks(cut.messages):
            await _finish(run, CompactionOutcome())
            return
        request = _request(agent, model, view, cut, sizes)
        answer = await AgentHooks(run, agent).before_compact(_plan(run, cut))
        async with run.commit() as tx:
            if isinstance(answer, Decline):
                await _give_up(tx, run, request.tail)
                tx.complete(CompactionOutcome(declined=True))
            elif isinstance(answer, Summary):
                await _place(tx, run, request, view, answer.text)
            else:
                await _go_on(tx, run, request)

    async def summarize(self, run: Run[CompactionInput], state: Summarize) -> None:
        """Ask for the summary of the next piece, and decide what follows from the answer."""
        model = run.service(Models).get(model_name(state.model))
        if model is None:
            await _fail(run, f"Model {model_name(state.model)} is not available", "no_model")
            return
        view = await _conversation(run).context(at=state.tail)
        record = blocks(range_before(view, state.first_kept).messages)
        said, following = piece(record, state.done, max(MIN_PIECE, state.piece - len(state.notes) // 3))
        message = await _ask(run, state, model, said)
        summary = summary_of(message)
        async with run.commit() as tx:
            await count_summary(tx, run.conversation_id, message)
            if summary is not None and following < len(record):
                await _show(tx, run, attempt=1)
                await _go_on(tx, run, msgspec.structs.replace(state, attempt=1, done=following, notes=summary))
            elif summary is not None:
                await _place(tx, run, state, view, summary)
            else:
                await _without_summary(tx, run, state, message)

    async def abort(self, run: Run[CompactionInput], state: Phase) -> None:
        """Leave everything as it is."""
        async with run.commit() as tx:
            await _hide(tx, run.conversation_id, run.id)
            tx.abort()

    @staticmethod
    def describe_span(record: TaskRecord) -> tuple[str, dict[str, Any]]:
        """Call it what it is for whoever reads the trace."""
        return "compact", {"perdure.compaction.reason": msgspec.convert(record.input, CompactionInput).reason}

    @staticmethod
    async def undecided(tx: BaseTx, record: TaskRecord) -> None:
        """Show no longer what has faulted or was orphaned."""
        await _hide(tx, record.conversation_id, record.id)


# --- starting one


async def create_compaction(
    tx: Tx, conversation_id: int, given: CompactionInput, *, owner: int | None = None
) -> TaskRef[CompactionOutcome]:
    """Create a compaction and show it. One with an owner is waited for; unasked for, without one, it is background work."""
    background = owner is None and given.reason != "manual"
    task = await tx.create_task(Compaction, given, owner=owner, conversation_id=conversation_id, background=background)
    live = await tx.doc(LiveDoc, conversation_id)
    status: JsonObject = {"taskId": task.id, "reason": given.reason, "blocking": owner is not None, "attempt": 1}
    if "compactions" in live:
        live["compactions"].append(status)
    else:
        live["compactions"] = [status]
    return task


class AgentCompactor:
    """Starts the compactions that somebody asks for (see ``conversation.compaction.Compactor``)."""

    async def start(self, tx: Any, conversation_id: int, instructions: str | None) -> TaskRef[Any]:
        """Create the task that compacts."""
        return await create_compaction(tx, conversation_id, CompactionInput("manual", instructions))


def select_cut(view: ContextView, sizes: Limits, reason: CompactionReason) -> Range | None:
    """Choose what a compaction of this reason summarizes."""
    return select_range(view, keep_after_overflow(view, sizes) if reason == "overflow" else sizes.keep)


async def _waits_for_others(run: Run[CompactionInput]) -> bool:
    """Let a compaction that somebody asked for wait for those under way, lest both summarize the same."""
    async with run.commit() as tx:
        live = await tx.doc(LiveDoc, run.conversation_id)
        shown = [status["taskId"] for status in live.get("compactions", ())]
        others = [task for task in shown if task < run.id and tx.core.forest.is_live(task)]
        waits = run.input.reason == "manual" and bool(others)
        if waits:
            await tx.wait(others, then=Compaction.Select())
        return waits


def _request(agent: Resolved, model: Model, view: ContextView, cut: Range, sizes: Limits) -> Compaction.Summarize:
    return Compaction.Summarize(
        attempt=1,
        model=model_ref(model.name),
        thinking_level=agent.thinking_level,
        max_tokens=sizes.summary,
        tail=max(entry.id for entry in view.entries),
        first_kept=cut.first_kept,
        piece=sizes.piece,
        keep=sizes.keep,
    )


def _plan(run: Run[CompactionInput], cut: Range) -> CompactionPlan:
    return CompactionPlan(
        reason=run.input.reason,
        entries=list(cut.entries),
        messages=cut.messages,
        first_kept=cut.first_kept,
        instructions=run.input.instructions,
    )


def _conversation(run: Run[CompactionInput]) -> Conversation:
    return Conversation(run.services, run.session, run.conversation_id)


# --- asking


async def _go_on(tx: RunTx, run: Run[CompactionInput], request: Compaction.Summarize) -> None:
    """Ask next, unless a budget forbids to ask a model."""
    reached = await pause(tx, run.conversation_id)
    if reached is None:
        tx.goto(request)
    else:
        await _give_up(tx, run, request.tail)
        tx.fail("budget", detail={"reason": "budget", **reached})


async def _ask(run: Run[CompactionInput], state: Compaction.Summarize, model: Model, said: str) -> AssistantMessage:
    settings = run.service(Settings)
    provider = await run.snapshot(ProviderDoc, run.conversation_id) or {}
    request = ModelRequest(
        messages=request_messages(said, state.notes, run.input.instructions),
        thinking_level=state.thinking_level,
        session_id=provider.get("sessionId"),
        max_tokens=state.max_tokens,
        timeout_s=seconds(settings.request_timeout_ms),
        idle_timeout_s=seconds(settings.idle_timeout_ms),
    )
    return await ask(model, request, Partial(), of=run)


async def _without_summary(
    tx: RunTx, run: Run[CompactionInput], state: Compaction.Summarize, message: AssistantMessage
) -> None:
    """Try again, later or with a smaller piece, or fail."""
    policy, error = run.service(Settings).retry, message.error
    if error is not None and error.kind == "overflow" and state.piece > MIN_PIECE:
        tx.goto(msgspec.structs.replace(state, piece=max(MIN_PIECE, state.piece // 2)))
    elif may_retry(policy, state.attempt, error):
        at = run.now() + retry_delay(policy, state.attempt, error, run.id)
        await _show(tx, run, attempt=state.attempt + 1, retry={"at": at, "error": failure_text(message)})
        await tx.wait(until=at, then=msgspec.structs.replace(state, attempt=state.attempt + 1))
    else:
        await _give_up(tx, run, state.tail)
        tx.fail(why_none(message), detail={"reason": "model_error"})


# --- ending


async def _place(
    tx: RunTx, run: Run[CompactionInput], state: Compaction.Summarize, view: ContextView, summary: str
) -> None:
    """Put the summary in place: append it for the generation that waits, else submit it as a write."""
    conversation_id = run.conversation_id
    await _hide(tx, conversation_id, run.id)
    cut = range_before(view, state.first_kept)
    carried = newest_instruction(cut, view.entries[len(cut.entries) :], state.keep)
    running = _running(tx, conversation_id)
    given: JsonObject = {
        "data": {"reason": run.input.reason}
        | ({} if carried is None else {"instruction": carried[0]})
        | ({"running": running} if running else {}),
        "model": summary_model(summary, None if carried is None else carried[1], running, run.now()),
        "head": state.first_kept,
    }
    record = await tx.task(run.id)
    if record is None or record.owner is None:
        await _submit(tx, run, given)
    elif state.first_kept < await first_active(tx, conversation_id):
        tx.complete(CompactionOutcome())
    else:
        entry = await tx.append(CompactionEntry, **given)
        tx.complete(CompactionOutcome(entry_id=entry.id))


async def _submit(tx: RunTx, run: Run[CompactionInput], given: JsonObject) -> None:
    limit = 4 * run.service(Settings).max_submission_bytes  # an instruction may be as long as a submission
    draft = write_draft(tx, CompactionEntry, limit=limit, **given)
    try:
        write = await submit_write(tx, run.conversation_id, draft, request_id=f"compaction:{run.id}")
    except InboxFull as error:
        tx.fail(str(error), detail={"reason": "inbox_full"})
    else:
        tx.complete(CompactionOutcome(submission_id=write.id))


def _running(tx: BaseTx, conversation_id: int) -> list[JsonObject]:
    """List what is under way beside the conversation's own run: its tasks, and conversations below it that are busy."""
    forest = tx.core.forest
    listed: list[JsonObject] = []
    for node in forest.ownership.walk(conversation_id, lambda _: True):
        record = forest.get(node)
        if not forest.ownership.is_task(node):
            listed.append({"conversationId": node})
        elif record is not None and record.conversation_id == conversation_id and record.kind not in BUILT_IN:
            listed.append({"taskId": node, "kind": record.kind, "background": record.background})
    return listed


async def _give_up(tx: BaseTx, run: Run[CompactionInput], tail: int) -> None:
    """End without a summary, and have the conversation's run not ask for another one before its context has grown."""
    await _hide(tx, run.conversation_id, run.id)
    live = await tx.doc(LiveDoc, run.conversation_id)
    if "run" in live:
        live["run"]["uncompacted"] = tail


async def _finish(run: Run[CompactionInput], outcome: CompactionOutcome) -> None:
    async with run.commit() as tx:
        await _hide(tx, run.conversation_id, run.id)
        tx.complete(outcome)


async def _fail(run: Run[CompactionInput], message: str, reason: str) -> None:
    async with run.commit() as tx:
        await _hide(tx, run.conversation_id, run.id)
        tx.fail(message, detail={"reason": reason})


async def _show(tx: RunTx, run: Run[CompactionInput], *, attempt: int, retry: JsonObject | None = None) -> None:
    live = await tx.doc(LiveDoc, run.conversation_id)
    status = _status(live, run.id)
    if status is not None:
        status["attempt"] = attempt
        status.pop("retry", None)
        if retry is not None:
            status["retry"] = retry


def _status(live: Draft, task: int) -> Draft | None:
    return next((status for status in live.get("compactions", ()) if status["taskId"] == task), None)


async def _hide(tx: BaseTx, conversation_id: int, task: int) -> None:
    live = await tx.doc(LiveDoc, conversation_id)
    shown = live.get("compactions", ())
    for index in range(len(shown) - 1, -1, -1):
        if shown[index]["taskId"] == task:
            del shown[index]
    if "compactions" in live and not live["compactions"]:
        live.pop("compactions")
