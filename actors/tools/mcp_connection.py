"""One connection to an MCP server at a time, made again when it has been lost.

The SDK wants a connection to be opened and closed by the same asyncio task, so each has a task of its own.
Proved by tests/actors/tools/test_mcp.py.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from ...chord import PerdureError

if TYPE_CHECKING:
    from mcp import Client

log = structlog.get_logger("perdure.mcp")

T = TypeVar("T")
MAX_PAGES = 100
"""Of a list of tools: one that never ends must not keep anybody waiting for ever."""


class McpUnavailable(PerdureError):
    """A server cannot be reached, or was lost while it worked: then what it was asked for may have been done."""


class Connection:
    """A connection that comes into being with its first use. ``connect`` makes a client, to be entered."""

    def __init__(
        self, name: str, connect: Callable[[], "AbstractAsyncContextManager[Client]"], timeout_s: float
    ) -> None:
        self._name = name
        self._connect = connect
        self._timeout_s = timeout_s
        self._opening = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._end = asyncio.Event()

    async def client(self) -> "Client":
        """Give a client that is connected, as far as is known. Raises McpUnavailable."""
        async with self._opening:
            if self._client is None or self._keeper is None or self._keeper.done():
                await self._shut()
                self._client = await self._open()
            return self._client

    async def _open(self) -> "Client":
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        await asyncio.to_thread(import_module, "mcp")  # takes seconds
        self._end = asyncio.Event()
        self._keeper = asyncio.ensure_future(self._keep(ready, self._end))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await ready
        except TimeoutError:
            await self._shut(now=True)
            raise McpUnavailable(f"MCP server {self._name!r} did not answer within {self._timeout_s:g} s") from None
        except BaseException:
            await self._shut(now=True)
            raise

    async def _keep(self, ready: "asyncio.Future[Client]", end: asyncio.Event) -> None:
        """Hold a connection open until it is no longer wanted."""
        try:
            async with self._connect() as client:
                ready.set_result(client)
                await end.wait()
        except Exception as error:  # noqa: BLE001
            if ready.done():
                log.warning("mcp_connection_ended", server=self._name, error=_reason(error))
            else:
                unavailable = McpUnavailable(f"MCP server {self._name!r} cannot be reached: {_reason(error)}")
                unavailable.__cause__ = error
                ready.set_exception(unavailable)

    async def lost(self, client: "Client") -> None:
        """Take note that a client can no longer be used; the next one who asks gets another."""
        async with self._opening:
            if self._client is client:
                await self._shut()

    async def close(self) -> None:
        """End the connection, and with it a server that is a process of ours."""
        async with self._opening:
            await self._shut()

    async def _shut(self, *, now: bool = False) -> None:
        keeper, self._keeper, self._client = self._keeper, None, None
        if keeper is None:
            return
        self._end.set()
        if now:
            keeper.cancel()
        await asyncio.wait([keeper])


def _reason(error: BaseException) -> str:
    """Say what is at the bottom of nested groups of exceptions, without the password of a URL."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return re.sub(r"//[^/@\s]+@", "//***@", str(error)) or type(error).__name__


def is_lost(error: BaseException) -> bool:
    """Whether an error of the SDK says that the connection is gone."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


async def list_all(client: "Client") -> list[Any]:
    """List a server's tools, page by page."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


async def on_connection(connection: Connection, work: "Callable[[Client], Awaitable[T]]", *, again: bool) -> T:
    """Do something with a client; if the connection is lost, with another one if it may be done ``again``.

    Raises McpUnavailable, and what the SDK raises for an answer that is an error.
    """
    client = await connection.client()
    try:
        return await work(client)
    except Exception as error:
        if not is_lost(error):
            raise
        await connection.lost(client)
        if not again:
            raise McpUnavailable(f"the connection to the MCP server was lost: {_reason(error)}") from error
    return await on_connection(connection, work, again=False)
