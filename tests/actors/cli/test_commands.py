"""The command line as people and scripts use it: another process, beside a live owner and after a dead one."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import perdure
import pytest
from perdure.actors.cli.commands import app
from perdure.storage.records import Batch, Waiting
from typer.testing import CliRunner

OWNER = """
import asyncio, sys
import perdure
from perdure.models import UserMessage, call, plain_text

@perdure.tool(replay="safe")
async def work(ctx: perdure.ToolContext) -> str:
    "Work."
    print("working", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "done"

def brain(request):
    texts = [plain_text(m.content) for m in request.messages if isinstance(m, UserMessage)]
    return call("work") if texts[0] == "dig" else call("subagent", task="dig")

async def main():
    models = [perdure.ScriptedModel(brain)]
    extension = perdure.Extension(name="x", tools=[work, perdure.subagent()])
    async with perdure.System.open(sys.argv[1], models=models, extensions=[extension]) as system:
        await (await system.session("idle one")).root()
        root = await (await system.session("customer-42")).root(agent=perdure.Agent(model="scripted/model"))
        await root.submit("get it dug")
        await root.submit("and \\x1b[31mthen fill it again", when_busy="follow_up")
        await asyncio.Event().wait()

asyncio.run(main())
"""


def perdure_command(*arguments: object, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "perdure", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30, **options)


def output(*arguments: object) -> str:
    done = perdure_command(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def owner(path: Path):
    """Run an owner whose subagent is in the middle of a tool call."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", OWNER, str(path)], env=environment, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "working\n"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, dict]:
    """A store whose owner was killed, and what the commands said while it lived."""
    path = tmp_path_factory.mktemp("cli") / "agents.db"
    with owner(path) as process:
        listed, inspected = (json.loads(output(command, path, "--json")) for command in ("sessions", "inspect"))
        assert listed["owner"]["pid"] == process.pid
        assert listed["owner"]["host"] == socket.gethostname()
        assert process.poll() is None
    return path, listed, inspected


def test_sessions_lists_every_session_of_a_live_store(killed):
    _, listed, _ = killed
    found = {one["key"]: one for one in listed["sessions"]}
    assert list(found) == ["idle one", "customer-42"]
    assert "wake" not in found["idle one"]
    assert found["idle one"]["sizes"]["liveTasks"] == 0
    assert found["customer-42"]["wake"] == listed["nextWake"] == 0
    assert found["customer-42"]["sizes"]["liveTasks"] == 4
    assert found["customer-42"]["seq"] > 5
    assert listed["sizes"]["walBytes"] > 0


def test_inspect_shows_what_is_under_way_below_its_owner(killed):
    _, _, inspected = killed
    (session,) = inspected["sessions"]
    (root,) = session["conversations"]
    assert [item["mode"] for item in root["inbox"]] == ["followUp"]
    assert {one["kind"] for one in root["documents"]} == {
        "pi.live",
        "pi.inbox",
        "pi.usage",
        "pi.provider",
        "pi.agent",
    }
    (generation,) = root["tasks"]
    (tool,) = generation["tasks"]
    (conversation,) = tool["conversations"]
    (below,) = conversation["tasks"]
    assert (generation["kind"], generation["status"], generation["phase"]) == ("pi.generation", "waiting", "tools")
    assert generation["waitingOn"] == [tool["id"]]
    assert conversation["owner"] == tool["id"]
    assert below["tasks"][0]["status"] == "running"


def test_a_dead_owners_store_looks_the_same_but_for_the_owner(killed):
    path, listed, inspected = killed
    for command, before in (("sessions", listed), ("inspect", inspected)):
        after = json.loads(output(command, path, "--json"))
        assert "owner" not in after
        assert after["sessions"] == before["sessions"]


def test_people_get_a_table_and_a_tree_without_anything_that_steers_a_terminal(killed):
    path, _, _ = killed
    table, tree = output("sessions", path), output("inspect", path)
    assert "\x1b" not in table + tree, "colour in a pipe"
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["session", "idle", "customer-42"]
    assert table.splitlines()[0].endswith("no owner, next wake now")
    assert "session customer-42" in tree
    assert "idle one" not in tree
    assert "\\x1b[31mthen fill it again" in tree


def test_one_session_is_shown_whether_or_not_it_has_work(killed):
    path, _, _ = killed
    (session,) = json.loads(output("inspect", path, "idle one", "--json"))["sessions"]
    assert session["key"] == "idle one"
    assert [one["id"] for one in session["conversations"]] == [1]
    assert "session idle one" in output("inspect", path, "idle one")
    missing = perdure_command("inspect", path, "nobody")
    assert (missing.returncode, missing.stdout) == (6, "")
    assert missing.stderr == f"perdure: {path} has no session 'nobody'\n"


@pytest.mark.parametrize("command", ["sessions", "inspect"])
def test_a_file_that_cannot_be_read_as_a_store_is_a_clear_error(tmp_path, command):
    path = tmp_path / "agents.db"
    assert refused(command, path) == (3, f"perdure: {path} does not exist\n")
    assert refused(command, tmp_path)[0] == 1
    path.write_text("notes " * 1_000)
    assert refused(command, path)[0] == 4
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    assert refused(command, path)[0] == 4
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE meta (schema INTEGER); INSERT INTO meta VALUES (99)")
    connection.close()
    code, said = refused(command, path)
    assert code == 5
    assert "upgrade perdure" in said
    assert refused("nonsense", path)[0] == 2


def refused(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.stdout == ""
    assert isinstance(done.exception, SystemExit)
    return done.exit_code, done.stderr


def test_the_readme_mentions_every_command_and_the_help_explains_it():
    readme = (Path(perdure.__file__).parent / "README.md").read_text()
    names = [one.name or one.callback.__name__ for one in app.registered_commands]
    assert names == ["sessions", "inspect", "show", "export", "approve", "deny", "serve", "chat"]
    for name in names:
        assert f"perdure {name} " in readme
        assert "FILE" in CliRunner().invoke(app, [name, "--help"]).stdout


def test_a_wait_is_shown_with_its_policy(tmp_path):
    async def store():
        storage = perdure.SqliteStorage(tmp_path / "agents.db")
        await storage.open()
        wait = Waiting(checkpoint={"phase": "resume"}, on=[3, 4, 5], policy=perdure.Quorum(2), until=0)
        task = perdure.TaskRecord(
            id=2, conversation_id=1, kind="x", version=1, state=wait, background=False, abort_requested=False
        )
        writes = [perdure.ConversationRecord(id=1), task]
        await storage.write([Batch(session="s", seq=1, last_id=5, writes=writes)])
        await storage.close()

    asyncio.run(store())
    assert "on 3, 4, 5 (quorum 2)" in output("inspect", tmp_path / "agents.db", "s")


def test_mail_is_shown_where_it_waits(tmp_path):
    """B062: what was accepted and not handled can be seen."""

    async def store():
        storage = perdure.SqliteStorage(tmp_path / "agents.db")
        await storage.open()
        wait = Waiting(checkpoint={"phase": "resume"}, on=[], policy="allSettled", mail=True)
        task = perdure.TaskRecord(
            id=2, conversation_id=1, kind="x", version=1, state=wait, background=False, abort_requested=False
        )
        statuses = ("queued", "queued", "outgoing", "dead", "dead", "dead")
        mail = [perdure.MessageRecord(id=n, status=status, task_id=2) for n, status in enumerate(statuses, 3)]
        await storage.write(
            [Batch(session="s", seq=1, last_id=9, writes=[perdure.ConversationRecord(id=1), task, *mail])]
        )
        await storage.close()

    asyncio.run(store())
    said = output("inspect", tmp_path / "agents.db")
    assert "for mail, 2 queued" in said
    assert "1 outgoing, 3 dead letters" in said
