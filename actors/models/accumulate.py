"""What all accumulators share: blocks that grow, and the message they make when the stream ends well or badly."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from .events import BlockEnd, BlockStart, Delta, Event, Start
from .messages import (
    AssistantMessage,
    Block,
    ErrorInfo,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    tool_calls,
)
from .repair import TextJoiner, cut_arguments, fit, read_arguments, unusable
from .tokens import with_estimated_output

_B = TypeVar("_B", bound="OpenBlock")


class OpenBlock:
    """One block as it streams in."""

    def __init__(self, block: Block) -> None:
        self.index = -1
        self.block = block
        self.json = ""
        """The text of a call's arguments so far."""
        self.ended = False
        self._joiner = TextJoiner()

    def grow(self, piece: str) -> str:
        """Add a piece; returns what of it can be shown."""
        return self._add(self._joiner.feed(piece))

    def end(self) -> str:
        """The block is complete; returns what was still held back."""
        self.ended = True
        rest = self._add(self._joiner.end())
        self.block = self.complete()
        return rest

    def complete(self) -> Block:
        """The block's final form: a call's arguments are read."""
        if not isinstance(self.block, ToolCall):
            return self.block
        arguments, error = read_arguments(self.json)
        return replace(self.block, arguments=arguments, arguments_error=error)

    def so_far(self) -> Block:
        """The block if the stream ends here: an unfinished call is none that can be run."""
        if self.ended or not isinstance(self.block, ToolCall):
            return self.block
        return replace(self.block, arguments_error=unusable("The call was cut off", self.json))

    def _add(self, piece: str) -> str:
        match self.block:
            case Text(text=text):
                self.block = replace(self.block, text=text + piece)
            case Thinking(thinking=thinking):
                self.block = replace(self.block, thinking=thinking + piece)
            case _:
                self.json += piece
        return "" if isinstance(self.block, Opaque) else piece


class GrowingAnswer(ABC):
    """The message of one answer while it streams in. Adapters feed it through their own `feed`."""

    def __init__(self, blank: AssistantMessage) -> None:
        self._message = blank
        self._blocks: list[OpenBlock] = []
        self._started = False
        self.stop: str | None = None
        """The provider's own word for why the answer ended; None until it has come."""
        self.complete = False
        """Whether the event has come without which an answer is not one."""

    @property
    def content(self) -> list[Block]:
        """The blocks so far."""
        return [block.so_far() for block in self._blocks]

    def failed(self, error: ErrorInfo) -> AssistantMessage:
        """The message when the answer broke off: what had come, the usage as far as it is known, and the error."""
        message = replace(self._so_far("error"), error=error)
        if not self._started:
            return replace(message, usage=Usage())
        counted = self.complete and not message.usage.estimated
        return message if counted else with_estimated_output(message)

    @abstractmethod
    def _usage(self) -> Usage:
        """What is known of the usage."""

    def _ended(self, reason: StopReason) -> AssistantMessage:
        """The message of a complete answer. Calls decide whether it asks for tools, not what the server calls it."""
        message = self._so_far(reason)
        if message.usage.estimated:
            message = with_estimated_output(message)
        if reason == "length":
            return replace(message, content=self._without_cut_call())
        return replace(message, stop_reason="toolUse" if tool_calls(message) else "stop")

    def _start(self, response_id: str | None, served: str | None) -> Iterator[Event]:
        if self._started:
            return
        self._started = True
        self._message = replace(
            self._message,
            response_id=response_id,
            response_model=served if served != self._message.model else None,
            usage=self._usage(),
        )
        self._message = fit(self._message)
        yield Start(self._message)

    def _begin(self, block: _B) -> tuple[_B, BlockStart]:
        block.index = len(self._blocks)
        self._blocks.append(block)
        return block, BlockStart(block.index, block.block)

    def _grow(self, block: OpenBlock, piece: str) -> Iterator[Event]:
        if shown := block.grow(piece):
            yield Delta(block.index, shown)

    def _end(self, block: OpenBlock) -> Iterator[Event]:
        if block.ended:
            return
        if rest := block.end():
            yield Delta(block.index, rest)
        yield BlockEnd(block.index, block.block)

    def _so_far(self, reason: StopReason) -> AssistantMessage:
        return replace(
            self._message, content=self.content, usage=self._usage(), stop_reason=reason, raw_stop_reason=self.stop
        )

    def _without_cut_call(self) -> list[Block]:
        """The token limit cuts the last block; a call there is complete only if its arguments were written out."""
        content = self.content
        last = self._blocks[-1] if self._blocks else None
        if last is not None and isinstance(call := content[-1], ToolCall) and (not last.json or call.arguments_error):
            content[-1] = replace(call, arguments={}, arguments_error=cut_arguments(last.json))
        return content


def count(wire: Any, key: str) -> int:
    """A token count in a usage object; 0 where servers leave it out, or send null or less than nothing."""
    value = wire.get(key) if isinstance(wire, dict) else None
    return value if type(value) is int and value > 0 else 0


def plain(model: Any) -> dict[str, Any]:
    """An SDK object as the JSON it was: unset fields stay out, names are the wire's, odd values pass."""
    value: dict[str, Any] = model.to_dict(mode="json", warnings=False)
    return value
