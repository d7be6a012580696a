"""One WebSocket: who it is, what it follows, what it has done.

Everything that leaves takes its turn at one lock, which is given back when the transport has room again. So a client that
does not read holds up its own frames and commands and nobody else's, and keeps one frame in memory. Commands are carried out
in the order in which they came. Proved by tests/actors/gateway/test_sockets.py.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from ... import SessionClosed
from .commands import LENGTHY, AnyCommand, Command, Id, Key, Name
from .following import Follower, Make, Subject, pieces
from .guard import Limits, Rate, slow_down
from .house import House
from .refusals import Refused, refusal

log = structlog.get_logger("perdure.gateway")

PROTOCOL = 1
BAD_FRAME, TOO_LARGE, GOING_AWAY, WRONG_TOKEN, TOO_MANY = 1003, 1009, 1012, 4401, 4429
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Incoming(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag=str.lower,
    rename="camel",
    forbid_unknown_fields=True,
):
    """Base of what a client sends."""


class Hello(Incoming, frozen=True, kw_only=True):
    """First: the token, unless the request had it in its headers, and how others are to read one's name."""

    token: str | None = None
    name: Name = "somebody"


class Attach(Incoming, frozen=True, kw_only=True):
    """Follow something; its frames carry this ``id``, which is the client's choice."""

    id: Number
    session: Key
    what: str
    conversation: Id | None = None


class Detach(Incoming, frozen=True, kw_only=True):
    """Follow it no longer."""

    id: Number


class Do(Incoming, frozen=True, kw_only=True, tag="command"):
    """Carry out a command; the ``receipt`` or ``refused`` frame carries this ``id``."""

    id: Number
    command: AnyCommand


class Status(Incoming, frozen=True, kw_only=True):
    """Show something beside one's name to those who are in the same session ("typing"), or nothing."""

    session: Key
    status: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class Ping(Incoming, frozen=True, kw_only=True):
    """Answered by ``pong``: for clients that cannot see the transport's own."""

    id: Number = 0


FRAMES: msgspec.json.Decoder[Incoming] = msgspec.json.Decoder(Hello | Attach | Detach | Do | Status | Ping)


class Socket:
    """The life of one connection."""

    def __init__(self, house: House, socket: WebSocket) -> None:
        self._house = house
        self._limits: Limits = house.limits
        self._socket = socket
        self._turn = asyncio.Lock()
        self._rate = Rate(self._limits.per_s, self._limits.burst, house.clock.monotonic())
        self._following: dict[int, asyncio.Task[None]] = {}
        self._lengthy: set[asyncio.Task[None]] = set()
        self._id = house.next_person()
        self._name = ""

    async def run(self) -> None:
        """Serve it until either side ends it; nothing of it stays."""
        try:
            await self._socket.accept()
            if await self._introduced():
                await self._serve()
        except Refused as error:
            await self._put_out(error)
        except (WebSocketDisconnect, RuntimeError):  # starlette's way to say that it is gone while something was sent
            return
        finally:
            await self._end()

    async def _introduced(self) -> bool:
        """Take the first frame; tell whether it names somebody who may come in."""
        try:
            async with self._house.stranger():
                hello = said_hello(await self._house.within(self._limits.hello_s, self._read()))
                self._house.admit(self._socket.headers, hello.token)
        except (Refused, TimeoutError) as error:
            said = (
                refusal(error)[1] if isinstance(error, Refused) else {"code": "no_hello", "message": "say hello first"}
            )
            await self._send(lambda: {"type": "refused", "id": None, "error": said})
            await self._socket.close(TOO_MANY if said["code"] == "too_many" else WRONG_TOKEN)
            return False
        self._name = hello.name
        you = {"id": self._id, "name": self._name}
        limits = {"requestBytes": self._limits.request_bytes, "attachments": self._limits.attachments}
        await self._send(lambda: {"type": "welcome", "protocol": PROTOCOL, "you": you, "limits": limits})
        return True

    async def _put_out(self, error: Refused) -> None:
        """Say why, and close."""
        await self._refuse(None, error)
        await self._socket.close(TOO_MANY if error.code == "too_many" else WRONG_TOKEN)

    async def _serve(self) -> None:
        with self._house.connected():
            while True:
                try:
                    await self._take(await self._read())
                except Unread as error:
                    await self._refuse(error.id, error)
                except Refused as error:
                    await self._refuse(None, error)

    async def _read(self) -> Incoming:
        """Give the next frame. Raises Refused for one that cannot be read."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text = message.get("text")
        if text is None:
            await self._socket.close(BAD_FRAME)
            raise WebSocketDisconnect(BAD_FRAME)
        if len(text) > self._limits.request_bytes or len(text.encode(errors="replace")) > self._limits.request_bytes:
            await self._socket.close(TOO_LARGE)
            raise WebSocketDisconnect(TOO_LARGE)
        self._slow_down(text)
        return read_frame(text)

    def _slow_down(self, text: str) -> None:
        """Refuse a frame that comes too fast, by its id, so that it can be sent again. Raises Unread."""
        try:
            slow_down(self._rate.take(self._house.clock.monotonic()))
        except Refused as error:
            raise Unread(text, error.code, str(error), error.status, error.retry_after_s) from None

    async def _take(self, frame: Incoming) -> None:
        match frame:
            case Do(id=id, command=command):
                await self._command(id, command)
            case Attach():
                await self._attach(frame)
            case Detach(id=id):
                await self._detach(id)
            case Status(session=session, status=status):
                self._house.presence.say(session, self._id, status)
            case Ping(id=id):
                await self._send(lambda: {"type": "pong", "id": id})
            case _:
                raise Refused("invalid_frame", "hello comes first, and once")

    # --- commands

    async def _command(self, id: int, command: Command) -> None:
        if not isinstance(command, LENGTHY):
            await self._do(id, command)
        elif len(self._lengthy) >= self._limits.waiting:
            await self._refuse(id, Refused("too_many", "too many commands are waited for on this socket", 429))
        else:
            self._begin(self._lengthy.add, self._lengthy.discard, self._do(id, command))

    async def _do(self, id: int, command: Command) -> None:
        try:
            receipt = await self._house.desk.do(command, self._name)
        except Exception as error:  # noqa: BLE001 - whatever it is, this command alone has failed
            await self._refuse(id, error)
        else:
            await self._send(lambda: {"type": "receipt", "id": id, "requestId": command.request_id, "receipt": receipt})

    async def _refuse(self, id: int | None, error: BaseException) -> None:
        await self._send(lambda: {"type": "refused", "id": id, "error": refusal(error)[1]})

    # --- following

    async def _attach(self, frame: Attach) -> None:
        try:
            subject = subject_of(frame)
            self._check_room(frame.id)
        except Refused as error:
            await self._refuse(frame.id, error)
            return
        self._begin(
            lambda task: self._following.__setitem__(frame.id, task),
            lambda task: self._following.pop(frame.id, None),
            self._follow(frame.id, subject),
        )

    def _check_room(self, id: int) -> None:
        if id in self._following:
            raise Refused("invalid_frame", f"attachment {id} is in use", 409)
        if len(self._following) >= self._limits.attachments:
            raise Refused("too_many", "too many attachments on this socket; detach some", 429)

    async def _follow(self, id: int, subject: Subject) -> None:
        house = self._house
        try:
            if not await house.system.has_session(subject.session):
                await self._send(lambda: {"type": "ended", "id": id, "reason": "unknown_session"})
                return
            house.presence.enter(subject.session, self._id, self._name, subject.conversation)
            try:
                await Follower(house.system, house.clock, house.presence, subject).run(
                    lambda make: self._send(lambda: {"id": id} | make())
                )
            finally:
                house.presence.leave(subject.session, self._id, subject.conversation)
        except SessionClosed:
            await self._socket.close(GOING_AWAY)
        except (WebSocketDisconnect, RuntimeError):
            return  # the receiving side learns of it, too
        except Exception as error:  # noqa: BLE001 - whatever it is, this attachment alone has failed
            reason = refusal(error)[1]["code"]
            await self._send(lambda: {"type": "ended", "id": id, "reason": reason})

    async def _detach(self, id: int) -> None:
        task = self._following.get(id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # --- out

    async def _send(self, make: Make) -> None:
        """Send a frame when its turn has come; it is made then, and not before."""
        async with self._turn:
            for piece in pieces(make(), self._limits.frame_bytes):
                await self._socket.send_text(piece)

    def _begin(
        self,
        keep: Callable[[asyncio.Task[None]], object],
        drop: Callable[[asyncio.Task[None]], object],
        work: Coroutine[Any, Any, None],
    ) -> None:
        task = asyncio.get_running_loop().create_task(work)
        keep(task)
        task.add_done_callback(drop)
        task.add_done_callback(_seen)

    async def _end(self) -> None:
        tasks = [*self._following.values(), *self._lengthy]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _seen(task: asyncio.Task[None]) -> None:
    """What a task raises when its client goes away is for nobody."""
    if not task.cancelled() and task.exception() is not None:
        log.debug("client_went_away", error=repr(task.exception()))


def said_hello(frame: Incoming) -> Hello:
    """Give back a hello. Raises Refused for another frame."""
    if not isinstance(frame, Hello):
        raise Refused("no_hello", "say hello first")
    return frame


class Unread(Refused):
    """A frame was not taken. ``id`` is the frame's, if it has one that can be read."""

    def __init__(self, text: str, code: str, message: str, status: int = 400, again_s: float | None = None) -> None:
        super().__init__(code, message, status, retry_after_s=again_s)
        self.id = _id_of(text)


class _Numbered(msgspec.Struct, frozen=True):
    id: Number | None = None


def _id_of(text: str) -> int | None:
    try:
        return msgspec.json.decode(text, type=_Numbered).id
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def read_frame(text: str) -> Incoming:
    """Read what a client has sent. Raises Unread."""
    try:
        return FRAMES.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unread(text, "invalid_frame", f"this is no frame: {error}") from None


def subject_of(frame: Attach) -> Subject:
    """Give what a frame asks to follow. Raises Refused."""
    asked = {"session": frame.session, "what": frame.what, "conversation": frame.conversation}
    try:
        subject = msgspec.convert(asked, Subject)
    except msgspec.ValidationError as error:
        raise Refused("invalid_frame", f"this cannot be followed: {error}") from None
    subject.check()
    return subject
