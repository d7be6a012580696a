"""Models: one message model over every provider.

    messages, growing             what a transcript is made of; sequences that grow without being read anew
    request, events               what is asked, what is streamed back
    model, partial, tokens        what answers; the answer so far; how long things are
    errors, repair, pricing       how it fails; text and arguments made fit to store; what it cost
    scripting                     a model by script
    turns                         any transcript, arranged so that any provider accepts it
    adapter, accumulate, clients  what the adapters share
    anthropic_*, chat_*, responses_*, openai_profile     the adapters: profile, rendering, stream, model
    factories                     the short way to a model
    testing, testing_*            a server that plays the protocols, and what real services refuse (not imported here)

Each line builds on those above it. Adapters import their SDK when their first request is made, in a thread, so
importing this package costs nothing.
"""

from .clock import Clock, WallClock
from .errors import classify, error_info, from_exception
from .events import BlockEnd, BlockStart, Delta, Done, Event, Start
from .factories import anthropic, from_env, openai, openai_chat, scripted
from .messages import (
    AssistantMessage,
    Block,
    Content,
    Cost,
    DeferredHandle,
    ErrorInfo,
    ErrorKind,
    Image,
    Message,
    MessageInvalid,
    Opaque,
    StopReason,
    SystemMessage,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolRef,
    ToolResultMessage,
    ToolSpec,
    Usage,
    UserMessage,
    answer_text,
    call,
    from_json,
    plain_text,
    text,
    to_json,
    tool_calls,
)
from .model import DeferringModel, Factory, Model, Models, ModelUnavailable
from .partial import Appended, Change, Partial, Replaced, interrupted
from .request import ModelRequest, current_sections, current_system, current_tools, system_update
from .scripting import Pause, ScriptedModel
from .tokens import context_tokens, estimate_output, estimate_tokens

__all__ = [
    "Appended",
    "AssistantMessage",
    "Block",
    "BlockEnd",
    "BlockStart",
    "Change",
    "Clock",
    "Content",
    "Cost",
    "DeferredHandle",
    "DeferringModel",
    "Delta",
    "Done",
    "ErrorInfo",
    "ErrorKind",
    "Event",
    "Factory",
    "Image",
    "Message",
    "MessageInvalid",
    "Model",
    "ModelRequest",
    "ModelUnavailable",
    "Models",
    "Opaque",
    "Partial",
    "Pause",
    "Replaced",
    "ScriptedModel",
    "Start",
    "StopReason",
    "SystemMessage",
    "Text",
    "Thinking",
    "ThinkingLevel",
    "ToolCall",
    "ToolRef",
    "ToolResultMessage",
    "ToolSpec",
    "Usage",
    "UserMessage",
    "WallClock",
    "answer_text",
    "anthropic",
    "call",
    "classify",
    "context_tokens",
    "current_sections",
    "current_system",
    "current_tools",
    "error_info",
    "estimate_output",
    "estimate_tokens",
    "from_env",
    "from_exception",
    "from_json",
    "interrupted",
    "openai",
    "openai_chat",
    "plain_text",
    "scripted",
    "system_update",
    "text",
    "to_json",
    "tool_calls",
]
