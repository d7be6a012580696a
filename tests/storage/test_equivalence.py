"""SQLite does what memory does, for any sequence of groups of batches, good and bad."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs
from perdure.storage.codec import decode_message, decode_submission, decode_task
from perdure.storage.conformance_rig import (
    ENDED,
    PENDING,
    conversation,
    document,
    entry,
    message,
    pages,
    submission,
    task,
)
from perdure.storage.contract import (
    ConversationQuery,
    DocumentQuery,
    EntryQuery,
    MessageQuery,
    SubmissionQuery,
    TaskQuery,
)
from perdure.storage.errors import StorageCorrupt, StorageRejected
from perdure.storage.memory import MemoryStorage
from perdure.storage.memory_session import MemorySession
from perdure.storage.records import (
    Base,
    Batch,
    ConversationDelete,
    ConversationOwner,
    ConversationRecord,
    ConversationScope,
    Delta,
    DocumentChange,
    DocumentCopy,
    DocumentRetire,
    MessageDelete,
    Pending,
    Scope,
    SessionScope,
    TaskScope,
    Write,
)
from perdure.storage.sqlite import SqliteStorage

SPARE_IDS = 2
"""Each batch hands out so many ids more than it uses, so that later ones may use old ids."""

WILD = 24
"""A recipe is not made to fit when its last number is so high."""

Recipe = tuple[int, int, int, int]
recipes = st.tuples(st.integers(0, 17), st.integers(0, 30), st.integers(0, 30), st.integers(0, 25))
batches = st.tuples(st.sampled_from("ab"), st.lists(recipes, max_size=4), st.integers(0, 20))


class Cook:
    """Makes writes of recipes: mostly such as the session could take at that point of the group, sometimes not."""

    def __init__(self, session: MemorySession, *, pruned: bool) -> None:
        self.pruned = pruned
        """Whether a conversation may have been deleted: from then on no old id is used for anything new."""
        self.last_id = session.last_id
        self.seq = session.seq
        self.conversations = sorted(session.conversations)
        self.entries = sorted(session.entries)
        self.tasks = sorted(number for number, body in session.tasks.items() if decode_task(body).live)
        self.submissions = {number: decode_submission(body) for number, body in session.submissions.items()}
        self.messages = {number: decode_message(body) for number, body in session.messages.items()}
        self.documents = {number: row.record for number, row in session.documents.items() if row.alive(None)}
        self.untouched: dict[int, Any] = {}
        self.past = {number: row.record for number, row in session.documents.items()}

    def fresh(self, a: int, wild: int) -> int:
        """Give a new id or one that was left over, or sometimes any id."""
        if wild >= WILD and not self.pruned:
            return a
        if not self.pruned and a % 9 == 0 and self.last_id > SPARE_IDS:
            return self.last_id - a % SPARE_IDS
        self.last_id += 1
        return self.last_id

    def cook(self, recipe: Recipe) -> Write:
        kind, a, b, wild = recipe
        home = pick(self.conversations, b, wild)
        match kind:
            case 0:
                owner = ConversationOwner(conversation_id=1 + b % 3, task_id=1 + a % 3)
                return self.keep(self.conversations, ConversationRecord(id=self.fresh(a, wild), owner=owner))
            case 1:
                at = pick(self.entries, a, wild)
                return self.keep(self.conversations, conversation(self.fresh(a, wild), home, at))
            case 2:
                return self.keep(self.entries, entry(self.fresh(a, wild), home, head=b if b % 3 == 0 else None))
            case 3:
                state = ENDED if b % 4 == 0 else PENDING
                return self.keep(self.tasks, task(self.fresh(a, wild), state, conversation_id=home))
            case 4 | 5 if self.tasks:
                state = ENDED if b % 3 == 0 else Pending(checkpoint={"b": b})
                return task(pick(self.tasks, a, wild), state, kind="ab"[b % 2], conversation_id=home)
            case 6 | 7 if a % 2 or not self.submissions:
                request_id = f"r{b}" if b % 2 else None
                made = submission(self.fresh(a, wild), conversation_id=home, request_id=request_id)
                self.submissions[made.id] = made
                return made
            case 6 | 7:
                made = self.submissions.get(pick(list(self.submissions), a, wild)) or submission(a)
                return structs.replace(made, status=("queued", "placed", "done", "unanswered")[b % 4])
            case 14 | 15 | 16:
                return self._message(kind, a, b, wild)
            case 8 | 9 if self.untouched:
                content = Delta(version=1 + wild // WILD, ops=[["s", ["n"], b]] if b != 13 else [["a", ["none"], "x"]])
                return DocumentChange(id=self._touch(a, wild), content=content)
            case 10 if self.untouched:
                content = Base(version=1 + b // 25, value={"n": b})
                return DocumentChange(id=self._touch(a, wild), content=content)
            case 11 if self.documents and b % 2:
                retired = pick(list(self.documents), a, wild)
                self.documents.pop(retired, None)
                return DocumentRetire(id=retired)
            case 17 if b % 2:
                self.pruned = True
                return ConversationDelete(id=pick(self._quiet() or self.conversations, a, wild))
            case 12 if self.past:
                return self._copy(a, b, wild)
        return self._document(a, b, wild)

    def _quiet(self) -> list[int]:
        """List the conversations, all but the first one, that no live document belongs to."""
        busy = {getattr(record.scope, "conversation_id", 0) for record in self.documents.values()}
        return [number for number in self.conversations[1:] if number not in busy]

    def _message(self, kind: int, a: int, b: int, wild: int) -> Write:
        status = ("outgoing", "queued", "queued", "dead", "consumed")[b % 5]
        known = pick(list(self.messages), a, wild)
        if kind == 16 and self.messages and b % 2:
            self.messages.pop(known, None)
            return MessageDelete(id=known)
        request_id = f"r{b // 2}" if status == "consumed" or (b % 3 == 0 and status != "outgoing") else None
        body = None if status == "consumed" else {"b": b}
        old = self.messages.get(known)
        if kind == 14 or old is None:
            made = message(self.fresh(a, wild), status=status, task_id=1 + b % 2, request_id=request_id, body=body)
        else:
            keys = (old.task_id, old.request_id) if wild < WILD - 4 else (1, request_id)
            made = message(known, status=status, task_id=keys[0], request_id=keys[1], body=body)
        self.messages[made.id] = made
        return made

    def begin_batch(self) -> None:
        self.untouched = dict(self.documents)

    def _touch(self, a: int, wild: int) -> int:
        number = pick(list(self.untouched), a, wild)
        self.untouched.pop(number, None)
        return number

    def keep(self, ids: list[int], record: Any) -> Any:
        ids.append(record.id)
        return record

    def _document(self, a: int, b: int, wild: int) -> Write:
        target = 1 + b % 2
        scope: Scope = (SessionScope(), ConversationScope(conversation_id=target), TaskScope(task_id=target))[a % 3]
        fields: Any = {"history": ("latest", "rewindable")[b // 2 % 2], "fork": "current"} if a % 3 == 1 else {}
        key = None if b % 5 == 0 else f"k{b}"
        made = document(self.fresh(a, wild), {"n": b}, scope=scope, kind="de"[b // 7 % 2], key=key, **fields)
        self.documents[made.record.id] = self.past[made.record.id] = made.record
        return made

    def _copy(self, a: int, b: int, wild: int) -> Write:
        sources = [number for number, record in self.past.items() if record.history] or list(self.past)
        source = pick(sources, a, wild)
        like = self.past.get(source) or document(1, {}).record
        fields: Any = {name: getattr(like, name) for name in ("kind", "key", "history", "fork")}
        scope = ConversationScope(conversation_id=3 + b)
        record = document(self.fresh(b, wild), {}, scope=scope, **fields).record
        at = max(0, self.seq - b % 5) if b % 2 and like.history == "rewindable" else None
        self.documents[record.id] = self.past[record.id] = record
        return DocumentCopy(record=record, source=source, at=at)


def pick(ids: list[int], a: int, wild: int) -> int:
    """Give one of the ids, or sometimes any id."""
    return ids[a % len(ids)] if ids and wild < WILD else a


async def outcome(awaitable: Any) -> Any:
    """Give what something returns, or the kind of its error and the batch that it blames."""
    try:
        return await awaitable
    except StorageRejected as error:
        return "rejected", error.index
    except StorageCorrupt:
        return "corrupt"


async def dump(storage: Any, session: MemorySession | None, key: str) -> list[Any]:
    """Read everything that a session's tables hold, in every way there is."""
    found: list[Any] = [await storage.session(key)]
    if session is None:
        return found
    scopes = [
        SessionScope(),
        *(kind for n in (1, 2, 3) for kind in (ConversationScope(conversation_id=n), TaskScope(task_id=n))),
    ]
    points = [None, *range(max(0, session.seq - 6), session.seq + 2)]
    for order in ("ascending", "descending"):
        found += await pages(storage.scan_conversations, key, ConversationQuery(order=order), limit=3)
        found += await pages(storage.scan_tasks, key, TaskQuery(order=order, kind="a"), limit=3)
        for status in (None, "queued", "done"):
            found += await pages(storage.scan_submissions, key, SubmissionQuery(order=order, status=status), limit=3)
        for query in (MessageQuery(order=order), MessageQuery(order=order, status="consumed", task_id=1)):
            found += await pages(storage.scan_messages, key, query, limit=3)
        for number in session.conversations:
            query = EntryQuery(conversation_id=number, order=order, min_entry_id=2)
            found += await pages(storage.scan_entries, key, query, limit=3)
            found.append(await storage.latest_head_marker(key, number, 9 if order == "ascending" else None))
    found += [*await storage.live_tasks(key), *await storage.live_messages(key)]
    for target, request_id in session.message_requests:
        found.append(await storage.message_by_request(key, target, request_id))
    for number in range(1, session.last_id + 1):
        found += [
            await storage.entry(key, number),
            await storage.task(key, number),
            await storage.submission(key, number),
            await storage.message(key, number),
        ]
    for at in points:
        for scope in scopes:
            found += await pages(storage.scan_documents, key, DocumentQuery(scope=scope, at=at))
            found.append(await storage.find_document(key, "d", scope, "k", at=at))
        for number in session.documents:
            found.append(await outcome(storage.document(key, number, at)))
    return found


class Equivalence(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.memory = MemoryStorage(clock=lambda: 7)
        self.pruned: set[str] = set()
        self.tested = self.make_storage(Path(self.folder.name))
        self.loop.run_until_complete(self.memory.open())
        self.loop.run_until_complete(self.tested.open())

    def make_storage(self, folder: Path) -> Any:
        return SqliteStorage(folder / "s.db", durability="process", clock=lambda: 7)

    def teardown(self) -> None:
        try:
            for key in "ab":
                session = self.memory._sessions.get(key)
                expected = self.loop.run_until_complete(dump(self.memory, session, key))
                assert self.loop.run_until_complete(dump(self.tested, session, key)) == expected
        finally:
            self.loop.run_until_complete(self.tested.close())
            self.loop.close()
            self.folder.cleanup()

    @rule(group=st.lists(batches, min_size=1, max_size=4))
    def write(self, group: list[tuple[str, list[Recipe], int]]) -> None:
        made = []
        cooks: dict[str, Cook] = {}
        for key, plan, step in group:
            session = self.memory._sessions.get(key) or MemorySession(key, 0)
            cook = cooks.get(key) or cooks.setdefault(key, Cook(session, pruned=key in self.pruned))
            cook.begin_batch()
            root = [] if cook.conversations else [cook.keep(cook.conversations, conversation(cook.fresh(1, 0)))]
            writes = [*root, *(cook.cook(recipe) for recipe in plan)]
            cook.last_id += SPARE_IDS
            cook.seq += {20: 0, 19: 3}.get(step, 1)
            wake = len(plan) if step % 2 else None
            made.append(Batch(session=key, seq=cook.seq, last_id=cook.last_id, writes=writes, wake=wake))
        self.pruned |= {key for key, cook in cooks.items() if cook.pruned}
        expected = self.loop.run_until_complete(outcome(self.memory.write(made)))
        assert self.loop.run_until_complete(outcome(self.tested.write(made))) == expected, made

    @rule()
    def reopen(self) -> None:
        self.loop.run_until_complete(self.tested.close())
        self.loop.run_until_complete(self.tested.open())

    @invariant()
    def the_same_sessions_are_there(self) -> None:
        for ask in (
            lambda s: s.sessions(9),
            lambda s: s.due(3, 9),
            lambda s: s.next_wake(),
            lambda s: s.dead_letters(),
        ):
            answers = [self.loop.run_until_complete(ask(storage)) for storage in (self.memory, self.tested)]
            assert answers[0] == answers[1]


TestEquivalence = Equivalence.TestCase
TestEquivalence.settings = settings(
    max_examples=30,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
