"""Handles: what an application holds of conversations (and, next door, of sessions and submissions).

They are ids and a way to find the actor behind them, so they survive restarts of any actor and cost nothing to keep.
Compare by id. Proved by tests/actors/conversation/test_handles.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, cast

from ...chord import Watch
from ...storage.contract import Cursor, EntryQuery, Page
from ...storage.records import (
    ContextEdit,
    ConversationRecord,
    EntryRecord,
    JsonObject,
    TaskRecord,
)
from ..session.arguments import text, whole
from ..session.commit import Commit, SessionCommit
from ..session.core import SessionCore
from ..session.documents import Doc
from ..session.environment import Services
from ..session.errors import UnknownRecord
from ..session.forks import visible_entry
from ..session.publication import Publication
from ..session.read import between_commits, snapshot, snapshot_as_of
from ..session.tx import Entry
from ..session.waits import refuse_wait_for, refuse_wait_for_idle
from ..session.watch import watch_document
from ..task.tx import Tx
from .budget import Budget, BudgetDoc, BudgetState, set_budget
from .builtin import LiveDoc
from .calls import Calls
from .choice import Agent, configure
from .compaction import Compacted, Compactor, compacted
from .context import ContextView
from .export import ExportFormat, exported
from .inbox import (
    UserInput,
    WhenBusy,
    Withdrawal,
    content_json,
    heal_run,
    resume,
    submit_input,
    submit_write,
    withdraw,
    withdraw_inputs,
)
from .ledger import UsageReport, only, report
from .ledger import subtree as below
from .receipts import once
from .settings import Settings
from .submissions import Handle, Submission
from .transcripts import Transcripts
from .view import EventStream, watch_conversation, watch_conversation_events
from .writes import RESET, reset_model, write_draft


class Conversation(Handle):
    """A transcript and the work that belongs to it."""

    def __init__(self, services: Services, session: str, id: int) -> None:
        super().__init__(services, session)
        self.id = whole("a conversation's id", id)

    def __repr__(self) -> str:
        return f"Conversation({self._session!r}, {self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conversation) and (self._session, self.id) == (other._session, other.id)

    def __hash__(self) -> int:
        return hash((self._session, self.id))

    async def submit(
        self,
        content: UserInput,
        *,
        when_busy: WhenBusy = "follow_up",
        request_id: str | None = None,
        author: str | None = None,
    ) -> Submission:
        """Admit an input durably; it is answered by a run at once, or when its turn comes.

        While a run is active, "steer" joins it after the current tool round, "follow_up" starts the next run, "reject"
        raises ConversationBusy. A ``request_id`` makes sending it again harmless: the first submission is returned.
        ``author`` names who says it where several people do: it is stored with the entry, and the model is not told.
        Raises SubmissionTooLarge, InboxFull, InvalidValue, UnknownRecord, SessionFailed; OwnershipRefused for a subagent's
        conversation when the call that owns it has ended.
        """
        async with self.commit() as tx:
            record = await submit_input(tx, self.id, content, when_busy=when_busy, request_id=request_id, author=author)
        return Submission(self._services, self._session, record.id)

    async def write(
        self,
        kind: str | Entry[Any],
        data: Any = None,
        *,
        model: Sequence[JsonObject] | None = None,
        head: int | Literal["self"] | None = None,
        edits: Iterable[ContextEdit] | None = None,
        request_id: str | None = None,
    ) -> Submission:
        """Submit an entry that is appended without asking the model: at once, or at the next boundary of what runs.

        The arguments are those of ``tx.append``; "self" as ``head`` takes everything before out of context, and a head
        that is behind a newer one when its turn comes settles unanswered, ``stale``. Raises as ``submit`` does.
        """
        async with self.commit() as tx:
            limit = self._services.get(Settings).max_submission_bytes
            draft = write_draft(tx, kind, data, model=model, head=head, edits=edits, limit=limit)
            record = await submit_write(tx, self.id, draft, request_id=request_id)
        return Submission(self._services, self._session, record.id)

    async def reset(self, handoff: str | None = None, *, request_id: str | None = None) -> Submission:
        """Take everything so far out of context, which begins anew with the text ``handoff`` from a user, if given.

        A write: what runs is not interrupted. After a tool round a reset ends the run, whose inputs get no answer (``reset``).
        """
        async with self.commit() as tx:
            limit = self._services.get(Settings).max_submission_bytes
            said = None if handoff is None else str(content_json(handoff, limit))
            draft = write_draft(tx, RESET, model=reset_model(said, tx.core.clock.now()), head="self", limit=limit)
            record = await submit_write(tx, self.id, draft, request_id=request_id)
        return Submission(self._services, self._session, record.id)

    async def handoff(self, said: str, *, request_id: str | None = None) -> Submission:
        """Take everything so far out of context and begin anew with ``said`` by a user: ``reset`` with something to say."""
        return await self.reset(said, request_id=request_id)

    async def compact(self, instructions: str | None = None, *, request_id: str | None = None) -> Compacted:
        """Have the older part of the context replaced by a summary, and say what became of that.

        ``instructions`` say what the summary should pay attention to. What runs is not interrupted, and storage keeps
        every entry. Cancelling this only ends the waiting; calling again with the same ``request_id`` waits for the same
        compaction. Raises UnknownRecord, InvalidValue, RequestIdReused, SessionFailed.
        """
        said = None if instructions is None else text("instructions", instructions)
        core = await self._core()
        await self._exists(core)

        async def start() -> int:
            compactor = self._services.get(Compactor)  # type: ignore[type-abstract]
            return (await compactor.start(tx, self.id, said)).id

        async with Commit(core, lambda: Tx(core, self.id)) as tx:
            task, _ = await once(tx, self.id, request_id, "compact", start)
        record = cast("TaskRecord", await core.settled(TaskRecord, task))
        write = await core.storage.submission_by_request(self._session, self.id, f"compaction:{task}")
        entry = None if write is None or write.entry is None else await core.row(EntryRecord, write.entry)
        return compacted(record, write, entry)

    async def withdraw(self, submission: Submission | int, *, request_id: str | None = None) -> Withdrawal:
        """Take back a queued submission of this conversation (see ``Submission.withdraw``); another's is "not_found".

        A ``request_id``, here and in the other commands that take one, makes sending it again harmless: the first answer
        is given again, until 1,000 newer commands to the conversation had ids. Raises RequestIdReused when it named another.
        """
        named = submission.id if isinstance(submission, Submission) else whole("a submission's id", submission)
        return cast("Withdrawal", await self._once("withdraw", request_id, lambda tx: withdraw(tx, named, self.id)))

    async def _once(self, command: str, request_id: str | None, make: Callable[[Tx], Awaitable[Any]]) -> Any:
        """Run a command in a commit of its own, once for each request id; give what it gave the first time."""
        async with self.commit() as tx:
            if await tx.conversation(self.id) is None:
                raise UnknownRecord("conversation", self.id)
            result, _ = await once(tx, self.id, request_id, command, partial(make, tx))
        return result

    def commit(self) -> SessionCommit[Tx]:
        """Begin a commit bound to this conversation: ``async with conversation.commit() as tx``."""
        return self._commit(lambda core: Tx(core, self.id))

    async def configure(self, agent: Agent, *, request_id: str | None = None) -> None:
        """Change what this conversation runs on; it takes effect at the next request."""
        await self._once("configure", request_id, lambda tx: configure(tx, self.id, agent))

    async def approve(self, call_id: str, arguments_hash: str, *, request_id: str | None = None) -> None:
        """Let a tool call run that waits for approval, with exactly the arguments of this hash (``pi.live`` shows both).

        One approval, one execution: nothing but an approver, a denial, its time limit or an abort ends the wait.
        Raises UnknownCall, CallNotWaiting when it was decided already, ApprovalMismatch; then nothing has changed.
        """
        calls = self._calls()
        await self._once("approve", request_id, lambda tx: calls.approve(tx, self.id, call_id, arguments_hash))

    async def deny(
        self, call_id: str, arguments_hash: str, *, reason: str | None = None, request_id: str | None = None
    ) -> None:
        """Have a call that waits for approval answered with an error, which tells the model the reason. Raises as ``approve``."""
        calls = self._calls()
        await self._once("deny", request_id, lambda tx: calls.deny(tx, self.id, call_id, arguments_hash, reason))

    async def complete_call(self, call_id: str, result: Any, *, request_id: str | None = None) -> None:
        """Give the result of a call whose tool said that it is completed from outside: what a tool may return.

        A ``request_id`` makes sending it again harmless. Raises UnknownCall, CallNotWaiting, InvalidJson, InvalidValue.
        """
        async with self.commit() as tx:
            await self._calls().complete(tx, self.id, call_id, result, request_id)

    def _calls(self) -> Calls:
        return self._services.get(Calls)  # type: ignore[type-abstract]

    async def fork(
        self, at: int | None = None, *, agent: Agent | None = None, request_id: str | None = None
    ) -> "Conversation":
        """Create a conversation that shares this one's history up to entry ``at``, inclusive (default: the newest entry).

        It starts idle, with an agent as of that entry, changed by ``agent``, copies of the documents whose definition
        says so, and an identity of its own at providers. It costs the same however long the history is, and at any
        time: calls that are open at the entry count as interrupted in the fork, and work below this conversation stays
        here. Raises EntryNotVisible, InvalidValue, UnknownRecord, SessionFailed.
        """

        async def make(tx: Tx) -> int:
            record = await tx.fork(at=at)
            if agent is not None:
                await configure(tx, record.id, agent)
            return record.id

        return Conversation(self._services, self._session, await self._once("fork", request_id, make))

    async def abort(self, *, background: bool = False, request_id: str | None = None) -> None:
        """Withdraw queued inputs, abort foreground work, and return when the conversation is idle. Queued writes stay.

        ``background`` aborts everything that lives below now, across all boundaries, and returns when that has ended.
        What begins later is neither aborted nor waited for then. With a ``request_id`` that is known it returns at once.
        """
        core = await self._core()
        await self._exists(core)

        reached: list[int] = []

        async def mark() -> None:
            await heal_run(tx, self.id)
            await withdraw_inputs(tx, self.id)
            reached.extend(live_work(core, self.id, background=background))
            for task in reached:
                await tx.mark_task(task)

        async with Commit(core, lambda: Tx(core, self.id)) as tx:
            _, first = await once(tx, self.id, request_id, "abort", mark)
        if not first:
            return
        if background:
            refuse_wait_for(core.forest, reached)
            await until(core, lambda: not any(core.forest.is_live(task) for task in reached))
        else:
            await self.wait_for_idle()

    async def wait_for_idle(self, *, background: bool = False) -> None:
        """Return when no foreground work lives in or below this conversation, with ``background`` no work at all.

        Raises UnknownRecord, SessionFailed, and WaitCycle in the code of a task that is part of that work.
        """
        core = await self._core()
        await self._exists(core)
        refuse_wait_for_idle(core.forest, [self.id])
        await until(core, lambda: not any(live_work(core, self.id, background=background)))

    async def context(self, *, at: int | None = None) -> ContextView:
        """Derive what a model would be sent now, or as of any entry ``at`` that the conversation shows.

        Raises EntryNotVisible, UnknownRecord, InvalidValue.
        """
        if at is not None:
            whole("at, an entry's id,", at)
        core = await self._core()
        return await core.part(Transcripts, Transcripts).context(self.id, at)

    async def entries(
        self, limit: int = 100, cursor: Cursor | None = None, *, order: Any = None, at: int | None = None
    ) -> Page[EntryRecord]:
        """Page the whole visible history, or what there was of it at entry ``at``; newest first by default.

        Raises UnknownRecord, EntryNotVisible.
        """
        core = await self._core()
        await core.drained()
        await self._exists(core)
        if at is not None:
            await visible_entry(core, self.id, whole("at, an entry's id,", at))
        query = EntryQuery(conversation_id=self.id, max_entry_id=at, order=order)
        return await core.storage.scan_entries(core.key, query, limit, cursor)

    async def export(self, format: ExportFormat = "jsonl") -> AsyncIterator[str]:
        """Give the whole history as text, piece by piece: ``async for piece in conversation.export("markdown")``.

        See ``export`` for the formats. Raises UnknownRecord, InvalidValue.
        """
        core = await self._core()
        await core.drained()
        async for piece in exported(core.storage, core.key, self.id, format):
            yield piece

    async def usage(self, *, subtree: bool = False) -> UsageReport:
        """Sum up what the conversation has spent; with ``subtree``, its subagents, and theirs, too."""
        core = await self._core()
        await self._exists(core)
        return await report(core, below(core, self.id) if subtree else only(self.id))

    async def set_budget(self, budget: Budget | None) -> None:
        """Cap what this conversation and all below it may spend, or lift the cap (None). Raises InvalidValue.

        Where a budget was exhausted and no longer is, what had been queued goes on.
        """
        async with self.commit() as tx:
            await self._exists(tx.core)
            held_up = await set_budget(tx, self.id, budget, lambda: report(tx.core, below(tx.core, self.id)))
            await resume(tx, held_up)

    async def budget(self) -> BudgetState | None:
        """Read the budget that was set for this conversation, with what was spent under it."""
        return cast("BudgetState | None", await self.snapshot(BudgetDoc))

    async def snapshot(self, doc: Doc[Any], *, key: str | None = None) -> Any:
        """Read one of the conversation's documents, as committed; None when there is none."""
        return await snapshot(await self._core(), doc, self.id, key=key)

    async def snapshot_as_of(self, doc: Doc[Any], at: int, *, key: str | None = None) -> Any:
        """Read a rewindable document as it was when entry ``at`` had been committed; None when there was none.

        Raises EntryNotVisible, DocumentMismatch, InvalidValue.
        """
        return await snapshot_as_of(await self._core(), doc, self.id, at, key=key)

    async def watch_doc(self, doc: Doc[Any], *, key: str | None = None) -> Watch | None:
        """Watch one of the conversation's documents; None when there is none."""
        return await watch_document(await self._core(), doc, self.id, key=key)

    async def watch(self) -> Watch:
        """Watch the conversation: its active entries and built-in documents as one JSON value (see ``view``)."""
        return await watch_conversation(await self._core(), self.id)

    async def watch_events(self) -> EventStream:
        """Watch what happens in the conversation, as typed events with a snapshot first (see ``events``).

        A stream ends with the session's life; to go on, watch again.
        """
        return await watch_conversation_events(await self._core(), self.id)

    async def live(self) -> JsonObject:
        """Read what runs now: ``pi.live``."""
        return await self.snapshot(LiveDoc) or {}

    async def _exists(self, core: SessionCore) -> None:
        if await core.row(ConversationRecord, self.id) is None:
            raise UnknownRecord("conversation", self.id)


def live_work(core: SessionCore, conversation_id: int, *, background: bool) -> Iterator[int]:
    """The live tasks in and below a conversation; background tasks, and what is below them, only if asked for."""
    ownership = core.forest.ownership
    if not background:
        return ownership.work(conversation_id)
    return (node for node in ownership.walk(conversation_id, lambda _: True) if ownership.is_live(node))


async def until(core: SessionCore, done: Callable[[], bool]) -> None:
    """Return when a condition over committed state holds; it is looked at after every publication."""
    changed = asyncio.Event()

    def published(_: Publication) -> None:
        changed.set()

    dispose = core.subscribe(published, changed.set)
    try:
        with core.use:
            while True:
                changed.clear()
                if await between_commits(core, done):
                    return
                await changed.wait()
    finally:
        dispose()
