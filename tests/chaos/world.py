"""A system over a storage that fails when a test says so, and everything around it that must not notice."""

import asyncio

import perdure
from perdure.storage.records import Running

from . import scenario
from .observer import FaultyStore, Observer
from .scenario import KEY


class World:
    """One system at a time over ``storage``, on a clock that jumps over every wait."""

    def __init__(self, storage=None):
        self.storage = storage or FaultyStore(perdure.MemoryStorage())
        threads = not isinstance(self.storage.inner, perdure.MemoryStorage)
        self.clock = perdure.VirtualClock(autojump=True, quiet_s=0.001 if threads else 0)
        self.observer = Observer(self.storage)
        self.requests = 0
        """The model counts aloud, so that no answer can be taken for an earlier one that a crash interrupted."""
        self.looked = []
        self.ledger = []
        self.failures = []
        """What the caller was told meanwhile."""
        self.restarts = {}
        """How often the actors below the root had been restarted when the work was done."""

    def open(self, **options):
        tools = scenario.extension(self._look, self._file)
        options = {"script": self._think, "clock": self.clock, **options}
        return scenario.open_system(self.storage, tools, **options)

    async def work(self, system):
        """Send the request, and send it again whenever the session has failed, until it is settled."""
        while True:
            try:
                return await (await scenario.submit(system)).wait()
            except perdure.SessionFailed as failure:
                self.failures.append(failure)

    async def complete(self, *, during=lambda system: None, **options):
        """Run the work to its end, whatever fails meanwhile, and check everything that must hold.

        It is done, once; what was seen had been stored; a fresh opening finds what memory held (B014).
        """
        async with self.open(**options) as system, self.observer.watching(system):
            during(system)
            settled = await self.work(system)
            self.storage.heal()
            left = await views(system)
            self.restarts = restarts(system)
        assert settled.status == "done"
        self.observer.check_views()
        async with self.open() as system:
            assert await views(system) == left
            scenario.check_finished(await scenario.read_stored(self.storage), self.ledger)

    # --- effects: each must find its intent stored (B092)

    def _think(self, request):
        if not self._stored_in_phase("pi.generation", "request"):
            self.observer.mistakes.append(f"the model was asked before that was stored: {request}")
        self.requests += 1
        return scenario.brain(request, f"({self.requests}) {scenario.OPENING}")

    def _look(self, key):
        self._check_intent(key)
        self.looked.append(key)

    def _file(self, key):
        self._check_intent(key)
        self.ledger.append(key)

    def _check_intent(self, key):
        if key not in {f"{KEY}:{task}" for task in self._stored_in_phase("pi.tool", "execute")}:
            self.observer.mistakes.append(f"tool call {key} was run before that was stored")

    def _stored_in_phase(self, kind, phase):
        tasks = {
            write.id: write
            for batch in self.observer.stored()
            for write in batch.writes
            if isinstance(write, perdure.TaskRecord) and write.kind == kind
        }
        return {
            task.id
            for task in tasks.values()
            if isinstance(task.state, Running) and task.state.checkpoint["phase"] == phase
        }


async def views(system):
    """All conversations of the session, as somebody who begins to watch now sees them."""
    session = await system.session(KEY)
    page = await system._store.storage.scan_conversations(KEY, perdure.ConversationQuery(), 1_000)
    handles = [await session.conversation(record.id) for record in page.items]
    return [(await handle.watch()).value for handle in handles]


def restarts(system):
    """How often each actor below the root was restarted."""
    (root,) = system.inspect().actors
    return {child["id"]: child["restarts"] for child in root["children"]}


async def until(condition):
    """Let the loop run until something is so."""
    while not condition():
        await asyncio.sleep(0)
