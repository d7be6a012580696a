"""A coding agent that finds a bug in a project and mends it: reads, edits, runs the tests. Kill it anywhere and run it again.

    python examples/coding_agent.py [FOLDER] [MODEL]

FOLDER is made with a small broken project in it if it is not there. MODEL is a name like "anthropic/claude-...", with the
provider's key in the environment; without one, a script plays the model. With the extra perdure[mcp], the tools of an MCP
server go beside the coding tools: see the README.
"""

import asyncio
import sys
from pathlib import Path

import perdure
from perdure.models import ModelRequest, ToolCall, ToolResultMessage, call, plain_text

BROKEN = "def mean(values):\n    return sum(values) / len(values) - 1\n"
TESTS = "from stats import mean\n\nassert mean([1, 2, 3]) == 2, mean([1, 2, 3])\nprint('all well')\n"
TASK = "The tests of this project fail. Find out why, mend it, and see that they pass."


def plant(folder: Path) -> None:
    """Make a project with a bug, unless there is one."""
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "stats.py").write_text(BROKEN)
        (folder / "test_stats.py").write_text(TESTS)


def script(request: ModelRequest) -> str | ToolCall:
    """Play the model: run the tests, look, mend, run them again."""
    results = [message for message in request.messages if isinstance(message, ToolResultMessage)]
    run = call("bash", command=f"{sys.executable} test_stats.py", timeout=60)
    edit = {"oldText": "len(values) - 1", "newText": "len(values)"}
    steps = [run, call("read", path="stats.py"), call("edit", path="stats.py", edits=[edit]), run]
    if len(results) < len(steps):
        return steps[len(results)]
    return f"Mended: the mean was one too small. The tests say: {plain_text(results[-1].content).strip()}"


async def main(folder: Path, model: str) -> None:
    plant(folder)
    # the model's file operations stay below the folder; its commands get no keys from this process's environment
    coding = perdure.coding_tools(perdure.LocalEnvironment(folder, root=folder), bash_timeout_s=600)
    models = [perdure.ScriptedModel(script)] if model == "scripted/model" else perdure.models.from_env()
    async with perdure.System.open(folder.with_suffix(".db"), models=models, extensions=[coding]) as system:
        root = await (await system.session("coder")).root(agent=perdure.Agent(model=model))
        submission = await root.submit(TASK, request_id="mend")
        settled = await submission.wait()
        print(settled.answer.text if settled.answer else f"no answer: {settled.reason}")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    asyncio.run(main(Path(given.get(0, "broken-project")).resolve(), given.get(1, "scripted/model")))
