"""MCP: the tools of any server of the Model Context Protocol, as an extension. Needs the extra ``perdure[mcp]``.

    async with perdure.McpServer.stdio("files", ["files-server", "/data"], replay={"read_file": "safe"}) as files:
        async with perdure.System.open("agents.db", extensions=[files.extension], ...) as system:
            ...

Built on what any extension could use, and on the official SDK, which is imported with the first connection.
Proved by tests/actors/tools/test_mcp.py.
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...chord import copy_json
from ...storage.records import JsonObject
from ..agent.output import OutputLimits
from ..agent.registry import Extension
from ..agent.tool import Replay, Tool, ToolResult
from ..agent.toolcontext import ToolContext
from ..models import ToolSpec
from .extras import require
from .mcp_connection import Connection, list_all, on_connection
from .mcp_results import result_of

if TYPE_CHECKING:
    from mcp import Client

MAX_NAME = 64
"""Characters of a tool's name that every provider takes."""
CONNECT_S = 30.0
SILENCE_S = 300.0
"""How long a server may say nothing while it holds a response open, in seconds."""
Connect = Callable[[], "AbstractAsyncContextManager[Client]"]


class McpServer:
    """An MCP server and its tools; make it with ``stdio`` or ``http``, and use it with ``async with``, on the system's loop.

    Tools are called ``<name>_<tool>``. ``replay`` says which may run again after a crash ("safe"; the server's own hints are
    not trusted): for all of them, or by the server's names. ``only`` leaves out all others. ``timeout_s`` is how long a call
    may take, ``connect_timeout_s`` how long a connection. A server that has died is connected to, or started, again by
    the next call. A call that was under way is repeated if it is safe, and is otherwise an error that the model is told of.

    Raises MissingExtra.
    """

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        replay: Replay | Mapping[str, Replay] = "unsafe",
        only: Collection[str] | None = None,
        timeout_s: float | None = None,
        connect_timeout_s: float = 30.0,
        limits: OutputLimits | None = None,
        on_change: Callable[[Extension], object] | None = None,
    ) -> None:
        require("mcp", "mcp")
        self.name = name
        self.on_change = on_change
        """Called with a new extension when the server is found to offer other tools: ``system.registry.install``, say."""
        self._replay = replay
        self._only = only
        self._timeout_s = timeout_s
        self._limits = limits
        self._connection = Connection(name, connect, connect_timeout_s)
        self._listed: list[JsonObject] = []
        self._extension = Extension(name=name)

    @classmethod
    def stdio(
        cls,
        name: str,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """A server that is a program: started with the first connection, ended with the last.

        It inherits only what any program needs (PATH, HOME, ...) of this process's variables; ``env`` adds to that.
        """

        def connect() -> "AbstractAsyncContextManager[Client]":
            from mcp import Client, StdioServerParameters, stdio_client

            program, *arguments = command
            folder = None if cwd is None else os.fspath(cwd)
            started = StdioServerParameters(command=program, args=arguments, env=dict(env or {}), cwd=folder)
            return Client(stdio_client(started, errlog=sys.__stderr__ or sys.stderr))

        return cls(name, connect, **options)

    @classmethod
    def http(cls, name: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:
        """A server at a URL (streamable HTTP); ``headers`` go with every request, credentials for instance."""

        @asynccontextmanager
        async def connect() -> Any:
            import httpx2
            from mcp import Client
            from mcp.client.streamable_http import streamable_http_client

            timeout = httpx2.Timeout(CONNECT_S, read=SILENCE_S)
            async with (
                httpx2.AsyncClient(headers=dict(headers or {}), timeout=timeout) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                yield client

        return cls(name, connect, **options)

    @property
    def extension(self) -> Extension:
        """The server's tools as they were listed last."""
        return self._extension

    async def __aenter__(self) -> Self:
        try:
            await self.refresh()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def refresh(self) -> Extension:
        """Connect if need be, ask the server for its tools and give them. Raises McpUnavailable, ToolDefinitionError."""
        listed = await on_connection(self._connection, list_all, again=True)
        plain = [_plain(tool) for tool in listed if self._only is None or tool.name in self._only]
        if plain != self._listed:
            self._extension = Extension(name=self.name, tools=[*map(self._tool, plain, names(self.name, plain))])
            self._listed = plain
            if self.on_change is not None:
                self.on_change(self._extension)
        return self._extension

    async def close(self) -> None:
        """End the connection. Another call makes a new one."""
        await self._connection.close()

    def _tool(self, listed: JsonObject, name: str) -> Tool:
        its_name = listed["name"]
        replay = self._replay if isinstance(self._replay, str) else self._replay.get(its_name, "unsafe")

        async def call(ctx: ToolContext, arguments: dict[str, Any]) -> ToolResult:
            return await self._call(its_name, arguments, again=replay == "safe")

        return McpTool(
            call,
            parameters=listed["parameters"],
            name=name,
            description=listed["description"] or f"{its_name} of {self.name}",
            replay=replay,
            limits=self._limits,
        )

    async def _call(self, name: str, arguments: JsonObject, *, again: bool) -> ToolResult:
        """Call a tool. One that may not run twice is called over a connection that has just been seen to work."""
        if not again:
            await self.refresh()

        async def call(client: "Client") -> Any:
            return await client.call_tool(name, arguments, read_timeout_seconds=self._timeout_s)

        return result_of(await on_connection(self._connection, call, again=again))


class McpTool(Tool):
    """A tool with a schema of its own; what fits it is for the server to say."""

    def __init__(self, function: Callable[..., Any], *, parameters: JsonObject, **options: Any) -> None:
        super().__init__(function, **options)
        self._given_parameters = parameters

    @cached_property
    def spec(self) -> ToolSpec:
        """The declaration that a model gets."""
        return ToolSpec(name=self.name, description=self.description, parameters=self._given_parameters)

    def validate(self, arguments: JsonObject) -> dict[str, Any]:
        """Give the arguments as the function takes them: all in one, without optional ones that are null."""
        required = self._given_parameters.get("required", ())
        return {"arguments": {key: value for key, value in arguments.items() if value is not None or key in required}}


def _plain(tool: Any) -> JsonObject:
    """Give what matters of a listed tool as JSON."""
    parameters: JsonObject = copy_json({**tool.input_schema, "type": "object"})
    parameters.pop("$schema", None)
    return {"name": tool.name, "description": tool.description or tool.title or "", "parameters": parameters}


def names(server: str, listed: Sequence[JsonObject]) -> list[str]:
    """Give names that every provider takes and that differ: the server's and the tool's, or a short form with a hash."""
    found: list[str] = []
    for tool in listed:
        exact = f"{server}_{tool['name']}"
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", exact)
        if len(name) > MAX_NAME or name in found:
            name = f"{name[: MAX_NAME - 9]}_{hashlib.sha256(exact.encode()).hexdigest()[:8]}"
        found.append(name)
    return found
