"""Budgets: stored caps on what a session, or a conversation with everything below it, may spend.

An exhausted budget asks no model any more: the run that comes to it pauses, its inputs end unanswered (``budget``), what
is queued stays queued, and raising the budget goes on with that. The sum that a budget is compared with is kept with it,
in the commits that count what was spent, so that a check costs the way up to the session and not the tree below.
Everything here runs inside a commit block. Proved by tests/actors/conversation/test_budget.py.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from ...chord import Draft
from ...storage.records import JsonObject
from ..models import Usage
from ..session.core import SessionCore
from ..session.documents import Address, Doc
from ..session.errors import InvalidValue
from ..session.tx import BaseTx
from .ledger import UsageReport

MAX_ABSENT = 4_096


class Budget(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Caps; what is None has none. A request is sent only while everything spent is below its cap.

    ``cost`` is in US dollars (a model without a known price costs nothing here), ``tokens`` counts all tokens, ``turns``
    answers that were asked for; they count what was spent before the budget was set, too. ``wall_ms`` is time in ms since
    it was first set. What is under way is not interrupted: a budget is overrun by as much as the requests in flight spend.
    """

    cost: float | None = None
    tokens: int | None = None
    turns: int | None = None
    wall_ms: int | None = None


class BudgetState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A stored budget: its caps, what was spent under it, since when (ms), and which conversations it holds up."""

    caps: Budget
    cost: float = 0.0
    tokens: int = 0
    turns: int = 0
    since: int = 0
    paused: list[int] = []


def _always(value: JsonObject, ops: Any, deltas: int) -> bool:
    return True


BudgetDoc: Doc[BudgetState] = Doc("pi.budget", type=BudgetState, checkpoint_when=_always)
"""The budget of a conversation and of all that is owned below it."""
SessionBudgetDoc: Doc[BudgetState] = Doc("pi.budget", scope="session", type=BudgetState, checkpoint_when=_always)
"""The budget of the whole session."""


def exhausted(state: BudgetState, now: int) -> JsonObject | None:
    """Say which cap is reached, with what was spent, if one is."""
    spent = {"cost": state.cost, "tokens": state.tokens, "turns": state.turns, "wallMs": now - state.since}
    caps = {name: cap for name, cap in msgspec.to_builtins(state.caps).items() if cap is not None}
    return next(
        ({"limit": name, "cap": cap, "spent": spent[name]} for name, cap in caps.items() if spent[name] >= cap), None
    )


class _Absent:
    """Where there certainly is no budget, as far as this life of the session has looked."""

    def __init__(self, core: SessionCore) -> None:
        self.addresses: set[Address] = set()

    def add(self, address: Address) -> None:
        if len(self.addresses) >= MAX_ABSENT:
            self.addresses.clear()
        self.addresses.add(address)


async def set_budget(
    tx: BaseTx, scope_id: int | None, caps: Budget | None, spent: Callable[[], Awaitable[UsageReport]]
) -> list[int]:
    """Set the caps of a conversation (None: of the session); None lifts them. Names the conversations that may go on.

    ``spent`` tells what a new budget begins with. Raises InvalidValue.
    """
    checked = _checked(caps or Budget())
    doc = BudgetDoc if scope_id is not None else SessionBudgetDoc
    tx.core.part(_Absent, _Absent).addresses.discard(doc.address(scope_id, None))
    draft = await tx.doc(doc, scope_id)
    if not draft:
        used = await spent()
        draft.update({"cost": used.total.cost.total, "tokens": used.total.total_tokens, "turns": used.turns})
        draft["since"] = tx.core.clock.now()
    paused: list[int] = draft["paused"].to_json() if "paused" in draft else []
    draft.update({"caps": checked, "paused": []})
    return paused


def _checked(caps: Budget) -> JsonObject:
    if not isinstance(caps, Budget):
        raise InvalidValue(f"a budget is a Budget, not {type(caps).__name__}")
    value: JsonObject = msgspec.to_builtins(caps)
    for name, cap in value.items():
        if isinstance(cap, bool) or not isinstance(cap, int | float) or not 0 <= cap < float("inf"):
            raise InvalidValue(f"a budget's {name} is a number from 0, not {cap!r}")
        if name != "cost" and not isinstance(cap, int):
            raise InvalidValue(f"a budget's {name} is a whole number, not {cap!r}")
    return value


async def charge(tx: BaseTx, conversation_id: int, usage: Usage, *, turns: int = 0) -> None:
    """Count what a conversation has spent with every budget that it is under."""
    async for doc, scope_id in _budgets(tx, conversation_id):
        draft = await tx.doc(doc, scope_id)
        draft["cost"] += usage.cost.total
        draft["tokens"] += usage.total_tokens
        draft["turns"] += turns


async def pause(tx: BaseTx, conversation_id: int) -> JsonObject | None:
    """Say which budget forbids a conversation to ask a model now, if one does; raising it goes on with what waits here."""
    async for doc, scope_id in _budgets(tx, conversation_id):
        draft = await tx.doc(doc, scope_id)
        reached = exhausted(msgspec.convert(draft.to_json(), BudgetState), tx.core.clock.now())
        if reached is not None:
            _note(draft, conversation_id)
            return {"scope": doc.scope, **({} if scope_id is None else {"conversationId": scope_id}), **reached}
    return None


def _note(draft: Draft, conversation_id: int) -> None:
    if conversation_id not in draft["paused"].to_json():
        draft["paused"].append(conversation_id)


async def _budgets(tx: BaseTx, conversation_id: int) -> AsyncIterator[tuple[Doc[BudgetState], int | None]]:
    """The budgets that a conversation is under: its own, those of its owners, the session's."""
    node: int | None = conversation_id
    while node is not None:
        if await _exists(tx, BudgetDoc.address(node, None)):
            yield BudgetDoc, node
        record = await tx.conversation(node)
        node = None if record is None or record.owner is None else record.owner.conversation_id
    if await _exists(tx, SessionBudgetDoc.address(None, None)):
        yield SessionBudgetDoc, None


async def _exists(tx: BaseTx, address: Address) -> bool:
    absent = tx.core.part(_Absent, _Absent)
    if address in absent.addresses:
        return False
    if address in tx.opened or await tx.core.incarnation(address) is not None:
        return True
    absent.add(address)
    return False
