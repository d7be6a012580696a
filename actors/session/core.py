"""The state of one active session, and the way of a commit: line, admission, durability, publication.

A commit block runs on the line against everything admitted so far, durable or not; its batch is admitted to the storage
actor and the line handed on. Whatever leaves the session waits at the gate, so nobody outside can tell. When storage
fails, the whole core is thrown away and built again from what is stored: nothing is rolled back after admission.

May import storage, supervisors, chord and the runtime; knows no task code. Proved by tests/actors/session/.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from ...chord import Tracker
from ...storage.contract import DocumentQuery, Storage
from ...storage.errors import StorageError
from ...storage.records import (
    Batch,
    ConversationRecord,
    DocumentRecord,
    JsonObject,
    MessageRecord,
    SubmissionRecord,
    TaskRecord,
    TaskScope,
    Waiting,
)
from ...supervisors.forest import Forest
from ...supervisors.joins import has_completed, wanted
from ..runtime import Clock
from .documents import Address, Doc, Loaded, address_of, fits, migrated
from .environment import Hooks, Scheduler, Services
from .errors import SessionClosed, SessionFailed, UnknownRecord, WaitCycle
from .gate import Gate
from .line import Line
from .mailbag import Mailbag
from .pending import Pending, Row
from .publication import Publication
from .reads import Reads
from .subscribers import Listener, Moved, Subscribers, Subscription
from .tracing import emit
from .use import Resting, Use
from .waits import refuse_wait_for

R = TypeVar("R", bound=Row)
P = TypeVar("P")
Settled = TaskRecord | SubmissionRecord

MAX_UNDURABLE_WRITES = 5_000
"""Back-pressure: with more admitted writes than this not durable yet, a session's next commit waits for them."""
MAX_LOADED_DOCUMENTS = 512
DOCUMENTS_PAGE = 1_000
MAX_KNOWN_CONVERSATIONS = 1_024


class SessionCore:
    """Everything that one incarnation of an active session keeps in memory."""

    def __init__(
        self,
        key: str,
        *,
        storage: Storage,
        clock: Clock,
        services: Services,
        hooks: Hooks,
        write: Callable[["SessionCore", Batch], None],
        alarm: Callable[[str, int | None], None] = lambda key, when: None,
        failed: Callable[[BaseException | None], None] = lambda cause: None,
        used: Callable[[], object] = lambda: None,
    ) -> None:
        self.key = key
        self.use = Use(clock, used)
        self.storage = cast("Storage", Reads(storage, self.use, self._unreadable, self._check_alive))
        self.clock = clock
        self.services = services
        self.hooks = hooks
        self.line = Line(self.use.note)
        self.gate = Gate(0, self.use)
        self.forest = Forest()
        self.pending = Pending()
        self.mail = Mailbag()
        self.scheduler: Scheduler | None = None
        self.seq = 0
        """The newest admitted commit."""
        self.last_id = 0
        self.documents: dict[Address, Loaded] = {}
        self.retired: dict[Address, int] = {}
        """Addresses retired by commits that are not durable yet, with those commits."""
        self.copied: dict[Address, int] = {}
        """Addresses of documents that storage copies in commits that are not durable yet, with those commits."""
        self.retirements = 0
        """How many documents this incarnation has retired."""
        self.task_documents: dict[int, set[Address]] = {}
        """The documents of live tasks, as far as this incarnation has seen them."""
        self.recovered: set[int] = set()
        """Tasks that were live when the session was opened: storage may hold more documents of theirs."""
        self._write = write
        self._alarm = alarm
        self.stored_wake: int | None = None
        """When the session was to be active without being asked, as it was opened."""
        self.unfinished: set[int] = set()
        """Conversations for which an upper room has begun what it must finish: the session wakes by itself for that."""
        self.gone: set[int] = set()
        """Conversations that this incarnation has deleted: storage may not know it yet."""
        self._deadline: int | None = None
        """The earliest deadline, as far as it was told."""
        self._failed = failed
        self._conversations: dict[int, ConversationRecord] = {}
        self._unpublished: deque[Publication] = deque()
        self.subscribers = Subscribers()
        self._waiting: dict[int, list[asyncio.Future[Settled]]] = {}
        self._failure: Callable[[], Exception] | None = None
        self._parts: dict[type[Any], Any] = {}
        self._dead = False

    # --- life

    async def load(self) -> None:
        """Read the counters and the live tasks, each with its place in the ownership tree."""
        row = await self.storage.session(self.key)
        if row is None:
            return
        self.seq, self.last_id, self.stored_wake = row.seq, row.last_id, row.wake
        self.gate.advance(row.seq)
        for record in await self.storage.live_tasks(self.key):
            await self.know(record.owner if record.owner is not None else record.conversation_id, self.row)
            self.forest.put(record)
            self.recovered.add(record.id)
        await self._note_ends()
        await self._load_mail()
        self.forest.checkpoint()
        self.tell_deadline()

    async def _note_ends(self) -> None:
        """Have the waits that end early know who has completed before this incarnation."""
        waits = [one.state for one in self.forest if isinstance(one.state, Waiting) and wanted(one.state.policy)]
        for task in dict.fromkeys(task for wait in waits for task in wait.on if not self.forest.is_live(task)):
            record = await self.storage.task(self.key, task)
            if record is not None and has_completed(record):
                self.forest.completed(task)

    async def _load_mail(self) -> None:
        messages = await self.storage.live_messages(self.key)
        self.mail.change(messages, ())
        for message in messages:
            if message.status == "queued":
                self.forest.count_mail(message.task_id, 1)

    def fail(self, cause: BaseException | None) -> None:
        """Die: everything that waits for this incarnation, now or later, gets SessionFailed. Again is harmless."""
        if not self._dead:
            self._end(lambda: SessionFailed(self.key, cause))
            self._failed(cause)

    def _unreadable(self, error: StorageError) -> Exception:
        self.fail(error)
        assert self._failure is not None
        return self._failure()

    def seal(self) -> None:
        """Refuse new commits; those admitted still settle."""
        if self._failure is None:
            self._failure = self._closed

    async def finish(self) -> None:
        """After ``seal``: wait until what is admitted is durable, then end everything that still waits."""
        await self.gate.wait(self.seq)
        self._end(self._closed)

    @property
    def idle(self) -> bool:
        """Whether nobody is inside, nothing is under way and nothing has to be done before a deadline that lies ahead.

        What is idle may be sealed and dropped in the same step of the loop, and nobody can tell.
        """
        return (
            self.usable
            and not self.use.inside
            and not self.line.held
            and not self._unpublished
            and self.seq == self.gate.durable
            and (self.scheduler is None or self.scheduler.idle)
            and self._sleeps()
        )

    def _sleeps(self) -> bool:
        wake = self.next_wake()
        return wake is None or wake > self.clock.now()

    def rest(self, before: float) -> bool:
        """Let go of what upper rooms have not used since ``before`` (monotonic seconds); tell whether more may go later."""
        left = [part.rest(before) for part in self._parts.values() if isinstance(part, Resting)]
        return any(left)

    @property
    def usable(self) -> bool:
        """Whether nothing has ended this incarnation yet."""
        return self._failure is None

    def check(self) -> None:
        """Raise what has ended this incarnation, if anything has."""
        if self._failure is not None:
            raise self._failure()

    def _check_alive(self) -> None:
        if self._dead:
            self.check()

    def _closed(self) -> Exception:
        return SessionClosed(f"session {self.key!r} is closed")

    def _end(self, failure: Callable[[], Exception]) -> None:
        self._dead = True
        self._failure = failure
        self._unpublished.clear()
        self.gate.fail(failure)
        self.line.fail(failure)
        for waiter in [one for waiters in self._waiting.values() for one in waiters]:
            if not waiter.done():
                waiter.set_exception(failure())
        self._waiting.clear()
        if self.scheduler is not None:
            self.scheduler.signal()
        self.subscribers.end()

    def part(self, kind: type[P], make: Callable[["SessionCore"], P]) -> P:
        """Give an upper room's in-memory part of this incarnation, making it at first use."""
        if kind not in self._parts:
            self._parts[kind] = make(self)
        return cast("P", self._parts[kind])

    # --- reading

    async def row(self, kind: type[R], id: int) -> R | None:
        """Look a record up as of everything admitted. Its value may leave the session only through the gate."""
        live = self.forest.kept(id) if kind is TaskRecord else None
        if live is not None:
            return live  # type: ignore[return-value]
        if id in self.pending.rows:
            row = self.pending.rows[id][1]
            return row if isinstance(row, kind) else None
        return await self._stored(kind, id)

    async def _stored(self, kind: type[R], id: int) -> R | None:
        if kind is ConversationRecord:
            return await self._conversation(id)  # type: ignore[return-value]
        if kind is TaskRecord:
            return await self.storage.task(self.key, id)  # type: ignore[return-value]
        if kind is SubmissionRecord:
            return await self.storage.submission(self.key, id)  # type: ignore[return-value]
        if kind is MessageRecord:
            return await self.storage.message(self.key, id)  # type: ignore[return-value]
        found = await self.storage.entry(self.key, id)
        return None if found is None else found[0]  # type: ignore[return-value]

    def has_conversation(self, id: int) -> bool:
        """Whether a conversation certainly exists, without asking storage."""
        return id in self._conversations

    async def _conversation(self, id: int) -> ConversationRecord | None:
        known = self._conversations.get(id)
        if known is None:
            known = await self.storage.conversation(self.key, id)
            if known is None or known.deleted or id in self.gone:
                return None
            self.remember(known)
        return known

    def forget(self, conversation: int) -> None:
        """Take note that a commit has deleted a conversation."""
        self.gone.add(conversation)
        self._conversations.pop(conversation, None)

    def remember(self, conversation: ConversationRecord) -> None:
        """Keep a conversation's record in memory for a while; it never changes while the conversation exists."""
        if len(self._conversations) >= MAX_KNOWN_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        self._conversations[conversation.id] = conversation

    async def know(self, node: int, look: Callable[[Any, int], Awaitable[Any]]) -> None:
        """Make the ownership chain above a conversation or task known. Raises UnknownRecord when it breaks off."""
        chain: list[ConversationRecord | TaskRecord] = []
        above: int | None = node
        while above is not None and above not in self.forest.ownership:
            record = await look(ConversationRecord, above) or await look(TaskRecord, above)
            if record is None:
                raise UnknownRecord("conversation or task", above)
            chain.append(record)
            above = parent_of(record)
        for record in reversed(chain):
            if isinstance(record, TaskRecord):
                parent = record.owner if record.owner is not None else record.conversation_id
                self.forest.ownership.add_task(record.id, parent, background=record.background, live=False)
            else:
                self.forest.ownership.add_conversation(record.id, parent_of(record))

    async def document(self, doc: Doc[Any], address: Address) -> Loaded | None:
        """Load the incarnation alive at an address, as of everything admitted. Raises DocumentMismatch.

        What is kept in memory serves definitions of its own version; another one gets a reading of its own, migrated
        from what is stored.
        """
        loaded = self.documents.get(address)
        if loaded is not None and loaded.version != doc.version:
            await self.gate.wait(loaded.seq)
            loaded = await self._read_document(doc, address)
        elif loaded is None:
            loaded = await self._load_document(doc, address)
        if loaded is not None:
            fits(doc, loaded.record)
        return loaded

    async def _load_document(self, doc: Doc[Any], address: Address) -> Loaded | None:
        """Read a document and keep it, unless it was retired or made while storage was asked."""
        await self._copied(address)
        loaded = None
        retirements = -1
        while address not in self.documents and retirements != self.retirements:
            retirements = self.retirements
            loaded = None if address in self.retired else await self._read_document(doc, address)
        if address in self.documents:
            return await self.document(doc, address)
        return None if loaded is None else self.keep(address, loaded)

    async def _read_document(self, doc: Doc[Any], address: Address) -> Loaded | None:
        scope = address.stored_scope()
        record = await self.storage.find_document(self.key, address.kind, scope, address.key)
        stored = None if record is None else await self.storage.document(self.key, record.id)
        if stored is None:
            return None
        value: JsonObject = migrated(doc, stored.value, stored.version)
        return Loaded(stored.record, Tracker(value), doc.version, stored.version, stored.deltas_since_base)

    def keep(self, address: Address, loaded: Loaded) -> Loaded:
        """Keep a document in memory; drop durable ones that were loaded long ago."""
        self.documents[address] = loaded
        if len(self.documents) > MAX_LOADED_DOCUMENTS:
            for old in [a for a, one in self.documents.items() if one.seq <= self.gate.durable][:64]:
                if old != address and not self.documents[old].held:
                    del self.documents[old]
        return loaded

    async def incarnation(self, address: Address) -> DocumentRecord | None:
        """Name the incarnation alive at an address, as of everything admitted, without its value. For the line."""
        loaded = self.documents.get(address)
        if loaded is not None:
            return loaded.record
        if address in self.retired:
            return None
        await self._copied(address)
        return await self.storage.find_document(self.key, address.kind, address.stored_scope(), address.key)

    async def _copied(self, address: Address) -> None:
        """Wait until storage knows of a copy that it has been told to make."""
        await self.gate.wait(self.copied.get(address, 0))

    def may_have_documents(self, task: int) -> bool:
        """Whether a task may have documents, as far as that is known without asking storage."""
        return task in self.task_documents or task in self.recovered

    async def documents_of(self, task: int) -> dict[Address, DocumentRecord]:
        """Name the living documents of a task, those included that only storage knows of. For the line."""
        found = await self._stored_documents_of(task) if task in self.recovered else {}
        for address in self.task_documents.get(task, ()):
            record = await self.incarnation(address)
            if record is not None:
                found[address] = record
        return found

    async def _stored_documents_of(self, task: int) -> dict[Address, DocumentRecord]:
        await self.drained()
        query = DocumentQuery(scope=TaskScope(task_id=task))
        page = await self.storage.scan_documents(self.key, query, DOCUMENTS_PAGE)
        found = {address_of(record): record for record in page.items}
        while page.next is not None:
            page = await self.storage.scan_documents(self.key, query, DOCUMENTS_PAGE, page.next)
            found |= {address_of(record): record for record in page.items}
        return found

    async def drained(self) -> None:
        """Return when everything admitted so far is durable, so that storage can answer for all of it."""
        await self.gate.wait(self.seq)

    async def settled(self, kind: type[Settled], id: int) -> Settled:
        """Return a task's or submission's final record once it is durable.

        Raises UnknownRecord, SessionFailed, and WaitCycle in the code of a task that must end first.
        """
        self.check()
        self.line.refuse_reentry()
        waiter: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(waiter)
        try:
            with self.use:
                return await self._settled(kind, id, waiter)
        finally:
            self._unwait(id, waiter)

    def expect(self, task: int, receipt: "asyncio.Future[Settled]") -> None:
        """Have ``receipt`` get a live task's final record once it is durable, or what ends this incarnation before."""
        self.check()
        self._waiting.setdefault(task, []).append(receipt)

    async def _settled(self, kind: type[Settled], id: int, waiter: asyncio.Future[Settled]) -> Settled:
        if kind is TaskRecord and self.forest.kept(id) is not None:
            return await self._ended(id, waiter)
        await self.drained()
        record = await self.row(kind, id)
        if waiter.done():  # ended or closed while storage was asked: what it says is no longer about this session
            return waiter.result()
        if record is None:
            raise UnknownRecord(kind.__name__.removesuffix("Record").lower(), id)
        if is_settled(record) and id not in self.pending.rows:
            return record
        return await self._ended(id, waiter) if kind is TaskRecord else await waiter

    async def _ended(self, task: int, waiter: "asyncio.Future[Settled]") -> Settled:
        """Wait for the end of a live task."""
        try:
            refuse_wait_for(self.forest, [task])
        except WaitCycle:
            await self.drained()  # the waits and owners that close the cycle
            raise
        return await waiter

    def _unwait(self, id: int, waiter: "asyncio.Future[Settled]") -> None:
        waiters = self._waiting.get(id)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[id]
        if waiter.done() and not waiter.cancelled():
            waiter.exception()

    # --- admission, durability, publication

    def admit(self, batch: Batch, publication: Publication) -> None:
        """Hand a batch to the storage actor; from here on it belongs to the session's state."""
        self.pending.add(batch.seq, publication.rows)
        self._unpublished.append(publication)
        self._write(self, batch)
        self.tell_deadline()

    def next_wake(self) -> int | None:
        """Tell when the session must be active without being asked: 0 for now, a stored deadline in ms, or never."""
        return 0 if self.mail.outgoing or self.unfinished else self.forest.wake()

    def tell_deadline(self, *, again: bool = False) -> None:
        """Have the timer know the session's earliest deadline, unless that is what it was told last."""
        deadline = self.forest.deadline()
        if again or deadline != self._deadline:
            self._deadline = deadline
            self._alarm(self.key, deadline)

    def durable(self, seq: int) -> None:
        """Take note that every commit up to ``seq`` is stored: open the gate, publish."""
        self.pending.forget(seq)
        if self.retired:
            self.retired = {address: at for address, at in self.retired.items() if at > seq}
        if self.copied:
            self.copied = {address: at for address, at in self.copied.items() if at > seq}
        self.gate.advance(seq)
        while self._unpublished and self._unpublished[0].seq <= seq:
            self._publish(self._unpublished.popleft())
        self.use.note()

    def _publish(self, publication: Publication) -> None:
        for row in publication.rows if self._waiting else ():
            if row.id in self._waiting and isinstance(row, TaskRecord | SubmissionRecord) and is_settled(row):
                self._answer(row)
        self.subscribers.publish(self.key, publication)
        for span in publication.spans:
            emit(span)

    def _answer(self, record: Settled) -> None:
        for waiter in self._waiting.pop(record.id):
            if not waiter.done():
                waiter.set_result(record)

    def subscribe(
        self, listener: Listener, ended: Callable[[], None] = lambda: None, *, moved: Moved | None = None
    ) -> Callable[[], None]:
        """Call ``listener`` with every later publication, ``ended`` when this incarnation ends. Returns a disposer.

        When it has ended already ``ended`` is called soon. With ``moved`` the subscription outlives passivation: it is
        called with None then, and with the next incarnation before that has published anything. None of the three may
        keep an incarnation in memory that has left it.
        """
        one = Subscription(listener, ended, moved)
        if self._dead:
            asyncio.get_running_loop().call_soon(ended)
        else:
            self.subscribers.add(one)
        return one.dispose


def parent_of(record: ConversationRecord | TaskRecord) -> int | None:
    """Name the node directly above a record in the ownership tree."""
    if isinstance(record, TaskRecord):
        return record.owner if record.owner is not None else record.conversation_id
    return None if record.owner is None else record.owner.task_id


def is_settled(record: Any) -> bool:
    """Whether a task's or submission's record is final."""
    return not record.live if isinstance(record, TaskRecord) else bool(record.settled)
