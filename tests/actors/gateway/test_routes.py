"""HTTP: who gets in, what is answered, and that nothing else is done."""

import asyncio
import json

import httpx2
import perdure
import pytest
from perdure.actors.gateway.routes import static_files
from perdure.gateway import Limits, create_app
from starlette.applications import Starlette
from starlette.routing import Mount

from .support import TOKEN, WITHIN_S, go, opened, served

SUBMIT = {"session": "s", "conversation": 1, "content": "hi", "requestId": "x"}


async def raw(door, text):
    """Send bytes as they are; give the status line's code."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(text.replace("\n", "\r\n").encode("latin-1"))
    await writer.drain()
    async with asyncio.timeout(WITHIN_S):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def sizes(system):
    """Tell how many sessions and commits there are: what a refusal may not change."""
    page = await system.sessions()
    return {one.key: (one.seq, one.last_id) for one in page.items}


def test_commands_and_reads_by_http():
    async def main():
        async with opened() as system, served(system) as door:
            assert await door.post("open", session="a/b ü", requestId="1") == {"conversation": 1}
            said = {"session": "a/b ü", "conversation": 1, "content": "hi", "requestId": "2", "author": "Ada"}
            sent = await door.post("submit", **said)
            settled = await (await (await system.session("a/b ü")).submission(sent["submission"])).wait()
            assert settled.text == "re: hi"
            where = {"session": "a/b ü", "conversation": 1}
            entries = (await door.http.get("/api/entries", params=where | {"limit": 1})).json()
            assert entries["items"][0]["model"][0]["role"] == "assistant"
            older = await door.http.get("/api/entries", params=where | {"limit": 1, "cursor": entries["next"]})
            assert older.json()["items"][0]["data"] == {"author": "Ada"}
            view = (await door.http.get("/api/view", params=where)).json()
            assert [entry["kind"] for entry in view["entries"]] == ["pi.user", "pi.assistant"]
            found = (await door.http.get("/api/submission", params={"session": "a/b ü", **sent})).json()
            assert (found["status"], found["requestId"]) == ("done", "2")
            sessions = (await door.http.get("/api/sessions")).json()
            assert [one["key"] for one in sessions["items"]] == ["a/b ü"]
            for read in ("conversations", "usage", "tasks", "inspect"):
                answer = await door.http.get(f"/api/{read}", params={"session": "a/b ü"})
                assert answer.status_code == 200, answer.text
            assert (await door.http.get("/api/inspect", params={"session": "a/b ü"})).json()["active"]
            health = await door.http.get("/api/health", headers={"authorization": ""})
            assert health.json() == {"status": "ok"}

    go(main)


def test_events_are_sent_one_by_one_whatever_they_say():
    """B188: text that looks like markup or like framing stays text, and one event stays one event."""
    evil = '</script><img src=x onerror=alert(1)>\n\nevent: done\ndata: {}\n\r\r "quoted"'

    async def main():
        async with opened(lambda request: evil) as system, served(system) as door:
            await door.post("open", session="s", requestId="1")
            asked = {"session": "s", "what": "events", "conversation": 1, "name": "Ada"}
            async with door.http.stream("GET", "/api/events", params=asked) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                frames = frames_of(stream)
                first = await anext(frames)
                assert first["event"]["type"] == "snapshot"
                await door.post("submit", **SUBMIT)
                async for frame in frames:
                    if frame["event"]["type"] == "message_end" and "assistant" in json.dumps(frame):
                        break
                assert frame["event"]["entry"]["model"][0]["content"] == [{"type": "text", "text": evil}]
            page = await door.http.get("/")
            assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert page.headers["x-content-type-options"] == "nosniff"

    go(main)


async def frames_of(stream):
    async for line in stream.aiter_lines():
        if line:
            assert line.startswith("data: ")
            yield json.loads(line.removeprefix("data: "))


def test_a_stream_of_operations_ends_with_its_client():
    async def main():
        async with opened() as system, served(system) as door:
            await door.post("open", session="s", requestId="1")
            asked = {"session": "s", "what": "presence", "name": "Ada"}
            async with door.http.stream("GET", "/api/events", params=asked) as stream:
                first = await anext(frames_of(stream))
                assert [one["name"] for one in first["ops"][0][1]["people"].values()] == ["Ada"]
            async with asyncio.timeout(WITHIN_S):
                while door.house.inside or len(door.house.presence):
                    await asyncio.sleep(0.01)

    go(main)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": ""}, 401),
    ],
    ids=str,
)
def test_no_foreign_page_starts_anything(headers, status):
    """B181: a plain post of another page, or one without the token, is refused, and nothing is stored."""

    async def main():
        async with opened() as system, served(system) as door:
            await door.post("open", session="s", requestId="1")
            before = await sizes(system)
            answer = await door.http.post("/api/submit", json=SUBMIT, headers=headers)
            assert answer.status_code == status
            assert answer.json()["error"]["code"]
            assert "access-control-allow-origin" not in answer.headers
            assert await sizes(system) == before

    go(main)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8420", 200),
        ("localhost:1", 200),
        ("[::1]:80", 200),
        ("[::1]", 200),
        ("LOCALHOST", 200),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.com", 403),
        ("127.0.0.1:evil", 403),
        ("localhost.", 403),
        ("", 403),
    ],
)
def test_only_loopback_names_are_answered(host, status):
    """B182: a name that was made to point here reads nothing, with or without the token."""

    async def main():
        async with opened() as system, served(system) as door:
            asked = f"GET /api/sessions HTTP/1.1\nHost: {host}\nAuthorization: Bearer {TOKEN}\nConnection: close\n\n"
            assert await raw(door, asked) == status
            asked = f"GET /api/sessions HTTP/1.1\nHost: {host}\nConnection: close\n\n"
            assert await raw(door, asked) == (401 if status == 200 else 403)

    go(main)


def test_no_host_or_two_of_them_is_nobody():
    """B182: what the check reads is what everybody else reads."""

    async def main():
        async with opened() as system, served(system) as door:
            assert await raw(door, f"GET /api/sessions HTTP/1.0\nAuthorization: Bearer {TOKEN}\n\n") == 403
            both = "Host: localhost\nHost: evil.example\n"
            assert await raw(door, f"GET /api/sessions HTTP/1.1\n{both}Authorization: Bearer {TOKEN}\n\n") in (400, 403)
            twice = "Origin: http://evil.example\nOrigin: http://localhost\n"
            assert await raw(door, f"GET /api/sessions HTTP/1.1\nHost: localhost\n{twice}\n") == 403

    go(main)


def test_a_get_changes_nothing():
    """B181: what can be put into a link or a picture only reads."""

    async def main():
        async with opened() as system, served(system) as door:
            await door.post("open", session="s", requestId="1")
            before = await sizes(system)
            for path in ("/api/open", "/api/submit", "/api/abort"):
                assert (await door.http.get(path, params=SUBMIT)).status_code == 405
            assert await sizes(system) == before

    go(main)


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/..%2f..%2fpyproject.toml", "/static/index.html", "/page.js/.."]
)
def test_no_path_reaches_the_file_system(path):
    """B179: files are found by their exact names in memory."""

    async def main():
        async with opened() as system, served(system) as door:
            assert await raw(door, f"GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n\n") == 404
            for name, (content, _) in static_files().items():
                assert (await door.http.get(f"/{name}")).content == content

    go(main)


@pytest.mark.parametrize(
    "change",
    [
        {"conversaton": 1},
        {"conversation": 0},
        {"conversation": "1"},
        {"content": ""},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "tool", "text": "x"}]},
        {"whenBusy": "now"},
        {"requestId": ""},
        {"requestId": "x" * 513},
        {"author": "x" * 65},
        {"type": "abort"},
    ],
    ids=str,
)
def test_what_is_not_asked_for_is_refused_and_not_ignored(change):
    """B178: a misspelt field is an error, as is one of the wrong type."""

    async def main():
        async with opened() as system, served(system) as door:
            await door.post("open", session="s", requestId="1")
            before = await sizes(system)
            answer = await door.http.post("/api/submit", json=SUBMIT | change)
            assert answer.status_code in (400, 422)
            assert await sizes(system) == before
            misspelt = await door.http.get("/api/entries", params={"session": "s", "conversation": 1, "limt": 5})
            assert (misspelt.status_code, misspelt.json()["error"]["code"]) == (422, "invalid_query")
            twice = await door.http.get("/api/entries?session=s&conversation=1&session=t")
            assert twice.status_code == 422

    go(main)


def test_refusals_of_perdure_itself_are_typed():
    async def main():
        async with opened() as system, served(system) as door:
            await door.post("open", session="s", requestId="1")
            await door.post("create", session="s", requestId="used")
            for kind, fields, status, code in (
                ("submit", {"session": "nobody's"}, 404, "unknown_session"),
                ("submit", {"conversation": 99}, 404, "unknown_record"),
                ("submit", {"content": " "}, 400, "invalid_value"),
                ("submit", {"content": "x" * 1_100_000}, 413, "submission_too_large"),
            ):
                answer = await door.http.post(f"/api/{kind}", json=SUBMIT | fields)
                assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            approve = {"session": "s", "conversation": 1, "call": "c", "hash": "h", "requestId": "y"}
            answer = await door.http.post("/api/approve", json=approve)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_call")
            fork = {"session": "s", "conversation": 1, "at": 999, "requestId": "z"}
            answer = await door.http.post("/api/fork", json=fork)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "entry_not_visible")
            cursor = await door.http.get("/api/sessions", params={"cursor": "{"})
            assert (cursor.status_code, cursor.json()["error"]["code"]) == (400, "invalid_cursor")
            assert not await system.has_session("nobody's")

    go(main)


def test_what_is_too_large_or_too_fast_is_refused():
    async def main():
        clock, limits = perdure.VirtualClock(), Limits(request_bytes=10_000, per_s=1.0, burst=4)
        async with opened() as system, served(system, limits=limits, clock=clock) as door:
            await door.post("open", session="s", requestId="1")
            answer = await door.http.post("/api/submit", json=SUBMIT | {"content": "x" * 10_000})
            assert answer.status_code == 413
            codes = [(await door.http.get("/api/sessions")).status_code for _ in range(3)]
            assert codes == [200, 200, 429]
            clock.advance(1.0)
            assert (await door.http.get("/api/sessions")).status_code == 200

    go(main)


def test_what_goes_wrong_inside_is_logged_and_not_told():
    """B185: no path, no key, no trace of the inside in an answer."""

    async def main():
        async with opened() as system, served(system) as door:

            async def broken(*args):
                raise RuntimeError("/secret/path")

            system.sessions = broken
            answer = await door.http.get("/api/sessions")
            assert answer.status_code == 500
            assert "secret" not in answer.text
            assert answer.json()["error"]["code"] == "internal"

    go(main)


def test_a_host_mounts_it_in_its_own_application():
    async def main():
        async with opened() as system:
            inner = create_app(system, token=TOKEN, hosts=["agents.example"], origins=["https://agents.example"])
            outer = Starlette(routes=[Mount("/agents", inner)])
            headers = {"authorization": f"Bearer {TOKEN}", "origin": "https://agents.example"}
            transport = httpx2.ASGITransport(app=outer)
            async with httpx2.AsyncClient(
                transport=transport, base_url="https://agents.example", headers=headers
            ) as client:
                opened_ = await client.post("/agents/api/open", json={"session": "s", "requestId": "1"})
                assert opened_.json() == {"conversation": 1}
                assert (await client.get("/agents/")).status_code == 200
                assert (await client.get("/agents/perdure.js")).headers["content-type"].startswith("text/javascript")

    go(main)
