"""HTTP: the commands and reads as JSON, server-sent events, health, and the files of the page.

A command is a POST of JSON, so that no page can send one without asking first; nothing that is read changes anything. The
files are read into memory once and found by their exact names: no path of a client's reaches the file system.
Proved by tests/actors/gateway/test_routes.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from ... import SessionClosed
from .commands import COMMANDS, Command, Name, known_session
from .description import describe
from .following import Follower, Subject, pieces
from .house import House
from .reads import QUERIES, Query, read
from .refusals import Refused, refusal
from .sockets import Socket

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
CLOSED = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": CLOSED,
}
Answer = Callable[[Request], Awaitable[Response]]


def routes(house: House) -> list[Any]:
    """Give all routes of a gateway."""
    commands = [
        Route(f"/api/{name}", _guarded(house, _command(house, kind)), methods=["POST"])
        for name, kind in COMMANDS.items()
    ]
    reads = [
        Route(f"/api/{name}", _guarded(house, _read(house, kind)), methods=["GET"]) for name, kind in QUERIES.items()
    ]
    return [
        WebSocketRoute("/socket", _socket(house)),
        Route("/api/health", _guarded(house, _health, public=True), methods=["GET"]),
        Route("/openapi.json", _guarded(house, _description(), public=True), methods=["GET"]),
        Route("/api/events", Events(house), methods=["GET"]),
        *commands,
        *reads,
        *_pages(house),
    ]


# --- what every request goes through


class Gate:
    """Asked before any route: only names and pages that are ours get further, and only at a bearable rate."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self._app = app
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request or a socket through, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._house.guard.check_place(headers_of(scope))
            self._house.rates.check(str((scope.get("client") or ["?"])[0]), self._house.clock.monotonic())
        except Refused as error:
            await self._refuse(error, scope, receive, send)
            return
        with self._house.serving():
            await self._app(scope, receive, send)

    async def _refuse(self, error: Refused, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close()  # before it is accepted: 403
        else:
            await answer(*refused(error))(scope, receive, send)


def headers_of(scope: Scope) -> dict[str, str]:
    """Give a request's headers; one that comes twice counts as neither."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        found[key] = "" if key in found else value.decode("latin-1")
    return found


def _guarded(house: House, then: Answer, *, public: bool = False) -> Answer:
    """Answer what goes wrong in a typed way; ask for the token first."""

    async def handle(request: Request) -> Response:
        try:
            if not public:
                house.guard.check_bearer(headers_of(request.scope))
            return await then(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, this request alone has failed
            return answer(*refused(error))

    return handle


def refused(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Give status and body for what went wrong."""
    status, said = refusal(error)
    return status, {"error": said}


def answer(status: int, body: Any) -> Response:
    """Give JSON."""
    headers = dict(HEADERS) | {"cache-control": "no-store"}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), status, headers, "application/json")


# --- commands and reads


def _command(house: House, kind: type[Command]) -> Answer:
    decoder = msgspec.json.Decoder(kind)

    async def handle(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused("not_json", "send JSON: Content-Type: application/json", 415)
        body = await _body(request, house.limits.request_bytes)
        try:
            command = decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Refused("invalid_command", str(error), 422) from None
        return answer(200, await house.desk.do(command))

    return handle


async def _body(request: Request, limit: int) -> bytes:
    taken = bytearray()
    async for piece in request.stream():
        taken += piece
        if len(taken) > limit:
            raise Refused("too_large", f"a request has at most {limit:,} bytes", 413)
    return bytes(taken)


def _read(house: House, kind: type[Query]) -> Answer:
    async def handle(request: Request) -> Response:
        return answer(200, await read(house.system, query_of(request, kind)))

    return handle


def query_of(request: Request, kind: type[Any]) -> Any:
    """Read the parameters of a request; one that is not known, or there twice, is refused. Raises Refused."""
    given = request.query_params.multi_items()
    if len({name for name, _ in given}) != len(given):
        raise Refused("invalid_query", "a parameter is there twice", 422)
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise Refused("invalid_query", str(error), 422) from None


async def _health(request: Request) -> Response:
    return answer(200, {"status": "ok"})


def _description() -> Answer:
    described = describe()

    async def handle(request: Request) -> Response:
        return answer(200, described)

    return handle


# --- streams


def _socket(house: House) -> Callable[[WebSocket], Awaitable[None]]:
    async def handle(socket: WebSocket) -> None:
        await Socket(house, socket).run()

    return handle


class Watching(Subject, frozen=True, kw_only=True):
    """What a stream of events follows, and the name by which others see who follows it."""

    name: Name = "somebody"


class Events:
    """Server-sent events: what a socket would get for one attachment, for those who cannot use WebSockets."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Follow until the client goes away or there is nothing to follow any more."""
        try:
            self._house.guard.check_bearer(headers_of(scope))
            asked: Watching = query_of(Request(scope), Watching)
            asked.check()
            await known_session(self._house.system, asked.session)
            with self._house.connected():
                await self._stream(asked, receive, send)
        except Exception as error:  # noqa: BLE001 - whatever it is, this request alone has failed
            await answer(*refused(error))(scope, receive, send)

    async def _stream(self, asked: Watching, receive: Receive, send: Send) -> None:
        headers = HEADERS | {"content-type": "text/event-stream", "cache-control": "no-store"}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        following = asyncio.ensure_future(self._follow(asked, send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({following, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            following.cancel()
            gone.cancel()
            await asyncio.gather(following, gone, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})

    async def _follow(self, asked: Watching, send: Send) -> None:
        house, limit = self._house, self._house.limits.frame_bytes

        async def out(make: Callable[[], dict[str, Any]]) -> None:
            for piece in pieces(make(), limit):
                await send({"type": "http.response.body", "body": b"data: %b\n\n" % piece.encode(), "more_body": True})

        person = house.next_person()
        house.presence.enter(asked.session, person, asked.name, asked.conversation)
        try:
            await Follower(house.system, house.clock, house.presence, asked).run(out)
        except SessionClosed:
            return
        finally:
            house.presence.leave(asked.session, person, asked.conversation)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# --- the page


def _pages(house: House) -> list[Route]:
    found = static_files()
    index = {"": found["index.html"]} if "index.html" in found else {}
    return [
        Route(f"/{name}", _guarded(house, _file(*file), public=True), methods=["GET"])
        for name, file in (found | index).items()
    ]


def static_files() -> dict[str, tuple[bytes, str]]:
    """Read the page's files, each with its media type, by name."""
    folder = files(__package__).joinpath("static")
    return {
        one.name: (one.read_bytes(), TYPES[one.name.rpartition(".")[2]])
        for one in folder.iterdir()
        if one.name.rpartition(".")[2] in TYPES
    }


def _file(content: bytes, media_type: str) -> Answer:
    async def handle(request: Request) -> Response:
        return Response(content, 200, HEADERS | {"cache-control": "no-cache"}, media_type)

    return handle
