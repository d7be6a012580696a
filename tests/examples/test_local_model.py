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
ATTEMPTS = 4
CALLED = "stock: 12 in stock"

pytestmark = [
    pytest.mark.skipif(not URL, reason="no real model: PERDURE_LOCAL_MODEL names no OpenAI-compatible server"),
    pytest.mark.timeout(ATTEMPTS * PATIENCE_S),
]


def example(store):
    return command("local_model.py", URL, ID, store)


def test_a_real_model_calls_a_tool_and_answers_with_what_it_said(tmp_path):
    """A small model does not do so every time, so it is asked again, from the beginning."""
    attempts = (ask(tmp_path / f"{attempt}.db") for attempt in range(ATTEMPTS))
    assert any(CALLED in lines and "12" in lines[-1] for lines in attempts)


def ask(store):
    done = subprocess.run(example(store), check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_real_run_that_is_killed_in_its_answer_is_gone_on_with(tmp_path):
    store = next(store for attempt in range(ATTEMPTS) if killed_after_the_call(store := tmp_path / f"{attempt}.db"))
    assert CALLED in ask(store)


def killed_after_the_call(store):
    """Run until the tool has answered, then kill; False when the model did not call it."""
    with subprocess.Popen(example(store), stdout=subprocess.DEVNULL) as first:
        while first.poll() is None:
            if b"12 in stock" in b"".join(path.read_bytes() for path in store.parent.glob(f"{store.name}*")):
                first.send_signal(signal.SIGKILL)
                return True
            time.sleep(0.2)
    return False


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
