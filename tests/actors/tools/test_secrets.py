"""B184, B185: what MCP servers are given in confidence is found nowhere: not in a store, an export, a log or an error."""

import json
import logging
import sys

import perdure
import pytest
from perdure.actors.models import UserMessage, call
from perdure.actors.models.testing import ProtocolServer, Reply
from structlog.testing import capture_logs

from ..conversation.support import go, history, scene
from .test_mcp import SERVER

pytestmark = pytest.mark.timeout(120)  # programs are started, and a busy machine takes long for that
PLANTED = "sk-planted-0123456789"
STORES = {"sqlite": lambda path: perdure.SqliteStorage(path / "s.db"), "jsonl": perdure.JsonlStorage}


async def everything(path, server, *calls):
    """Call a server's tools, and give all that is left of that: the live store's bytes, an export, the transcript."""

    def brain(request):
        return list(calls) if isinstance(request.messages[-1], UserMessage) else "done"

    for name, make in STORES.items():
        folder = path / name
        folder.mkdir()
        storage = make(folder)
        async with scene(brain, extensions=[server.extension], storage=storage) as s:
            await s.ask("go")
            yield held(folder)
            yield json.dumps([repr(entry) for entry in await history(s.root)])

        async with perdure.System.open(make(folder)) as system:
            await perdure.export_session(system._store.storage, "s", path / f"{name}-export")
        yield held(path / f"{name}-export")


def held(folder):
    return b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file()).decode("utf-8", "replace")


def test_the_variables_of_an_mcp_server_that_is_a_program_are_kept_nowhere(tmp_path, caplog):
    caplog.set_level(logging.INFO)

    async def main():
        command = [sys.executable, SERVER, str(tmp_path)]
        with capture_logs() as logs:
            async with perdure.McpServer.stdio("kit", command, env={"TOKEN": PLANTED}) as server:
                calls = [call("kit_add", a=1, b=2), call("kit_fail", why="no"), call("kit_count", then="die")]
                left = [part async for part in everything(tmp_path, server, *calls)]
            broken = perdure.McpServer.stdio("none", [sys.executable, "-c", "exit(1)"], env={"TOKEN": PLANTED})
            with pytest.raises(perdure.McpUnavailable) as raised:
                await broken.refresh()
        assert "kit_add" in left[0]
        assert [part for part in (*left, str(logs), caplog.text, trace(raised.value)) if PLANTED in part] == []

    go(main, within=100)


def test_the_headers_and_the_query_of_an_mcp_server_are_kept_nowhere_whatever_it_says(tmp_path, caplog):
    caplog.set_level(logging.INFO)

    async def main():
        def refuse(request):
            told = json.dumps({"error": f"bad token {request.headers['authorization']} for {request.path}"})
            return Reply(status=401, content_type="application/json", steps=[told.encode()])

        async with ProtocolServer(script=refuse) as remote:
            headers = {"authorization": f"Bearer {PLANTED}"}
            server = perdure.McpServer.http("kit", f"{remote.url}/mcp?key={PLANTED}", headers=headers)
            with capture_logs() as logs, pytest.raises(perdure.McpUnavailable) as raised:
                await server.refresh()
            assert PLANTED in remote.requests[0].headers["authorization"]
        assert [part for part in (str(logs), perdure_logs(caplog), str(raised.value)) if PLANTED in part] == []

    go(main, within=100)


def trace(error):
    """An error's words, and those of what caused it."""
    return "" if error is None else f"{error!r}\n{trace(error.__cause__)}"


def perdure_logs(caplog):
    """What was logged, but by HTTP libraries: they log URLs, for which their own loggers' level is the switch."""
    return "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))
