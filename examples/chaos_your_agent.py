"""Crash-test your own tools: run your agent, kill it before and after all that it does, and see whether anything breaks."""

from collections.abc import Iterator

import perdure
from perdure.models import ModelRequest, ToolCall, ToolResultMessage, call
from perdure.testing import Scenario, ScriptedModel, Stored, explore


def brain(request: ModelRequest) -> str | ToolCall:
    return "refunded" if isinstance(request.messages[-1], ToolResultMessage) else call("refund", order=7)


class Refund(Scenario):
    """An agent that refunds an order. This object is the world outside: what happens in it, no crash undoes."""

    sent = 0

    def models(self, clock: perdure.Clock) -> Iterator[perdure.Model]:
        yield ScriptedModel(brain, clock=clock)

    def extensions(self) -> Iterator[perdure.Extension]:
        @perdure.tool  # unsafe, as every tool is that does not say otherwise; try replay="safe"
        async def refund(order: int) -> None:
            """Refund an order."""
            self.sent += 1

        yield perdure.Extension(name="refunds", tools=[refund])

    async def run(self, system: perdure.System) -> None:
        root = await (await system.session("customer-42")).root(agent=perdure.Agent(model="scripted/model"))
        await self.ask(root, "Refund order 7", request_id="ticket-1")

    def check(self, stored: Stored) -> None:
        assert self.sent <= 1, f"refunded {self.sent} times"


if __name__ == "__main__":
    print(found := explore(Refund, backend="sqlite", pairs=20, actors=20))
    found.check()
