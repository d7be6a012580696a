"""Small scenarios, and runs of them, for the tests of the machinery."""

import asyncio

import perdure
from perdure.actors.chaos.backends import Memory
from perdure.actors.chaos.life import perform
from perdure.actors.chaos.points import Crash
from perdure.models import ToolResultMessage, call
from perdure.testing import Scenario

KEY = "a"


class Once(Scenario):
    """One call of one tool, which says of itself how it may be replayed."""

    name = "once"
    replay = "unsafe"
    most = 1

    def __init__(self):
        super().__init__()
        self.done = 0

    def models(self, clock):
        yield perdure.ScriptedModel(self.brain, clock=clock)

    def brain(self, request):
        return "done" if isinstance(request.messages[-1], ToolResultMessage) else call("act")

    def extensions(self):
        @perdure.tool(replay=self.replay)
        async def act(ctx: perdure.ToolContext) -> str:
            """Act."""
            self.done += 1
            await ctx.sleep(0.01)
            return "acted"

        yield perdure.Extension(name="kit", tools=[act])

    async def run(self, system):
        root = await (await system.session(KEY)).root(agent=perdure.Agent(model="scripted/model"))
        await self.ask(root, "go", "job")

    def check(self, stored):
        assert self.done <= self.most, f"acted {self.done} times"


class Careless(Once):
    """Says that its tool may run again, which it may not."""

    name = "careless"
    replay = "safe"


def run(scenario, *crashes, backend=None):
    """Run a scenario with crashes as they are written on a command line."""
    return asyncio.run(perform(scenario, backend or Memory(), [Crash.parse(one) for one in crashes]))
