"""What a store looks like at one commit: plain values, which ``--json`` prints as they are.

Tasks and conversations stand below their owner; one whose owner has ended stands below the session.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from ...storage.contract import DocumentQuery, SubmissionQuery
from ...storage.owner import Owner, find_owner
from ...storage.records import (
    Completing,
    ConversationRecord,
    ConversationScope,
    DocumentRecord,
    JoinPolicy,
    JsonObject,
    Parent,
    Scope,
    SessionRecord,
    SessionScope,
    StoredDocument,
    TaskRecord,
    TaskScope,
    Terminal,
    Waiting,
)
from ...storage.sqlite_reader import SqliteReader, StoreSizes
from ...storage.sqlite_sizes import SessionSizes
from ..conversation.builtin import InboxDoc

PAGE = 1_000


class Part(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of what a picture consists of."""


class Document(Part, kw_only=True):
    """A document alive now, and how many bytes its value has."""

    id: int
    kind: str
    key: str | None = None
    version: int
    bytes: int


class Task(Part, kw_only=True):
    """A live task, and what lives below it."""

    id: int
    kind: str
    version: int
    status: str
    phase: str | None = None
    outcome: str | None = None
    """How it will end, once what it owns has ended (status completing)."""
    waiting_on: list[int] = []
    policy: str | None = None
    until: int | None = None
    mail: bool = False
    """Whether it waits for messages, too."""
    queued: int = 0
    """How many messages are queued for it."""
    background: bool = False
    abort_requested: bool = False
    started_at: int | None = None
    owner: int | None = None
    documents: list[Document] = []
    conversations: list["Conversation"] = []
    tasks: list["Task"] = []


class Conversation(Part, kw_only=True):
    """A conversation with live tasks or waiting input, or the root one."""

    id: int
    parent: Parent | None = None
    owner: int | None = None
    inbox: list[JsonObject] = []
    documents: list[Document] = []
    tasks: list[Task] = []


class SessionLine(Part, kw_only=True):
    """One session in the list."""

    key: str
    created_at: int
    seq: int
    last_id: int
    wake: int | None = None
    sizes: SessionSizes


class Session(SessionLine, kw_only=True):
    """A session and all that is under way in it."""

    outgoing: int = 0
    """How many messages have not arrived in their receivers' sessions."""
    dead_letters: int = 0
    documents: list[Document]
    conversations: list[Conversation]


class Store(Part, kw_only=True):
    """A file, and who has it open for writing."""

    path: str
    sizes: StoreSizes
    owner: Owner | None = None
    next_wake: int | None = None
    """When some session must next be awake: 0 for now, or a time in ms."""
    sessions: list[SessionLine]


# --- the store


async def list_sessions(reader: SqliteReader) -> Store:
    """List every session."""
    sizes = await reader.all_sizes()
    return await _store(reader, [_line(record, sizes[record.key]) async for record in _sessions(reader)])


async def inspect_busy(reader: SqliteReader) -> Store:
    """Look into every session with live tasks or open submissions."""
    found = [await inspect_session(reader, key) for key in await reader.busy_sessions()]
    return await _store(reader, [session for session in found if session is not None])


async def inspect_one(reader: SqliteReader, key: str) -> Store | None:
    """Look into one session; None when there is none of this key."""
    session = await inspect_session(reader, key)
    return None if session is None else await _store(reader, [session])


async def _store(reader: SqliteReader, sessions: Iterable[SessionLine]) -> Store:
    return Store(
        path=reader.path,
        sizes=reader.sizes(),
        owner=find_owner(reader.path),
        next_wake=await reader.next_wake(),
        sessions=list(sessions),
    )


async def _sessions(reader: SqliteReader) -> AsyncIterator[SessionRecord]:
    page = await reader.sessions(PAGE)
    while True:
        for record in page.items:
            yield record
        if page.next is None:
            return
        page = await reader.sessions(PAGE, page.next)


def _line(record: SessionRecord, sizes: SessionSizes) -> SessionLine:
    return SessionLine(**msgspec.structs.asdict(record), sizes=sizes)


# --- one session


async def inspect_session(reader: SqliteReader, key: str) -> Session | None:
    """Look into a session; None when there is none of this key."""
    record = await reader.session(key)
    if record is None:
        return None
    live = await reader.live_tasks(key)
    conversations = await _conversations(reader, key, live)
    shown = {one.id: await _conversation(reader, key, one) for one in conversations}
    messages = await reader.live_messages(key)
    queued = Counter(message.task_id for message in messages if message.status == "queued")
    tasks = {one.id: await _task(reader, key, one, queued[one.id]) for one in live}
    return Session(
        **msgspec.structs.asdict(record),
        sizes=await reader.session_sizes(key),
        outgoing=len(messages) - queued.total(),
        dead_letters=(await reader.dead_letters()).get(key, 0),
        documents=await _documents(reader, key, SessionScope()),
        conversations=_hang(shown, tasks, live),
    )


def _hang(shown: dict[int, Conversation], tasks: dict[int, Task], live: list[TaskRecord]) -> list[Conversation]:
    """Put everything below its owner; give what has none that is alive."""
    for record in live:
        owner = tasks.get(record.owner) if record.owner is not None else None
        (owner or shown[record.conversation_id]).tasks.append(tasks[record.id])
    top: list[Conversation] = []
    for one in shown.values():
        above = tasks.get(one.owner) if one.owner is not None else None
        (top if above is None else above.conversations).append(one)
    return top


async def _conversations(reader: SqliteReader, key: str, live: list[TaskRecord]) -> list[ConversationRecord]:
    """Load the root, the conversations of live tasks, and those where something is queued."""
    wanted = {1, *(task.conversation_id for task in live)}
    queued = await reader.scan_submissions(key, SubmissionQuery(status="queued"), PAGE)
    wanted |= {submission.conversation_id for submission in queued.items}
    found = [await reader.conversation(key, one) for one in sorted(wanted)]
    return [record for record in found if record is not None]


async def _conversation(reader: SqliteReader, key: str, record: ConversationRecord) -> Conversation:
    scope = ConversationScope(conversation_id=record.id)
    inbox = await reader.find_document(key, InboxDoc.kind, scope)
    stored = None if inbox is None else await reader.document(key, inbox.id)
    return Conversation(
        id=record.id,
        parent=record.parent,
        owner=None if record.owner is None else record.owner.task_id,
        inbox=[] if stored is None else stored.value.get("items", []),
        documents=await _documents(reader, key, scope),
    )


async def _task(reader: SqliteReader, key: str, record: TaskRecord, queued: int) -> Task:
    state = record.state
    waiting = state if isinstance(state, Waiting) else None
    return Task(
        id=record.id,
        kind=record.kind,
        version=record.version,
        status=_tag(state),
        phase=None if isinstance(state, Completing | Terminal) else state.checkpoint.get("phase"),
        outcome=_tag(state.outcome) if isinstance(state, Completing | Terminal) else None,
        waiting_on=[] if waiting is None else waiting.on,
        policy=None if waiting is None else _policy(waiting.policy),
        until=None if waiting is None else waiting.until,
        mail=waiting is not None and waiting.mail,
        queued=queued,
        background=record.background,
        abort_requested=record.abort_requested,
        started_at=record.started_at,
        owner=record.owner,
        documents=await _documents(reader, key, TaskScope(task_id=record.id)),
    )


def _policy(policy: JoinPolicy) -> str:
    return policy if isinstance(policy, str) else f"quorum {policy.quorum}"


def _tag(union: msgspec.Struct) -> str:
    return str(union.__struct_config__.tag)


async def _documents(reader: SqliteReader, key: str, scope: Scope) -> list[Document]:
    page = await reader.scan_documents(key, DocumentQuery(scope=scope), PAGE)
    stored = [(record, await reader.document(key, record.id)) for record in page.items]
    return list(_shown(stored))


def _shown(stored: Iterable[tuple[DocumentRecord, StoredDocument | None]]) -> Iterator[Document]:
    for record, content in stored:
        if content is not None:
            size = len(msgspec.json.encode(content.value))
            yield Document(id=record.id, kind=record.kind, key=record.key, version=content.version, bytes=size)
