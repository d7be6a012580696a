"""The process that test_orphans.py kills: a daemon whose agent runs a command that does not end."""

import asyncio
import sys

import perdure
from perdure.actors.models import UserMessage, call


def brain(request):
    """Run the command; report on it."""
    if isinstance(request.messages[-1], UserMessage):
        return call("bash", command=sys.argv[3])
    return "reported"


async def main(store, folder):
    model = perdure.ScriptedModel(brain)
    async with perdure.System.open(store, models=[model], extensions=[perdure.coding_tools(folder)]) as system:
        root = await (await system.session("s")).root(agent=perdure.Agent(model="scripted/model"))
        submission = await root.submit("go", request_id="go")
        async with await root.watch() as watch:
            print_shown(watch.value)
            async for view, _ in watch:
                print_shown(view)
        await submission.wait()


def print_shown(view):
    """Say when output is durable."""
    for slot in view["docs"]["pi.live"].get("tools", ()):
        if "ready" in slot.get("output", ""):
            print("shown", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
