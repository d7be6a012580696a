"""Streaming to many watchers, and many conversations that answer at once.

    python tests/bench/bench_streaming.py [--tokens 4000] [--rate 100] [--watchers 100] [--conversations 1000]

A scripted model streams an answer of so many tokens of four letters; what has come is committed every 100 ms and shown to
all watchers. Time is virtual and jumps when nothing can happen, so the wall time is what the work costs.

What is written, from the submission to the answer, in multiples of the text (its entry repeats the text once):

    content    operations, values and messages in the records: what no format could leave out
    rows       the bodies of all rows as SQLite has them, and 20 bytes each for a revision's key, header and cell pointer;
               also those that are reclaimed when the answer is there
    file       by how much the database grows, with all indexes, once the log is copied into it; pages that held the
               partials are used again
    batches    all records as JSON with every field name, as a store that keeps a commit as one JSON text would
    log        the write-ahead log: whole pages, two of 2,048 bytes for a flush (the session's counters and the end of the
               revisions), and five or more when a page is split. It is what a flush costs the disk, and it is reused
    jsonl      the same on a JSONL store: all that is appended to its files, markers and side records

Aims: content, rows and file of at most 3 times the text, one mount, every watcher at the committed view.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import perdure
from perdure.chord import Encoder
from perdure.storage import codec
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.jsonl_files import DiskFiles
from perdure.storage.records import Batch, DocumentChange, DocumentCreate, EntryRecord
from perdure.storage.sqlite import SqliteStorage

AGENT = perdure.Agent(model="scripted/model")
REVISION = 20
"""What a row of the revisions takes beside its body, in bytes."""


class Counted(SqliteStorage):
    """A file, and how much was given to it."""

    writes = batches = records = content = rows = 0

    async def write(self, batches: Sequence[Batch]) -> None:
        self.writes += 1
        for batch in batches:
            self.batches += 1
            self.records += len(msgspec.json.encode(batch))
            self.content += sum(map(_content, batch.writes))
            self.rows += sum(map(_row, batch.writes))
        await super().write(batches)


def _content(write: object) -> int:
    if isinstance(write, DocumentChange | DocumentCreate):
        stored = write.content
        return len(msgspec.json.encode(getattr(stored, "ops", None) or getattr(stored, "value", None)))
    return len(msgspec.json.encode(write.model)) if isinstance(write, EntryRecord) else 0


def _row(write: object) -> int:
    stored = write.content if isinstance(write, DocumentChange | DocumentCreate) else None
    return len((codec.encode(write) if stored is None else codec.encode_content(stored)).encode()) + REVISION


class Follower:
    """A watcher that puts what it is told into the form for a wire."""

    def __init__(self, watch: perdure.Watch) -> None:
        self.value = watch.value
        self.frames = self.bytes = 0
        self._encoder = Encoder()
        watch.start(self._take)

    async def _take(self, value: object, ops: list[list[object]]) -> None:
        self.frames += 1
        self.bytes += len(msgspec.json.encode(self._encoder.encode(ops)))
        self.value = value


async def count(stream: perdure.EventStream) -> int:
    """Take in events until the run has ended."""
    events = 0
    async for event in stream:
        events += 1
        if isinstance(event, perdure.events.RunEnd):
            break
    return events


def answer(options: argparse.Namespace) -> str:
    """Make up the text of so many tokens."""
    return "".join(f"{number:3d} " for number in range(options.tokens))[: options.tokens * 4]


def streaming(storage: perdure.Storage, options: argparse.Namespace) -> perdure.System:
    """Make a system whose model streams in virtual time."""
    clock = perdure.VirtualClock(autojump=True, quiet_s=0.0005)
    text = answer(options)
    model = perdure.ScriptedModel(lambda request: text, clock=clock, tokens_per_second=options.rate, token_chars=4)
    return perdure.System.open(storage, models=[model], clock=clock)


def empty_size(path: Path) -> int:
    """How large a database is with one idle conversation in it."""

    async def make() -> None:
        async with perdure.System.open(SqliteStorage(path)) as system:
            await (await system.session("s")).root(agent=AGENT)

    asyncio.run(make())
    return path.stat().st_size


async def stream(path: Path, options: argparse.Namespace, empty: int) -> None:
    """One answer, many watchers."""
    storage, log = Counted(path, durability=options.durability), path.with_name(f"{path.name}-wal")
    async with streaming(storage, options) as system:
        root = await (await system.session("s")).root(agent=AGENT)
        followers = [Follower(await root.watch()) for _ in range(options.watchers)]
        counting = [asyncio.ensure_future(count(await root.watch_events())) for _ in range(options.watchers)]
        before, began = (storage.records, storage.content, storage.batches, storage.rows), time.perf_counter()
        logged, cpu = await asyncio.to_thread(os.path.getsize, log), time.process_time()
        await (await root.submit("write")).wait()
        for _ in range(200):
            await asyncio.sleep(0)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        logged = await asyncio.to_thread(os.path.getsize, log) - logged
        last = (await root.watch()).value
        assert all(follower.value == last for follower in followers)
        events = await asyncio.gather(*counting)
        commits = storage.batches - before[2]
    size = len(answer(options).encode())
    print(f"{options.tokens:,} tokens, {size:,} bytes of text, {options.rate} tokens/s: {commits} commits")
    print(f"  wall {took:.2f} s, cpu {cpu:.2f} s ({cpu / commits * 1e3:.2f} ms a commit, {options.watchers} watchers")
    print(f"  of the view and as many of events); frames of a watcher {followers[0].frames}, events {events[0]}")
    show("content", storage.content - before[1], size, commits)
    show("rows", storage.rows - before[3], size, commits)
    show("file", await asyncio.to_thread(os.path.getsize, path) - empty, size, commits)
    show("batches", storage.records - before[0], size, commits)
    show("log", logged, size, commits)
    show("to one watcher", followers[0].bytes, size, commits)


class CountedFiles(DiskFiles):
    """Files, and how many bytes were written to them."""

    written = 0

    def append(self, path: Path, data: bytes, at: int | None) -> None:
        self.written += len(data)
        super().append(path, data, at)

    def write(self, path: Path, data: bytes) -> None:
        self.written += len(data)
        super().write(path, data)


async def stream_to_files(path: Path, options: argparse.Namespace) -> None:
    """The same answer on a JSONL store, without watchers."""
    files = CountedFiles()
    async with streaming(JsonlStorage(path, files=files), options) as system:
        root = await (await system.session("s")).root(agent=AGENT)
        before = files.written
        await (await root.submit("write")).wait()
        written = files.written - before
    show("jsonl", written, len(answer(options).encode()), options.tokens * 10 // int(options.rate))


def show(name: str, written: int, text: int, commits: int) -> None:
    print(f"  {name:<16}{written:>10,} bytes {written / text:>7.2f}x the text {written / commits:>8.0f} a flush")


async def answer_at_once(path: Path, options: argparse.Namespace) -> None:
    """Many conversations, in as many sessions, answer with a short stream, each with a watcher."""
    clock = perdure.VirtualClock(autojump=True, quiet_s=0.0005)
    text = "some words that come one after the other, " * 10
    model = perdure.ScriptedModel(lambda request: text, clock=clock, tokens_per_second=50, token_chars=4)
    storage = Counted(path, durability=options.durability)
    async with perdure.System.open(storage, models=[model], clock=clock) as system:
        sessions = [await system.session(f"s{number}") for number in range(options.conversations)]
        roots = await asyncio.gather(*(session.root(agent=AGENT) for session in sessions))
        followers = [Follower(await root.watch()) for root in roots]
        before, began, cpu = (storage.writes, storage.batches), time.perf_counter(), time.process_time()
        submitted = await asyncio.gather(*(root.submit("x") for root in roots))
        settled = await asyncio.gather(*(one.wait() for one in submitted))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert all(one.answer is not None and one.text == text for one in settled)
        groups, batches = storage.writes - before[0], storage.batches - before[1]
        frames = sum(follower.frames for follower in followers)
    each = options.conversations
    print(f"{options.conversations:,} conversations answer at once, {len(text)} characters each, one watcher each")
    print(
        f"  wall {took:.2f} s, cpu {cpu:.2f} s; {options.conversations / took:.0f} answers/s, {batches / took:,.0f} commits/s"
    )
    print(f"  {batches:,} commits in {groups:,} groups, {frames:,} frames")
    print(
        f"  a turn: {cpu / each * 1e3:.2f} ms of cpu, {batches / each:.1f} commits ({cpu / batches * 1e3:.2f} ms each)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4_000)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--conversations", type=int, default=1_000)
    parser.add_argument("--durability", choices=["power", "process"], default="power")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        empty = empty_size(Path(folder) / "empty.db")
        asyncio.run(stream(Path(folder) / "stream.db", options, empty))
        asyncio.run(stream_to_files(Path(folder) / "files", options))
        print()
        asyncio.run(answer_at_once(Path(folder) / "many.db", options))


if __name__ == "__main__":
    sys.exit(main())
