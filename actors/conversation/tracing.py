"""A run's span: from the input that begins it to its answer, whichever processes work on it.

``pi.live.run`` keeps the place above it (``trace``) and when it has begun (``since``); an input that waits keeps where it
came from. Proved by tests/actors/agent/test_tracing.py.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..session.tracing import EndedSpan, below, under
from ..session.tx import BaseTx
from ..task.spans import conversation


def run_place(session: str, above: str | None, inputs: Any) -> str | None:
    """Give the place of the run that answers ``inputs``."""
    return None if above is None else below(above, session, "run", inputs[0])


def in_run(tx: BaseTx, run: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Have work that is created inside the block hang below a run (``pi.live.run``)."""
    return under(run_place(tx.core.key, run.get("trace"), run["inputs"]))


def end_span(tx: BaseTx, conversation_id: int, run: Mapping[str, Any], error: str | None = None) -> None:
    """Make the span of a run that ends with this block."""
    above = run.get("trace")
    place = run_place(tx.core.key, above, run["inputs"])
    if above is not None and place is not None:
        said = {"gen_ai.operation.name": "invoke_agent", **conversation(tx.core.key, conversation_id)}
        times = {"started_at": run["since"], "ended_at": tx.core.clock.now()}
        tx.spans.append(EndedSpan(name="invoke_agent", above=above, place=place, attributes=said, error=error, **times))
