"""Message ping-pong: two tasks in two sessions send each other numbers; each arrives once, in order.

What a task hears it writes down as an entry, in the commit that consumes the message.
"""

from collections.abc import Iterable
from typing import Any

from ....storage.contract import TaskQuery
from ...agent.registry import Extension
from ...session.tx import Entry
from ...system import System
from ...task.definition import Phase, Task
from ...task.run import Run
from ..scenario import Scenario
from ..stored import Stored

COUNT = 6
BURST = 2
HEARD: Entry[Any] = Entry("chaos.heard")


class Correspondent(Task[dict[str, Any], int], name="chaos.correspondent"):
    """Sends numbers to its peer, a few in a commit, and ends when it has heard as many; who knows no peer waits for one."""

    class Turn(Phase):
        """So many were sent and heard, to and from ``peer``: a session's key and a task's id."""

        sent: int = 0
        heard: int = 0
        peer: tuple[str, int] | None = None

    def initial(self, input: dict[str, Any]) -> Phase:
        """Begin with the peer of the input."""
        return self.Turn(peer=input.get("peer"))

    async def turn(self, run: Run[dict[str, Any]], state: Turn) -> None:
        """Take what has come, send the next numbers, and wait."""
        async with run.commit() as tx:
            letters = await tx.receive(limit=2 * BURST)
            for letter in letters:
                await tx.append(HEARD, letter.body)
            peer = state.peer or next(((one.sender.session, one.sender.id) for one in letters if one.sender), None)
            last = min(COUNT, state.sent + BURST) if peer else state.sent
            for number in range(state.sent, last):
                assert peer is not None
                await tx.tell(peer[1], number, session=peer[0])
            after = self.Turn(sent=last, heard=state.heard + len(letters), peer=peer)
            if last == after.heard == COUNT:
                tx.complete(after.heard)
            elif state.sent < last < COUNT:
                tx.goto(after)
            else:
                await tx.wait(then=after, mail=True)


class PingPong(Scenario):
    """Ann and Bob."""

    name = "ping-pong"

    def extensions(self) -> Iterable[Extension]:
        """The task."""
        yield Extension(name="mail", tasks=[Correspondent])

    async def run(self, system: System) -> None:
        """Create both tasks, and wait for their ends."""
        bob = await self._task(system, "bob", None)
        ann = await self._task(system, "ann", ("bob", bob))
        for key, task in (("bob", bob), ("ann", ann)):
            await (await (await system.session(key)).task(task)).settled()

    async def _task(self, system: System, key: str, peer: tuple[str, int] | None) -> int:
        root = await (await system.session(key)).root()
        async with root.commit() as tx:
            known = (await tx.scan_tasks(TaskQuery(kind=Correspondent.name), 1)).items
            return known[0].id if known else (await tx.create_task(Correspondent, {"peer": peer})).id

    def check(self, stored: Stored) -> None:
        """Each has heard every number once, in order, and nothing is left of any message."""
        for key in ("ann", "bob"):
            heard = [entry.data for entry in stored[key].entries[1] if entry.kind == "chaos.heard"]
            assert heard == list(range(COUNT)), f"{key} heard {heard}"
            assert not stored[key].messages, f"{key} has {stored[key].messages}"
