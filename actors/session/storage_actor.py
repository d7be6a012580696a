"""The storage actor: every commit of every session goes through it, and many go in one transaction.

Batches that arrive while a group is being written wait and form the next group, so the group grows with
the load and an idle commit waits for nobody. An acknowledged batch is durable; when it is unknown whether a group is, the
actor crashes, every session dies with it, and the supervisors build all of it again from what is stored.
Proved by tests/actors/session/test_storage_actor.py.
"""

from typing import Any, NamedTuple

import structlog

from ...storage.contract import Storage
from ...storage.errors import StorageRejected
from ...storage.records import Batch
from ..runtime import Actor, Timer
from .core import SessionCore
from .outside import waiting_outside

log = structlog.get_logger("perdure.storage")

MAX_GROUP_WRITES = 1_000
"""Larger transactions hold up the others, and against a busy loop each row costs a wait for the interpreter."""
IDLE_S = 0.05

_FLUSH = object()
_IDLE = object()


class Store:
    """The storage of a system, and whether it must be opened again before it is used."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.fresh = False

    async def open(self) -> None:
        """Open for the first time, outside of any supervision: what is wrong is the caller's to know."""
        await self.storage.open()
        self.fresh = True


class Admitted(NamedTuple):
    """A batch to be stored, and whom to tell."""

    core: SessionCore
    batch: Batch


class CatchUp:
    """Asks for an answer once every batch of a session that was admitted before is stored."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key


class Delete:
    """Asks for a session to be deleted, behind every batch of it that was admitted before; nobody may admit more."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key


class StorageActor(Actor):
    """Writes groups of batches, in order, one group at a time."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._queue: list[Admitted] = []
        self._flushing = False
        self._idle: Timer | None = None

    async def on_start(self) -> None:
        """Open the store again, unless it was opened for this incarnation."""
        if not self._store.fresh:
            with waiting_outside(self):
                await self._store.storage.close()
                await self._store.storage.open()
        self._store.fresh = False

    def admit(self, core: SessionCore, batch: Batch) -> bool:
        """Queue a batch of a session, on the loop's thread; False when this actor has ended.

        No message: with one for each batch, the mailbox would cost a busy loop more than everything else in here.
        """
        if not self.actor_ref.is_alive():
            return False
        self._queue.append(Admitted(core, batch))
        if not self._flushing:
            self._flush_soon()
        return True

    def on_receive(self, message: Any) -> Any:
        """Write what has queued up; answer who asks about that."""
        if isinstance(message, CatchUp):
            return self._catch_up(message.key)
        if isinstance(message, Delete):
            return self._delete(message.key)
        return self._write_group() if message is _FLUSH else self._keep_house()

    def _flush_soon(self) -> None:
        """Once everybody who runs now has had a chance to admit something, too."""
        self._flushing = True
        self.actor_ref.tell(_FLUSH)

    async def _catch_up(self, key: str) -> None:
        while any(one.batch.session == key for one in self._queue):
            await self._write_group()

    async def _delete(self, key: str) -> bool:
        await self._catch_up(key)
        try:
            with waiting_outside(self):
                return await self._store.storage.delete_session(key)
        except StorageRejected:
            raise
        except Exception as error:
            self._fail([], error)
            raise StorageLost from error

    async def _keep_house(self) -> None:
        with waiting_outside(self):
            await self._store.storage.idle()

    async def _write_group(self) -> None:
        self._flushing = False
        group = self._take_group()
        with waiting_outside(self):
            await self._write(group)
        if self._queue:
            self._flush_soon()
        else:
            self._rest()

    def _take_group(self) -> list[Admitted]:
        count = writes = 0
        while count < len(self._queue) and (count == 0 or writes < MAX_GROUP_WRITES):
            writes += len(self._queue[count].batch.writes)
            count += 1
        group, self._queue = self._queue[:count], self._queue[count:]
        return group

    async def _write(self, group: list[Admitted]) -> None:
        """Store a group; a batch that storage refuses fails its session alone, and the others go on without it."""
        while group:
            try:
                await self._store.storage.write([one.batch for one in group])
            except StorageRejected as refusal:
                if refusal.index is None:
                    self._fail(group, refusal)
                    raise StorageLost from refusal
                group = self._without(group, group[refusal.index].core, refusal)
            except Exception as error:
                self._fail(group, error)
                raise StorageLost from error
            else:
                for one in group:
                    one.core.durable(one.batch.seq)
                return

    def _without(self, group: list[Admitted], core: SessionCore, refusal: StorageRejected) -> list[Admitted]:
        log.error("batch_rejected", session=core.key, error=str(refusal))
        core.fail(refusal)
        self._queue = [one for one in self._queue if one.core is not core]
        return [one for one in group if one.core is not core]

    def _fail(self, group: list[Admitted], error: BaseException) -> None:
        log.error("storage_failed", error=repr(error), batches=len(group))
        for core in {id(one.core): one.core for one in (*group, *self._queue)}.values():
            core.fail(error)

    def _rest(self) -> None:
        """Give storage a chance for housekeeping when nothing has come for a while."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self.clock.call_later(IDLE_S, self._say_idle)

    def _say_idle(self) -> None:
        if self.actor_ref.is_alive() and not self._queue and not self._flushing:
            self.actor_ref.tell(_IDLE)

    def on_stop(self) -> None:
        """Leave no timer behind."""
        if self._idle is not None:
            self._idle.cancel()


class StorageLost(Exception):
    """Raised in the storage actor when the outcome of a group is unknown; its cause says why."""
