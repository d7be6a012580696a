"""Durable actors under a supervision tree, for AI agents that run unattended.

    chord/          JSON documents as operations
    storage/        records and the backends that keep them
    supervisors/    decisions about ownership, joins and restarts, as pure functions
    actors/         everything that runs: runtime, session, task, conversation, agent, models, tools, and the system

Imports run downwards only. What is named here is the public interface; everything else may change.
"""

from . import events, models
from .actors.agent.calls import arguments_hash
from .actors.agent.errors import (
    ApprovalMismatch,
    CallNotWaiting,
    ExtensionInvalid,
    InvalidArguments,
    ToolDefinitionError,
    ToolTimeout,
    UnknownCall,
)
from .actors.agent.hooks import Deny, HookContext, Hooks
from .actors.agent.output import OutputLimits
from .actors.agent.registry import Extension, PromptInput, Registry, Section, Wrap
from .actors.agent.reload import ReloadFailed, reload
from .actors.agent.summaries import CompactionPlan, Decline, Summary
from .actors.agent.tool import Tool, ToolResult, tool
from .actors.agent.toolcontext import External, ToolContext
from .actors.conversation.budget import Budget, BudgetState
from .actors.conversation.builtin import AgentDoc, InboxDoc, LiveDoc, ProviderDoc, UsageDoc
from .actors.conversation.choice import Agent, configure
from .actors.conversation.compaction import Compacted
from .actors.conversation.context import ContextView
from .actors.conversation.errors import (
    ConversationBusy,
    ConversationKept,
    RequestIdReused,
    SubmissionTooLarge,
    Unanswered,
)
from .actors.conversation.handles import Conversation
from .actors.conversation.ledger import UsageReport
from .actors.conversation.sessions import Session
from .actors.conversation.settings import CompactionPolicy, ProgressPolicy, RetryPolicy, Settings
from .actors.conversation.submissions import Answer, Settled, Submission
from .actors.conversation.view import EventStream
from .actors.models import Model, Models, ScriptedModel
from .actors.runtime import Actor, ActorCrashed, ActorDead, Clock, SystemClock, VirtualClock
from .actors.session.documents import Doc
from .actors.session.environment import Services
from .actors.session.errors import (
    DocumentMismatch,
    EntryNotVisible,
    InboxFull,
    InvalidValue,
    LineReentry,
    OutboxFull,
    OwnershipRefused,
    ReadAfterWrite,
    SessionClosed,
    SessionFailed,
    TransactionOver,
    Undeliverable,
    UnknownRecord,
    WaitCycle,
)
from .actors.session.publication import DocumentChanged, Publication
from .actors.session.tx import Entry
from .actors.system import Inspection, System
from .actors.task.definition import Phase, Task
from .actors.task.errors import DefinitionError, InvalidTransition, InvocationEnded, TaskUnsuccessful
from .actors.task.inspection import SessionFigures
from .actors.task.letters import Letter
from .actors.task.ref import TaskRef
from .actors.task.run import Run
from .actors.task.standing import Standing
from .actors.task.tx import RunTx, Tx
from .actors.tools.coding import coding_tools
from .actors.tools.cron import InvalidSchedule
from .actors.tools.environment import (
    CommandError,
    CommandResult,
    Environment,
    FileError,
    FileInfo,
    ProcessId,
    SpillLimits,
)
from .actors.tools.extras import MissingExtra
from .actors.tools.local import LocalEnvironment
from .actors.tools.mcp import McpServer
from .actors.tools.mcp_connection import McpUnavailable
from .actors.tools.schedules import (
    NoSuchSchedule,
    Schedule,
    add_schedule,
    cancel_schedule,
    list_schedules,
    schedules,
)
from .actors.tools.search_history import Citation, NoSuchPassage, search_history
from .actors.tools.subagent import SubagentFailed, subagent
from .actors.tools.subagents import NoSuchAgent, subagents
from .chord import Draft, Watch
from .chord.errors import PerdureError
from .storage.contract import ConversationQuery, EntryQuery, MessageQuery, Page, Storage, SubmissionQuery, TaskQuery
from .storage.errors import (
    SchemaTooNew,
    StorageBusy,
    StorageClosed,
    StorageCorrupt,
    StorageError,
    StorageFenced,
    StorageFull,
    StorageInUse,
    StorageRejected,
)
from .storage.jsonl import JsonlStorage
from .storage.memory import MemoryStorage
from .storage.records import (
    Aborted,
    Completed,
    ConversationRecord,
    EntryRecord,
    Failed,
    Faulted,
    MessageRecord,
    MessageSender,
    Orphaned,
    Quorum,
    SubmissionRecord,
    TaskRecord,
)
from .storage.sqlite import SqliteStorage
from .storage.sqlite_reader import SqliteReader
from .storage.transfer import export_session, import_session
from .supervisors.restart import Backoff, Restart

__all__ = [
    "Aborted",
    "Actor",
    "ActorCrashed",
    "ActorDead",
    "Agent",
    "AgentDoc",
    "Answer",
    "ApprovalMismatch",
    "Backoff",
    "Budget",
    "BudgetState",
    "CallNotWaiting",
    "Citation",
    "Clock",
    "CommandError",
    "CommandResult",
    "Compacted",
    "CompactionPlan",
    "CompactionPolicy",
    "Completed",
    "ContextView",
    "Conversation",
    "ConversationBusy",
    "ConversationKept",
    "ConversationQuery",
    "ConversationRecord",
    "Decline",
    "DefinitionError",
    "Deny",
    "Doc",
    "DocumentChanged",
    "DocumentMismatch",
    "Draft",
    "Entry",
    "EntryNotVisible",
    "EntryQuery",
    "EntryRecord",
    "Environment",
    "EventStream",
    "Extension",
    "ExtensionInvalid",
    "External",
    "Failed",
    "Faulted",
    "FileError",
    "FileInfo",
    "HookContext",
    "Hooks",
    "InboxDoc",
    "InboxFull",
    "Inspection",
    "InvalidArguments",
    "InvalidSchedule",
    "InvalidTransition",
    "InvalidValue",
    "InvocationEnded",
    "JsonlStorage",
    "Letter",
    "LineReentry",
    "LiveDoc",
    "LocalEnvironment",
    "McpServer",
    "McpUnavailable",
    "MemoryStorage",
    "MessageQuery",
    "MessageRecord",
    "MessageSender",
    "MissingExtra",
    "Model",
    "Models",
    "NoSuchAgent",
    "NoSuchPassage",
    "NoSuchSchedule",
    "Orphaned",
    "OutboxFull",
    "OutputLimits",
    "OwnershipRefused",
    "Page",
    "PerdureError",
    "Phase",
    "ProcessId",
    "ProgressPolicy",
    "PromptInput",
    "ProviderDoc",
    "Publication",
    "Quorum",
    "ReadAfterWrite",
    "Registry",
    "ReloadFailed",
    "RequestIdReused",
    "Restart",
    "RetryPolicy",
    "Run",
    "RunTx",
    "Schedule",
    "SchemaTooNew",
    "ScriptedModel",
    "Section",
    "Services",
    "Session",
    "SessionClosed",
    "SessionFailed",
    "SessionFigures",
    "Settings",
    "Settled",
    "SpillLimits",
    "SqliteReader",
    "SqliteStorage",
    "Standing",
    "Storage",
    "StorageBusy",
    "StorageClosed",
    "StorageCorrupt",
    "StorageError",
    "StorageFenced",
    "StorageFull",
    "StorageInUse",
    "StorageRejected",
    "SubagentFailed",
    "Submission",
    "SubmissionQuery",
    "SubmissionRecord",
    "SubmissionTooLarge",
    "Summary",
    "System",
    "SystemClock",
    "Task",
    "TaskQuery",
    "TaskRecord",
    "TaskRef",
    "TaskUnsuccessful",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "ToolResult",
    "ToolTimeout",
    "TransactionOver",
    "Tx",
    "Unanswered",
    "Undeliverable",
    "UnknownCall",
    "UnknownRecord",
    "UsageDoc",
    "UsageReport",
    "VirtualClock",
    "WaitCycle",
    "Watch",
    "Wrap",
    "add_schedule",
    "arguments_hash",
    "cancel_schedule",
    "coding_tools",
    "configure",
    "events",
    "export_session",
    "import_session",
    "list_schedules",
    "models",
    "reload",
    "schedules",
    "search_history",
    "subagent",
    "subagents",
    "tool",
]
