import asyncio

import perdure
from perdure.models import ModelRequest, ToolCall, UserMessage, call, plain_text


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def brain(request: ModelRequest) -> str | ToolCall:  # plays the model; a real one is "anthropic/..."
    return call("add", a=2, b=3) if isinstance(last := request.messages[-1], UserMessage) else plain_text(last.content)


async def main() -> None:
    models, maths = [perdure.ScriptedModel(brain)], perdure.Extension(name="maths", tools=[perdure.tool(add)])
    async with perdure.System.open("agents.db", models=models, extensions=[maths]) as system:
        session = await system.session("customer-42")
        root = await session.root(agent=perdure.Agent(model="scripted/model"))
        submission = await root.submit("What is 2 + 3?", request_id="job-1")
        print((await submission.wait()).answer.text)


asyncio.run(main())
