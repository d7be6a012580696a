"""500 sockets on 50 sessions, 5 of which never read, over 10 minutes of streaming on the virtual clock.

    python tests/bench/bench_gateway.py [--sessions 50] [--sockets 500] [--stalled 5] [--seconds 600]

Every session streams one long answer; every socket follows its session's conversation and presence, the stalled ones follow
all conversations and do not read a byte until the end. The clients are a process of their own, so "memory" is the daemon's
alone; it is read each simulated minute, beside the size of all answers so far, of which it holds a few copies: the newest
value, what a stalled client will get in the place of what it missed. "answered" is how long a healthy client's ping takes in
real time, under that load on this machine. In the end every client must hold the daemon's own value, the stalled ones after
reading what waits for them.
"""

import argparse
import asyncio
import gc
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import perdure
import uvicorn
import websockets
from perdure.chord import Decoder, apply_immutable
from perdure.gateway import Limits, create_app
from perdure.testing import VirtualClock

TOKEN = "a token for benchmarks"
SMALL = 16_384
"""Bytes of the kernel's buffers at both ends, so that who does not read is felt."""
PIECE = "0123456789abcdef"
PACE = 2


def resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# --- the daemon


async def daemon(options) -> None:
    clock = VirtualClock(autojump=True)
    script = PIECE * (options.seconds * PACE)
    model = perdure.ScriptedModel(lambda request: script, tokens_per_second=PACE, token_chars=len(PIECE), clock=clock)
    settings = perdure.Settings(progress=perdure.ProgressPolicy(partial_interval_ms=1_000))
    limits = Limits(burst=100_000, per_s=100_000.0)
    with tempfile.TemporaryDirectory() as folder, listener() as listening:
        opened = perdure.System.open(
            Path(folder) / "b.db", models=[model], clock=clock, settings=settings, durability="process"
        )
        async with opened as system:
            roots = [await root(system, f"s{number}") for number in range(options.sessions)]
            app = create_app(system, token=TOKEN, limits=limits)
            config = uvicorn.Config(app, log_config=None, lifespan="off", ws="websockets-sansio", ws_ping_interval=None)
            server = uvicorn.Server(config)
            serving = asyncio.ensure_future(server.serve(sockets=[listening]))
            await measured(options, listening.getsockname()[1], clock, roots)
            server.should_exit = server.force_exit = True
            await serving


def listener() -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)  # which every connection inherits
    return listening


async def root(system, key):
    return await (await system.session(key)).root(agent=perdure.Agent(model="scripted/model"))


async def measured(options, port, clock, roots) -> None:
    given = [str(value) for value in (port, options.sessions, options.sockets, options.stalled)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    clients = await asyncio.create_subprocess_exec(sys.executable, __file__, "--clients", *given, **pipes)
    assert (await clients.stdout.readline()) == b"ready\n"
    print(f"{options.sockets} sockets on {options.sessions} sessions, {options.stalled} of them never reading")
    print(f"{'simulated s':>12} {'streamed MB':>12} {'memory MB':>10}")
    began, start = clock.monotonic(), time.perf_counter()
    submissions = [await one.submit("stream") for one in roots]
    sampling = asyncio.ensure_future(sample(options, clock, began))
    await asyncio.gather(*(one.wait() for one in submissions))
    took, simulated = time.perf_counter() - start, clock.monotonic() - began
    sampling.cancel()
    finals = {}
    for one in roots:
        async with await one.watch() as watch:
            finals[one._session] = digest(watch.value)
    clients.stdin.write(json.dumps(finals).encode() + b"\n")
    said = json.loads(await clients.stdout.readline())
    await clients.wait()
    print(f"{simulated:,.0f} s simulated in {took:,.0f} s; memory at the end {resident_mb():.1f} MB")
    for name, value in said.items():
        print(f"{name}: {value}")


async def sample(options, clock, began) -> None:
    while True:
        passed = clock.monotonic() - began
        streamed = options.sessions * passed * PACE * len(PIECE) / 2**20
        print(f"{passed:12.0f} {streamed:12.2f} {resident_mb():10.1f}", flush=True)
        await clock.sleep(60)


# --- the clients


class Follower:
    """One socket that keeps up with what it follows."""

    def __init__(self, bare, sessions) -> None:
        self.bare = bare
        self.sessions = sessions
        self.frames = self.replacements = 0
        self.values = {}
        self.pongs = asyncio.Queue()
        self._decoders = {}
        self._parts = ""

    async def attach(self) -> None:
        for number, session in enumerate(self.sessions):
            await self.bare.send(json.dumps(attach(number, session, "conversation", conversation=1)))
        await self.bare.send(json.dumps(attach(999, self.sessions[0], "presence")))

    async def read(self) -> None:
        async for text in self.bare:
            self.take(json.loads(text))

    def take(self, frame) -> None:
        if frame["type"] == "part":
            self._parts += frame["text"]
            if frame["last"]:
                whole, self._parts = self._parts, ""
                self.take(json.loads(whole))
        elif frame["type"] == "pong":
            self.pongs.put_nowait(time.perf_counter())
        elif frame["type"] == "ops" and frame["id"] != 999:
            self.frames += 1
            self.replacements += frame["ops"][0][0] == "r"
            decoder = self._decoders.setdefault(frame["id"], Decoder())
            ops = decoder.decode(frame["ops"])
            self.values[frame["id"]] = apply_immutable(self.values.get(frame["id"]), ops)

    def holds(self, finals) -> bool:
        return all(digest(self.values.get(at)) == finals[session] for at, session in enumerate(self.sessions))


def attach(number, session, what, **more):
    return {"type": "attach", "id": number, "session": session, "what": what, **more}


async def connect(port, sessions, **options):
    bare = await websockets.connect(
        f"ws://127.0.0.1:{port}/socket", proxy=None, max_size=None, ping_interval=None, compression=None, **options
    )
    await bare.send(json.dumps({"type": "hello", "token": TOKEN}))
    await bare.recv()
    follower = Follower(bare, sessions)
    await follower.attach()
    return follower


def narrow(port) -> socket.socket:
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    plug.connect(("127.0.0.1", port))
    plug.settimeout(0)
    return plug


async def clients(port, sessions, sockets, stalled) -> None:
    keys = [f"s{number}" for number in range(sessions)]
    healthy = [await connect(port, [keys[number % sessions]]) for number in range(sockets - stalled)]
    deaf = [await connect(port, keys, sock=narrow(port), max_queue=1) for _ in range(stalled)]
    reading = [asyncio.ensure_future(one.read()) for one in healthy]
    waits = []
    pinging = asyncio.ensure_future(ping(healthy, waits))
    print("ready", flush=True)
    finals = json.loads(await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline))
    pinging.cancel()
    await caught_up(healthy, finals)
    lost = [one.replacements - 1 for one in healthy]
    reading += [asyncio.ensure_future(one.read()) for one in deaf]
    await caught_up(deaf, finals)
    waits.sort()
    said = {
        "healthy clients that hold the daemon's value": f"{len(healthy)} of {len(healthy)}",
        "operations they got, each": f"{statistics.median(one.frames for one in healthy):,.0f}",
        "replacements they needed": sum(lost),
        "answered, median / 99 %, ms": f"{1e3 * waits[len(waits) // 2]:.1f} / {1e3 * waits[len(waits) * 99 // 100]:.1f}",
        "stalled clients that hold it once they read": f"{len(deaf)} of {len(deaf)}",
        "replacements in the place of what they missed": sum(one.replacements - sessions for one in deaf),
    }
    print(json.dumps(said), flush=True)
    os._exit(0)


async def caught_up(followers, finals) -> None:
    async with asyncio.timeout(120):
        while not all(one.holds(finals) for one in followers):
            await asyncio.sleep(0.2)


async def ping(healthy, waits) -> None:
    turn = 0
    while True:
        one = healthy[turn % len(healthy)]
        turn += 1
        began = time.perf_counter()
        await one.bare.send('{"type": "ping"}')
        waits.append(await one.pongs.get() - began)
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", nargs=4, type=int)
    for name, default in (("sessions", 50), ("sockets", 500), ("stalled", 5), ("seconds", 600)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    asyncio.run(clients(*options.clients) if options.clients else daemon(options))


if __name__ == "__main__":
    main()
