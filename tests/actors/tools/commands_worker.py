"""The process that test_killed_commands.py kills: a daemon whose agent runs one command after another."""

import asyncio
import sys

import perdure
from perdure.actors.models import ToolResultMessage, call

COMMAND = "echo $$ >> started; setsid sh -c 'echo $$ >> started; sleep 0.1' & sleep 0.1; echo {} >> done"


def brain(request):
    """Run as many commands as were asked for, whatever becomes of them."""
    had = sum(isinstance(message, ToolResultMessage) for message in request.messages)
    return call("bash", command=COMMAND.format(had)) if had < int(sys.argv[2]) else "done"


async def main(folder):
    model = perdure.ScriptedModel(brain)
    extension = perdure.coding_tools(folder)
    async with perdure.System.open(f"{folder}/s.db", models=[model], extensions=[extension]) as system:
        root = await (await system.session("s")).root(agent=perdure.Agent(model="scripted/model"))
        print("open", flush=True)
        print((await (await root.submit("go", request_id="go")).wait()).answer.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
