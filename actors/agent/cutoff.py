"""What an execution that was cut off has left in the world is ended before its call is answered or runs again.

Proved by tests/actors/agent/test_cutoff.py.
"""

from typing import Any, Protocol

import structlog

from ..models import ToolCall
from ..task.run import Run
from .nested import NestedCalls
from .output import Output, OutputLimits
from .stopping import told_to_stop
from .tool import Tool
from .toolcontext import ToolContext

log = structlog.get_logger("perdure.agent")


class Leftovers(Protocol):
    """Ends what the calls of tools have left behind that are no longer installed."""

    async def clean_up(self, context: ToolContext) -> None:
        """End what a call has left behind."""


async def clean_up(run: Run[Any], call: ToolCall, tool: Tool | None, nested: NestedCalls) -> None:
    """Let a tool clean up, or somebody else if it is no longer there. That it fails keeps no call from its answer."""
    limits = OutputLimits() if tool is None else tool.limits
    try:
        cleaner: Leftovers = tool or run.service(Leftovers)  # type: ignore[type-abstract]
        await cleaner.clean_up(ToolContext(run, call.id, Output(limits), nested))
    except BaseException as error:
        if told_to_stop(error):
            raise
        log.exception("clean_up_failed", session=run.session, task=run.id, tool=call.name)
