"""Durable actors under a supervision tree, for AI agents that run unattended.

    chord/          JSON documents as operations
    storage/        records and the backends that keep them
    supervisors/    decisions about ownership, joins and restarts, as pure functions
    actors/         everything that runs: runtime, session, task, conversation, agent, models, tools, and the system

Imports run downwards only. What is named here is the public interface; everything else may change.
"""

from .actors.agent.registry import Extension, PromptInput, Section
from .actors.agent.tool import Tool, ToolResult, tool
from .actors.agent.toolcontext import ToolContext
from .actors.conversation.choice import Agent, configure
from .actors.conversation.handles import Conversation, Session, Settled, Submission
from .actors.conversation.settings import ProgressPolicy, RetryPolicy, Settings
from .actors.models import Models, ScriptedModel
from .actors.session.documents import Doc
from .actors.session.tx import Entry
from .actors.system import System
from .actors.task.definition import Phase, Task
from .actors.task.ref import TaskRef
from .actors.task.run import Run
from .actors.task.tx import Tx
from .chord.errors import PerdureError
from .storage.memory import MemoryStorage
from .storage.sqlite import SqliteStorage

__all__ = [
    "Agent",
    "Conversation",
    "Doc",
    "Entry",
    "Extension",
    "MemoryStorage",
    "Models",
    "PerdureError",
    "Phase",
    "ProgressPolicy",
    "PromptInput",
    "RetryPolicy",
    "Run",
    "ScriptedModel",
    "Section",
    "Session",
    "Settings",
    "Settled",
    "SqliteStorage",
    "Submission",
    "System",
    "Task",
    "TaskRef",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Tx",
    "configure",
    "tool",
]
