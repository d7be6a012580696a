"""A server for tests that plays a provider's protocol by script, faults included.

It is a real HTTP server on the loopback interface, so the real SDKs run against it unchanged. A reply is written down
as bytes and faults in order: a cut is a real reset, silence is a connection that stays open and says nothing.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec


class Cut(msgspec.Struct, frozen=True):
    """The connection is reset here."""


class Silence(msgspec.Struct, frozen=True):
    """Nothing more is sent; the connection stays open until the client leaves."""


class Drip(msgspec.Struct, frozen=True):
    """The same few bytes again and again, every `interval_s` seconds, until the client leaves."""

    piece: bytes = b": ping\n\n"
    interval_s: float = 0.05


Step: TypeAlias = bytes | Cut | Silence | Drip


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A response: its head, then its steps. Without `steps` the connection ends after the head's empty body."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: dict[str, str] = {}
    content_type: str = "text/event-stream"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came: header names in lower case, the body parsed."""

    path: str
    headers: dict[str, str]
    body: Any
    method: str = "POST"


Script: TypeAlias = Callable[[Request], Reply]


def sse(event: str | None, data: Any) -> bytes:
    """One server-sent event. Data that is not text is written as JSON, compact and in ASCII."""
    payload = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {payload}\n\n".encode()


def error_reply(status: int, body: Any, **headers: str) -> Reply:
    """A refusal before any stream; underscores in header names become dashes, text bodies are sent as HTML."""
    is_text = isinstance(body, str)
    return Reply(
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        content_type="text/html" if is_text else "application/json",
        steps=[(body if is_text else json.dumps(body)).encode()],
    )


class ProtocolServer:
    """Answers requests with the replies in order, or by a function of the request.

    Use it as an async context manager; `url` is its address. `requests` are those that came, `dropped` counts
    connections that the client closed before the reply was complete.
    """

    def __init__(self, *replies: Reply, script: Script | None = None) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.dropped = 0
        self._replies = list(replies)
        self._script = script
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def wait_requests(self, count: int, *, timeout_s: float = 5) -> None:
        """Return once `count` requests have come; raises TimeoutError if they do not."""
        await self._wait(lambda: len(self.requests) >= count, timeout_s)

    async def wait_dropped(self, count: int, *, timeout_s: float = 5) -> None:
        """Return once `count` connections were closed by the client; raises TimeoutError if that does not happen."""
        await self._wait(lambda: self.dropped >= count, timeout_s)

    async def _wait(self, happened: Callable[[], bool], timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(happened)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            request = await _read_request(reader)
            self.requests.append(request)
            await self._tell()
            await self._play(self._reply(request), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            await self._drop()
        except asyncio.CancelledError:
            # Cancelled by __aexit__ only. asyncio's server reports a handler that ends cancelled as an error.
            return
        finally:
            self._connections.discard(task)
            writer.close()

    def _reply(self, request: Request) -> Reply:
        if self._script is not None:
            return self._script(request)
        return self._replies.pop(0) if self._replies else error_reply(500, "No reply is left")

    async def _play(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(reply))
        for step in reply.steps:
            match step:
                case Cut():
                    await writer.drain()
                    writer.transport.abort()
                    return
                case Silence():
                    await writer.drain()
                    await reader.read()
                    await self._drop()
                    return
                case Drip():
                    await _drip(step, reader, writer)
                    await self._drop()
                    return
                case _:
                    writer.write(b"%x\r\n%s\r\n" % (len(step), step))
                    await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _drop(self) -> None:
        self.dropped += 1
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _drip(step: Drip, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    left = asyncio.ensure_future(reader.read())
    try:
        while not left.done():
            writer.write(b"%x\r\n%s\r\n" % (len(step.piece), step.piece))
            await writer.drain()
            await asyncio.wait([left], timeout=step.interval_s)
    finally:
        left.cancel()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path = first.split(" ")[:2]
    return Request(method=method, path=path, headers=headers, body=json.loads(body) if body else None)


def _head(reply: Reply) -> bytes:
    fixed = {"content-type": reply.content_type, "transfer-encoding": "chunked", "connection": "close"}
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{k}: {v}" for k, v in (fixed | reply.headers).items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def pieces(text: str, size: int) -> Iterable[str]:
    """`text` in pieces of `size` characters; at least one, possibly empty."""
    return (text[at : at + size] for at in range(0, max(1, len(text)), size))
