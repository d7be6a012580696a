"""Failing over: which of an agent's models a run asks, after some of them have failed it.

``pi.live.run.failed`` names the models that have failed this run; the next run begins with the first one again. History
stays as it is: every adapter makes any other model's transcript its own. Proved by tests/actors/agent/test_failover.py.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...chord import Draft
from ..conversation.builtin import LiveDoc
from ..models import ErrorInfo, Model, Models
from ..task.run import Run
from .registry import Resolved

SHARED = ("overflow", "refusal", "aborted")
"""Kinds of failure that belong to the conversation, so that another model would meet them, too."""


def first_left(models: Sequence[str], failed: Collection[str], available: Callable[[str], bool]) -> str | None:
    """Choose the first model that is there and has not failed; the first that is there, if all have."""
    there = [name for name in models if available(name)]
    return next((name for name in there if name not in failed), there[0] if there else None)


def is_followed(
    models: Sequence[str], failed: Collection[str], error: ErrorInfo | None, available: Callable[[str], bool]
) -> bool:
    """Whether another model is to be asked after an error that ended the newest of ``failed``."""
    if error is None or error.kind in SHARED or (error.kind == "invalid_request" and error.status != 404):
        return False
    return any(name not in failed and available(name) for name in models)


async def model_for(run: Run[Any], agent: Resolved) -> Model | None:
    """Give the model that the run asks now; None when none of the agent's is there."""
    models = run.service(Models)
    live = await run.snapshot(LiveDoc, run.conversation_id) or {}
    failed = live.get("run", {}).get("failed", ())
    name = first_left(agent.models, failed, lambda one: models.get(one) is not None)
    return None if name is None else models.get(name)


def fails_over(run: Run[Any], live: Draft, agent: Resolved, model: str, error: ErrorInfo | None) -> bool:
    """Take note that a model has failed the run, if another one is to be asked instead. Inside a commit."""
    if live.get("run", {}).get("taskId") != run.id:
        return False
    models = run.service(Models)
    failed = [*live["run"].get("failed", ()), model]
    if not is_followed(agent.models, failed, error, lambda one: models.get(one) is not None):
        return False
    live["run"]["failed"] = failed
    return True
