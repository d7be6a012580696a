"""The JavaScript client under Node: it does what the reference does, and what the Python view says."""

import asyncio
import json
import random
import shutil
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import perdure
import pytest
from perdure.gateway import Limits

from .support import TOKEN, go, opened, said, served
from .test_serving import APP, Visitor, end, introduced, start

NODE = shutil.which("node")
HERE = Path(__file__).parent
CLIENT = Path(perdure.__file__).parent / "actors/gateway/static/perdure.js"
VECTORS = HERE.parents[1] / "chord/vectors"
COMMITS = 10_000
LIMITS = Limits(per_s=100.0, burst=20)
"""Too little for what the page does: some of it is refused, and must be sent again."""

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: the JavaScript client cannot run")


def test_all_chord_vectors_hold_in_javascript():
    files = [CLIENT, VECTORS / "apply.jsonl", VECTORS / "wire.jsonl"]
    done = subprocess.run([NODE, HERE / "vectors.mjs", *files], check=True, capture_output=True, text=True, timeout=50)
    said = json.loads(done.stdout)
    assert said["wrong"] == []
    assert said["cases"] == sum(len(file.read_text().splitlines()) for file in files[1:])


@pytest.mark.timeout(240)
def test_a_replica_that_loses_its_connection_all_the_time_ends_up_equal():
    """B158, B164: 10,000 random commits, a socket that drops every few of them, and an actor that crashes on the way.

    What the page holds in the end is what the Python views hold; each of its own writes is there once.
    """

    async def main():
        async with opened() as system, served(system, limits=LIMITS) as door:
            session = await system.session("s")
            root = await session.root()
            await root.write("app.first", {"n": 0})
            conversations = [root, await session.create_conversation(), await root.fork()]
            subjects = [{"what": "conversation", "conversation": one.id} for one in conversations]
            subjects += [{"what": "conversations"}, {"what": "tasks"}]
            async with follower(door, subjects=subjects, writes=300, dropMs=200, seed=7) as page:
                rng = random.Random(7)
                for number in range(COMMITS):
                    await commit(session, rng, rng.choice(conversations), number)
                    if number % 2_500 == 1_250:
                        system.kill("session:s")
                await asyncio.gather(*(one.write("app.marker", {"text": "the end"}) for one in conversations))
                said = await page("the end")
            assert said["error"] is None
            assert said["welcomes"] > 10
            assert said["steps"] > said["replacements"] > said["welcomes"]
            assert said["values"] == [await now(session, subject) for subject in subjects]
            assert_once(said["receipts"], [entry async for entry in history(root)])

    go(main, within=200)


@pytest.mark.timeout(120)
def test_a_page_catches_up_by_itself_when_the_daemon_was_killed(tmp_path):
    """B158, B164: kill -9 in mid-answer and in mid-write; the page comes back alone, and each of its writes is there once."""
    (tmp_path / "room.py").write_text(APP)
    (tmp_path / "token").write_text(TOKEN + "\n")

    async def main():
        first, port, token = start(tmp_path, "--port", "0", "--token-file", "token")
        door, subjects = Visitor(port), [{"what": "conversation", "conversation": 1}, {"what": "conversations"}]
        try:
            async with door.connect() as bare:
                page = await introduced(bare, token)
                await page.command("open")
                view = await page.attach("conversation", conversation=1)
                following = follower(door, subjects=subjects, writes=100, dropMs=10**7, seed=1)
                async with following as replica:
                    await page.command("submit", conversation=1, content="go")
                    await page.until(lambda: "tick" in json.dumps(page.values[view]["docs"]["pi.live"]))
                    first.kill()
                    await page.closed()
                    await restarted(tmp_path, door, token, replica, subjects)
        finally:
            end(first)

    go(main, within=100)


async def restarted(folder, door, token, replica, subjects):
    second, port, _ = start(folder, "--port", str(door.port), "--token-file", "token")
    try:
        async with door.connect() as bare:
            assert port == door.port
            page = await introduced(bare, token)
            views = [await page.attach(**subject) for subject in subjects]
            await page.until(lambda: said(page.values[views[0]])[-1:] == ["tick " * 60])
            await page.command("write", conversation=1, kind="app.marker", data={"text": "the end"})
            told = await replica("the end")
            assert told["welcomes"] == 2
            await page.until(lambda: told["values"] == [page.values[view] for view in views])
            entries = [perdure.EntryRecord(**entry_fields(one)) for one in page.values[views[0]]["entries"]]
            assert_once(told["receipts"], entries)
            page.stop()
    finally:
        end(second)


def entry_fields(entry):
    return {"id": entry["id"], "conversation_id": 1, "kind": entry["kind"], "data": entry.get("data")}


async def commit(session, rng, conversation, number):
    """Make one random commit, again if the session's actor has just crashed."""
    while True:
        state = rng.getstate()
        try:
            async with session.commit() as tx:
                await edit(tx, rng, conversation.id, number)
        except perdure.SessionFailed:
            rng.setstate(state)
        else:
            return


async def edit(tx, rng, conversation, number):
    """Change what a page sees: entries, a head now and then, forks, and documents in all the ways that drafts know."""
    draw = rng.random()
    if draw < 0.08:
        head = "self" if draw < 0.004 else None
        await tx.append("app.line", {"n": number, "text": words(rng)}, conversation_id=conversation, head=head)
    if draw > 0.995:
        await tx.create_conversation()
    live = await tx.doc(perdure.LiveDoc, conversation)
    if "notes" not in live:
        live["notes"] = {"text": "", "rows": [], "map": {}}
    notes = live["notes"]
    EDITS[int(rng.random() * len(EDITS))](notes, rng)


def words(rng):
    return "".join(rng.choice(["tick ", "\N{SNOWMAN}", "\N{PERFORMING ARTS}", '"\\ ', "é", "\n"]) for _ in range(6))


def append_text(notes, rng):
    notes["text"] += words(rng)


def cut_text(notes, rng):
    notes["text"] = notes["text"][int(rng.random() * len(notes["text"])) :]


def add_row(notes, rng):
    notes["rows"].insert(int(rng.random() * (len(notes["rows"]) + 1)), {"id": rng.randrange(99), "text": words(rng)})
    del notes["rows"][40:]


def change_row(notes, rng):
    if notes["rows"]:
        notes["rows"][int(rng.random() * len(notes["rows"]))]["text"] += words(rng)


def sort_rows(notes, rng):
    notes["rows"].sort(key=lambda row: row["id"])


def drop_rows(notes, rng):
    del notes["rows"][1:3]


def set_key(notes, rng):
    notes["map"][str(rng.randrange(30))] = rng.choice([None, True, 1.5, [], {"deep": [words(rng)]}])


def drop_key(notes, rng):
    notes["map"].pop(str(rng.randrange(30)), None)


EDITS = (append_text, append_text, cut_text, add_row, change_row, sort_rows, drop_rows, set_key, drop_key)


async def now(session, subject):
    """Read what a subject is, as the Python view says."""
    if subject["what"] == "tasks":
        return await session.task_graph()
    if subject["what"] == "conversations":
        watch = await session.watch_conversations()
    else:
        watch = await (await session.conversation(subject["conversation"])).watch()
    async with watch:
        return watch.value


async def history(conversation):
    page = await conversation.entries(limit=1_000)
    while True:
        for entry in page.items:
            yield entry
        if page.next is None:
            return
        page = await conversation.entries(1_000, page.next)


def assert_once(receipts, entries):
    """Every write that was sent, however often, is there once, and its receipt names it."""
    written = [entry for entry in entries if entry.kind == "js.note"]
    assert sorted(entry.data["n"] for entry in written) == list(range(len(receipts)))
    assert sorted(n for n, _ in receipts) == list(range(len(receipts)))
    assert len({submission for _, submission in receipts}) == len(receipts)
    assert {entry.data["author"] for entry in written} == {"follower"}


@asynccontextmanager
async def follower(door, **plan):
    """Start the page; calling it with a marker gives what it holds when it has come to that."""
    given = json.dumps({"url": f"{door.url}/socket", "token": TOKEN, "session": "s", **plan})
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        NODE, "--experimental-websocket", HERE / "follower.mjs", CLIENT, given, stdin=pipe, stdout=pipe, limit=2**26
    )

    async def until(marker):
        process.stdin.write(marker.encode() + b"\n")
        return json.loads(await process.stdout.readline())

    try:
        assert await process.stdout.readline() == b"ready\n"
        yield until
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
