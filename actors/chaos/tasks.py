"""Tasks of simulated systems: two that write letters to each other's sessions, and one that sleeps above another.

Proved by tests/actors/chaos/test_workload.py.
"""

from ..session.tx import Entry
from ..task.definition import Phase, Task
from ..task.run import Run

HEARD: Entry[int] = Entry("office.heard")
LETTERS = 3
PATIENCE_MS = 5_000


class Desk(Task[None, int], name="office.desk"):
    """Writes down the letters that come, until there are enough or nobody writes for a while."""

    class Open(Phase):
        """So many have come, and more are waited for until then (ms since the epoch)."""

        heard: int = 0
        until: int | None = None

    async def open(self, run: Run[None], state: Open) -> None:
        """Take what is there; each letter is an entry of the same commit."""
        async with run.commit() as tx:
            letters = await tx.receive()
            for letter in letters:
                await tx.append(HEARD, letter.body)
            heard = state.heard + len(letters)
            until = state.until or run.clock.now() + PATIENCE_MS
            if heard >= LETTERS or run.clock.now() >= until:
                tx.complete(heard)
            else:
                await tx.wait(then=self.Open(heard, until), until=until, mail=True)


class Post(Task[tuple[str, int], None], name="office.post"):
    """Sends letters to a desk, one in each commit."""

    class Write(Phase):
        """So many were sent."""

        sent: int = 0

    async def write(self, run: Run[tuple[str, int]], state: Write) -> None:
        """Send the next one."""
        session, desk = run.input
        async with run.commit() as tx:
            await tx.tell(desk, state.sent, session=session)
            if state.sent + 1 < LETTERS:
                tx.goto(self.Write(state.sent + 1))
            else:
                tx.complete()


class Nap(Task[int, int], name="office.nap"):
    """Sleeps for some milliseconds, while another nap of half the time sleeps below it, and so on."""

    class Lie(Phase):
        """Awake."""

    class Wake(Phase):
        """Has slept."""

    async def lie(self, run: Run[int], state: Lie) -> None:
        """Fall asleep."""
        async with run.commit() as tx:
            below = [await tx.create_task(Nap, run.input // 2, owner=run.id)] if run.input > 50 else []
            await tx.wait(below, until=run.clock.now() + run.input, then=self.Wake())

    async def wake(self, run: Run[int], state: Wake) -> None:
        """End."""
        await run.complete(run.input)
