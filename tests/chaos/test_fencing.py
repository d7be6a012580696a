"""A process that is stopped, thought dead and replaced, and then wakes up: it must not write, and nobody may notice it.

Its lock is the kernel's and stays held while it is stopped, so that taking over means to remove the lock file.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import perdure
import pytest
from perdure.models import UserMessage, call, plain_text

from .scenario import read_stored, was_interrupted

KEY = "s"
PROGRAM = """
import asyncio, json, os, signal, sys
import perdure
sys.path.insert(0, sys.argv[3])
from tests.chaos.test_fencing import make_storage, open_system, send

async def main():
    async with open_system(make_storage(*sys.argv[1:3]), lambda: os.kill(os.getpid(), signal.SIGSTOP)) as system:
        session = await system.session("s")
        submission = await send(system, "sleep")
        try:
            await submission.wait()
        except perdure.PerdureError as error:
            print(json.dumps([type(error).__name__, type(error.__cause__).__name__]), flush=True)
        try:
            await send(system, "again")
        except perdure.PerdureError as error:
            print(json.dumps([type(error).__name__]), flush=True)

asyncio.run(main())
"""


def make_storage(backend, path):
    return {"sqlite": perdure.SqliteStorage, "jsonl": perdure.JsonlStorage}[backend](path)


def open_system(storage, sleep):
    @perdure.tool(replay="unsafe")
    def nap(ctx: perdure.ToolContext) -> str:
        """Sleep."""
        sleep()
        return "slept well"

    def brain(request):
        last = request.messages[-1]
        said = plain_text(last.content)
        return call("nap") if isinstance(last, UserMessage) and said == "sleep" else f"re: {said}"

    extensions = [perdure.Extension(name="bed", tools=[nap])]
    return perdure.System.open(storage, models=[perdure.ScriptedModel(brain)], extensions=extensions)


async def send(system, said):
    root = await (await system.session(KEY)).root(agent=perdure.Agent(model="scripted/model"))
    return await root.submit(said, request_id=said)


@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
def test_a_stopped_owner_that_was_replaced_writes_nothing_when_it_wakes(backend, tmp_path):
    """Its call had begun and is interrupted for the new owner, which goes on as if the old one were dead."""
    path, root = tmp_path / "store", str(Path(__file__).parents[2])
    lock = path / "store.lock" if backend == "jsonl" else Path(f"{path}.lock")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, backend, str(path), root], stdout=subprocess.PIPE, text=True
    ) as old:
        assert os.WIFSTOPPED(os.waitpid(old.pid, os.WUNTRACED)[1])
        asyncio.run(_take_over(make_storage(backend, path), lock, old))


async def _take_over(storage, lock, old):
    with pytest.raises(perdure.StorageInUse) as refused:
        await storage.open()
    assert refused.value.pid == old.pid
    lock.unlink()
    async with open_system(storage, lambda: pytest.fail("an unsafe call was executed again")) as system:
        await (await send(system, "sleep")).wait()
        stored = await read_stored(storage, KEY)
        (result,) = [one for one in stored.entries[1] if one.kind == "pi.tool-result"]
        assert was_interrupted(perdure.models.from_json(result.model[0]))
        os.kill(old.pid, signal.SIGCONT)
        said, _ = await asyncio.to_thread(old.communicate, timeout=30)
        told = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
        assert told == [["SessionFailed", "StorageFenced"], ["SessionClosed"]], (
            "the old owner cannot open it again either"
        )
        assert await read_stored(storage, KEY) == stored
        assert (await (await send(system, "good morning")).wait()).answer.text == "re: good morning"
    async with open_system(storage, lambda: pytest.fail("an unsafe call was executed again")) as system:
        assert (await (await send(system, "good morning")).wait()).answer.text == "re: good morning"
