"""Whatever is sent: a typed refusal or a receipt, nothing stored by what is refused, and nobody else disturbed.

Requests are made of the HTTP description (schemathesis), frames of the protocol's own and of noise. A sentinel is connected all
the time and must not notice.
"""

import asyncio
import json
import threading
from contextlib import contextmanager, suppress

import jsonschema_rs
import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perdure.actors.gateway.commands import COMMANDS
from perdure.actors.gateway.description import CODES, describe
from perdure.gateway import Limits
from schemathesis import GenerationMode
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from .support import TOKEN, WITHIN_S, opened, said, served

LIMITS = Limits(per_s=1e6, burst=1_000_000, request_bytes=65_536)
DESCRIBED = describe()
FUZZ = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), database=None)
ROOMY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)


class Daemon:
    """A gateway on a loop in another thread, with one conversation and somebody who watches it."""

    def __init__(self):
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._run()], daemon=True)
        self._thread.start()
        assert self._ready.wait(WITHIN_S)

    async def _run(self):
        self._loop = asyncio.get_running_loop()
        async with opened() as system, served(system, limits=LIMITS) as door, door.page("sentinel") as sentinel:
            self.system, self.door, self.sentinel = system, door, sentinel
            await sentinel.command("open")
            await sentinel.command("submit", conversation=1, content="undisturbed")
            self.view = await sentinel.attach("conversation", conversation=1)
            await sentinel.until(lambda: said(sentinel.values[self.view])[-1:] == ["re: undisturbed"])
            self._ready.set()
            await self._over.wait()

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    def stored(self):
        return self.call(self._stored())

    async def _stored(self):
        page = await self.system.sessions(1_000)
        return {one.key: (one.seq, one.last_id) for one in page.items}

    async def _look(self):
        await self.sentinel.send(type="ping", id=1)
        await self.sentinel.frame("pong")
        return self.sentinel.values[self.view]

    def look(self):
        """What the sentinel sees; it must be there and be answered."""
        return self.call(self._look())

    def close(self):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(WITHIN_S)


@pytest.fixture(scope="module")
def daemon():
    running = Daemon()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def undisturbed(daemon):
    """Nobody else notices."""
    seen = daemon.look()
    inside = daemon.door.house.inside
    yield
    assert daemon.look() == seen
    assert daemon.call(left(daemon, inside))


async def left(daemon, inside):
    async with asyncio.timeout(WITHIN_S):
        while daemon.door.house.inside > inside:
            await asyncio.sleep(0.01)
    return True


def operations():
    described = describe()
    del described["security"]  # what is random is the rest; tokens have a test of their own
    schema = schemathesis.openapi.from_dict(described)
    return [pytest.param(one.ok(), id=one.ok().label) for one in schema.get_all_operations()]


def as_described(path, body):
    """Tell whether a body is what the description asks for."""
    described = DESCRIBED
    content = described["paths"][path]["post"]["requestBody"]["content"]
    schema = {"components": described["components"], **content["application/json"]["schema"]}
    return not isinstance(body, bytes) and jsonschema_rs.is_valid(schema, msgspec.to_builtins(body, enc_hook=str))


def send(daemon, case, token=TOKEN):
    with requests.Session() as session:
        session.trust_env = False
        headers = {"Authorization": f"Bearer {token}"}
        return case.call(base_url=daemon.door.url, session=session, headers=headers, timeout=WITHIN_S)


def check_answer(answer):
    """Hold an answer against the description."""
    assert answer.status_code == 200 or str(answer.status_code) in CODES, answer.text
    body = msgspec.json.decode(answer.content)
    if answer.status_code != 200:
        assert set(body) == {"error"}
        assert body["error"]["code"]
        assert body["error"]["message"]
    return body


@pytest.mark.timeout(180)
@pytest.mark.parametrize("operation", operations())
def test_requests_as_described_get_receipts_or_typed_refusals(daemon, operation):
    """Another session than the sentinel's may come of it, and nothing else."""
    before = daemon.stored()["s"]

    @FUZZ
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def run(case):
        if isinstance(case.body, dict) and case.body.get("session") == "s":
            return
        assert check_answer(send(daemon, case)) is not None

    run()
    assert daemon.stored()["s"] == before


@pytest.mark.timeout(180)
@pytest.mark.parametrize("operation", operations())
def test_requests_that_are_not_as_described_are_refused_and_store_nothing(daemon, operation):
    before = daemon.stored()

    @FUZZ
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def run(case):
        if case.method == "POST" and as_described(operation.path, case.body):
            return  # only a header is odd, and headers that nobody knows mean nothing
        answer = send(daemon, case)
        if "application/json" in answer.headers.get("content-type", ()):
            check_answer(answer)
        else:  # no HTTP at all, or no such method
            assert answer.status_code in (400, 405)

    if operation.path != "/api/health":
        run()
    assert daemon.stored() == before


@pytest.mark.parametrize("operation", operations())
def test_without_the_token_nothing_is_told_and_nothing_done(daemon, operation):
    before = daemon.stored()

    @settings(FUZZ, max_examples=5)
    @given(
        case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        token=st.text("abcdefTOKEN 0123", max_size=30),
    )
    def run(case, token):
        assert send(daemon, case, token).status_code == (200 if operation.path == "/api/health" else 401)

    run()
    assert daemon.stored() == before


# --- frames

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | st.text(max_size=20)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
kinds = st.sampled_from(["hello", "attach", "detach", "command", "status", "ping", "receipt", "ops"])
commands = st.fixed_dictionaries(
    {"type": st.sampled_from(list(COMMANDS)), "session": st.sampled_from(["s", "t", ""]), "requestId": values},
    optional={"conversation": values, "content": values, "call": values, "hash": values, "submission": values},
)
frames = st.fixed_dictionaries(
    {"type": kinds},
    optional={"id": values, "session": values, "what": values, "conversation": values, "command": values | commands},
)
noise = st.text(max_size=200) | values.map(json.dumps) | frames.map(json.dumps)
too_much = st.integers(65_537, 70_000).map("x".__mul__) | st.just(b"\x00binary")


@contextmanager
def hello(daemon):
    with connect(f"ws://{daemon.door.host}/socket", proxy=None) as socket:
        socket.send(json.dumps({"type": "hello", "token": TOKEN, "name": "fuzz"}))
        assert json.loads(socket.recv(WITHIN_S))["type"] == "welcome"
        yield socket


def test_frames_of_any_kind_are_answered_or_end_their_own_socket(daemon):
    """Random frames, whole and broken: each is refused by name, or read as what it is."""
    with hello(daemon) as socket:

        @ROOMY
        @given(noise)
        def run(text):
            if '"requestId": "' in text:
                return  # it might be a command, which may be carried out
            before = daemon.stored()
            socket.send(text)
            socket.send('{"type": "ping", "id": 424242}')
            while (frame := json.loads(socket.recv(WITHIN_S))) != {"type": "pong", "id": 424242}:
                assert frame["type"] in ("refused", "ended", "ops", "event", "pong"), frame
            assert daemon.stored() == before

        run()


@settings(FUZZ, max_examples=10)
@given(too_much)
def test_what_is_no_frame_at_all_ends_its_own_socket(daemon, message):
    before = daemon.stored()
    with hello(daemon) as socket:
        with suppress(ConnectionClosed):
            socket.send(message)
            while True:
                socket.recv(WITHIN_S)
        assert socket.close_code in (1003, 1009)
    assert daemon.stored() == before


@settings(FUZZ, max_examples=15)
@given(noise)
def test_nobody_gets_anywhere_without_saying_hello(daemon, text):
    if TOKEN in text:
        return
    before = daemon.stored()
    with connect(f"ws://{daemon.door.host}/socket", proxy=None) as socket:
        with suppress(ConnectionClosed):
            socket.send(text)
            while True:
                assert json.loads(socket.recv(WITHIN_S))["type"] == "refused"
        assert socket.close_code == 4401
    assert daemon.stored() == before
