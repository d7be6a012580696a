"""Migration: a definition is replaced by a newer one while its task is in a phase, and the next one is the new code's.

What was stored by the old code is migrated and finished by the new one, in this life or the next; the deployment itself is
part of the world and survives.
"""

from collections.abc import Iterable
from typing import Any

from ....storage.contract import TaskQuery
from ....storage.records import Completed, Json, JsonObject, Terminal
from ...agent.registry import Extension
from ...conversation.sessions import Session
from ...models import Model
from ...runtime import Clock
from ...system import System
from ...task.definition import Phase, Task
from ...task.run import Run
from ..scenario import Scenario
from ..stored import Stored

KEY = "a"
NAME = "chaos.report"


class Old(Task[list[int], int], name=NAME, version=1):
    """Adds numbers, one in each phase: parked between the first ones, then without a rest."""

    class Add(Phase):
        """So far."""

        total: int = 0
        done: int = 0

    async def add(self, run: Run[list[int]], state: Add) -> None:
        """Add the next one; the fourth takes long enough for a deployment."""
        if state.done == 3:
            await run.sleep_until(run.now() + 200)
        after = self.Add(state.total + run.input[state.done], state.done + 1)
        if after.done == len(run.input):
            await run.complete(after.total)
        elif after.done > 2:
            await run.goto(after)
        else:
            await run.wait(until=run.now() + 50, then=after)


class New(Task[dict[str, Any], int], name=NAME, version=2):
    """Adds numbers and their names' lengths: another input, another checkpoint, one more phase."""

    class Sum(Phase):
        """What the old code had, and which code has gone on with it."""

        total: int = 0
        done: int = 0

    class Sign(Phase):
        """Everything is added."""

        total: int

    async def sum(self, run: Run[dict[str, Any]], state: Sum) -> None:
        """Add the next one."""
        numbers = run.input["numbers"]
        if state.done == len(numbers):
            await run.goto(self.Sign(state.total))
        else:
            await run.goto(self.Sum(state.total + numbers[state.done], state.done + 1))

    async def sign(self, run: Run[dict[str, Any]], state: Sign) -> None:
        """End."""
        await run.complete(state.total + 1_000)

    @staticmethod
    def migrate(input: Json, checkpoint: JsonObject, from_version: int) -> tuple[Any, Phase]:
        """Take over from the first version."""
        return {"numbers": input}, New.Sum(checkpoint.get("total", 0), checkpoint.get("done", 0))


class Migration(Scenario):
    """Five numbers; the new code is deployed when three were added, while the old one adds the fourth."""

    name = "migration"

    def __init__(self) -> None:
        super().__init__()
        self.deployed: type[Task[Any, int]] = Old

    def extensions(self) -> Iterable[Extension]:
        """What is deployed."""
        yield Extension(name="reports", tasks=[self.deployed])

    async def run(self, system: System) -> None:
        """Begin, deploy on the way, and wait for the end."""
        session = await system.session(KEY)
        root = await session.root()
        async with root.commit() as tx:
            known = (await tx.scan_tasks(TaskQuery(kind=NAME), 1)).items
            task = known[0].id if known else (await tx.create_task(Old, [1, 2, 3, 4, 5])).id
        await self._added(session, task)
        self.deployed = New
        system.registry.install(Extension(name="reports", tasks=[New]))
        await (await session.task(task)).settled()

    def models(self, clock: Clock) -> Iterable[Model]:
        """None; but who deploys looks at the clock."""
        self._clock = clock
        return ()

    async def _added(self, session: Session, task: int) -> None:
        """Return when three numbers were added, or the new code is there already."""
        while not await self._is_far(session, task):
            await self._clock.sleep(0.01)

    async def _is_far(self, session: Session, task: int) -> bool:
        record = await (await session.task(task)).record()
        return not record.live or getattr(record.state, "checkpoint", {}).get("done", 0) >= 3

    def check(self, stored: Stored) -> None:
        """Each number was added once, and the new code has ended it."""
        (task,) = stored[KEY].tasks.values()
        assert isinstance(task.state, Terminal), f"still alive: {task}"
        assert task.state.outcome == Completed(result=1_015), f"ended as {task.state.outcome}"
