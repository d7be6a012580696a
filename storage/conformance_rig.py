"""What the conformance tests stand on: a session to commit to, records to commit, and assertions without pytest."""

import asyncio
import inspect
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from .contract import Cursor, Page, Storage
from .errors import StorageError, StorageRejected
from .records import (
    Base,
    Batch,
    Completed,
    ConversationRecord,
    ConversationScope,
    Delta,
    DocumentChange,
    DocumentCreate,
    DocumentRecord,
    EntryRecord,
    ForkPolicy,
    History,
    JsonObject,
    MessageRecord,
    Parent,
    Pending,
    Scope,
    SessionScope,
    SubmissionRecord,
    TaskRecord,
    TaskState,
    Terminal,
    Write,
)

T = TypeVar("T")
E = TypeVar("E", bound=StorageError)

PENDING = Pending(checkpoint={"phase": "start"})
ROOT = ConversationScope(conversation_id=1)
ENDED = Terminal(outcome=Completed(result="ok"))


class Rig:
    """One session of a store under test, with its counters."""

    def __init__(self, storage: Storage, *, reopen: bool, key: str = "session") -> None:
        self.storage = storage
        self.key = key
        self.seq = 0
        self.last_id = 0
        self._reopen = reopen

    def id(self) -> int:
        """Hand out the next id."""
        self.last_id += 1
        return self.last_id

    def other(self, key: str) -> "Rig":
        """Give another session of the same store."""
        return Rig(self.storage, reopen=self._reopen, key=key)

    def batch(self, *writes: Write, wake: int | None = None) -> Batch:
        """Make the session's next batch."""
        self.seq += 1
        return Batch(session=self.key, seq=self.seq, last_id=self.last_id, writes=list(writes), wake=wake)

    async def commit(self, *writes: Write, wake: int | None = None) -> int:
        """Commit; give the sequence number."""
        await self.write(self.batch(*writes, wake=wake))
        return self.seq

    async def write(self, *batches: Batch) -> None:
        """Write a group, and restart the store if the suite runs that way."""
        await self.storage.write(batches)
        if self._reopen:
            await self.restart()

    async def value(self, id: int, at: int | None = None) -> tuple[JsonObject, int] | None:
        """Read a document's value, and the number of deltas behind it."""
        found = await self.storage.document(self.key, id, at)
        return None if found is None else (found.value, found.deltas_since_base)

    async def restart(self) -> None:
        """Close and open the store."""
        await self.storage.close()
        await self.storage.open()

    async def refuse(self, *writes: Write) -> StorageRejected:
        """Check that a batch is refused for certain, and that the session stands where it stood."""
        before = await self.storage.session(self.key)
        seq = self.seq
        error = await fails(StorageRejected, self.storage.write([self.batch(*writes)]))
        self.seq = seq
        assert error.index == 0, f"the rejection names batch {error.index}"
        assert await self.storage.session(self.key) == before, "a refused batch moved the session"
        return error


async def fails(kind: type[E], awaitable: Awaitable[object]) -> E:
    """Check that something raises an error of a kind; give the error."""
    try:
        result = await awaitable
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


async def pages(scan: Callable[..., Awaitable[Page[T]]], *args: object, limit: int = 2) -> list[T]:
    """Read a scan to its end, page by page, and check the size of each page."""
    items: list[T] = []
    cursor: Cursor | None = None
    while True:
        page = await scan(*args, limit, cursor)
        assert len(page.items) <= limit, "a page is longer than its limit"
        assert page.items or page.next is None, "an empty page has a successor"
        items += page.items
        if page.next is None:
            return items
        cursor = page.next


def ids(records: list[Any]) -> list[int]:
    """List the ids of records."""
    return [record.id for record in records]


# --- records


def conversation(id: int, parent: int | None = None, at: int | None = None) -> ConversationRecord:
    """Make a conversation, a fork of another one if ``parent`` and ``at`` are given."""
    origin = None if parent is None or at is None else Parent(conversation_id=parent, at=at)
    return ConversationRecord(id=id, parent=origin)


def entry(id: int, conversation_id: int = 1, head: int | None = None) -> EntryRecord:
    """Make an entry."""
    return EntryRecord(id=id, conversation_id=conversation_id, kind="note", data={"n": id}, head=head)


def task(id: int, state: TaskState = PENDING, **fields: Any) -> TaskRecord:
    """Make a task."""
    defaults: dict[str, Any] = {
        "conversation_id": 1,
        "kind": "work",
        "version": 1,
        "background": False,
        "abort_requested": False,
    }
    return TaskRecord(id=id, state=state, **(defaults | fields))


def submission(id: int, **fields: Any) -> SubmissionRecord:
    """Make a queued input."""
    defaults: dict[str, Any] = {"conversation_id": 1, "type": "input", "status": "queued"}
    return SubmissionRecord(id=id, **(defaults | fields))


def message(id: int, **fields: Any) -> MessageRecord:
    """Make a message that is queued for task 2."""
    defaults: dict[str, Any] = {"status": "queued", "task_id": 2, "body": {"n": id}}
    return MessageRecord(id=id, **(defaults | fields))


def document(
    id: int,
    value: JsonObject,
    *,
    kind: str = "doc",
    scope: Scope | None = None,
    key: str | None = None,
    version: int = 1,
    history: History | None = None,
    fork: ForkPolicy | None = None,
) -> DocumentCreate:
    """Make the creation of a document; of a conversation's, with the latest value only unless told otherwise."""
    scope = scope or SessionScope()
    if isinstance(scope, ConversationScope):
        history, fork = history or "latest", fork or "current"
    record = DocumentRecord(id=id, kind=kind, scope=scope, key=key, history=history, fork=fork, created_at=0)
    return DocumentCreate(record=record, content=Base(version=version, value=value))


def base(id: int, value: dict[str, Any], version: int = 1) -> DocumentChange:
    """Make a change to a whole new value."""
    return DocumentChange(id=id, content=Base(version=version, value=value))


def delta(id: int, *ops: list[Any], version: int = 1) -> DocumentChange:
    """Make a change by operations."""
    return DocumentChange(id=id, content=Delta(version=version, ops=list(ops)))


def set_n(id: int, n: int) -> DocumentChange:
    """Make a change of the member ``n``."""
    return delta(id, ["s", ["n"], n])


# --- running


class Suite:
    """Base of the test classes: makes a store for each test, and runs the test's coroutine."""

    reopen_after_commit = False
    """Close and open the store after every commit."""

    def make_storage(self, folder: Path) -> Storage | Awaitable[Storage]:
        """Make an empty store, not open yet. ``folder`` is empty and the test's own. Override this, sync or async."""
        raise NotImplementedError

    @asynccontextmanager
    async def rig(self) -> AsyncIterator[Rig]:
        """Open an empty store, and close it at the end."""
        with tempfile.TemporaryDirectory() as folder:
            made = self.make_storage(Path(folder))
            storage = await made if inspect.isawaitable(made) else made
            await storage.open()
            try:
                yield Rig(storage, reopen=self.reopen_after_commit)
            finally:
                await storage.close()


S = TypeVar("S", bound=Suite)


def scenario(body: Callable[[S, Rig], Awaitable[None]]) -> Callable[[S], None]:
    """Make a plain test method of a coroutine that takes a rig."""

    async def run(suite: S) -> None:
        async with suite.rig() as rig:
            await body(suite, rig)

    def test(self: S) -> None:
        asyncio.run(run(self))

    test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
    return test
