"""The system: the root of the supervision tree and the door to everything in it.

    root                rest_for_one: who comes later depends on who came before
      storage           every commit, in groups
      timer             stored deadlines
      sessions          one guard and one actor per active session

This module puts the rooms together and decides nothing itself. Proved by tests/actors/test_system.py.
"""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

import msgspec
import structlog

from ..chord.errors import PerdureError
from ..storage.contract import Cursor, Page, Storage
from ..storage.errors import SchemaTooNew, StorageCorrupt, StorageInUse
from ..storage.records import Batch, SessionRecord, TaskRecord
from ..storage.sqlite import SqliteStorage
from ..supervisors.restart import Exit
from .agent.calls import CallDesk
from .agent.compaction import AgentCompactor, Compaction
from .agent.cutoff import Leftovers
from .agent.generation import Generation, GenerationRunner
from .agent.registry import Extension, Registry
from .agent.tooltask import ToolTask
from .conversation.builtin import create_documents
from .conversation.calls import Calls
from .conversation.compaction import Compactor
from .conversation.context import check_messages
from .conversation.decisions import DecisionBox, DecisionDesk
from .conversation.deletion import resume_deletions
from .conversation.inbox import Runner, withdraw_inputs
from .conversation.sessions import Session
from .conversation.settings import Settings
from .models import Model, Models
from .runtime import (
    Actor,
    ActorDead,
    ActorError,
    ActorRef,
    ActorSystem,
    Backoff,
    ChildSpec,
    Clock,
    Supervisor,
    SystemStopped,
)
from .runtime.background import BackgroundThread
from .session.actors import Due, Environment, SessionActor, Sessions, check_key
from .session.core import SessionCore
from .session.directory import Directory, at_work
from .session.environment import Hooks, Services
from .session.errors import SessionClosed, SessionFailed
from .session.mail import MailLimits
from .session.storage_actor import CatchUp, Delete, StorageActor, Store
from .session.timer import Asleep, Look, TimerActor, Wake
from .session.tracing import EndedSpan
from .task.actor import TaskActor
from .task.definition import Definitions
from .task.engine import Engine, Invocation
from .task.inspection import SessionFigures, figures, restarts_by_session
from .task.ref import tell_task
from .task.spans import span_of
from .task.standing import Standing, standing
from .tools.places import LocalLeftovers

log = structlog.get_logger("perdure.system")

S = TypeVar("S")
A = TypeVar("A", bound=Actor)
INTENSITY, PERIOD_S, MAX_BACKOFF_S = 100, 1_800.0, 10.0
"""Storage that cannot be used for a quarter of an hour, because its disk is full or its lock is held, ends the system."""
HOPELESS = (StorageCorrupt, SchemaTooNew, StorageInUse)
"""What ends it at once when the store is opened again: waiting heals no damage, and another owner goes on with the work."""


class Inspection(msgspec.Struct, frozen=True):
    """A picture of what is in memory: the actors as a tree; of every active session the live tasks, and figures.

    ``standing`` tells what each of those tasks does or waits for. ``next_deadline`` is when a session must next be woken (ms
    since the epoch), as far as the timer was told: None when nothing is to come, 0 as long as storage was not asked.
    ``given_up`` are sessions that are down because they crashed again and again, with the reason; they are tried again
    when somebody asks for them.
    """

    actors: list[dict[str, Any]]
    sessions: dict[str, list[TaskRecord]]
    standing: dict[str, dict[int, Standing]]
    figures: dict[str, SessionFigures]
    next_deadline: int | None
    given_up: dict[str, str] = {}


class Root(Supervisor):
    """The root supervisor. A storage failure ends every session at once; what comes back reads what is stored."""

    def __init__(self, system: "System", children: tuple[ChildSpec, ...]) -> None:
        super().__init__(
            strategy="rest_for_one",
            intensity=INTENSITY,
            period_s=PERIOD_S,
            backoff=Backoff(first_s=0.05, max_s=MAX_BACKOFF_S),
            children=children,
        )
        self._owner = system

    def on_child_started(self, child_id: str, ref: Any) -> None:
        """Sessions are the last to start: with them the system is there."""
        if child_id == "storage":
            self._owner._storage = ref._incarnation.actor
        if child_id == "sessions":
            self._owner._up(ref)

    def on_child_ended(self, child_id: str, reason: Exit) -> None:
        """What stands on a crashed child has crashed with it; a store that will not heal ends everything."""
        if child_id != "sessions" and reason.abnormal:
            self._owner._lost(reason.cause)
        if isinstance(reason.cause, HOPELESS):
            raise reason.cause
        if child_id == "sessions":
            self._owner._down()


class System:
    """A running system over one store. Use ``async with System.open(...) as system``.

    Methods are for the loop that it was opened on; for synchronous hosts see ``background``.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        models: Models,
        extensions: Iterable[Extension],
        settings: Settings,
        clock: Clock | None,
    ) -> None:
        self._store = Store(storage)
        self._extensions = tuple(extensions)
        self._clock = clock
        self._actors: ActorSystem | None = None
        self._storage: StorageActor | None = None
        self._sessions: Sessions | None = None
        self._changed = asyncio.Event()
        self._draining = False
        """Whether it closes, and only what runs already may go on."""
        self._grace_over = asyncio.Event()
        self._closing = False
        self._ended: BaseException | None = None
        self._desk: DecisionDesk | None = None
        self.services = Services()
        definitions = Definitions()
        self.services.provide(Definitions, definitions)
        self.services.provide(Registry, Registry(definitions))
        self.services.provide(Models, models)
        self.services.provide(Settings, settings)
        self.services.provide(MailLimits, MailLimits(lambda: self.services.get(Settings).max_outgoing_messages))
        self.services.provide(Runner, GenerationRunner())  # type: ignore[type-abstract]
        self.services.provide(Calls, CallDesk())  # type: ignore[type-abstract]
        self.services.provide(Compactor, AgentCompactor())  # type: ignore[type-abstract]
        self.services.provide(Leftovers, LocalLeftovers())  # type: ignore[type-abstract]
        self.services.provide(Directory, self)  # type: ignore[type-abstract]
        self.registry.build_in((Generation, ToolTask, Compaction))

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | Storage,
        *,
        models: Models | Iterable[Model] = (),
        extensions: Iterable[Extension] = (),
        settings: Settings | None = None,
        durability: Literal["power", "process"] = "power",
        clock: Clock | None = None,
    ) -> Self:
        """Make a system over a SQLite file, or over any storage, to be entered with ``async with``.

        Entering takes the store's owner lock and goes on with all work that was under way when its last owner died.
        ``durability`` is that of the file: "power" makes an acknowledged commit survive a loss of power, "process" only
        the death of the process, and is faster. Entering raises StorageInUse, SchemaTooNew, StorageCorrupt.
        """
        storage: Any = SqliteStorage(store, durability=durability) if isinstance(store, str | os.PathLike) else store
        registered = models if isinstance(models, Models) else Models(*models)
        return cls(storage, models=registered, extensions=extensions, settings=settings or Settings(), clock=clock)

    @classmethod
    def background(cls, store: str | os.PathLike[str] | Storage, **options: Any) -> "BackgroundThread[System]":
        """Run a system on a loop in a thread of its own, for synchronous hosts: ``with System.background(...) as system``.

        ``system.call(fn, *args)`` runs ``fn(system, *args)`` there, a coroutine function or a plain one, and returns its result.
        """
        return ActorSystem.in_background_thread(lambda: System.open(store, **options))

    @property
    def registry(self) -> Registry:
        """The installed extensions: install, replace and uninstall while running."""
        return self.services.get(Registry)

    # --- life

    async def __aenter__(self) -> Self:
        await self._store.open()
        try:
            for extension in self._extensions:
                self.registry.install(extension)
            self._actors = ActorSystem(clock=self._clock)
            root = self._actors.spawn(Root, self, self._children(self._actors), id="root")
            root.when_ended().on_done(lambda ended: self._root_ended(ended.get()))
            await self._sessions_up()
            if isinstance(self._store.storage, SqliteStorage):
                self._desk = DecisionDesk(self.services, DecisionBox(self._store.storage.path))
                self._desk.start()
        except BaseException:
            await self._close_unopened()
            raise
        return self

    async def _close_unopened(self) -> None:
        """Close after an opening that failed. Its error is the one that counts; another one is reported only."""
        try:
            await self.close()
        except Exception:
            log.exception("close_failed")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Stop everything and give up the store. Running work is not ended: the next owner goes on with it.

        For ``grace_s`` seconds, phases that run may come to their end. Meanwhile nothing new begins, whoever comes from
        outside gets SessionClosed, and what was being waited for may still come. Then what goes on is cancelled, with a few
        seconds for its clean-up. Closing again while that lasts ends the grace.
        """
        if self._desk is not None:
            await self._desk.stop()
        if grace_s > 0 and not self._draining and self._sessions is not None:
            self._draining = True
            await self._drain(self._sessions, grace_s)
        self._closing = True
        self._grace_over.set()
        for core in self._sessions.active() if self._sessions is not None else ():
            core.seal()  # all at once: no commit may come between the first refusal and the last
        self._changed.set()
        if self._actors is not None:
            await self._actors.stop()
        await self._store.storage.close()

    async def _drain(self, sessions: Sessions, grace_s: float) -> None:
        """Return when no phase runs any more, when the grace is over, or when somebody closes without any."""
        assert self._actors is not None
        drained = asyncio.ensure_future(sessions.drain())
        over = self._actors.clock.call_later(grace_s, self._grace_over.set)
        cut_short = asyncio.ensure_future(self._grace_over.wait())
        try:
            await asyncio.wait({drained, cut_short}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            cut_short.cancel()
            drained.cancel()

    def _children(self, actors: ActorSystem) -> tuple[ChildSpec, ...]:
        storage = self._store.storage
        hooks = Hooks()
        hooks.conversation_created.append(create_documents)
        hooks.opened.append(resume_deletions)
        hooks.check_entry.append(check_messages)
        hooks.withdrawn.append(withdraw_inputs)
        hooks.undecided.append(self._undecided)
        hooks.span_of.append(self._span_of)
        environment = Environment(
            storage=storage,
            clock=actors.clock,
            services=self.services,
            hooks=hooks,
            make_scheduler=self._make_scheduler,
            write=self._write,
            alarm=self._alarm,
            gave_up=self._gave_up,
            asleep=self._asleep,
            idle_after_s=lambda: self.services.get(Settings).idle_after_s,
            caught_up=self._caught_up,
        )
        return (
            ChildSpec("storage", StorageActor, (self._store,), shutdown_s=30.0),
            ChildSpec("timer", TimerActor, (storage, self._wake)),
            ChildSpec("sessions", Sessions, (environment,), shutdown_s=None),
        )

    def _up(self, ref: Any) -> None:
        self._sessions = ref._incarnation.actor
        self._changed.set()
        self._tell("timer", Look())

    def _down(self) -> None:
        self._sessions = None
        self._changed.set()

    def _lost(self, cause: BaseException | None) -> None:
        if self._sessions is not None:
            self._sessions.fail_all(cause)

    def _root_ended(self, ended: Exit) -> None:
        self._ended = ended.cause
        self._down()
        if ended.abnormal and not self._closing:
            log.error("system_failed", error=repr(ended.cause))

    async def _sessions_up(self) -> Sessions:
        while self._sessions is None:
            if self._closing or self._ended is not None:
                raise SessionClosed("the system is closed") from self._ended
            self._changed.clear()
            await self._changed.wait()
        return self._sessions

    # --- what the rooms ask of each other

    async def core(self, key: str) -> SessionCore:
        """Give a session's current incarnation (see ``session.directory.Directory``)."""
        while not self._closing:
            self._refuse_outsiders()
            sessions = await self._sessions_up()
            try:
                return await sessions.core(key)
            except SessionClosed:
                await self._gone(sessions)
        raise SessionClosed("the system is closed")

    def _refuse_outsiders(self) -> None:
        if self._draining and not at_work.get():
            raise SessionClosed("the system is closing")

    async def _gone(self, sessions: Sessions) -> None:
        """Wait for the end of a sessions actor that is ending; unless the system closes, another one follows."""
        while self._sessions is sessions and not self._closing:
            self._changed.clear()
            await self._changed.wait()

    def _write(self, core: SessionCore, batch: Batch) -> None:
        if self._storage is None or not self._storage.admit(core, batch):
            core.fail(ActorDead("storage"))

    def _alarm(self, key: str, when: int | None) -> None:
        self._tell("timer", Wake(key, when))

    def _gave_up(self, key: str, cause: BaseException | None) -> None:
        """The end of an escalation: a session is down until somebody asks for it; the others go on."""
        log.error("session_given_up", session=key, error=repr(cause))

    def _asleep(self, key: str, when: int | None) -> None:
        self._tell("timer", Asleep(key, when))

    async def _caught_up(self, key: str) -> None:
        assert self._actors is not None
        storage = self._actors.ref("storage")
        if storage is not None:
            await storage.ask(CatchUp(key), block=False)

    def _tell(self, actor_id: str, message: object) -> bool:
        """Tell an actor something if it is there."""
        assert self._actors is not None
        ref = self._actors.ref(actor_id)
        if ref is None or not ref.is_alive():
            return False
        ref.tell(message)
        return True

    async def _wake(self, key: str) -> None:
        if self._draining:
            return  # its time stays stored, and comes when the store is opened again
        sessions = await self._sessions_up()
        if key not in sessions.given_up:
            await sessions.core(key)
            self._tell(f"session:{key}", Due())

    def _make_scheduler(self, core: SessionCore, actor: SessionActor) -> Engine:
        def start(engine: Engine, invocation: Invocation) -> None:
            child = ChildSpec(
                f"task:{core.key}/{invocation.task}", TaskActor, (engine, invocation), restart="transient"
            )
            with suppress(ActorDead, SystemStopped):  # the session is ending; its next life starts what it left
                actor.start_child(child)

        def kill(engine: Engine, invocation: Invocation) -> None:
            self.kill(f"task:{core.key}/{invocation.task}")

        engine = Engine(core, self.services.get(Definitions), start, kill)
        if self._draining:
            engine.halt()
        return engine

    def _span_of(self, tx: Any, record: TaskRecord) -> EndedSpan | None:
        return span_of(self.services.get(Definitions), tx.core.key, record)

    async def _undecided(self, tx: Any, record: TaskRecord) -> None:
        definition = self.services.get(Definitions).get(record.kind)
        if definition is not None:
            await definition.undecided(tx, record)

    # --- for applications

    async def session(self, key: str) -> Session:
        """Give the session of a key; it comes into being with its first commit. Raises InvalidValue for a bad key."""
        check_key(key)
        await self.core(key)
        return Session(self.services, key)

    async def sessions(self, limit: int = 100, cursor: Cursor | None = None) -> Page[SessionRecord]:
        """Page all sessions that are stored, in the order of their creation. Activates none."""
        return await self._store.storage.sessions(limit, cursor)

    async def has_session(self, key: str) -> bool:
        """Tell whether anything is stored of a session. Activates it not. Raises InvalidValue for a bad key."""
        return await self._store.storage.session(check_key(key)) is not None

    async def tell(self, session_key: str, task_id: int, message: Any, *, request_id: str | None = None) -> None:
        """Send a message to a task, from outside of all sessions; see ``TaskRef.tell``.

        From another thread: ``background.call(System.tell, session_key, task_id, message)``.
        """
        await tell_task(self.services, check_key(session_key), task_id, message, request_id)

    async def dead_letters(self) -> dict[str, int]:
        """Tell how many messages nobody will receive, by the session that keeps them: see ``Session.dead_letters``."""
        return await self._store.storage.dead_letters()

    async def delete_session(self, key: str) -> bool:
        """Delete a session and all that is stored of it; tell whether anything was. Its running work ends.

        Whoever waits for something of it gets SessionClosed; whoever goes on with one of its handles begins a new session
        of that key. What its tools have done in the world stays done. Raises StorageRejected when the backend cannot
        delete, and SessionFailed when storage fails: it is deleted or goes on, and may be deleted again.
        """
        check_key(key)
        self._refuse_outsiders()
        sessions = await self._sessions_up()
        try:
            return await sessions.end(key, partial(self._delete, key))
        except PerdureError:
            self._tell("timer", Look())
            raise

    async def _delete(self, key: str) -> bool:
        assert self._actors is not None
        self._alarm(key, None)
        storage = self._actors.ref("storage")
        try:
            if storage is None:
                raise ActorDead("storage")
            return bool(await storage.ask(Delete(key), block=False))
        except ActorError as error:
            raise SessionFailed(key, error) from error

    async def next_deadline(self) -> int | None:
        """Tell when the system must next be awake without being asked (ms since the epoch; 0: now), or None."""
        return await self._store.storage.next_wake()

    def inspect(self) -> Inspection:
        """Look at what runs in this process now."""
        actors = [] if self._actors is None else self._actors.tree()
        active = [] if self._sessions is None else self._sessions.active()
        sessions = {core.key: core.forest.all_kept() for core in active}
        given_up = {} if self._sessions is None else self._sessions.given_up
        restarts = restarts_by_session(actors)
        return Inspection(
            actors=actors,
            sessions=sessions,
            standing={core.key: _standings(core, sessions[core.key]) for core in active},
            figures={core.key: figures(core, restarts.get(core.key, 0)) for core in active},
            next_deadline=self._next_told(),
            given_up={key: repr(cause) for key, cause in given_up.items()},
        )

    def _next_told(self) -> int | None:
        timer = None if self._actors is None else self._actors.ref("timer")
        actor = None if timer is None else timer._incarnation.actor
        return cast("TimerActor", actor).next if actor is not None else None

    def spawn(self, actor_class: type[A], *args: Any, id: str | None = None, **kwargs: Any) -> ActorRef[A]:
        """Start an actor of the application's own on this loop; it ends with the system.

        Its ref is a true ``pykka.ActorRef``, which any thread may ask and tell. It is at the top of the tree, ends for good at
        its first crash, and keeps nothing: what must last belongs into a session. Raises SessionClosed.
        """
        if self._actors is None or self._closing:
            raise SessionClosed("the system is closed")
        return self._actors.spawn(actor_class, *args, id=id, **kwargs)

    def kill(self, actor_id: str) -> bool:
        """Drop an actor as a crash would, by its id in ``inspect()``; False when there is none. For tests of survival."""
        ref = None if self._actors is None else self._actors.ref(actor_id)
        if ref is not None and self._actors is not None:
            self._actors.kill(ref)
        return ref is not None


def _standings(core: SessionCore, tasks: Iterable[TaskRecord]) -> dict[int, Standing]:
    engine = core.scheduler
    return {task.id: standing(engine, task) for task in tasks} if isinstance(engine, Engine) else {}
