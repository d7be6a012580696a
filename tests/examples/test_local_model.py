"""A real model, where there is one: set PERDURE_LOCAL_MODEL to the base URL of an OpenAI-compatible server.

    PERDURE_LOCAL_MODEL=http://127.0.0.1:8080/v1 pytest tests/examples/test_local_model.py

The model must be able to call tools. PERDURE_LOCAL_MODEL_ID names it, where the server has several.
"""

import asyncio
import os
import signal
import subprocess
import time

import perdure
import pytest
from perdure.actors import models

from .support import command

URL = os.environ.get("PERDURE_LOCAL_MODEL", "")
ID = os.environ.get("PERDURE_LOCAL_MODEL_ID", "local")
PATIENCE_S = 600

pytestmark = [
    pytest.mark.skipif(not URL, reason="no real model: PERDURE_LOCAL_MODEL names no OpenAI-compatible server"),
    pytest.mark.timeout(2 * PATIENCE_S),
]


def example(store):
    return command("local_model.py", URL, ID, store)


def test_a_real_model_calls_a_tool_and_answers_with_what_it_said(tmp_path):
    done = subprocess.run(
        example(tmp_path / "s.db"), check=False, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "stock: 12 in stock" in done.stdout.splitlines()
    assert "12" in done.stdout.splitlines()[-1]


def test_a_real_run_that_is_killed_in_its_answer_is_gone_on_with(tmp_path):
    store = tmp_path / "s.db"
    with subprocess.Popen(example(store), cwd=tmp_path, stdout=subprocess.DEVNULL) as first:
        while not _shown(store) and first.poll() is None:
            time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(example(store), check=False, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "stock: 12 in stock" in done.stdout.splitlines()


def _shown(store):
    """Whether the first tool call has been answered."""
    return store.exists() and b"12 in stock" in b"".join(path.read_bytes() for path in store.parent.glob("s.db*"))


MAKE = {
    "chat": lambda: models.openai_chat(ID, base_url=URL, provider="chat", context_window=4_096, max_tokens=40),
    "responses": lambda: models.openai(ID, base_url=URL, provider="responses", context_window=4_096, max_tokens=40),
    "anthropic": lambda: models.anthropic(
        ID, base_url=URL.removesuffix("/v1"), provider="messages", context_window=4_096, max_tokens=40, thinking="none"
    ),
}


@pytest.mark.parametrize("api", MAKE)
def test_a_real_server_answers_over_every_api_that_it_has(api, tmp_path):
    async def main():
        model = MAKE[api]()
        async with perdure.System.open(tmp_path / "s.db", models=[model]) as system:
            root = await (await system.session("s")).root(agent=perdure.Agent(model=model.name))
            settled = await (await root.submit("Say hello.")).wait()
            usage = (await root.snapshot(perdure.UsageDoc))["models"]
        await model.aclose()
        return settled, usage

    settled, usage = asyncio.run(main())
    if settled.answer is None and "404" in str(settled.record.detail):
        pytest.skip(f"this server has no {api} API")
    assert settled.text.strip()
    assert next(iter(usage.values()))["output"] > 0
