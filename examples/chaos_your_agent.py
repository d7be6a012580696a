"""Crash-test your own tools: run your agent, kill it before and after all that it does, and see whether anything breaks."""

import perdure
from perdure.models import ToolResultMessage, call
from perdure.testing import Scenario, ScriptedModel, Stored, explore

KEY = "customer-42"


class Refund(Scenario):
    """An agent that refunds an order. This object is the world outside: what happens in it, no crash undoes."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def models(self, clock):
        yield ScriptedModel(
            lambda request: (
                "refunded" if isinstance(request.messages[-1], ToolResultMessage) else call("refund", order=7)
            ),
            clock=clock,
        )

    def extensions(self):
        @perdure.tool  # unsafe, as every tool is that does not say otherwise; try replay="safe"
        async def refund(ctx: perdure.ToolContext, order: int) -> str:
            """Refund an order."""
            self.sent.append(order)
            return f"order {order} is refunded"

        yield perdure.Extension(name="refunds", tools=[refund])

    async def run(self, system):
        root = await (await system.session(KEY)).root(agent=perdure.Agent(model="scripted/model"))
        await self.ask(root, "Refund order 7", request_id="ticket-1")

    def check(self, stored: Stored):
        assert len(self.sent) <= 1, f"refunded {len(self.sent)} times"
        assert all(one.status == "done" for one in stored[KEY].submissions.values()), "there was no answer"


if __name__ == "__main__":
    for backend in ("memory", "sqlite", "jsonl"):
        print(found := explore(Refund, backend=backend, pairs=20, actors=20))
        found.check()
