"""Approval by the command line: another process decides, the owner of the store carries it out."""

import json
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest
from perdure.actors.conversation.decisions import Answer, Decision, DecisionBox

OWNER = """
import asyncio, sys
import perdure, structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from perdure.models import UserMessage, call, plain_text

@perdure.tool(approval="always")
async def pay(amount: int) -> str:
    "Pay."
    with open(sys.argv[1] + ".paid", "a") as file:
        file.write(f"{amount}\\n")
    return f"paid {amount}"

def brain(request):
    last = request.messages[-1]
    return call("pay", "c1", amount=5) if isinstance(last, UserMessage) else plain_text(last.content)

async def main():
    models = [perdure.ScriptedModel(brain)]
    async with perdure.System.open(sys.argv[1], models=models, extensions=[perdure.Extension(name="x", tools=[pay])]) as system:
        session = await system.session("customer-42")
        root = await session.root(agent=perdure.Agent(model="scripted/model"))
        submission = await root.submit("go", request_id="r1")
        watch = await root.watch()
        if "approval" not in str(watch.value):
            async for value, _ in watch:
                if "approval" in str(value) or "paid" in str(value):
                    break
        print("asking", flush=True)
        print((await submission.wait()).text, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def owner(path):
    """A daemon that owns the store; gives the process once it asks."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout.readline() == "asking\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def perdure_command(*arguments):
    command = [sys.executable, "-m", "perdure", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def paid(path):
    found = path.with_name(path.name + ".paid")
    return found.read_text().split() if found.exists() else []


def test_an_approval_that_was_asked_for_before_a_kill_is_given_after_the_restart_from_another_process(tmp_path):
    """B113: the tool runs once, with exactly the arguments that were shown; a second approval is refused."""
    path = tmp_path / "store.db"
    with owner(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with owner(path) as process:
        done = perdure_command("approve", path, "customer-42", "c1")
        assert (done.returncode, done.stderr) == (0, "")
        assert '{"amount":5}' in done.stdout
        assert done.stdout.endswith("approved\n")
        assert process.stdout.readline() == "paid 5\n"
        assert paid(path) == ["5"]
        again = perdure_command("approve", path, "customer-42", "c1")
        assert again.returncode == 7
        assert "no call 'c1' waits for approval" in again.stderr
    assert list((tmp_path / "store.db-decisions").iterdir()) == []


def test_other_arguments_need_an_approval_of_their_own(tmp_path):
    path = tmp_path / "store.db"
    with owner(path) as process:
        done = perdure_command("approve", path, "customer-42", "c1", "--hash", "0" * 64)
        assert done.returncode == 8
        assert "refused" in done.stderr
        assert paid(path) == []
        assert perdure_command("deny", path, "customer-42", "c1", "--reason", "no").stdout.endswith("denied\n")
        assert "denied: no" in "".join(process.stdout.readline() for _ in range(3))
        assert paid(path) == []


def test_a_decision_waits_for_an_owner_and_is_carried_out_once(tmp_path):
    """Left while nobody owns the store; the next owner carries it out as it begins."""
    path = tmp_path / "store.db"
    with owner(path):
        pass
    done = perdure_command("approve", path, "customer-42", "c1", "--json")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert json.loads(lines[0])["verdict"] == "approve"
    assert lines[1].startswith("stored")
    box = tmp_path / "store.db-decisions"
    assert stat.S_IMODE(box.stat().st_mode) == 0o700
    [left] = box.iterdir()
    (box / "garbage.json").write_text("{")
    twin = left.read_bytes()
    with owner(path) as process:
        assert process.stdout.readline() == "paid 5\n"
        (box / "twin.json").write_bytes(twin)
        while (box / "twin.json").exists():
            box.stat()
        answers = {one.stem: DecisionBox(str(path)).answer(one.stem) for one in box.glob("*.answer")}
        assert answers[left.stem] == Answer()
        assert answers["garbage"].error == "this is no decision"
        assert "does not wait for approval" in answers["twin"].error
    assert paid(path) == ["5"]


def test_a_call_or_a_store_that_is_not_there_is_told(tmp_path):
    path = tmp_path / "store.db"
    assert perdure_command("approve", path, "s", "c1").returncode == 3
    with owner(path):
        for session, call in (("nobody", "c1"), ("customer-42", "c9")):
            done = perdure_command("approve", path, session, call)
            assert done.returncode == 7
        done = perdure_command("deny", path, "customer-42", "c1", "--conversation", "99")
        assert done.returncode == 7
        (tmp_path / "store.db-decisions").write_text("in the way")
        done = perdure_command("deny", path, "customer-42", "c1")
        assert done.returncode == 1
        assert "cannot be left" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_decision_comes_back_from_its_file_as_it_was(tmp_path, verdict):
    box = DecisionBox(str(tmp_path / "x.db"))
    assert box.waiting() == []
    decision = Decision("s", 1, "c1", "00", verdict, reason="so\n")
    name = box.put(decision)
    assert box.waiting() == [(name, decision)]
    assert box.answer(name) is None
    box.settle(name, Answer(error="x"))
    assert box.waiting() == []
    assert box.answer(name) == Answer(error="x")
    assert box.answer(name) is None
