"""One scriptable kind of task, with phases ``run`` and ``resume``, gates by name and a log; and systems that run it."""

import asyncio
from contextlib import asynccontextmanager

from perdure import Extension, MemoryStorage, Phase, System, Task


async def turns(count=30):
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition):
    """Return once a condition holds; the test's time limit says when to give up."""
    while not condition():
        await asyncio.sleep(0)


class Script:
    """What the tasks of one test do, by name.

    ``script.on("x", run=..., resume=..., abort=...)`` sets what a handler does with its run; without that, ``run`` and
    ``resume`` complete with the task's name and ``abort`` ends as aborted. ``script.gate("run:x")`` makes the handler
    wait, before anything else, until the event is set. ``log`` tells which handlers began.
    """

    def __init__(self):
        self.log = []
        self.steps = {}
        self.gates = {}
        self._news = asyncio.Event()

    def on(self, name, **steps):
        self.steps.update({f"{what}:{name}": step for what, step in steps.items()})

    def gate(self, *whats):
        for what in whats:
            self.gates[what] = asyncio.Event()
        return self.gates[whats[0]]

    def open(self, *whats):
        for what in whats:
            self.gates.pop(what).set()

    async def began(self, *whats):
        """Return once these handlers have begun. Leaves the loop idle meanwhile, so that a clock may jump."""
        while not set(whats) <= set(self.log):
            self._news.clear()
            await self._news.wait()

    async def play(self, what, run, default):
        what = f"{what}:{run.input}"
        self.log.append(what)
        self._news.set()
        if what in self.gates:
            await self.gates[what].wait()
        step = self.steps.get(what)
        await (default() if step is None else step(run))


def scripted(version=1, name="test.script", migrate=None, restart=None):
    """Make a version of the scriptable kind."""

    class Scripted(Task[str, str], name=name, version=version, restart=restart):
        class Run(Phase):
            pass

        class Resume(Phase):
            note: str = ""

        async def run(self, run, state):
            await run.service(Script).play("run", run, lambda: run.complete(run.input))

        async def resume(self, run, state):
            await run.service(Script).play("resume", run, lambda: run.complete(run.input))

        async def abort(self, run, state):
            await run.service(Script).play("abort", run, lambda: super(Scripted, self).abort(run, state))

    if migrate is not None:
        Scripted.migrate = staticmethod(migrate)
    return Scripted


Scripted = scripted()


@asynccontextmanager
async def opened(store, script, *tasks, clock=None):
    """Run a system over a store with the scriptable kind, or with other kinds."""
    system = System.open(store, extensions=[Extension(name="test", tasks=tasks or (Scripted,))], clock=clock)
    system.services.provide(Script, script)
    async with system:
        yield system


async def crash(system):
    """End a system as the death of its process would: no hook runs, nothing is stored any more."""
    system.kill("root")
    await system.close()


async def home(system, key="s"):
    """Give a session with its root conversation."""
    session = await system.session(key)
    return session, await session.root()


async def start(place, name, *, kind=Scripted, **options):
    """Create a task of the scriptable kind; ``place`` is a conversation, or a run whose task owns it."""
    async with place.commit() as tx:
        return await tx.create_task(kind, name, **options)


def scene(test):
    """Run a test on a system with one session and its root conversation."""

    def run():
        async def main():
            script = Script()
            async with opened(MemoryStorage(), script) as system:
                session, root = await home(system)
                await test(script, session, root)

        asyncio.run(main())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def outcome(task):
    """Wait for a task's end and give its outcome."""
    return (await task.settled()).state.outcome


def spawn_and_wait(*names, policy="allSettled", then=None):
    """A handler that starts children and parks until they have ended."""

    async def run(run):
        async with run.commit() as tx:
            children = [await tx.create_task(Scripted, name, owner=run.id) for name in names]
            await tx.wait(children, then=then or Scripted.Resume(), policy=policy)

    return run
