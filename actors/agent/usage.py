"""The ledger of a conversation's own spend, and the budgets above it. Proved by tests/actors/agent/test_usage.py."""

import msgspec

from ...chord import Draft
from ..conversation.budget import charge
from ..conversation.builtin import UsageDoc
from ..conversation.ledger import add
from ..models import AssistantMessage, Usage
from ..session.tx import BaseTx


async def count_message(tx: BaseTx, conversation_id: int, message: AssistantMessage) -> None:
    """Add an assistant message's usage under its own model, in the commit that stores the message."""
    usage = await tx.doc(UsageDoc, conversation_id)
    _count(usage["models"], f"{message.provider}/{message.model}", message.usage)
    usage["turns"] = usage.get("turns", 0) + 1
    await charge(tx, conversation_id, message.usage, turns=1)


async def count_summary(tx: BaseTx, conversation_id: int, message: AssistantMessage) -> None:
    """Add what an attempt at a summary has spent, in the commit that decides on it: that is no turn."""
    usage = await tx.doc(UsageDoc, conversation_id)
    _count(usage["models"], f"{message.provider}/{message.model}", message.usage)
    await charge(tx, conversation_id, message.usage)


async def count_tool(tx: BaseTx, conversation_id: int, tool: str, spent: Usage | None) -> None:
    """Add what a tool call itself spent on models."""
    if spent is not None:
        usage = await tx.doc(UsageDoc, conversation_id)
        _count(usage["tools"], tool, spent)
        await charge(tx, conversation_id, spent)


def _count(ledger: Draft, name: str, usage: Usage) -> None:
    spent = msgspec.to_builtins(msgspec.structs.replace(usage, raw=None))
    ledger[name] = add(ledger[name].to_json(), spent) if name in ledger else spent
