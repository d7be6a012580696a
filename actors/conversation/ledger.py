"""What conversations have spent: sums over ``pi.usage``, whose numbers each conversation keeps for itself.

Nothing stores a sum over conversations; it is made when somebody asks. Proved by tests/actors/conversation/test_ledger.py.
"""

from collections.abc import AsyncIterator
from functools import reduce
from typing import Any

import msgspec

from ...storage.contract import ConversationQuery
from ...storage.records import JsonObject
from ..models import Usage
from ..session.core import SessionCore
from ..session.read import snapshot
from ..session.reads import existing
from .builtin import UsageDoc

PAGE = 1_000


class UsageReport(msgspec.Struct, frozen=True):
    """What was spent: per model ("provider/id"), per tool on models of its own, and how many answers were asked for.

    An answer counts whether it was good, failed or was broken off.
    """

    models: dict[str, Usage] = {}
    tools: dict[str, Usage] = {}
    turns: int = 0

    @property
    def total(self) -> Usage:
        """Everything together; its cost is in US dollars."""
        spent = (msgspec.to_builtins(usage) for usage in [*self.models.values(), *self.tools.values()])
        return msgspec.convert(reduce(add, spent, msgspec.to_builtins(Usage())), Usage)


def add(total: JsonObject, spent: JsonObject) -> JsonObject:
    """Add numbers field by field, through nested objects; flags stay true once they are."""
    result = dict(total)
    for name, value in spent.items():
        result[name] = _plus(result.get(name), value)
    return result


def _plus(total: Any, value: Any) -> Any:
    if total is None:
        return value
    if isinstance(value, dict):
        return add(total, value)
    return (total or value) if isinstance(value, bool) else total + value


async def report(core: SessionCore, conversations: AsyncIterator[int]) -> UsageReport:
    """Sum the ledgers of conversations, each read at its own point."""
    total: JsonObject = {}
    async for conversation in conversations:
        total = add(total, await snapshot(core, UsageDoc, conversation) or {})
    return msgspec.convert(total, UsageReport)


async def all_conversations(core: SessionCore) -> AsyncIterator[int]:
    """Name the session's conversations."""
    async for conversation in _scan(core, ConversationQuery()):
        yield conversation


async def only(conversation_id: int) -> AsyncIterator[int]:
    """Name one conversation."""
    yield conversation_id


async def subtree(core: SessionCore, conversation_id: int) -> AsyncIterator[int]:
    """Name a conversation and all that are owned below it, ended subagents' included."""
    level = [conversation_id]
    while level:
        above = level.pop()
        yield above
        level += [one async for one in _scan(core, ConversationQuery(owner_conversation_id=above))]


async def _scan(core: SessionCore, query: ConversationQuery) -> AsyncIterator[int]:
    await core.drained()
    page = await core.storage.scan_conversations(core.key, query, PAGE)
    for record in existing(page).items:
        yield record.id
    while page.next is not None:
        page = await core.storage.scan_conversations(core.key, query, PAGE, page.next)
        for record in existing(page).items:
            yield record.id
