"""What the JSONL tests share: a store on a directory, its files, and file operations that are listed and fail."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.storage.conformance_rig import (
    ENDED,
    Rig,
    base,
    conversation,
    document,
    entry,
    message,
    set_n,
    submission,
    task,
)
from perdure.storage.jsonl import JsonlStorage
from perdure.storage.jsonl_files import DiskFiles
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import ConversationDelete, ConversationScope, DocumentRetire, MessageDelete, Pending


@asynccontextmanager
async def opened(path: Path, key: str = "s", **options) -> AsyncIterator[Rig]:
    """Open a JSONL store, with a rig whose counters go on from what is stored, and close it."""
    storage = JsonlStorage(path, clock=lambda: 7, **options)
    await storage.open()
    try:
        rig = Rig(storage, reopen=False, key=key)
        await catch_up(rig)
        yield rig
    finally:
        await storage.close()


async def catch_up(rig: Rig) -> None:
    """Set a rig's counters to what is stored."""
    known = await rig.storage.session(rig.key)
    rig.seq, rig.last_id = (known.seq, known.last_id) if known else (0, 0)


def with_store(path: Path, body, **options):
    """Run a coroutine on an open store."""

    async def run():
        async with opened(path, **options) as rig:
            return await body(rig)

    return asyncio.run(run())


def lines(path: Path) -> list[dict]:
    """Decode a file's lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def tree(path: Path) -> dict[str, bytes]:
    """Read every JSONL file below a directory."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*.jsonl*"))}


def plant(path: Path, files: dict[str, bytes]) -> None:
    """Write files below a directory."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


# --- a story to interrupt

CHAPTERS = 12
"""Chapters that only write."""

WHOLE = CHAPTERS + 3


async def tell(storage, chapters: int = WHOLE):
    """Write a story of groups, of one session and of several, that moves every kind of file; yield after each.

    In the last chapters a session that has led groups goes, and comes back.
    """
    s, t, u, again = (Rig(storage, reopen=False, key=key) for key in "stuu")
    s.last_id = t.last_id = u.last_id = again.last_id = 20
    root, held = conversation(1), task(4, Pending(checkpoint={"text": "é" * 20}))
    rewindable = {"scope": ConversationScope(conversation_id=1), "history": "rewindable"}
    beside = {"scope": ConversationScope(conversation_id=12), "history": "rewindable"}
    groups = [
        lambda: [s.batch(root, document(2, {"n": 0}), task(4)), t.batch(root, document(2, {"n": 0}, **rewindable))],
        lambda: [s.batch(entry(5), submission(6, request_id="r"), wake=3)],
        lambda: [t.batch(task(4), held), s.batch(set_n(2, 1)), t.batch(task(4, ENDED), entry(5)), s.batch(entry(7))],
        lambda: [u.batch(root, task(4), document(2, {"n": 1}), message(10, status="outgoing", session="s"))],
        lambda: [s.batch(base(2, {"n": 2}), held, message(10, task_id=4), message(11, task_id=4, request_id="r"))],
        lambda: [s.batch(set_n(2, 3)), t.batch(base(2, {"n": 4})), u.batch(entry(5)), t.batch(set_n(2, 5))],
        lambda: [
            s.batch(set_n(2, 4)),
            s.batch(task(4, ENDED), MessageDelete(id=10)),
            s.batch(base(2, {"n": 5}), entry(8)),
        ],
        lambda: [
            s.batch(conversation(12), entry(13, 12), document(14, {}, **beside)),
            s.batch(conversation(15, 12, 13)),
        ],
        lambda: [s.batch(set_n(14, 1)), s.batch(DocumentRetire(id=14), ConversationDelete(id=12))],
        lambda: [s.batch(ConversationDelete(id=15))],
        lambda: [
            t.batch(DocumentRetire(id=2), document(3, {"n": 0})),
            u.batch(DocumentRetire(id=2), MessageDelete(id=10)),
        ],
        lambda: [s.batch(set_n(2, 6), entry(9), document(3, {"é": "ü"}, key="k"))],
    ]
    assert len(groups) == CHAPTERS
    for group in groups[:chapters]:
        await storage.write(group())
        yield
    if chapters == WHOLE:
        assert await storage.delete_session("u")
        yield
        await storage.write([again.batch(root, document(2, {"n": 1})), t.batch(set_n(3, 1)), again.batch(entry(5))])
        yield
        assert await storage.delete_session("t")
        yield


def snapshot(storage) -> dict[str, tuple]:
    """Take down everything that a store's sessions hold, revision by revision."""
    return {key: _tables(session) for key, session in storage._sessions.items()}


def _tables(session) -> tuple:
    documents = {number: (row.record, list(row.revisions)) for number, row in session.documents.items()}
    tables = (session.conversations, session.entries, session.tasks, session.submissions, session.requests)
    mail = session.messages, session.message_requests
    return session.record(), *map(dict, (*tables, *mail)), documents, dict(session.addresses), dict(session.types)


def expected_states() -> list[dict[str, tuple]]:
    """Give what the memory backend holds before the story, and after each of its groups."""

    async def run():
        storage = MemoryStorage(clock=lambda: 7)
        await storage.open()
        return [{}, *[snapshot(storage) async for _ in tell(storage)]]

    return asyncio.run(run())


# --- files that can fail


class ListedFiles(DiskFiles):
    """The disk, with a list of the operations that change something, one of which may fail.

    A failure comes before the operation, after it, or, for writing, with half of the data written ("short").
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self.operations: list[str] = []
        self._failure = None

    def fail(self, operation: str, call: int, mode: str, error: int = errno.EIO) -> None:
        """Let the n-th call of an operation fail from now on; forget the list."""
        self.operations.clear()
        self._failure = (operation, call, mode, error)

    def heal(self) -> None:
        """Let nothing fail any more; forget the list."""
        self.operations.clear()
        self._failure = None

    def _run(self, operation: str, act, *paths: Path, half=None) -> None:
        names = " ".join(os.path.relpath(path, self._root) for path in paths)
        self.operations.append(f"{operation} {names}")
        calls = sum(listed.startswith(f"{operation} ") for listed in self.operations)
        if self._failure is None or self._failure[:2] != (operation, calls):
            act()
            return
        _, _, mode, error = self._failure
        {"before": lambda: None, "short": half, "after": act}[mode]()
        raise OSError(error, "a test asked for it")

    def make_directory(self, path):
        self._run("mkdir", lambda: super(ListedFiles, self).make_directory(path), path)

    def append(self, path, data, at):
        act = super().append
        self._run("append", lambda: act(path, data, at), path, half=lambda: act(path, data[: len(data) // 2], at))

    def write(self, path, data):
        act = super().write
        self._run("write", lambda: act(path, data), path, half=lambda: act(path, data[: len(data) // 2]))

    def truncate(self, path, size):
        self._run("truncate", lambda: super(ListedFiles, self).truncate(path, size), path)

    def rename(self, source, target):
        self._run("rename", lambda: super(ListedFiles, self).rename(source, target), source, target)

    def remove(self, path):
        self._run("remove", lambda: super(ListedFiles, self).remove(path), path)

    def remove_directory(self, path):
        self._run("rmdir", lambda: super(ListedFiles, self).remove_directory(path), path)

    def flush(self, path):
        self._run("flush", path.stat, path)  # nothing here outlives this process

    def flush_directory(self, path):
        self._run("flushdir", path.stat, path)
