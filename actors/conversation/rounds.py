"""Calls and their results: every call followed by exactly one result, in call order, and no result without its call.

What has been settled is never changed by what follows, so a longer transcript begins with the shorter one, with one
exception: the first system message goes to the front as long as only users have spoken, before anything was answered.
Proved by tests/actors/conversation/test_context.py.
"""

from ..models import (
    AssistantMessage,
    Content,
    Image,
    Message,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    plain_text,
    text,
    tool_calls,
)
from ..models.growing import Growing


class Rounds:
    """Messages settled so far, and the round of calls that may still get results."""

    def __init__(self) -> None:
        self.settled: Growing[Message] = Growing()
        self._only_users = True
        self._open: list[_Waiting] = []
        self._held: list[Message] = []
        """What came in the open round and goes behind its results."""
        self._missing: dict[str, str] = {}
        """Tools by the ids of calls that were answered without their result."""

    def add(self, message: Message) -> None:
        """Take in the next message of the transcript."""
        if isinstance(message, ToolResultMessage):
            self._answer(message)
        elif self._open and isinstance(message, SystemMessage):
            self._held.append(message)
        else:
            if self._open:
                self._close()
            self._settle(message)
            if isinstance(message, AssistantMessage):
                self._open = [_Waiting(call, message.timestamp) for call in tool_calls(message)]

    def lead(self, message: SystemMessage) -> None:
        """Put a prompt before everything so far."""
        self.settled = Growing([message, *self.settled.items])
        self._only_users = False

    def tail(self) -> list[Message]:
        """Give what would follow the settled messages if they were sent now."""
        return [*(waiting.answered() for waiting in self._open), *self._held]

    def _settle(self, message: Message) -> None:
        if self._only_users and isinstance(message, SystemMessage) and self.settled.items:
            self.settled = Growing([message, *self.settled.items])
        else:
            self.settled.items.append(message)
        self._only_users = self._only_users and isinstance(message, UserMessage)

    def _answer(self, result: ToolResultMessage) -> None:
        # Old transcripts may have equal ids in one message: the first unanswered call is meant.
        waiting = next((one for one in self._open if one.call.id == result.tool_call_id and one.result is None), None)
        if waiting is not None:
            waiting.result = result
            if all(one.result is not None for one in self._open):
                self._close()
        elif self._missing.pop(result.tool_call_id, None) is not None:
            self._tell(late_news(result))

    def _tell(self, news: Message) -> None:
        if self._open:
            self._held.append(news)
        else:
            self._settle(news)

    def _close(self) -> None:
        self._missing.update((one.call.id, one.call.name) for one in self._open if one.result is None)
        settled = self.tail()
        self._open, self._held = [], []
        for message in settled:
            self._settle(message)


class _Waiting:
    """A call of the open round, and its result once that has come."""

    def __init__(self, call: ToolCall, timestamp: int) -> None:
        self.call = call
        self._timestamp = timestamp
        self.result: ToolResultMessage | None = None

    def answered(self) -> ToolResultMessage:
        return self.result or missing_result(self.call.id, self.call.name, self._timestamp)


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


def late_news(result: ToolResultMessage) -> UserMessage:
    """A result that comes after its call was answered without it: something new that is said, since history is fixed."""
    said = plain_text(result.content).strip() or "(no text)"
    intro = text(f"The tool {result.tool_name} has answered late, to call {result.tool_call_id}:\n{said}")
    content: list[Content] = [intro, *(block for block in result.content if isinstance(block, Image))]
    return UserMessage(content=content, timestamp=result.timestamp)
