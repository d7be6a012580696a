"""What an application holds of a session. Proved by tests/actors/conversation/test_handles.py."""

from collections.abc import Iterable
from typing import Any, cast

from ...chord import Watch
from ...storage.contract import ConversationQuery, Cursor, MessageQuery, Page
from ...storage.records import (
    ROOT_CONVERSATION_ID,
    ConversationRecord,
    JsonObject,
    MessageRecord,
    TaskRecord,
)
from ..session.arguments import whole
from ..session.commit import Commit, SessionCommit
from ..session.documents import Doc
from ..session.environment import Services
from ..session.read import between_commits, snapshot
from ..session.reads import existing
from ..session.waits import refuse_wait_for_idle
from ..session.watch import watch_document
from ..task.graph import TaskGraph
from ..task.ref import TaskRef
from ..task.tx import Tx
from .budget import Budget, BudgetState, SessionBudgetDoc, set_budget
from .choice import Agent, configure
from .deletion import delete_conversation
from .handles import Conversation, until
from .inbox import (
    resume,
)
from .ledger import UsageReport, all_conversations, report
from .listing import watch_conversations
from .receipts import once
from .submissions import Handle, Submission


class Session(Handle):
    """A session: the unit of isolation, atomicity and placement."""

    def __init__(self, services: Services, key: str) -> None:
        super().__init__(services, key)
        self.key = key

    def __repr__(self) -> str:
        return f"Session({self.key!r})"

    def commit(self) -> SessionCommit[Tx]:
        """Begin a commit: ``async with session.commit() as tx``. Leaving the block returns when it is durable.

        Raises SessionFailed when storage could not say what became of it, LineReentry inside another one.
        """
        return self._commit(Tx)

    async def root(self, *, agent: Agent | None = None) -> Conversation:
        """Give the root conversation, creating it with ``agent`` if there is none; an existing one is left as it is."""
        core = await self._core()
        if await core.row(ConversationRecord, ROOT_CONVERSATION_ID) is None:
            async with Commit(core, lambda: Tx(core)) as tx:
                if await tx.conversation(ROOT_CONVERSATION_ID) is None:
                    record = await tx.create_root()
                    if agent is not None:
                        await configure(tx, record.id, agent)
        return Conversation(self._services, self.key, ROOT_CONVERSATION_ID)

    async def conversation(self, id: int) -> Conversation:
        """Give a conversation by id. Raises UnknownRecord, InvalidValue."""
        conversation = Conversation(self._services, self.key, id)
        await conversation._exists(await self._core())
        return conversation

    async def conversations(self, limit: int = 100, cursor: Cursor | None = None) -> Page[ConversationRecord]:
        """Page all conversations, oldest first, subagents' included: a record's ``owner`` says whose.

        Where some were deleted, a page may hold fewer than ``limit`` and have a ``next``.
        """
        core = await self._core()
        await core.drained()
        return existing(await core.storage.scan_conversations(core.key, ConversationQuery(), limit, cursor))

    async def delete_conversation(self, id: int, *, request_id: str | None = None) -> None:
        """Delete a conversation and all that are owned below it; returns when nothing of them is there any more.

        Whatever runs in them, background work too, is aborted first, and what is queued settles unanswered, ``aborted``;
        from then on nobody can submit anything. Then, in one commit, their entries, documents, submissions, tasks and
        messages go, and what they have spent no longer counts in ``usage``. Forks lose nothing: what they show of it stays
        stored until the last of them is deleted. Ids are never used again. Watches of them end "retired", and whoever
        names them gets UnknownRecord.

        Once begun it is finished, also if the process dies or this call is cancelled. Raises ConversationKept for the root
        and for a subagent's conversation whose call lives, UnknownRecord, WaitCycle in the code of a task that is part of
        what would be aborted, RequestIdReused, SessionFailed.
        """
        await delete_conversation(await self._core(), whole("a conversation's id", id), request_id)

    async def watch_conversations(self) -> Watch:
        """Watch the newest conversations, forks and subagents' included, as one JSON value (see ``listing``)."""
        return await watch_conversations(await self._core())

    async def create_conversation(self, *, agent: Agent | None = None, request_id: str | None = None) -> Conversation:
        """Create a conversation that nobody owns; with a ``request_id`` that is known, give the one made then.

        Raises RequestIdReused, InvalidValue, SessionFailed.
        """

        async def make() -> int:
            record = await tx.create_conversation()
            if agent is not None:
                await configure(tx, record.id, agent)
            return record.id

        async with self.commit() as tx:
            made, _ = await once(tx, None, request_id, "create_conversation", make)
        return Conversation(self._services, self.key, made)

    async def submission(self, id: int) -> Submission:
        """Give a submission by id. Raises UnknownRecord, InvalidValue."""
        submission = Submission(self._services, self.key, id)
        await submission.status()
        return submission

    async def task(self, id: int) -> TaskRef[Any]:
        """Give a task by id. Raises UnknownRecord, InvalidValue."""
        ref: TaskRef[Any] = TaskRef(self._services, self.key, whole("a task's id", id))
        await ref.record()
        return ref

    async def usage(self) -> UsageReport:
        """Sum up what all conversations have spent, each read at its own point."""
        core = await self._core()
        return await report(core, all_conversations(core))

    async def set_budget(self, budget: Budget | None) -> None:
        """Cap what the whole session may spend, or lift the cap (see ``Conversation.set_budget``)."""
        async with self.commit() as tx:
            held_up = await set_budget(tx, None, budget, lambda: report(tx.core, all_conversations(tx.core)))
            await resume(tx, held_up)

    async def budget(self) -> BudgetState | None:
        """Read the session's budget, with what was spent under it."""
        return cast("BudgetState | None", await self.snapshot(SessionBudgetDoc))

    async def snapshot(self, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None) -> Any:
        """Read a document as committed; None when there is none."""
        return await snapshot(await self._core(), doc, scope_id, key=key)

    async def watch_doc(self, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None) -> Watch | None:
        """Watch a document of the session, or of the conversation or task ``scope_id``; None when there is none."""
        return await watch_document(await self._core(), doc, scope_id, key=key)

    async def tasks(self) -> list[TaskRecord]:
        """List the live tasks."""
        core = await self._core()
        return await between_commits(core, core.forest.all_kept)

    async def messages(
        self, query: MessageQuery | None = None, limit: int = 100, cursor: Cursor | None = None
    ) -> Page[MessageRecord]:
        """Page the session's messages: its tasks' inboxes, its outbox, receipts and dead letters."""
        core = await self._core()
        await core.drained()
        return await core.storage.scan_messages(core.key, query or MessageQuery(), limit, cursor)

    async def dead_letters(self, limit: int = 100, cursor: Cursor | None = None) -> Page[MessageRecord]:
        """Page what nobody will receive, oldest first; a record's ``reason`` says why."""
        return await self.messages(MessageQuery(status="dead"), limit, cursor)

    async def drop_dead_letters(self, ids: Iterable[int]) -> int:
        """Delete dead letters; tell how many of the ids were some."""
        core = await self._core()
        async with Commit(core, lambda: Tx(core)) as tx:
            found = [await tx.message(number) for number in {*ids}]
            dead = [record for record in found if record is not None and record.status == "dead"]
            for record in dead:
                tx.delete_message(record)
        return len(dead)

    async def task_graph(self) -> JsonObject:
        """Read the live tasks as one JSON value, by decimal id: owners, states, waits, blocked reasons (see ``task.graph``)."""
        return await (await self._core()).part(TaskGraph, TaskGraph).read()

    async def watch_tasks(self) -> Watch:
        """Watch that value, with the exact operations of each commit."""
        return await (await self._core()).part(TaskGraph, TaskGraph).watch()

    async def wait_for_idle(self) -> None:
        """Return when no foreground work lives anywhere in the session. Raises SessionFailed, WaitCycle."""
        core = await self._core()
        refuse_wait_for_idle(core.forest, core.forest.ownership.roots())
        await until(
            core, lambda: not any(core.forest.ownership.has_work(root) for root in core.forest.ownership.roots())
        )
