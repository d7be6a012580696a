"""Room for a request: whether its context needs a compaction, and what follows from an overflow.

Proved by tests/actors/agent/test_compaction_runs.py and test_thresholds.py.
"""

from collections.abc import Sequence
from typing import Any

from ...storage.records import Completed
from ..conversation.builtin import LiveDoc
from ..conversation.context import ContextView
from ..conversation.settings import Settings
from ..models import AssistantMessage, Model
from ..task.run import Run
from .compaction import select_cut
from .prompt import Change
from .thresholds import Limits, Need, due, largest, limits


def _sizes(run: Run[Any], model: Model) -> Limits:
    return limits(run.service(Settings).compaction, model.context_window, model.max_tokens)


async def need(run: Run[Any], model: Model, view: ContextView, planned: Sequence[Change]) -> Need | None:
    """Decide whether a request with these changes of the prompt needs a compaction, before it or beside it."""
    said = [change.message for change in planned if change.message is not None]
    live = await run.snapshot(LiveDoc, run.conversation_id) or {}
    gave_up_at = live.get("run", {}).get("uncompacted")
    return due(run.service(Settings).compaction, _sizes(run, model), view, said, gave_up_at=gave_up_at)


def overflows(message: AssistantMessage) -> bool:
    """Whether a provider has found the context too long."""
    return message.error is not None and message.error.kind == "overflow"


def may_compact(run: Run[Any], compacted: int | None, model: Model, view: ContextView) -> bool:
    """Whether a request that was too long is followed by a compaction and another one: once, if there is anything to cut."""
    if compacted is not None or not run.service(Settings).compaction.enabled:
        return False
    return select_cut(view, _sizes(run, model), "overflow") is not None


async def made_room(run: Run[Any], compacted: int | None) -> bool:
    """Whether the compaction that an overflow has called for put a summary in place."""
    if compacted is None:
        return False
    [outcome] = await run.outcomes([compacted])
    return isinstance(outcome, Completed) and "entryId" in outcome.result


def too_long(said: str, view: ContextView) -> str:
    """Add to a provider's words which entry says most: what to look at when no summary has helped."""
    entry, tokens = largest(view)
    return f"{said} (entry {entry} alone has about {tokens:,} tokens)"
