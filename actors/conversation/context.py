"""From stored entries to the messages of a request. Pure; everything a model sees passes through here.

The active range begins at the newest head marker. Between heads and edits a longer transcript's context begins with the
shorter one's, since providers bind caches and thinking to the exact prefix: so results answer their calls within the
round in which they were called, a call without a result is answered by a synthesized error for good, and a result that
comes later is told as news at its own place. Proved by tests/actors/conversation/test_context.py.
"""

from collections.abc import Callable, Sequence

import msgspec

from ...storage.records import EntryRecord, JsonObject
from ..models import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    from_json,
    plain_text,
    text,
    tool_calls,
)

LEFT_OUT = ("aborted", "error", "deferred", "pending")
"""Stop reasons of assistant messages that stay in the transcript and out of requests."""


class ContextView(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript as a model sees it. ``contributions`` are per entry of ``entries``, before results are ordered."""

    head: EntryRecord | None
    entries: list[EntryRecord]
    contributions: list[list[Message]]
    messages: list[Message]


class Decoded(msgspec.Struct, frozen=True):
    """What an entry says, ready to be used again: entries never change."""

    own: list[Message]
    """What it contributes unless a later entry edits it."""
    edits: dict[int, list[Message]]
    """What other entries contribute because of it."""


def decode(entry: EntryRecord) -> Decoded:
    """Decode an entry. Raises MessageInvalid."""
    edits = {edit.target: _contributed(edit.messages) for edit in entry.edits or ()}
    return Decoded(_contributed(entry.model), edits)


def derive(entries: Sequence[EntryRecord], decoded: Callable[[EntryRecord], Decoded] = decode) -> ContextView:
    """Derive the context at the end of ``entries``, which are visible ones in id order, from the head on or earlier.

    ``decoded`` gives what an entry says; who keeps entries keeps that beside them.
    """
    head = next((entry for entry in reversed(entries) if entry.head is not None), None)
    active = active_range(entries, head)
    edits = _edits(active, decoded)
    contributions = [edits[entry.id] if entry.id in edits else decoded(entry).own for entry in active]
    said = _prompt_first(head, active, contributions)
    messages = settle_calls([message for contribution in said for message in contribution])
    return ContextView(head=head, entries=active, contributions=contributions, messages=lead(messages))


def check_messages(entry: EntryRecord) -> None:
    """Refuse an entry whose messages no context could be derived from. Raises MessageInvalid."""
    decode(entry)


def active_range(entries: Sequence[EntryRecord], head: EntryRecord | None) -> list[EntryRecord]:
    """The head marker, then the unmarked entries from its target on; without a marker, everything."""
    if head is None or head.head is None:
        return list(entries)
    kept = [entry for entry in entries if entry.id >= head.head and entry.head is None]
    return [head, *kept]


def _edits(active: Sequence[EntryRecord], decoded: Callable[[EntryRecord], Decoded]) -> dict[int, list[Message]]:
    """Give what edited entries contribute by their newest edit; edits before the active range no longer count."""
    newest: dict[int, list[Message]] = {}
    for entry in sorted((entry for entry in active if entry.edits), key=lambda entry: entry.id):
        newest.update(decoded(entry).edits)
    return newest


def _prompt_first(
    head: EntryRecord | None, active: Sequence[EntryRecord], contributions: list[list[Message]]
) -> list[list[Message]]:
    """Give the prompt that was written after a head before anything was answered its place: before what the head keeps."""
    for index, entry in enumerate(active):
        if head is None or entry.id <= head.id:
            continue
        if any(isinstance(message, SystemMessage) for message in contributions[index]):
            return [contributions[index], *contributions[:index], *contributions[index + 1 :]]
        if any(isinstance(message, AssistantMessage) for message in contributions[index]):
            break
    return contributions


def _contributed(stored: Sequence[JsonObject] | None) -> list[Message]:
    messages = [from_json(value) for value in stored or ()]
    return [one for one in messages if not (isinstance(one, AssistantMessage) and one.stop_reason in LEFT_OUT)]


def lead(messages: list[Message]) -> list[Message]:
    """Move a system message that only user messages precede to the front, where providers take it as the prompt."""
    for index, message in enumerate(messages):
        if isinstance(message, SystemMessage):
            return [message, *messages[:index], *messages[index + 1 :]]
        if not isinstance(message, UserMessage):
            break
    return messages


def settle_calls(messages: Sequence[Message]) -> list[Message]:
    """Have every call followed by exactly one result, in call order, and no result without its call."""
    settled: list[Message] = []
    names: dict[str, str] = {}
    unanswered = _Round([], 0, names)
    for message in messages:
        if isinstance(message, ToolResultMessage):
            news = unanswered.take(message)
            settled.extend([] if news is None else [news])
        elif unanswered.open and isinstance(message, SystemMessage):
            unanswered.held.append(message)
        else:
            if unanswered.open:
                settled.extend(unanswered.close())
            if isinstance(message, AssistantMessage) and (calls := tool_calls(message)):
                unanswered = _Round(calls, message.timestamp, names)
            settled.append(message)
    settled.extend(unanswered.close())
    return settled


class _Round:
    """An assistant message's calls, and the results that have come for them. ``names`` are of all calls so far."""

    def __init__(self, calls: list[ToolCall], timestamp: int, names: dict[str, str]) -> None:
        names.update((call.id, call.name) for call in calls)
        self.calls = calls
        self.timestamp = timestamp
        self.names = names
        self.results: dict[str, ToolResultMessage] = {}
        self.held: list[Message] = []
        self.open = bool(calls)

    def take(self, result: ToolResultMessage) -> Message | None:
        """Keep a result of this round. One that comes too late becomes news; one without any call is dropped."""
        if self.open and any(call.id == result.tool_call_id for call in self.calls):
            self.results.setdefault(result.tool_call_id, result)
            return None
        if self.open or result.tool_call_id not in self.names:
            return None
        said = plain_text(result.content) or "(no text)"
        news = f"The tool {result.tool_name} has answered late, to call {result.tool_call_id}:\n{said}"
        return UserMessage(content=news, timestamp=result.timestamp)

    def close(self) -> list[Message]:
        """Give a result for each call, then what was held back until the round ended."""
        if not self.open:
            return []
        self.open = False
        results: list[Message] = [
            self.results.get(call.id) or missing_result(call.id, call.name, self.timestamp) for call in self.calls
        ]
        return results + self.held


def missing_result(call_id: str, name: str, timestamp: int) -> ToolResultMessage:
    """The answer to a call that was never answered. Its time is its call's, so it is the same at every derivation."""
    return ToolResultMessage(
        tool_call_id=call_id,
        tool_name=name,
        content=[text("No result: the call was interrupted before it was answered.")],
        details={"reason": "missing_result"},
        is_error=True,
        timestamp=timestamp,
    )
