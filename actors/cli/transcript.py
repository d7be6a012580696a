"""A conversation's transcript in the terminal, read beside its owner: shown, followed as it grows, exported.

Following looks at the store several times a second, each time at a new snapshot, so that the owner's log is never kept.
Proved by tests/actors/cli/test_transcript.py.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live

from ...storage.records import ConversationScope, JsonObject
from ...storage.sqlite_reader import SqliteReader
from ..conversation.builtin import LiveDoc
from ..conversation.export import ExportFormat, entries, exported
from ..session.errors import UnknownRecord
from .talk import plain, running, said

INTERVAL_S = 0.2
"""How long what is new may wait to be seen."""
PIPED_WIDTH = 100


async def export(file: Path, session: str, conversation: int, format: ExportFormat) -> None:
    """Write a conversation to the output; a terminal is spared what could steer it. Raises UnknownRecord, StorageError."""
    spared = sys.stdout.isatty()
    async with SqliteReader(file) as reader:
        async for piece in exported(reader, session, conversation, format):
            sys.stdout.write(plain(piece) if spared else piece)


async def show(file: Path, session: str, conversation: int, *, follow: bool = False) -> None:
    """Print a conversation, and with ``follow`` what comes, until it is cancelled. Raises UnknownRecord, StorageError."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPED_WIDTH)
    transcript = Transcript(session, conversation, console)
    if not follow:
        async with SqliteReader(file) as reader:
            await transcript.print_new(reader)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            async with SqliteReader(file) as reader:
                news = await transcript.print_new(reader)
                if news and console.is_terminal:
                    live.update(running(await _live(reader, session, conversation), console), refresh=True)
            await asyncio.sleep(INTERVAL_S)


class Transcript:
    """How far a conversation has been printed."""

    def __init__(self, session: str, conversation: int, console: Console) -> None:
        self._session = session
        self._conversation = conversation
        self._console = console
        self._seq, self._entry = -1, 0

    async def print_new(self, reader: SqliteReader) -> bool:
        """Print the entries that are new in a snapshot; tell whether anything has happened in the session at all."""
        record = await reader.session(self._session)
        conversation = await reader.conversation(self._session, self._conversation)
        if record is None or conversation is None or conversation.deleted:
            raise UnknownRecord("conversation", self._conversation)
        if record.seq == self._seq:
            return False
        async for entry in entries(reader, self._session, self._conversation, after=self._entry):
            for shown in said(msgspec.to_builtins(entry)):
                self._console.print(shown)
            self._entry = entry.id
        self._seq = record.seq
        return True


async def _live(reader: SqliteReader, session: str, conversation: int) -> JsonObject:
    found = await reader.find_document(session, LiveDoc.kind, ConversationScope(conversation_id=conversation))
    stored = None if found is None else await reader.document(session, found.id)
    return {} if stored is None else stored.value
