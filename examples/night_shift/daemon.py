"""The daemon: one system on one SQLite file, one session, one question.

There is no code for recovery here. Every life of the process runs the same lines: the session is there or comes into
being, the question is asked or has been (its ``request_id`` says so), and waiting for the answer works either way.

Meanwhile it tells on its standard output what is going on, one snapshot a line, until nobody reads any more.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import perdure
import structlog
from perdure.models import Models, ScriptedModel, from_env

from .agents import director, night_shift
from .ledger import Ledger
from .script import answer
from .tree import Tree

SESSION = "night-shift"
REQUEST = "audit"
SCRIPTED = "scripted/auditor"
TICK_S = 0.1
DESK_TOKENS = 40
"""How long the ticket desk takes, in tokens: with it, the pace sets the speed of everything."""

Json: TypeAlias = dict[str, Any]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon is started with. ``pace`` is the scripted model's speed in tokens a second; 0 is no pace at all."""

    tree: Path
    store: Path
    model: str = SCRIPTED
    pace: float = 0

    @property
    def ledger(self) -> Ledger:
        """The tickets beside the store."""
        return Ledger(self.store.with_name(f"{self.store.name}.tickets.jsonl"))

    @property
    def log(self) -> Path:
        """Where the daemon's log goes."""
        return self.store.with_name(f"{self.store.name}.log")

    def seconds(self, tokens: float) -> float:
        """How long so many tokens take."""
        return tokens / self.pace if self.pace else 0


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation: how many entries it has, what it waits for, and the end of what is being said."""

    id: int
    title: str
    entries: int
    doing: list[str]
    saying: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon tells. ``tasks`` are by the id of the actor that runs them; the last snapshot has the ``report``."""

    opened_s: float
    actors: list[Json]
    tasks: dict[str, str]
    chats: list[Chat]
    report: str | None = None

    @property
    def entries(self) -> int:
        """How far the work has come."""
        return sum(chat.entries for chat in self.chats)


async def work(options: Options) -> None:
    """Ask for the audit, or go on with it, and report until it is answered."""
    began = time.monotonic()
    extension = night_shift(Tree(options.tree), options.ledger, options.seconds(DESK_TOKENS))
    async with perdure.System.open(options.store, models=models(options), extensions=[extension]) as system:
        opened_s = time.monotonic() - began
        session = await system.session(SESSION)
        root = await session.root(agent=director(options.model))
        submission = await root.submit(f"Audit the source tree {options.tree}.", request_id=REQUEST)
        observer = Observer(system, session, opened_s)
        settling = asyncio.create_task(submission.wait())
        told: Snapshot | None = None
        while not settling.done():
            snapshot = await observer.snapshot()
            if told is None or snapshot.chats != told.chats:
                tell(told := snapshot)
            await asyncio.wait([settling], timeout=TICK_S)
        settled = await settling
        if settled.answer is None:
            sys.exit(f"There is no report: {settled.reason}")
        tell(msgspec.structs.replace(await observer.snapshot(), report=settled.answer.text))


def models(options: Options) -> Models:
    """The scripted model, and those that the environment has a key for."""
    known = from_env()
    known.add(ScriptedModel(answer, name=SCRIPTED, tokens_per_second=options.pace or None))
    return known


def tell(snapshot: Snapshot) -> None:
    """Write one line."""
    sys.stdout.buffer.write(msgspec.json.encode(snapshot) + b"\n")
    sys.stdout.buffer.flush()


def run(options: Options) -> None:
    """Be the daemon. The log goes to standard error."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(work(options))


# --- looking at the system from inside


class Observer:
    """Watches the actors and every conversation of the session."""

    def __init__(self, system: perdure.System, session: perdure.Session, opened_s: float) -> None:
        self._system = system
        self._session = session
        self._opened_s = opened_s
        self._watches: dict[int, perdure.Watch] = {}

    async def snapshot(self) -> Snapshot:
        """What there is to see now."""
        await self._watch_new_conversations()
        inspection = self._system.inspect()
        views = [watch.value for watch in self._watches.values()]
        calls = {slot["taskId"]: slot["name"] for view in views for slot in _slots(view) if "taskId" in slot}
        tasks = inspection.sessions.get(SESSION, [])
        return Snapshot(
            opened_s=self._opened_s,
            actors=inspection.actors,
            tasks={f"{SESSION}/{task.id}": f"{calls.get(task.id, task.kind)} {_status(task)}" for task in tasks},
            chats=[_chat(view) for view in views],
        )

    async def _watch_new_conversations(self) -> None:
        async with self._session.commit() as tx:
            page = await tx.scan_conversations(perdure.ConversationQuery(), 100)
        for record in page.items:
            if record.id not in self._watches:
                conversation = await self._session.conversation(record.id)
                self._watches[record.id] = watch = await conversation.watch()
                watch.start(_keep_up)


async def _keep_up(value: Any, ops: Any) -> None:
    """Nothing to do with a change but to have the watch's value follow it."""


def _status(task: perdure.TaskRecord) -> str:
    return type(task.state).__name__.lower()


def _chat(view: Json) -> Chat:
    return Chat(
        id=view["conversation"]["id"],
        title=_title(view),
        entries=len(view["entries"]),
        doing=[slot["name"] for slot in _slots(view) if slot["status"] != "done"],
        saying=_saying(view),
    )


def _title(view: Json) -> str:
    said = (message for entry in view["entries"] for message in entry.get("model") or () if message["role"] == "user")
    return str(next(said, {"content": ""})["content"])


def _slots(view: Json) -> list[Json]:
    slots: list[Json] = view["docs"]["pi.live"].get("tools", [])
    return slots


def _saying(view: Json) -> str:
    """The end of the answer that streams in: the text, or the call that is being written."""
    message = view["docs"]["pi.live"].get("generation", {}).get("message", {})
    block = next(reversed(message.get("content") or [{}]))
    if block.get("type") == "toolCall":
        return f"{block['name']} {' '.join(map(str, block['arguments'].values()))}"
    return str(block.get("text", ""))
