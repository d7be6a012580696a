"""Tools of real MCP servers: a program over stdio, and one on localhost over HTTP."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, closing
from pathlib import Path

import perdure
import pytest
from msgspec.structs import replace
from perdure.actors.models import Image, UserMessage, call
from perdure.actors.tools import mcp_connection
from perdure.actors.tools.mcp import McpTool, names

from ..conversation.support import go, scene
from .desk import results, said
from .processes import alive, pid_in, until

pytestmark = pytest.mark.timeout(120)  # programs are started, and a busy machine takes long for that
SERVER = str(Path(__file__).with_name("mcp_server.py"))


def kit(folder, **options):
    return perdure.McpServer.stdio("kit", [sys.executable, SERVER, str(folder)], **options)


def counted(folder):
    """How often the server was asked to count."""
    path = folder / "counted"
    return len(path.read_text().splitlines()) if path.exists() else 0


class Desk:
    """Has a model call tools and gives the results."""

    def __init__(self, scene):
        self.scene, self.asked, self.calls = scene, 0, []

    async def __call__(self, *calls):
        """Give the results in the order of the calls."""
        await (await self.begin(*calls)).wait()
        return sorted((await results(self.scene.root))[-len(calls) :], key=lambda result: result.tool_call_id)

    async def begin(self, *calls):
        self.asked += 1
        self.calls = [replace(one, id=f"call-{self.asked}-{number}") for number, one in enumerate(calls)]
        return await self.scene.root.submit("go")


@asynccontextmanager
async def desk(*servers, **options):
    """A conversation with the servers' tools."""

    def brain(request):
        return made.calls if isinstance(request.messages[-1], UserMessage) else "done"

    async with scene(brain, extensions=[server.extension for server in servers], **options) as s:
        made = Desk(s)
        yield made


# --- over stdio


def test_a_servers_tools_are_called_by_a_model_and_every_kind_of_answer_is_shown(tmp_path, monkeypatch):
    """B184: and the server, a child process, gets no secrets of ours."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "planted-4711")

    async def main():
        async with kit(tmp_path, timeout_s=3.0, env={"OWN": "own"}) as server, desk(server) as ask:
            add, weather, odd = await ask(
                call("kit_add", a=1, b=2), call("kit_weather", city="Ulm"), call("kit_odd_name_with_spaces")
            )
            assert (said(add), add.is_error, said(odd)) == ("3", False, "odd")
            assert weather.details == {"structuredContent": {"city": "Ulm", "degrees": 21}}
            shown, bad = await ask(call("kit_show"), call("kit_show", bad=True))
            assert [type(block) is Image for block in shown.content] == [False, True, False, False]
            assert said(shown) == "a textmanual: file:///manualinside"
            assert "cannot be shown: this is no PNG" in said(bad)
            fail, wrong = await ask(call("kit_fail", why="no"), call("kit_add", a="x"))
            assert (fail.is_error, wrong.is_error) == (True, True)
            assert "validation error" in said(wrong)
            [late] = await ask(call("kit_count", then="wait"))
            assert late.is_error
            assert "imed out" in said(late)
            [variables] = await ask(call("kit_environment"))
            assert "OWN=own" in said(variables)
            assert "planted-4711" not in said(variables)
            pid = pid_in(tmp_path / "pid")
            assert alive(pid)
        await until(lambda: not alive(pid))

    go(main, within=100)


def test_declarations_come_from_the_server_and_replay_from_the_host(tmp_path):
    """The server's own hints are not trusted."""

    async def main():
        async with kit(tmp_path, replay={"add": "safe"}, only=["add", "fail", "nope"]) as server:
            tools = {tool.name: tool for tool in server.extension.tools}
            assert {name: tool.replay for name, tool in tools.items()} == {"kit_add": "safe", "kit_fail": "unsafe"}
            spec = tools["kit_add"].spec
            assert spec.description == "Add two numbers."
            assert (spec.parameters["type"], spec.parameters["required"]) == ("object", ["a", "b"])

    go(main, within=100)


def test_a_server_that_has_died_is_started_again_by_the_next_call_and_may_have_other_tools(tmp_path):
    changes = []

    async def main():
        async with kit(tmp_path, on_change=changes.append) as server, desk(server) as ask:
            first = pid_in(tmp_path / "pid")
            server.on_change = ask.scene.system.registry.install
            (tmp_path / "more").touch()
            os.kill(first, signal.SIGKILL)
            await until(lambda: not alive(first))
            [result] = await ask(call("kit_add", a=1, b=2))
            assert said(result) == "3"
            assert pid_in(tmp_path / "pid") != first
            [extra] = await ask(call("kit_extra"))
            assert said(extra) == "extra"

    go(main, within=100)
    assert len(changes) == 1


def test_a_call_that_kills_its_server_is_not_repeated_unless_it_is_safe(tmp_path):
    """B091: with a server of somebody else's."""

    async def main():
        async with kit(tmp_path) as server, desk(server) as ask:
            [lost] = await ask(call("kit_count", then="die"))
            assert lost.is_error
            assert "connection to the MCP server was lost" in said(lost)
            assert counted(tmp_path) == 1
            [result] = await ask(call("kit_count"))
            assert said(result) == "counted 2"
        (tmp_path / "counted").unlink()
        async with kit(tmp_path, replay={"count": "safe"}) as server, desk(server) as ask:
            [result] = await ask(call("kit_count", then="die once"))
            assert (said(result), counted(tmp_path)) == ("counted 2", 2)

    go(main, within=100)


@pytest.mark.parametrize(("replay", "runs"), [("unsafe", 1), ("safe", 2)])
def test_a_call_that_the_end_of_the_system_cut_off_follows_its_replay_policy(tmp_path, replay, runs):
    """TO-05, TO-06, B089"""
    storage = perdure.MemoryStorage()

    async def main():
        async with kit(tmp_path, replay=replay) as server:
            async with desk(server, storage=storage) as ask:
                await ask.begin(call("kit_count", then="wait"))
                await until(lambda: counted(tmp_path) == 1)
            async with desk(server, storage=storage) as ask:
                await until(lambda: counted(tmp_path) == runs)
                await (ask.scene.root.wait_for_idle() if replay == "unsafe" else ask.scene.root.abort())
                [result] = await results(ask.scene.root)
                assert ("was interrupted" if replay == "unsafe" else "was aborted") in said(result)
        assert counted(tmp_path) == runs

    go(main, within=100)


def test_a_server_that_cannot_be_reached_is_an_error_that_says_why(tmp_path):
    async def main():
        silent = [sys.executable, "-c", "import time; time.sleep(100)"]
        cases = {
            "cannot be reached": perdure.McpServer.stdio("x", ["/no/such/program"]),
            "closed": perdure.McpServer.stdio("x", [sys.executable, "-c", "pass"]),
            "did not answer within": perdure.McpServer.stdio("x", silent, connect_timeout_s=0.3),
            "x": perdure.McpServer.http("x", f"http://127.0.0.1:{free_port()}/mcp"),
        }
        for words, server in cases.items():
            with pytest.raises(perdure.McpUnavailable, match=words):
                await server.refresh()
            await server.close()

    go(main, within=100)


# --- over HTTP


def free_port():
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class HttpServer:
    """A server on localhost that can be killed and started again at the same port."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.start()

    def start(self):
        arguments = [sys.executable, SERVER, str(self.folder), str(self.port)]
        self.process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("the server did not come up")

    def kill(self):
        self.process.kill()
        self.process.wait()


def test_a_server_over_http_is_used_like_any_other_also_after_its_death(tmp_path):
    server = HttpServer(tmp_path)
    url = f"http://127.0.0.1:{server.port}/mcp"

    async def main():
        async with perdure.McpServer.http("kit", url, headers={"X-Key": "k"}) as remote, desk(remote) as ask:
            add, count = await ask(call("kit_add", a=1, b=2), call("kit_count"))
            assert (said(add), said(count)) == ("3", "counted 1")
            [lost] = await ask(call("kit_count", then="die"))
            assert lost.is_error
            await asyncio.to_thread(server.process.wait)
            [down] = await ask(call("kit_add", a=1, b=2))
            assert down.is_error
            assert "cannot be reached" in said(down)
            await asyncio.to_thread(server.start)
            [again] = await ask(call("kit_add", a=2, b=2))
            assert said(again) == "4"
            assert counted(tmp_path) == 2

    try:
        go(main, within=100)
    finally:
        server.kill()


def test_a_password_in_a_url_is_told_to_nobody():
    """B185"""
    error = ExceptionGroup("x", [ValueError("401 for url 'https://me:planted-4711@host/mcp'"), ValueError("y")])
    assert mcp_connection._reason(error) == "401 for url 'https://***@host/mcp'"


# --- names


def test_names_are_valid_and_differ_whatever_the_server_calls_its_tools():
    tools = ["plain", "a.b", "a/b", "ä", "x" * 100, "x" * 99]
    given = names("s", [{"name": name} for name in tools])
    assert given[0] == "s_plain"
    assert len(set(given)) == len(tools)
    assert all(
        len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() and name.isascii() for name in given
    )
    assert given == names("s", [{"name": name} for name in tools])


def test_null_arguments_of_optional_parameters_are_left_out():
    async def work(arguments: dict) -> str:
        """Work."""
        return str(arguments)

    tool = McpTool(work, parameters={"type": "object", "required": ["a"]})
    assert tool.validate({"a": None, "b": None, "c": 0}) == {"arguments": {"a": None, "c": 0}}
