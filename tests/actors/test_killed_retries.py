"""A retry that waits is a stored deadline: a real kill in the middle of its wait changes nothing, on any protocol."""

import asyncio
import sys
import time
from pathlib import Path

import perdure
import pytest
from perdure.actors.models import answer_text, from_json, text
from perdure.actors.models.testing import ProtocolServer, Reply, error_reply

from .conversation.support import go
from .models.test_conformance import DIALECTS, FAULTS, faulty

pytestmark = pytest.mark.timeout(120)
WORKER = Path(__file__).with_name("provider_worker.py")
BROKEN = {
    "cut in the text": lambda dialect: faulty(dialect, "in the text", FAULTS["cut"][0](dialect)),
    "too many requests": lambda dialect: error_reply(
        429, dialect.error_body("rate_limit_error", "No."), retry_after="2"
    ),
}


async def life(name, url, store):
    return await asyncio.create_subprocess_exec(
        sys.executable, WORKER, name, url, store, stdout=asyncio.subprocess.PIPE
    )


async def said(worker, word):
    """The rest of the line that begins with a word."""
    while line := (await worker.stdout.readline()).decode():
        if line.startswith(word):
            return line.removeprefix(word).strip()
    raise AssertionError(f"the worker never said {word!r}")


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_retry_survives_a_kill_of_the_process_in_its_wait(broken, name, tmp_path):
    async def main():
        dialect, store = DIALECTS[name], tmp_path / "store.db"
        answered_at = []

        def script(request):
            answered_at.append(time.time())
            return BROKEN[broken](dialect) if len(answered_at) == 1 else Reply(steps=dialect.steps(text("Fine.")))

        async with ProtocolServer(script=script) as server:
            first = await life(name, server.url, store)
            due = int(await said(first, "waiting"))
            first.kill()
            await first.wait()
            second = await life(name, server.url, store)
            assert int(await said(second, "waiting")) == due or len(answered_at) == 2
            assert await said(second, "answered") == "Fine."
            assert await second.wait() == 0
        assert len(answered_at) == 2
        assert answered_at[1] * 1_000 >= due
        async with perdure.System.open(store) as system:
            root = await (await system.session("s")).root()
            entries = (await root.entries(order="ascending")).items
            spent = (await root.snapshot(perdure.UsageDoc))["models"]
        messages = [from_json(entry.model[0]) for entry in entries if entry.kind == "pi.assistant"]
        assert [message.stop_reason for message in messages] == ["error", "stop"]
        assert answer_text(messages[0]).startswith("Before it. BEAC" if broken == "cut in the text" else "")
        assert sum(one["totalTokens"] for one in spent.values()) == sum(one.usage.total_tokens for one in messages)
        assert dialect.problems(server.requests[1].body) == []

    go(main, within=100)
