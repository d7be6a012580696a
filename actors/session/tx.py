"""A transaction: what one commit block reads and stages. It is valid until its block ends.

Lookups see the block's own writes and everything admitted before; scans are answered by storage, so they come before the
block's first record write. Nothing staged here is visible to anybody until the batch is admitted.
Proved by tests/actors/session/test_tx.py.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ...chord import Draft, Tracker
from ...storage.contract import (
    ConversationQuery,
    Cursor,
    EntryQuery,
    Page,
    SubmissionQuery,
    TaskQuery,
)
from ...storage.records import (
    MAX_ID,
    ROOT_CONVERSATION_ID,
    ContextEdit,
    ConversationOwner,
    ConversationRecord,
    DocumentCopy,
    DocumentCreate,
    DocumentRecord,
    EntryRecord,
    Json,
    JsonObject,
    MessageRecord,
    Parent,
    SubmissionRecord,
    TaskRecord,
)
from .arguments import context_edits, messages, name, plain, whole
from .core import SessionCore
from .documents import Address, Doc, Loaded, Open, address_of, fits, root
from .errors import InvalidValue, OwnershipRefused, ReadAfterWrite, TransactionOver, UnknownRecord
from .forks import Copies, copy_of, fork_point, sources
from .pending import Row
from .reads import existing
from .tracing import EndedSpan

D = TypeVar("D")
R = TypeVar("R", bound=Row)


class Entry(Generic[D]):
    """The name of a kind of entry and the type of its ``data`` (anything that msgspec can turn into JSON)."""

    def __init__(self, kind: str, data: type[D] | None = None) -> None:
        self.kind = kind
        self.type = data

    def __repr__(self) -> str:
        return f"Entry({self.kind!r})"

    def data(self, record: EntryRecord) -> D:
        """Give an entry's data as the declared type. Raises InvalidValue when it is of another kind."""
        if record.kind != self.kind:
            raise InvalidValue(f"entry {record.id} is a {record.kind!r}, not a {self.kind!r}")
        return msgspec.convert(record.data, self.type) if self.type is not None else record.data


class BaseTx:
    """Reads and stages records and documents of one session. Made by ``commit()``; not for other tasks to use."""

    def __init__(self, core: SessionCore, conversation_id: int | None = None) -> None:
        self.core = core
        self.conversation_id = conversation_id
        """The conversation that ``append`` and ``create_task`` mean when none is named."""
        self.by_task: int | None = None
        self.open = True
        self.rows: dict[int, Row] = {}
        self.created: list[ConversationRecord] = []
        self.deleted: dict[int, None] = {}
        """Messages that this block deletes."""
        self.outgoing: dict[str | None, int] = {}
        """How many messages this block puts into the outbox, by receiving session (None: this one, which has no room)."""
        self.touched: dict[int, None] = {}
        """Tasks whose records this block has changed."""
        self.awaited: dict[int, TaskRecord] = {}
        """Tasks that had ended before this block began to wait for them."""
        self.turns: dict[int, Any] = {}
        """What the scheduler has decided about tasks, for when this block is admitted."""
        self.clean_up = True
        """Whether definitions clean up after tasks that end here without an outcome of their own."""
        self.opened: dict[Address, Open] = {}
        self.closed: list[tuple[Address, Open]] = []
        """Documents that this block had open and retires."""
        self.retiring: dict[Address, DocumentRecord] = {}
        """Documents that this block retires without having looked into them."""
        self.copies = Copies()
        self.ended: list[int] = []
        """Tasks that end with this block."""
        self.spans: list[EndedSpan] = []
        """Of the work that ends with this block."""
        self.gone: dict[int, None] = {}
        """Conversations that this block deletes (see ``deletion``)."""
        self.unfinished: dict[int, bool] = {}
        """Of which conversations ``core.unfinished`` has to be told: whether something begins or ends with this block."""
        self._last_id = core.last_id

    # --- lookups

    async def conversation(self, id: int) -> ConversationRecord | None:
        """Look up a conversation."""
        return await self._row(ConversationRecord, id)

    async def entry(self, id: int) -> EntryRecord | None:
        """Look up an entry."""
        return await self._row(EntryRecord, id)

    async def task(self, id: int) -> TaskRecord | None:
        """Look up a task's record, live or ended."""
        return await self._row(TaskRecord, id)

    async def submission(self, id: int) -> SubmissionRecord | None:
        """Look up a submission."""
        return await self._row(SubmissionRecord, id)

    async def submission_by_request(self, conversation_id: int, request_id: str) -> SubmissionRecord | None:
        """Look up a submission by its idempotency key."""
        self._check()
        for row in self.rows.values():
            if isinstance(row, SubmissionRecord) and (row.conversation_id, row.request_id) == (
                conversation_id,
                request_id,
            ):
                return row
        pending = self.core.pending.requests.get((conversation_id, request_id))
        if pending is not None:
            return pending
        return await self.core.storage.submission_by_request(self.core.key, conversation_id, request_id)

    async def message(self, id: int) -> MessageRecord | None:
        """Look up a message."""
        self._check()
        return None if id in self.deleted else await self._row(MessageRecord, id)

    async def message_by_request(self, task_id: int, request_id: str) -> MessageRecord | None:
        """Look up a message to a task by its idempotency key."""
        self._check()
        pending = self.core.pending.message_requests.get((task_id, request_id))
        if pending is not None:
            return pending
        return await self.core.storage.message_by_request(self.core.key, task_id, request_id)

    async def _row(self, kind: type[R], id: int) -> R | None:
        self._check()
        staged = self.rows.get(id)
        if staged is not None:
            return staged if isinstance(staged, kind) else None
        return await self.core.row(kind, id)

    # --- scans

    async def scan_conversations(
        self, query: ConversationQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[ConversationRecord]:
        """Page conversations; a page may hold fewer of them than there is room for. Raises ReadAfterWrite."""
        await self._scannable()
        return existing(await self.core.storage.scan_conversations(self.core.key, query, limit, cursor))

    async def scan_entries(self, query: EntryQuery, limit: int, cursor: Cursor | None = None) -> Page[EntryRecord]:
        """Page a conversation's visible entries. Raises ReadAfterWrite."""
        await self._scannable()
        return await self.core.storage.scan_entries(self.core.key, query, limit, cursor)

    async def scan_tasks(self, query: TaskQuery, limit: int, cursor: Cursor | None = None) -> Page[TaskRecord]:
        """Page tasks. Raises ReadAfterWrite."""
        await self._scannable()
        return await self.core.storage.scan_tasks(self.core.key, query, limit, cursor)

    async def scan_submissions(
        self, query: SubmissionQuery, limit: int, cursor: Cursor | None = None
    ) -> Page[SubmissionRecord]:
        """Page submissions. Raises ReadAfterWrite."""
        await self._scannable()
        return await self.core.storage.scan_submissions(self.core.key, query, limit, cursor)

    async def latest_head_marker(self, conversation_id: int) -> EntryRecord | None:
        """Find the newest visible entry that carries a head. Raises ReadAfterWrite."""
        await self._scannable()
        return await self.core.storage.latest_head_marker(self.core.key, conversation_id)

    async def _scannable(self) -> None:
        self._check()
        if self.rows:
            raise ReadAfterWrite("scan before the block's first record write; a scan cannot see what the block wrote")
        await self.core.drained()

    # --- writes

    async def create_conversation(self, *, owner: int | None = None) -> ConversationRecord:
        """Create a conversation, owned by a live task of this session or by nobody.

        The session's hooks run before this returns (they create the built-in documents). Raises OwnershipRefused.
        """
        held = await self._held(owner)
        return await self._created(ConversationRecord(id=self.mint(), owner=held))

    async def fork(
        self, conversation_id: int | None = None, *, at: int | None = None, owner: int | None = None
    ) -> ConversationRecord:
        """Create a conversation that shares another one's history (default: the bound one's) up to entry ``at``, inclusive.

        Without ``at`` that is the newest stored entry. It starts idle, with copies of the documents whose definition says
        so, and no tasks. Raises EntryNotVisible, UnknownRecord, OwnershipRefused, InvalidValue.
        """
        held = await self._held(owner)
        parent = await self._target(conversation_id)
        if parent in self.rows:
            raise InvalidValue("a conversation cannot be forked in the commit that creates it")
        await self.core.drained()
        entry, seq = await fork_point(self.core, parent, None if at is None else whole("at, an entry's id,", at))
        found = await sources(self.core, parent, entry, seq)
        record = ConversationRecord(id=self.mint(), parent=Parent(conversation_id=parent, at=entry.id), owner=held)
        for source in found:
            copy = copy_of(source, self.mint(), record.id)
            self.copies[address_of(copy.record)] = copy
        return await self._created(record)

    async def _held(self, owner: int | None) -> ConversationOwner | None:
        if owner is None:
            return None
        task = await self.owner(owner)
        return ConversationOwner(conversation_id=task.conversation_id, task_id=owner)

    async def create_root(self) -> ConversationRecord:
        """Create the root conversation, whose id is reserved. Raises InvalidValue when there is one."""
        if await self.conversation(ROOT_CONVERSATION_ID) is not None:
            raise InvalidValue("the root conversation exists already")
        self.core.last_id = max(self.core.last_id, ROOT_CONVERSATION_ID)
        return await self._created(ConversationRecord(id=ROOT_CONVERSATION_ID))

    async def _created(self, record: ConversationRecord) -> ConversationRecord:
        self.rows[record.id] = record
        self.created.append(record)
        await self.core.know(record.id, self._row)
        for hook in self.core.hooks.conversation_created:
            await hook(self, record)
        return record

    async def append(
        self,
        kind: str | Entry[D],
        data: D | Json = None,
        *,
        conversation_id: int | None = None,
        model: Sequence[JsonObject] | None = None,
        head: int | Literal["self"] | None = None,
        edits: Iterable[ContextEdit] | None = None,
    ) -> EntryRecord:
        """Append an entry to a conversation (default: the bound one).

        ``model`` is what it contributes to model context, ``head`` the first entry that stays in context from here on.
        Raises UnknownRecord for an unknown conversation, InvalidValue and InvalidJson for values that cannot be stored.
        """
        conversation = await self._target(conversation_id)
        entry_id = self.mint()
        record = EntryRecord(
            id=entry_id,
            conversation_id=conversation,
            kind=name("an entry's kind", kind.kind if isinstance(kind, Entry) else kind),
            model=None if model is None else messages(model),
            data=plain(data),
            head=entry_id if head == "self" else None if head is None else whole("head", head),
            edits=None if edits is None else context_edits(edits),
            by_task_id=self.by_task,
        )
        for check in self.core.hooks.check_entry:
            check(record)
        self.rows[entry_id] = record
        return record

    async def _target(self, conversation_id: int | None) -> int:
        target = conversation_id if conversation_id is not None else self.conversation_id
        if target is None:
            raise InvalidValue("name a conversation_id: this commit is not bound to a conversation")
        if not self.core.has_conversation(target) and await self.conversation(target) is None:
            raise UnknownRecord("conversation", target)
        return target

    def put_submission(self, record: SubmissionRecord) -> SubmissionRecord:
        """Stage a submission's new record."""
        self._check()
        self.rows[record.id] = record
        return record

    def put_message(self, record: MessageRecord) -> MessageRecord:
        """Stage a message's new record. A task for which it is queued is looked at when the block ends."""
        self._check()
        self._count_mail(record.id, -1)
        if record.status == "outgoing":
            self.outgoing[record.session] = self.outgoing.get(record.session, 0) + 1
        self.rows[record.id] = record
        self._count_mail(record.id, 1)
        return record

    def delete_message(self, record: MessageRecord) -> None:
        """Stage a message's deletion; of one that this block has made, nothing is stored."""
        self._check()
        self._count_mail(record.id, -1)
        self.rows.pop(record.id, None)
        if record.id <= self._last_id:
            self.deleted[record.id] = None

    def changes_message(self, id: int) -> bool:
        """Whether this block changes or deletes a message."""
        return id in self.rows or id in self.deleted

    def _count_mail(self, id: int, change: int) -> None:
        """Count a message, as staged, for its task, if it is queued."""
        record = None if id in self.deleted else self.rows.get(id) or self.core.mail.get(id)
        if isinstance(record, MessageRecord) and record.status == "queued":
            self.core.forest.count_mail(record.task_id, change)
            if self.core.forest.is_live(record.task_id):
                self.touched[record.task_id] = None

    async def put_task(self, record: TaskRecord) -> TaskRecord:
        """Stage a task's new record. What follows from it is decided when the block ends."""
        self._check()
        await self.core.know(record.owner if record.owner is not None else record.conversation_id, self._row)
        self.stage_task(record)
        self.touched[record.id] = None
        return record

    async def mark_task(self, id: int) -> bool:
        """Mark a task for abort; False when it has already ended. Raises UnknownRecord."""
        record = await self.task(id)
        if record is None:
            raise UnknownRecord("task", id)
        if record.live and not record.abort_requested:
            await self.put_task(msgspec.structs.replace(record, abort_requested=True))
        return record.live

    def stage_task(self, record: TaskRecord) -> None:
        """Stage a record that is itself a consequence: its place in the tree is known and it touches nothing else."""
        self.core.forest.put(record)
        self.rows[record.id] = record

    async def owner(self, task_id: int) -> TaskRecord:
        """Give a task that new work may be put under. Raises OwnershipRefused."""
        record = await self.task(task_id)
        if record is None:
            raise OwnershipRefused(f"owner task {task_id} does not exist")
        refusal = refuses_work(record)
        if refusal is not None:
            raise OwnershipRefused(f"owner task {task_id} {refusal}")
        return record

    def mint(self) -> int:
        """Hand out the session's next id; it is free again if the block fails. Raises InvalidValue at the end."""
        self._check()
        if self.core.last_id >= MAX_ID:
            raise InvalidValue("ID space is exhausted")
        self.core.last_id = max(self.core.last_id, ROOT_CONVERSATION_ID) + 1
        return self.core.last_id

    # --- documents

    async def doc(
        self, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None, seed: Json = None
    ) -> Draft:
        """Get or create a document and give its draft, which is valid until the block ends.

        ``scope_id`` is the conversation or task it belongs to; families take a ``key`` and, for a new member, a
        ``seed``. Raises DocumentMismatch, UnknownRecord, InvalidValue.
        """
        self._check()
        address = doc.address(scope_id, key)
        opened = self.opened.get(address)
        if opened is None:
            opened = await self._acquire(doc, address, seed)
        draft: Draft = opened.change.state
        return draft

    async def _acquire(self, doc: Doc[Any], address: Address, seed: Json) -> Open:
        await self._in_scope(address)
        loaded = None if self.retires(address) else await self._existing(doc, address)
        created = loaded is None or loaded.stored_version is None
        if loaded is None:
            loaded = self._new_document(doc, address, seed)
        loaded.held = True
        opened = self.opened[address] = Open(doc, loaded, loaded.tracker.begin_change(), created)
        return opened

    async def _existing(self, doc: Doc[Any], address: Address) -> Loaded | None:
        if address in self.copies:
            return await self.copies.take(self.core, doc, address)
        return await self.core.document(doc, address)

    def _new_document(self, doc: Doc[Any], address: Address, seed: Json) -> Loaded:
        value = root(doc, doc.initial(seed) if doc.family else doc.initial())
        record = DocumentRecord(
            id=self.mint(),
            kind=doc.kind,
            scope=address.stored_scope(),
            key=address.key,
            history=doc.history,
            fork=doc.fork,
            created_at=0,
        )
        return Loaded(record, Tracker(value), doc.version, None, 0)

    async def _in_scope(self, address: Address) -> None:
        if address.scope == "task":
            record = await self.task(address.scope_id or 0)
            if record is None or not record.live:
                raise UnknownRecord("live task", address.scope_id)
        elif address.scope == "conversation" and await self.conversation(address.scope_id or 0) is None:
            raise UnknownRecord("conversation", address.scope_id)

    async def retire_doc(self, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None) -> None:
        """End a document's incarnation, if there is one; its last changes in this block are stored first."""
        self._check()
        address = doc.address(scope_id, key)
        if address in self.copies:
            fits(doc, self.copies.pop(address).record)
        elif address in self.opened:
            self.closed.append((address, self.opened.pop(address)))
        elif not self.retires(address):
            record = await self.core.incarnation(address)
            if record is not None:
                fits(doc, record)
                self.retiring[address] = record

    def retires(self, address: Address) -> bool:
        """Whether this block retires the incarnation that was alive at an address before it."""
        return address in self.retiring or any(closed == address for closed, _ in self.closed)

    async def retire_documents_of(self, task: int) -> None:
        """End all documents of a task: they go with it, whoever made them."""
        for address in [one for one in self.opened if (one.scope, one.scope_id) == ("task", task)]:
            self.closed.append((address, self.opened.pop(address)))
        if not self.core.may_have_documents(task):
            return
        for address, record in (await self.core.documents_of(task)).items():
            if not self.retires(address):
                self.retiring[address] = record

    async def staged_copies(self) -> list[DocumentCopy | DocumentCreate]:
        """Give the writes that copy documents into this block's forks."""
        if not self.copies:
            return []
        changed = {one.loaded.record.id for one in (*self.opened.values(), *(one for _, one in self.closed))}
        changed.update(record.id for record in self.retiring.values())
        return await self.copies.writes(self.core, changed)

    # --- the end of the block

    def _check(self) -> None:
        if not self.open:
            raise TransactionOver("the commit block of this transaction has ended")

    def rollback(self) -> None:
        """Drop everything staged."""
        self.open = False
        for opened in (*self.opened.values(), *(one for _, one in self.closed)):
            opened.change.abort()
            opened.loaded.held = False
            opened.loaded.forget_names()
        self.core.forest.rollback()
        self.core.last_id = self._last_id


def refuses_work(record: TaskRecord) -> str | None:
    """Say why a task can own no new work, if so."""
    status = record.state.__struct_config__.tag
    if status in ("completing", "terminal"):
        return f"is {status}"
    return "is abort-marked" if record.abort_requested else None
