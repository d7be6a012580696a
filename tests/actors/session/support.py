"""A session core without actors, whose durability the test decides; and small helpers."""

import asyncio
import gc

from perdure import Services, Tx, VirtualClock
from perdure.actors.session.commit import Commit
from perdure.actors.session.core import SessionCore
from perdure.actors.session.environment import Hooks
from perdure.actors.session.mail import MailLimits
from perdure.storage.memory import MemoryStorage


async def turns(count=20):
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition):
    """Return once a condition holds; the test's time limit says when to give up."""
    while not condition():
        await asyncio.sleep(0)


class Rig:
    """One session core over a memory store. What is admitted waits in ``admitted`` until ``store`` writes it."""

    def __init__(self, storage=None, *, key="s", auto=True):
        self.storage = storage or MemoryStorage()
        self.clock = VirtualClock()
        self.hooks = Hooks()
        self.auto = auto
        self.admitted = []
        self.published = []
        self.failures = []
        services = Services()
        services.provide(MailLimits, MailLimits(lambda: self.max_outgoing))
        self.max_outgoing = 10_000
        self.core = SessionCore(
            key,
            storage=self.storage,
            clock=self.clock,
            services=services,
            hooks=self.hooks,
            write=self._write,
            failed=self.failures.append,
        )

    async def open(self):
        await self.storage.open()
        await self.core.load()
        self.core.subscribe(self.published.append)
        return self

    async def reopened(self):
        """The session as it is after a restart: another core over the same store."""
        return await Rig(self.storage, key=self.core.key).open()

    def _write(self, _core, batch):
        self.admitted.append(batch)
        self.last_batch = batch
        if self.auto:
            asyncio.get_running_loop().create_task(self.store())

    async def store(self, count=None):
        """Write what was admitted, or the first ``count`` of it, and say that it is durable."""
        group, self.admitted = self.admitted[:count], self.admitted[count:] if count else []
        if group:
            await self.storage.write(group)
            self.core.durable(group[-1].seq)

    def commit(self, conversation_id=None, *, wait=True):
        return Commit(self.core, lambda: Tx(self.core, conversation_id), wait=wait)

    async def root(self):
        """Make the root conversation."""
        async with self.commit() as tx:
            return (await tx.create_root()).id


async def rig(**options):
    return await Rig(**options).open()


def count_objects(kind):
    gc.collect()
    return sum(1 for one in gc.get_objects() if type(one) is kind)
