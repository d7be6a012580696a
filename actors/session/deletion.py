"""Deleting a conversation in a commit block: its documents retire, which tells their watchers, and storage drops the rest.

Proved by tests/actors/conversation/test_delete.py.
"""

from collections.abc import AsyncIterator

from ...storage.contract import ConversationQuery, Cursor
from ...storage.records import ConversationRecord
from .documents import address_of
from .forks import live_documents
from .tx import BaseTx

PAGE = 256


async def family(tx: BaseTx, conversation_id: int) -> list[int]:
    """Name a conversation and all that are owned below it, deepest first. Raises ReadAfterWrite."""
    found: list[int] = []
    level = [conversation_id]
    while level:
        found += level
        level = [record.id for above in level async for record in _owned(tx, above)]
    return found[::-1]


async def _owned(tx: BaseTx, conversation_id: int) -> AsyncIterator[ConversationRecord]:
    query = ConversationQuery(owner_conversation_id=conversation_id)
    cursor: Cursor | None = None
    while True:
        page = await tx.scan_conversations(query, PAGE, cursor)
        for record in page.items:
            yield record
        cursor = page.next
        if cursor is None:
            return


async def delete_conversation(tx: BaseTx, conversation_id: int) -> None:
    """Stage the end of a conversation without live work. What is owned below it must go in the same block."""
    for record in await live_documents(tx.core, conversation_id):
        address = address_of(record)
        if address in tx.opened:
            tx.closed.append((address, tx.opened.pop(address)))
        elif not tx.retires(address):
            tx.retiring[address] = record
    tx.gone[conversation_id] = None
