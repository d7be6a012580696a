"""Interrupt: a run with a subagent below it is aborted from outside; what is below ends first, and the next input is answered."""

from collections.abc import Iterable
from typing import Any

from ...agent.tool import Tool
from ...agent.toolcontext import ToolContext
from ...conversation.handles import Conversation
from ...conversation.submissions import Submission
from ...models import ModelRequest, call
from ...system import System
from ...tools.subagent import subagent
from ..stored import Stored
from .common import KEY, AgentScenario, answers, asked, told


class Interrupt(AgentScenario):
    """Half an hour of work whose end nobody wants to see, and one question."""

    name = "interrupt"

    def brain(self, request: ModelRequest) -> Any:
        """Dig, and have another one dig, unless there is only a question."""
        match asked(request):
            case "question":
                return "answer"
            case "dig":
                return "dug" if told(request) else [call("dig"), call("subagent", task="dig deeper")]
        return "dug deeper" if told(request) else [call("dig")]

    def tools(self) -> Iterable[Tool]:
        """What takes half an hour."""

        async def dig(ctx: ToolContext) -> str:
            """Dig."""
            await ctx.sleep(1_800)
            return "a hole"

        yield Tool(dig, replay="safe")
        yield subagent()

    async def run(self, system: System) -> None:
        """Begin, abort when the subagent digs, and ask."""
        root = await self.root(system)
        submission = await root.submit("dig", request_id="dig")
        while not (await submission.status()).settled:
            await self._abort(system, root, submission)
        self.heard(root, "dig", (await submission.wait()).record)
        await self.ask(root, "question", "question")

    async def _abort(self, system: System, root: Conversation, submission: Submission) -> None:
        """Abort as soon as all three calls are under way, or when there is an end already."""
        session = await system.session(KEY)
        async with await session.watch_tasks() as watch:
            graph = await session.task_graph()
            while not (await submission.status()).settled and _under_way(graph) < 3:
                try:
                    graph, _ = await anext(watch)
                except StopAsyncIteration:
                    return
        await root.abort()

    def check(self, stored: Stored) -> None:
        """The first has no answer, the second has one, and nothing is left of the work."""
        session = stored[KEY]
        ends = {
            one.request_id: (one.status, one.reason) for one in session.submissions.values() if one.conversation_id == 1
        }
        assert ends == {"dig": ("unanswered", "aborted"), "question": ("done", None)}, ends
        assert not [task for task in session.tasks.values() if task.live], "something is still alive"
        assert answers(session)[-1] == "answer", answers(session)
        assert session.of_conversation("pi.live", 1) == {}, session.of_conversation("pi.live", 1)


def _under_way(graph: Any) -> int:
    return sum(task["kind"] == "pi.tool" and task.get("phase") == "execute" for task in graph.values())
