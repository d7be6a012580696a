"""Abort and deadlines: a tree of tasks is aborted leaf first, background work beside it goes on to its deadline.

Whoever ends writes down in what order, in the commit that ends it.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ....storage.contract import TaskQuery
from ....storage.records import Aborted, Completed, TaskRecord, Terminal
from ...agent.registry import Extension
from ...conversation.handles import Conversation
from ...models import Model
from ...runtime import Clock
from ...session.errors import OwnershipRefused
from ...session.tx import Entry
from ...system import System
from ...task.definition import Phase, Task
from ...task.run import Run
from ...task.tx import Tx
from ..scenario import Scenario
from ..stored import Stored
from .common import KEY

ENDED: Entry[Any] = Entry("chaos.ended")
SLEEP_MS = 60_000
FAR_MS = 3_000_000


class Sleeper(Task[dict[str, Any], str], name="chaos.sleeper"):
    """Sleeps, parked, for ``ms``."""

    class Lie(Phase):
        """Not yet asleep."""

    class Rise(Phase):
        """Reached at the deadline."""

    async def lie(self, run: Run[dict[str, Any]], state: Lie) -> None:
        """Park until the deadline."""
        await run.wait(until=run.now() + run.input["ms"], then=self.Rise())

    async def rise(self, run: Run[dict[str, Any]], state: Rise) -> None:
        """Say that the time has come."""
        async with run.commit() as tx:
            await tx.append(ENDED, run.input["name"])
            tx.complete("slept")

    async def abort(self, run: Run[dict[str, Any]], state: Phase) -> None:
        """Say that it was cut short."""
        async with run.commit() as tx:
            await tx.append(ENDED, run.input["name"])
            tx.abort()


class Branch(Task[dict[str, Any], str], name="chaos.branch"):
    """Owns two tasks: sleepers, or at a greater ``depth`` branches; and waits for both."""

    class Grow(Phase):
        """Nothing is below yet."""

    class Fade(Phase):
        """Both below have ended."""

    async def grow(self, run: Run[dict[str, Any]], state: Grow) -> None:
        """Create both and wait, in one commit."""
        name, depth = run.input["name"], run.input["depth"]
        async with run.commit() as tx:
            below: list[Any] = []
            for side in ("l", "r"):
                if depth > 1:
                    given = {"name": name + side, "depth": depth - 1}
                    below.append(await tx.create_task(Branch, given, owner=run.id))
                else:
                    below.append(await tx.create_task(Sleeper, {"name": name + side, "ms": FAR_MS}, owner=run.id))
            if name == "t":
                inside = await tx.create_conversation(owner=run.id)
                given = {"name": "hidden", "ms": SLEEP_MS}
                await tx.create_task(Sleeper, given, conversation_id=inside.id, background=True)
            await tx.wait(below, then=self.Fade())

    async def fade(self, run: Run[dict[str, Any]], state: Fade) -> None:
        """Reached when nobody aborts it."""
        await run.complete("grown")

    async def abort(self, run: Run[dict[str, Any]], state: Phase) -> None:
        """Say that it was cut down."""
        async with run.commit() as tx:
            await tx.append(ENDED, run.input["name"])
            tx.abort()


class Holder(Task[dict[str, Any], str], name="chaos.holder"):
    """Ends at once, and is held until what it owns has ended."""

    class Begin(Phase):
        """Nothing is below yet."""

    async def begin(self, run: Run[dict[str, Any]], state: Begin) -> None:
        """Create and complete in one commit."""
        async with run.commit() as tx:
            await tx.create_task(Sleeper, {"name": "held", "ms": SLEEP_MS // 2}, owner=run.id)
            tx.complete("done")


class Watcher(Task[dict[str, Any], str], name="chaos.watcher"):
    """Waits for a task that belongs to somebody else."""

    class Watch(Phase):
        """It has not ended, as far as is known."""

    class Leave(Phase):
        """It has ended."""

    async def watch(self, run: Run[dict[str, Any]], state: Watch) -> None:
        """Wait for it."""
        await run.wait([run.input["task"]], then=self.Leave())

    async def leave(self, run: Run[dict[str, Any]], state: Leave) -> None:
        """End, too."""
        await run.complete("seen")


class Aborting(Scenario):
    """A tree of seven tasks, background sleepers in it and beside it, somebody who waits for one, and an owner that is held."""

    name = "aborting"

    def extensions(self) -> Iterable[Extension]:
        """The tasks."""
        yield Extension(name="trees", tasks=[Branch, Sleeper, Holder, Watcher])

    def models(self, clock: Clock) -> Iterable[Model]:
        """None; but the host looks at the clock."""
        self._clock = clock
        return ()

    async def run(self, system: System) -> None:
        """Plant the tree, let it stand for a while, abort it, and wait for the sleeper beside it."""
        session = await system.session(KEY)
        root = await session.root()
        async with root.commit() as tx:
            known = list((await tx.scan_tasks(TaskQuery(order="ascending"), 50)).items)
            own = sorted(one.id for one in known if one.owner is None and one.conversation_id == root.id)
            tree, _, holder, watcher = own or await _plant(tx)
        await self._refused(root, tree)
        await self._clock.sleep(1.0)
        await (await session.task(tree)).abort()
        await (await session.task(holder)).settled()
        await root.wait_for_idle()
        await (await session.task(watcher)).settled()
        async with await session.watch_tasks() as watch:
            if watch.value:
                async for left, _ in watch:
                    if not left:
                        break

    async def _refused(self, root: Conversation, tree: int) -> None:
        """Let a block fail that would have put more below the tree: nothing of it may stay."""
        with suppress(Refused, OwnershipRefused):
            async with root.commit() as tx:
                await tx.create_task(Sleeper, {"name": "never", "ms": SLEEP_MS}, owner=tree)
                raise Refused

    def check(self, stored: Stored) -> None:
        """All have ended: the tree bottom-up as aborted, sleepers in the background by their deadlines."""
        session = stored[KEY]
        ended = [entry.data for some in session.entries.values() for entry in some if entry.kind == ENDED.kind]
        outcomes = {task.input["name"]: _outcome(task) for task in session.tasks.values()}
        for name in ("beside", "hidden", "holder", "held", "watcher"):
            assert isinstance(outcomes.pop(name), Completed), f"{name} was aborted"
        assert all(isinstance(one, Aborted) for one in outcomes.values()), outcomes
        assert sorted(ended) == sorted([*outcomes, "beside", "hidden", "held"]), (
            f"not everybody has ended once: {ended}"
        )
        for name in outcomes:
            below = [other for other in outcomes if other != name and other.startswith(name)]
            assert all(ended.index(other) < ended.index(name) for other in below), f"not bottom-up: {ended}"
        (beside,) = [task for task in session.tasks.values() if task.input["name"] == "beside"]
        assert beside.ended_at is not None
        assert beside.started_at is not None
        assert beside.ended_at >= beside.started_at + SLEEP_MS, "the sleeper was woken too early"


class Refused(Exception):
    """What makes a block fail."""


async def _plant(tx: Tx) -> tuple[int, int, int, int]:
    tree = await tx.create_task(Branch, {"name": "t", "depth": 2})
    beside = await tx.create_task(Sleeper, {"name": "beside", "ms": SLEEP_MS}, background=True)
    holder = await tx.create_task(Holder, {"name": "holder"})
    watcher = await tx.create_task(Watcher, {"name": "watcher", "task": beside.id})
    return tree.id, beside.id, holder.id, watcher.id


def _outcome(task: TaskRecord) -> Any:
    return task.state.outcome if isinstance(task.state, Terminal) else None
