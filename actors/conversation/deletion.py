"""Deleting a conversation, in two steps that a crash cannot separate for good.

The first commit marks it, in a document of the session, and aborts everything in and below it. When that has ended, another
one deletes. A session that was opened with marks goes on by itself: the mark has it wake without being asked.
Proved by tests/actors/conversation/test_delete.py.
"""

import asyncio
from contextvars import Context
from functools import partial
from typing import Literal

import structlog

from ...storage.contract import SubmissionQuery
from ...storage.records import ROOT_CONVERSATION_ID, ConversationRecord, Json
from ..session.commit import Commit
from ..session.core import SessionCore
from ..session.deletion import delete_conversation as stage
from ..session.deletion import family
from ..session.documents import Doc
from ..session.errors import SessionClosed, SessionFailed, UnknownRecord
from ..session.waits import refuse_wait_for
from ..task.tx import Tx
from .builtin import InboxDoc
from .errors import ConversationKept, RequestIdReused
from .handles import live_work, until
from .inbox import heal_run, remove_items, settle_inputs, unanswered
from .receipts import once

PAGE = 256

DeletionsDoc: Doc[Json] = Doc("pi.deletions", scope="session", initial=lambda: {"conversations": {}})
"""Which conversations are being deleted, by decimal id."""

log = structlog.get_logger("perdure.conversation")


async def delete_conversation(core: SessionCore, conversation_id: int, request_id: str | None) -> None:
    """Delete a conversation and what is owned below it (see ``Session.delete_conversation``)."""
    refuse_wait_for(core.forest, live_work(core, conversation_id, background=True))
    deletions = core.part(Deletions, Deletions)
    try:
        async with Commit(core, lambda: Tx(core)) as tx:
            named, _ = await once(tx, None, request_id, "delete_conversation", lambda: _begin(tx, conversation_id))
            if named != conversation_id:
                raise RequestIdReused(f"request id {request_id!r} named the deletion of conversation {named}")
    finally:
        deletions.go_on()  # whoever asked may have been cancelled when it was admitted
    await deletions.finished(conversation_id)


async def _begin(tx: Tx, conversation_id: int) -> int:
    """Mark a conversation and abort what is in and below it."""
    record = await tx.conversation(conversation_id)
    if record is None:
        raise UnknownRecord("conversation", conversation_id)
    _refuse(tx, record)
    await _abort_all(tx, conversation_id)
    marks = await tx.doc(DeletionsDoc)
    marks["conversations"][str(conversation_id)] = {}
    tx.unfinished[conversation_id] = True
    return conversation_id


def _refuse(tx: Tx, record: ConversationRecord) -> None:
    if record.id == ROOT_CONVERSATION_ID:
        raise ConversationKept("the root conversation cannot be deleted; delete its session")
    if record.owner is not None and tx.core.forest.is_live(record.owner.task_id):
        raise ConversationKept(f"conversation {record.id} belongs to task {record.owner.task_id}, which lives")


async def _abort_all(tx: Tx, conversation_id: int) -> None:
    """Withdraw everything that is queued in a conversation and below it, and mark all live work there."""
    conversations = await family(tx, conversation_id)
    queued = [number for one in conversations for number in await _submissions(tx, one, "queued")]
    for one in conversations:
        await heal_run(tx, one)
        inbox = await tx.doc(InboxDoc, one)
        remove_items(inbox, {item["id"] for item in inbox["items"].to_json()})
    for task in list(live_work(tx.core, conversation_id, background=True)):
        await tx.mark_task(task)
    await settle_inputs(tx, queued, unanswered("aborted"))


async def _submissions(tx: Tx, conversation_id: int, status: Literal["queued", "placed"]) -> list[int]:
    query = SubmissionQuery(conversation_id=conversation_id, status=status)
    page = await tx.scan_submissions(query, PAGE)
    found = [record.id for record in page.items]
    while page.next is not None:
        page = await tx.scan_submissions(query, PAGE, page.next)
        found += [record.id for record in page.items]
    return found


def _ended(core: SessionCore, tasks: list[int]) -> bool:
    return not any(core.forest.is_live(task) for task in tasks)


async def _delete_or_abort(tx: Tx, conversation_id: int) -> list[int]:
    """Delete a marked conversation; if work lives in or below it, abort that, which may be newer, and name it."""
    working = list(live_work(tx.core, conversation_id, background=True))
    if working:
        await _abort_all(tx, conversation_id)
        return working
    there = await tx.conversation(conversation_id) is not None  # or else it has gone with one that owned it
    conversations = await family(tx, conversation_id) if there else []
    unsettled = [
        number
        for one in conversations
        for status in ("queued", "placed")
        for number in await _submissions(tx, one, status)
    ]
    for one in conversations:
        await stage(tx, one)
    (await tx.doc(DeletionsDoc))["conversations"].pop(str(conversation_id), None)
    tx.unfinished[conversation_id] = False
    await settle_inputs(tx, unsettled, unanswered("aborted"))
    return []


class Deletions:
    """The deletions under way in one session."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._running: dict[int, asyncio.Task[None]] = {}

    def go_on(self) -> None:
        """See to it that everything that was begun is finished, whoever waits for it."""
        for conversation in self._core.unfinished - self._running.keys():
            task = asyncio.get_running_loop().create_task(self._finish(conversation), context=Context())
            task.add_done_callback(partial(self._note_end, conversation))
            self._running[conversation] = task

    async def finished(self, conversation_id: int) -> None:
        """Return when a conversation's deletion is durable, if one is under way. Raises SessionFailed, SessionClosed."""
        running = self._running.get(conversation_id)
        if running is not None:
            await asyncio.shield(running)

    async def _finish(self, conversation_id: int) -> None:
        core = self._core
        while conversation_id in core.unfinished:
            async with Commit(core, lambda: Tx(core)) as tx:
                reached = await _delete_or_abort(tx, conversation_id)
            await until(core, partial(_ended, core, reached))

    def _note_end(self, conversation: int, task: asyncio.Task[None]) -> None:
        """Forget a deletion. One that failed is tried again when the session is opened next."""
        del self._running[conversation]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SessionFailed | SessionClosed):
            log.error("deletion_failed", session=self._core.key, conversation=conversation, exc_info=error)


async def resume_deletions(core: SessionCore) -> None:
    """Go on with what was begun before a session was opened: a hook. Costs nothing unless the session has to be awake."""
    if core.stored_wake != 0:
        return
    marks = await core.document(DeletionsDoc, DeletionsDoc.address(None, None))
    if marks is not None:
        core.unfinished.update(map(int, marks.tracker.value["conversations"]))
        core.part(Deletions, Deletions).go_on()
