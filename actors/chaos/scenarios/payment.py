"""The payment sandwich: intent, effect, outcome, each durable before the next. An unsafe tool, and a task with a key.

The tool keeps what it is about to do as a memo and charges; after a crash it is not run again. The task fixes its key in
one phase and charges in the next: it may charge again, and the bank knows the key, a part of which is a memo.
"""

from collections.abc import Iterable
from typing import Any

from ....storage.contract import TaskQuery
from ...agent.registry import Extension
from ...agent.tool import Tool
from ...agent.toolcontext import ToolContext
from ...models import ModelRequest, call
from ...system import System
from ...task.definition import Phase, Task
from ...task.run import Run
from ..stored import Stored
from .common import KEY, AgentScenario, answers, check_done, check_once, results, told


class Bank:
    """Charges once for each key."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.charges: dict[str, int] = {}

    def charge(self, key: str, cents: int) -> str:
        """Charge, unless that was done."""
        self.requests.append(key)
        self.charges.setdefault(key, cents)
        return f"receipt {len(self.charges)}"


class Payment(AgentScenario):
    """A customer's agent charges a card by a tool; then a task charges another one."""

    name = "payment"
    tokens_per_second = 200.0

    def __init__(self) -> None:
        super().__init__()
        self.bank = Bank()
        self.shop = Bank()
        self.tries = 0

    def brain(self, request: ModelRequest) -> Any:
        """Charge, then say what has become of it."""
        return (
            f"It says: {told(request)[0]}" if told(request) else ["I charge the card now. ", call("charge", cents=500)]
        )

    def tools(self) -> Iterable[Tool]:
        """The tool that must not run twice."""

        async def charge(ctx: ToolContext, cents: int) -> str:
            """Charge the customer's card."""
            key = await ctx.memo("key", f"{ctx.idempotency_key}/{cents}")
            await ctx.sleep(0.05)
            receipt = self.bank.charge(key, cents)
            await ctx.sleep(0.05)
            return receipt

        yield Tool(charge)

    def extensions(self) -> Iterable[Extension]:
        """The tool, and the task."""
        scenario = self

        class Order(Task[int, str], name="chaos.order"):
            class Prepare(Phase):
                pass

            class Charge(Phase):
                key: str

            async def prepare(self, run: Run[int], state: Prepare) -> None:
                await run.goto(self.Charge(key=f"{run.session}/{run.id}/{len(scenario.shop.requests)}"))

            async def charge(self, run: Run[int], state: Charge) -> None:
                scenario.tries += 1
                first = await run.memo("try", scenario.tries)
                async with scenario.outside("shop", run):
                    receipt = scenario.shop.charge(f"{state.key}/{first}", run.input)
                await run.complete(receipt)

        self.order = Order
        yield from super().extensions()
        yield Extension(name="orders", tasks=[Order])

    async def run(self, system: System) -> None:
        """Have both done."""
        root = await self.root(system)
        await self.ask(root, "Charge me", "job")
        async with root.commit() as tx:
            known = (await tx.scan_tasks(TaskQuery(kind="chaos.order"), 1)).items
            task = known[0].id if known else (await tx.create_task(self.order, 700)).id
        await (await (await system.session(KEY)).task(task)).settled()

    def check(self, stored: Stored) -> None:
        """The tool has charged at most once, the task exactly once, whoever asked how often."""
        check_done(stored)
        session = stored[KEY]
        calls = {f"{KEY}:{task}/500": result for task, result in results(session).items()}
        assert len(calls) == 1, f"{len(calls)} calls have results"
        check_once(self.bank.requests, calls)
        assert len(answers(session)) == 1, answers(session)
        assert list(self.shop.charges.values()) == [700], f"the shop has charged {self.shop.charges}"
