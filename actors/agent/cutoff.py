"""What an execution that was cut off has left in the world is ended before its call is answered or runs again.

Proved by tests/actors/agent/test_cutoff.py.
"""

from typing import Any

import structlog

from ..models import ToolCall
from ..task.run import Run
from .nested import NestedCalls
from .output import Output
from .stopping import told_to_stop
from .tool import Tool
from .toolcontext import ToolContext

log = structlog.get_logger("perdure.agent")


async def clean_up(run: Run[Any], call: ToolCall, tool: Tool | None, nested: NestedCalls) -> None:
    """Let a tool clean up. That it fails keeps no call from its answer."""
    if tool is None:
        return
    try:
        await tool.clean_up(ToolContext(run, call.id, Output(tool.limits), nested))
    except BaseException as error:
        if told_to_stop(error):
            raise
        log.exception("clean_up_failed", session=run.session, task=run.id, tool=tool.name)
