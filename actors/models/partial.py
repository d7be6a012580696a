"""The answer so far: events in, a message and its changes out.

A generation feeds every event in and, a few times a second, asks what has changed since it last asked; it writes just
that. Asking costs time in proportion to the message, feeding a few characters costs next to nothing.
"""

from collections.abc import Container, Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from .events import BlockEnd, BlockStart, Delta, Done, Event, Start
from .messages import AssistantMessage, Block, Text, Thinking, ToolCall, to_json
from .tokens import with_estimated_output

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the message's JSON (as `to_json` writes it) down to a value."""

_REPARSE_GROWTH = 1.05
"""Arguments are parsed again when their text has grown this much: the sum over a stream stays linear in its length."""


class Appended(msgspec.Struct, frozen=True):
    """The string at `path` grew by `text`."""

    path: Path
    text: str


class Replaced(msgspec.Struct, frozen=True):
    """The value at `path` is now `value`; the last part of the path may be a new key, or the end of its array."""

    path: Path
    value: Any


Change: TypeAlias = Appended | Replaced


class Partial:
    """Accumulates one stream. Not for use from several threads."""

    def __init__(self) -> None:
        self._base: AssistantMessage | None = None
        self._slots: list[_Slot] = []
        self._final: AssistantMessage | None = None
        self._shown: dict[str, Any] | None = None

    def feed(self, event: Event) -> None:
        """Take in the next event, in stream order."""
        match event:
            case Delta():
                self._slots[event.index].pieces.append(event.text)
            case BlockStart():
                self._slots.insert(event.index, _Slot(event.block))
            case BlockEnd():
                self._slots[event.index].end(event.block)
            case Start():
                self._base = event.message
            case Done():
                self._final = event.message

    @property
    def has_content(self) -> bool:
        """Whether there is anything to show yet."""
        return bool(self._slots) or self._final is not None

    def message(self) -> AssistantMessage:
        """The message so far, `pending`; after `Done`, the final one.

        The arguments of an unfinished call are what can be read of them: for the eye, never to be executed.
        """
        if self._final is not None:
            return self._final
        base = self._base or AssistantMessage(content=[])
        return replace(base, content=[slot.block() for slot in self._slots], stop_reason="pending")

    def changes(self) -> list[Change]:
        """What changed since the last call; the first call gives the whole message, at the empty path."""
        new = to_json(self.message())
        old, self._shown = self._shown, new
        if old is None:
            return [Replaced((), new)]
        return [] if old == new else _diff(old, new, ())


def interrupted(message: AssistantMessage) -> AssistantMessage:
    """What remains of a message whose stream will not go on: the content that was shown, `aborted`.

    Its calls can no longer be executed. The output tokens are estimated, and marked so.
    """
    content = [_unfinished(block) if isinstance(block, ToolCall) else block for block in message.content]
    return with_estimated_output(replace(message, content=content, stop_reason="aborted"))


class _Slot:
    """One block while it streams: the known part, the pieces not yet added to it."""

    def __init__(self, block: Block) -> None:
        self.pieces: list[str] = []
        self._block = block
        self._ended = False
        self._json = ""
        self._parsed_chars = 0

    def end(self, block: Block) -> None:
        self._block, self._ended = block, True
        self.pieces.clear()

    def block(self) -> Block:
        if self.pieces and not self._ended:
            grown = "".join(self.pieces)
            self.pieces.clear()
            self._block = self._grow(grown)
        return self._block

    def _grow(self, grown: str) -> Block:
        match self._block:
            case Text(text=text):
                return replace(self._block, text=text + grown)
            case Thinking(thinking=thinking):
                return replace(self._block, thinking=thinking + grown)
            case ToolCall():
                self._json += grown
                return self._parsed(self._block)
        return self._block

    def _parsed(self, call: ToolCall) -> ToolCall:
        if len(self._json) < self._parsed_chars * _REPARSE_GROWTH:
            return call
        self._parsed_chars = len(self._json)
        arguments = _readable(self._json)
        return call if arguments is None else replace(call, arguments=arguments)


def _readable(text: str) -> dict[str, Any] | None:
    """What can be read of unfinished JSON: an object, its last string cut where the text ends."""
    from jiter import from_json

    try:
        value = from_json(text.encode(errors="replace"), partial_mode="trailing-strings")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _unfinished(call: ToolCall) -> ToolCall:
    return replace(
        call, arguments_error=call.arguments_error or "The answer was interrupted before this call could run"
    )


def _diff(old: Any, new: Any, path: Path) -> list[Change]:
    if isinstance(old, str) and isinstance(new, str) and new.startswith(old):
        return [Appended(path, new[len(old) :])]
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() <= new.keys():
        return _diff_items(old, old.keys(), new.items(), path)
    if isinstance(old, list) and isinstance(new, list) and len(old) <= len(new):
        return _diff_items(old, range(len(old)), enumerate(new), path)
    return [Replaced(path, new)]


def _diff_items(
    old: Any, known: Container[str | int], new: Iterable[tuple[str | int, Any]], path: Path
) -> list[Change]:
    changes: list[Change] = []
    for key, value in new:
        if key not in known:
            changes.append(Replaced((*path, key), value))
        elif value != old[key]:  # few fields of a message change while it streams
            changes += _diff(old[key], value, (*path, key))
    return changes
