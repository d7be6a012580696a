"""A transcript as turns that any provider accepts, whatever the transcript looks like.

What holds for the turns of every transcript:

- a model turn with calls is followed at once by a results turn that answers exactly these calls, in their order;
- call ids are unique and match the provider's rule; names do too;
- messages that ended in error, were aborted or never finished are left out, with the answers to their calls;
- blocks that only their own model understands go to no other one.

And for every place at which a request was answered: the turns of the transcript up to there are a prefix of the turns
of each longer one. Providers bind caches and thinking to the exact prefix, so nothing here may depend on what follows.
Proved by tests/actors/models/test_turns.py.
"""

import hashlib
import re
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, MutableMapping
from copy import copy
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

import msgspec

from .growing import folded
from .messages import (
    AssistantMessage,
    Block,
    Content,
    Message,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text,
)
from .request import Prompt

NO_RESULT = "No result provided"
"""Answers a call that has no result in the transcript, as in pi."""

_UNFINISHED = frozenset({"error", "aborted", "deferred", "pending"})


class Identity(Protocol):
    """What says whether a block is a model's own."""

    @property
    def provider(self) -> str:
        """See `Model`."""

    @property
    def api(self) -> str:
        """See `Model`."""

    @property
    def id(self) -> str:
        """See `Model`."""


class UserTurn(msgspec.Struct, frozen=True):
    """Something said to the model; never empty, no blank text."""

    content: list[Content]


class SystemTurn(msgspec.Struct, frozen=True):
    """A change of prompt or tools after the beginning."""

    message: SystemMessage


class Result(msgspec.Struct, frozen=True):
    """The answer to a call, under the call's id on the wire; no blank text, but possibly empty."""

    id: str
    name: str
    content: list[Content]
    is_error: bool


class ResultsTurn(msgspec.Struct, frozen=True):
    """The answers to the calls of the model turn before."""

    results: list[Result]


class ModelTurn(msgspec.Struct, frozen=True):
    """What a model said; never empty. `own`: the blocks may go back with what their provider added to them."""

    content: list[Block]
    own: bool


Turn: TypeAlias = UserTurn | SystemTurn | ResultsTurn | ModelTurn


class Writer(Protocol):
    """Writes turns down for a provider, in order."""

    def write(self, turn: Turn, /) -> None:
        """Take in the next turn."""

    def fork(self) -> Self:
        """Make a writer that goes on from here without changing this one. It is used up before this one goes on."""


W = TypeVar("W", bound=Writer)


def arrange(
    messages: Iterable[Message], model: Identity, begin: Callable[[Prompt], W], *, key: Hashable, id_length: int = 64
) -> tuple[Prompt, W]:
    """Have a transcript arranged for `model` and written down; gives the prompt that it begins with, and the writer.

    `begin` makes the writer, given the prompt and tools at the beginning. What it writes must follow from these, `model`
    and `key`, since transcripts that grow are not written down anew. Call ids get at most `id_length` characters.
    """
    asked = (key, id_length, model.provider, model.api, model.id)
    arranging = folded(messages, asked, lambda: _Arranging(model, begin, id_length))
    return arranging.prompt, arranging.finished()


class _Open:
    """A call that waits for its result."""

    def __init__(self, call: ToolCall, wire: ToolCall) -> None:
        self.call = call
        self.wire = wire
        self.result: Result | None = None


class _Arranging(Generic[W]):
    """What the turns so far were written by, and the round of calls that is open: a fold over messages."""

    def __init__(self, model: Identity, begin: Callable[[Prompt], W], id_length: int) -> None:
        self.prompt = Prompt()
        """What the leading system messages say."""
        self._model = model
        self._begin = begin
        self._writer: W | None = None
        self._ids = _WireIds(id_length)
        self._open: list[_Open] = []
        self._held: list[Turn] = []
        self._closed: MutableMapping[str, str] = {}

    def fork(self) -> Self:
        """Go on with the tail of a view; see `growing.Fold`."""
        fork = copy(self)
        fork.prompt = self.prompt.fork()
        fork._writer = None if self._writer is None else self._writer.fork()
        fork._ids = self._ids.fork()
        fork._open = [copy(waiting) for waiting in self._open]
        fork._held = list(self._held)
        fork._closed = ChainMap({}, self._closed)
        return fork

    def finished(self) -> W:
        """The writer, after everything has been written."""
        self.close_round()
        return self._started()

    def add(self, message: Message) -> None:
        """Take in the next message."""
        if self._writer is None and isinstance(message, SystemMessage):
            self.prompt.add(message)
            return
        self._started()
        match message:
            case ToolResultMessage():
                self._add_result(message)
            case UserMessage():
                self.close_round()
                self._say(_content(message.content))
            case SystemMessage() if self._open:
                # A change in the middle of a round neither ends it nor comes between calls and results.
                self._held.append(SystemTurn(message))
            case SystemMessage():
                self._started().write(SystemTurn(message))
            case AssistantMessage() if message.stop_reason not in _UNFINISHED:
                self.close_round()
                self._add_answer(message)

    def _started(self) -> W:
        if self._writer is None:
            self._writer = self._begin(self.prompt)
        return self._writer

    def close_round(self) -> None:
        """Answer the calls that are still open; whatever comes for them later is too late to be their result."""
        if not self._open:
            return
        self._started().write(ResultsTurn([waiting.result or _missing(waiting.wire) for waiting in self._open]))
        for turn in self._held:
            self._started().write(turn)
        self._closed.update((waiting.call.id, waiting.call.name) for waiting in self._open)
        self._open, self._held = [], []

    def _add_answer(self, message: AssistantMessage) -> None:
        own = is_own(message, self._model)
        content = [self._wire(block) for block in message.content if _travels(block, own=own)]
        if content:
            self._started().write(ModelTurn(content, own))

    def _wire(self, block: Block) -> Block:
        if not isinstance(block, ToolCall):
            return block
        wire = msgspec.structs.replace(block, id=self._ids.assign(block.id), name=_wire_name(block.name))
        self._open.append(_Open(block, wire))
        return wire

    def _add_result(self, message: ToolResultMessage) -> None:
        for waiting in self._open:
            # Some servers give all calls of a message one id: the first unanswered call is meant.
            if waiting.call.id == message.tool_call_id and waiting.result is None:
                waiting.result = _result(waiting.wire, message)
                break
        else:
            self._add_late(message)
        if all(waiting.result for waiting in self._open):
            self.close_round()

    def _add_late(self, message: ToolResultMessage) -> None:
        """A result whose call was answered without it: something new that is said, since history is fixed."""
        name = self._closed.get(message.tool_call_id)
        if name is not None:
            self._say([text(f"A result of the earlier call of {name} has arrived:"), *_content(message.content)])

    def _say(self, content: list[Content]) -> None:
        if content and self._open:
            self._held.append(UserTurn(content))
        elif content:
            self._started().write(UserTurn(content))


class _WireIds:
    """Gives every call an id of its own that the provider accepts; its stored id wherever that is one."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._valid = re.compile(rf"[a-zA-Z0-9_-]{{1,{length}}}")
        self._taken: MutableMapping[str, None] = {}

    def fork(self) -> Self:
        fork = copy(self)
        fork._taken = ChainMap({}, self._taken)
        return fork

    def assign(self, stored: str) -> str:
        wire, tries = stored, 0
        while wire in self._taken or not self._valid.fullmatch(wire):
            wire, tries = self._derived(stored, tries), tries + 1
        self._taken[wire] = None
        return wire

    def _derived(self, stored: str, tries: int) -> str:
        digest = hashlib.blake2s(f"{tries}:{stored}".encode(errors="replace"), digest_size=6).hexdigest()
        readable = re.sub(r"[^a-zA-Z0-9_-]", "_", stored)[: self._length - len(digest) - 1]
        return f"{readable}_{digest}"


def is_own(message: AssistantMessage, model: Identity) -> bool:
    """Whether `model` said this itself: the same id at the same provider over the same protocol."""
    return (message.provider, message.api, message.model) == (model.provider, model.api, model.id)


def _travels(block: Block, *, own: bool) -> bool:
    match block:
        case Text():
            return bool(block.text.strip())
        case Thinking() | Opaque():
            return own
    return True


def _content(content: str | Iterable[Content]) -> list[Content]:
    blocks = [text(content)] if isinstance(content, str) else content
    return [block for block in blocks if not isinstance(block, Text) or block.text.strip()]


def _result(wire: ToolCall, message: ToolResultMessage) -> Result:
    return Result(wire.id, wire.name, _content(message.content), message.is_error)


def _missing(wire: ToolCall) -> Result:
    return Result(wire.id, wire.name, [text(NO_RESULT)], is_error=True)


def _wire_name(name: str) -> str:
    """A name that providers accept; a model may call a tool by a name that no tool could have."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"
