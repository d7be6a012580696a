"""The ledger of a conversation's own spend, and the budgets above it. Proved by tests/actors/agent/test_usage.py."""

from typing import Any

import msgspec

from ...chord import Draft
from ..conversation.budget import charge
from ..conversation.builtin import UsageDoc
from ..conversation.ledger import add
from ..models import AssistantMessage, Usage
from ..session.tx import BaseTx


async def count_message(tx: BaseTx, conversation_id: int, message: AssistantMessage) -> None:
    """Add an assistant message's usage under its own model, in the commit that stores the message."""
    usage, spent = await tx.doc(UsageDoc, conversation_id), _spent(message.usage)
    _count(usage["models"], f"{message.provider}/{message.model}", spent)
    usage["turns"] = usage.get("turns", 0) + 1
    await charge(tx, conversation_id, spent, turns=1)


async def count_summary(tx: BaseTx, conversation_id: int, message: AssistantMessage) -> None:
    """Add what an attempt at a summary has spent, in the commit that decides on it: that is no turn."""
    usage, spent = await tx.doc(UsageDoc, conversation_id), _spent(message.usage)
    _count(usage["models"], f"{message.provider}/{message.model}", spent)
    await charge(tx, conversation_id, spent)


async def count_tool(tx: BaseTx, conversation_id: int, tool: str, said: Usage | None) -> None:
    """Add what a tool call itself spent on models."""
    if said is not None:
        usage, spent = await tx.doc(UsageDoc, conversation_id), _spent(said)
        _count(usage["tools"], tool, spent)
        await charge(tx, conversation_id, spent)


def _spent(usage: Usage) -> Usage:
    """Give what counts of a usage, whoever says it: nothing is ever given back."""
    return msgspec.convert(_not_negative(msgspec.to_builtins(msgspec.structs.replace(usage, raw=None))), Usage)


def _not_negative(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _not_negative(one) for name, one in value.items()}
    return max(value, 0) if type(value) in (int, float) else value


def _count(ledger: Draft, name: str, usage: Usage) -> None:
    spent = msgspec.to_builtins(usage)
    ledger[name] = add(ledger[name].to_json(), spent) if name in ledger else spent
