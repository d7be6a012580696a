"""What the tests of the gateway share: a real server on a free port, and a client that does what a page would."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager, suppress

import httpx2
import perdure
import websockets
from perdure.actors.gateway.serving import _server
from perdure.chord import Decoder, apply_immutable
from perdure.gateway import Limits, create_app

TOKEN = "a token for tests only"
MODEL = "scripted/model"
WITHIN_S = 20.0


def go(main, *, within=60.0):
    """Run one scenario on a loop of its own; hanging is failing."""

    async def bounded():
        async with asyncio.timeout(within):
            return await main()

    return asyncio.run(bounded())


def echo(request):
    last = request.messages[-1]
    return f"re: {perdure.models.plain_text(last.content)}"


@asynccontextmanager
async def opened(brain=echo, *, storage=None, tools=(), clock=None, settings=None, tokens_per_second=None):
    """Open a system with one scripted model."""
    model = perdure.ScriptedModel(brain, clock=clock, tokens_per_second=tokens_per_second)
    kit = perdure.Extension(name="kit", tools=list(tools))
    store = storage if storage is not None else perdure.MemoryStorage()
    async with perdure.System.open(store, models=[model], extensions=[kit], clock=clock, settings=settings) as system:
        yield system


class Door:
    """A gateway that listens."""

    def __init__(self, port, app):
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"
        self.app = app
        self.house = app.state.house
        self.http = httpx2.AsyncClient(
            base_url=self.url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=WITHIN_S, trust_env=False
        )

    def connect(self, **options):
        """Open a bare socket."""
        return websockets.connect(f"ws://{self.host}/socket", proxy=None, max_size=None, **options)

    @asynccontextmanager
    async def page(self, name="Ada", **options):
        """Open a socket and say hello."""
        async with self.connect(**options) as bare:
            page = Page(bare)
            await page.send(type="hello", token=TOKEN, name=name)
            page.welcome = await page.frame("welcome")
            yield page
            page.stop()

    async def post(self, kind, /, **command):
        """Have a command carried out by HTTP; give its receipt."""
        answer = await self.http.post(f"/api/{kind}", json=command)
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def served(system, *, limits=None, agent=MODEL, clock=None, keepalive=True, **options):
    """Serve a system on a free port."""
    chosen = None if agent is None else perdure.Agent(model=agent)
    app = create_app(system, token=TOKEN, limits=limits, agent=chosen, clock=clock, **options)
    server = _server(app, limits or Limits())
    if not keepalive:
        server.config.ws_ping_interval = None
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        door = Door(listening.getsockname()[1], app)
        try:
            yield door
        finally:
            await door.http.aclose()
            server.should_exit = server.force_exit = True
            await serving


class Page:
    """A client: reads everything, keeps what it follows up to date, and can be asked for what has come."""

    def __init__(self, bare):
        self.bare = bare
        self.values = {}
        self.events = {}
        self.ended = {}
        self.answers = {}
        self.others = []
        self.frames = []
        self.welcome = None
        self._parts = ""
        self._decoders = {}
        self._number = 0
        self._changed = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def send(self, **frame):
        await self.bare.send(json.dumps(frame))

    async def command(self, kind, /, session="s", *, request_id=None, **fields):
        """Have a command carried out; give its receipt, or the refusal's code and message."""
        number = self.number()
        command = {"type": kind, "session": session, "requestId": request_id or f"r{number}-{id(self)}", **fields}
        await self.send(type="command", id=number, command=command)
        await self.until(lambda: number in self.answers)
        answer = self.answers.pop(number)
        return answer["receipt"] if answer["type"] == "receipt" else answer["error"]

    async def attach(self, what, session="s", **fields):
        """Follow something; return when its first frame is there."""
        number = self.number()
        await self.send(type="attach", id=number, session=session, what=what, **fields)
        await self.until(lambda: number in self.values or number in self.events or number in self.ended)
        return number

    def number(self):
        self._number += 1
        return self._number

    async def frame(self, kind):
        """Give the next frame of a kind that belongs to nothing else."""
        await self.until(lambda: any(one["type"] == kind for one in self.others))
        found = next(one for one in self.others if one["type"] == kind)
        self.others.remove(found)
        return found

    async def until(self, condition):
        """Wait until a condition holds of what has come."""
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                if self._reading.done() and not condition():
                    raise AssertionError(f"the socket is closed: {self.bare.close_code}")
                self._changed.clear()
                await self._changed.wait()

    async def closed(self):
        """Wait for the end; give its code."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WITHIN_S):
                await self._reading
        return self.bare.close_code

    def stop(self):
        self._reading.cancel()

    async def _read(self):
        try:
            async for text in self.bare:
                self.frames.append(len(text.encode()))
                self._take(json.loads(text))
                self._changed.set()
        except websockets.ConnectionClosed:
            pass
        finally:
            self._changed.set()

    def _take(self, frame):
        number = frame.get("id")
        match frame["type"]:
            case "part":
                self._parts += frame["text"]
                if frame["last"]:
                    whole, self._parts = self._parts, ""
                    self._take(json.loads(whole))
            case "ops":
                if frame["ops"] and frame["ops"][0][0] == "r":
                    self._decoders[number] = Decoder()
                ops = self._decoders[number].decode(frame["ops"])
                self.values[number] = apply_immutable(self.values.get(number), ops)
            case "event":
                self.events.setdefault(number, []).append(frame["event"])
            case "ended":
                self.ended[number] = frame["reason"]
            case "receipt" | "refused" if number is not None:
                self.answers[number] = frame
            case _:
                self.others.append(frame)


def said(view):
    """The texts of a view's messages."""
    return [perdure_text(message) for entry in view["entries"] for message in entry.get("model") or ()]


def perdure_text(message):
    content = message.get("content", "")
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
