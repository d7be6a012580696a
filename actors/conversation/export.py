"""A conversation's whole history as text, piece by piece: JSON lines for programs, Markdown for people.

Works on anything that answers a store's questions, its owner's or a reader beside it. Memory holds a page of entries,
however long the transcript. Proved by tests/actors/conversation/test_export.py.
"""

from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from ...storage.contract import Cursor, EntryQuery, Reading
from ...storage.records import ConversationRecord, EntryRecord, JsonObject
from ..session.errors import InvalidValue, UnknownRecord
from .markdown import heading, markdown

ExportFormat = Literal["jsonl", "markdown"]
FORMAT, VERSION = "perdure.conversation", 1
PAGE = 100


async def exported(reading: Reading, session: str, id: int, format: ExportFormat = "jsonl") -> AsyncIterator[str]:
    """Give the conversation as it is now, in pieces that end with a line's end; what is appended later is not in it.

    JSON lines begin with ``{format, version, session, conversation, ancestry}``: the conversation's record, and the
    parents' records, nearest first. Every other line is an entry as it is stored, oldest first, shared ones included.
    Raises UnknownRecord, InvalidValue.
    """
    if format not in ("jsonl", "markdown"):
        raise InvalidValue(f'the format of an export is "jsonl" or "markdown", not {format!r}')
    record = await reading.conversation(session, id)
    if record is None or record.deleted:
        raise UnknownRecord("conversation", id)
    newest = await reading.scan_entries(session, EntryQuery(conversation_id=id), 1)
    if format == "jsonl":
        yield _line(await _header(reading, session, record))
    else:
        yield heading(session, record)
    if newest.items:
        async for entry in entries(reading, session, id, to=newest.items[0].id):
            yield _line(entry) if format == "jsonl" else markdown(entry)


async def entries(
    reading: Reading, session: str, id: int, *, after: int = 0, to: int | None = None
) -> AsyncIterator[EntryRecord]:
    """Give the visible entries with ids above ``after`` and up to ``to``, oldest first, read page by page."""
    query = EntryQuery(conversation_id=id, min_entry_id=after + 1, max_entry_id=to, order="ascending")
    cursor: Cursor | None = None
    while True:
        page = await reading.scan_entries(session, query, PAGE, cursor)
        for entry in page.items:
            yield entry
        if (cursor := page.next) is None:
            return


async def _header(reading: Reading, session: str, record: ConversationRecord) -> JsonObject:
    ancestry: list[ConversationRecord] = []
    above = record.parent
    while above is not None:
        parent = await reading.conversation(session, above.conversation_id)
        if parent is None:
            break
        ancestry.append(parent)
        above = parent.parent
    return {"format": FORMAT, "version": VERSION, "session": session, "conversation": record, "ancestry": ancestry}


def _line(value: EntryRecord | JsonObject) -> str:
    return msgspec.json.encode(value).decode() + "\n"
