"""The built-in documents and entries of a conversation. Their kinds and fields are public protocol.

Shapes on disk and on the wire are those of the reference system, so that a reader of one understands the other.
"""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from ...storage.records import ConversationRecord, Json, JsonObject
from ..session.documents import Doc
from ..session.names import new_name
from ..session.tx import BaseTx, Entry


class Diagnostic(TypedDict):
    """A remark about a tool call for the model and for people; never part of the tool's data."""

    severity: Literal["info", "warn", "error"]
    message: str
    code: NotRequired[str]


class ToolSlot(TypedDict):
    """One call of the current tool round."""

    callId: str
    name: str
    status: Literal["pending", "running", "done"]
    taskId: NotRequired[int]
    output: NotRequired[str]
    droppedBytes: NotRequired[int]
    droppedLines: NotRequired[int]
    details: NotRequired[Json]
    diagnostics: NotRequired[list[Diagnostic]]
    approval: NotRequired[JsonObject]
    """While the call waits for approval: ``{arguments, hash, at}``."""
    external: NotRequired[bool]
    """While the call waits to be completed from outside."""
    entry: NotRequired[int]


UserEntry: Entry[Json] = Entry("pi.user")
"""What was submitted; its data are ``{author}`` when somebody was named as the one who said it."""
AssistantEntry: Entry[Json] = Entry("pi.assistant")
SystemEntry: Entry[Json] = Entry("pi.system")
ToolResultEntry: Entry[Json] = Entry("pi.tool-result")


def _always(value: JsonObject, ops: Sequence[Any], deltas: int) -> bool:
    return True


def _nothing_runs(value: JsonObject, ops: Sequence[Any], deltas: int) -> bool:
    running = any(slot["status"] == "running" for slot in value.get("tools", ()))
    return "generation" not in value and not running


def _no_items(value: JsonObject, ops: Sequence[Any], deltas: int) -> bool:
    return not value["items"]


LiveDoc: Doc[Json] = Doc("pi.live", checkpoint_when=_nothing_runs)
"""What runs now: ``run {taskId, inputs, failed?, uncompacted?}`` exactly while busy, ``tools``,
``generation {attempt, message?, retry?, deferred?}``, ``compactions [{taskId, reason, blocking, attempt, retry?}]``."""
InboxDoc: Doc[Json] = Doc("pi.inbox", initial=lambda: {"items": []}, checkpoint_when=_no_items)
"""Queued submissions in id order: ``items [{id, mode, content, author?}]``."""
UsageDoc: Doc[Json] = Doc("pi.usage", initial=lambda: {"models": {}, "tools": {}}, checkpoint_when=_always)
"""The conversation's own spend: usage per ``provider/model`` and per tool, and ``turns``, the answers that were asked for."""
ProviderDoc: Doc[Json] = Doc("pi.provider", initial=lambda: {"sessionId": new_name()}, checkpoint_when=_always)
"""The conversation's identity at providers: stable over reopen, retries and model changes, new for every fork."""
AgentDoc: Doc[Json] = Doc("pi.agent", history="rewindable", fork="asOf", checkpoint_when=_always)
"""What someone chose for the conversation: ``model``, ``thinkingLevel``, ``extensions``, ``tools``, ``instructions``."""

BUILT_IN = (LiveDoc, InboxDoc, UsageDoc, ProviderDoc, AgentDoc)


async def create_documents(tx: BaseTx, record: ConversationRecord) -> None:
    """Create the built-in documents in the commit that creates a conversation.

    Of its agent, a fork has a copy as of its fork point, and an owned conversation gets one of its owner's.
    """
    for doc in (LiveDoc, InboxDoc, UsageDoc, ProviderDoc):
        await tx.doc(doc, record.id)
    if AgentDoc.address(record.id, None) in tx.copies:
        return
    agent = await tx.doc(AgentDoc, record.id)
    if record.owner is not None:
        agent.update((await tx.doc(AgentDoc, record.owner.conversation_id)).to_json())
