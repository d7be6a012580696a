"""The ledger of a conversation's own spend. Pure arithmetic on JSON. Proved by tests/actors/agent/test_usage.py."""

from typing import Any

import msgspec

from ...chord import Draft
from ...storage.records import JsonObject
from ..conversation.builtin import UsageDoc
from ..models import AssistantMessage, Usage
from ..session.tx import BaseTx


async def count_message(tx: BaseTx, conversation_id: int, message: AssistantMessage) -> None:
    """Add an assistant message's usage under its own model, in the commit that stores the message."""
    usage = await tx.doc(UsageDoc, conversation_id)
    _count(usage["models"], f"{message.provider}/{message.model}", message.usage)


async def count_tool(tx: BaseTx, conversation_id: int, tool: str, spent: Usage | None) -> None:
    """Add what a tool call itself spent on models."""
    if spent is not None:
        usage = await tx.doc(UsageDoc, conversation_id)
        _count(usage["tools"], tool, spent)


def _count(ledger: Draft, name: str, usage: Usage) -> None:
    spent = msgspec.to_builtins(msgspec.structs.replace(usage, raw=None))
    ledger[name] = add(ledger[name].to_json(), spent) if name in ledger else spent


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
