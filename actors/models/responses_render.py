"""From a request to the body of an OpenAI Responses call. Pure.

Stateless: the server stores nothing, so everything goes back that later turns need, above all the encrypted reasoning,
each item in its place. The vendor's rules that shape what is written:

- reasoning without its encrypted content cannot be found by a server that stored nothing, and reasoning with nothing
  after it is refused: neither is sent;
- tools can be added between turns, but not withdrawn or redefined: then the list at the top is rewritten, which costs
  the cache but is the only way to say it;
- messages and calls named by their item ids demand the reasoning that came before them: where there is none, or any of
  a message's is left out, so are the ids, and the call ids do.
"""

from collections.abc import Iterable
from copy import copy
from typing import Any, Self, TypeAlias

from .chat_render import GO_ON, NO_OUTPUT, data_url, vendor_options
from .growing import Branch, folded
from .messages import Block, Content, Image, Message, Opaque, SystemMessage, Text, Thinking, ToolCall, ToolSpec
from .openai_profile import IMAGE_TYPES, OpenAIProfile, reasoning_effort
from .repair import arguments_text
from .request import ModelRequest, current_tools, system_update
from .tokens import answer_room
from .turns import Identity, ModelTurn, Result, ResultsTurn, SystemTurn, Turn, UserTurn, arrange

Item: TypeAlias = dict[str, Any]

_LEAST_OUTPUT = 16
"""The vendor refuses less as `max_output_tokens`."""


def render_responses_request(request: ModelRequest, model: Identity, profile: OpenAIProfile) -> dict[str, Any]:
    """The arguments of `responses.create` for a request."""
    in_place = profile.vendor and _only_adds(request.messages)
    prompt, writer = arrange(
        request.messages, model, lambda begun: _Writer(profile, tools_in_place=in_place), key=(profile, in_place)
    )
    tools = prompt.tools.values() if in_place else current_tools(request.messages)
    limit = answer_room(request, window=profile.context_window, limit=profile.max_tokens)
    body: dict[str, Any] = {
        "model": model.id,
        "input": writer.finish(),
        "max_output_tokens": max(_LEAST_OUTPUT, limit),
        "store": False,
    }
    effort = reasoning_effort(request.thinking_level)
    optional: dict[str, Any] = {
        "instructions": prompt.text,
        "tools": [_tool(tool) for tool in tools],
        "include": ["reasoning.encrypted_content"] if profile.reasons else None,
        "reasoning": {"effort": effort, "summary": "auto"} if effort and profile.reasons else None,
        "extra_headers": {**_affinity(request, profile), **request.headers},
        **vendor_options(request, profile),
    }
    return {**body, **{key: value for key, value in optional.items() if value}}


class _Writer:
    """Writes turns down in order, as input items; has the user say a word where the model would speak unasked."""

    def __init__(self, profile: OpenAIProfile, *, tools_in_place: bool) -> None:
        self._profile = profile
        self._tools_in_place = tools_in_place
        self._items: Branch[Item] = Branch()
        self._heard = False
        """Whether something was said to the model since it spoke last."""

    def fork(self) -> Self:
        """Go on with the tail of a view; see `turns.Writer`."""
        fork = copy(self)
        fork._items = self._items.fork()
        return fork

    def write(self, turn: Turn) -> None:
        """Take in the next turn."""
        match turn:
            case UserTurn():
                self._hear({"role": "user", "content": _parts(turn.content, self._profile)})
            case ResultsTurn():
                self._hear(*(_result(result, self._profile) for result in turn.results))
            case SystemTurn():
                self._change(turn.message)
            case ModelTurn():
                self._speak(_model_items(turn))

    def finish(self) -> list[Item]:
        """The items, ready to be answered; nothing can be written any more."""
        self._nudge()
        return self._items.whole()

    def _hear(self, *items: Item) -> None:
        for item in items:
            self._items.append(item)
        self._heard = True

    def _speak(self, items: list[Item]) -> None:
        if items:
            self._nudge()
            for item in items:
                self._items.append(item)
            self._heard = False

    def _nudge(self) -> None:
        if not self._heard:
            self._hear({"role": "user", "content": [_input_text(GO_ON)]})

    def _change(self, message: SystemMessage) -> None:
        told = system_update(message)
        if self._tools_in_place and message.tools_added:
            tools = [_tool(tool) for tool in message.tools_added]
            self._items.append({"type": "additional_tools", "role": "developer", "tools": tools})
        if told and self._profile.vendor:
            self._items.append({"role": "developer", "content": told})
        elif told:
            self._hear({"role": "user", "content": [_input_text(f"<system_update>\n{told}\n</system_update>")]})


def _model_items(turn: ModelTurn) -> list[Item]:
    blocks = _sendable(turn.content)
    thoughts = [index for index, block in enumerate(blocks) if isinstance(block, Thinking)]
    complete = len(thoughts) == sum(isinstance(block, Thinking) for block in turn.content)
    first = thoughts[0] if thoughts and complete else len(blocks)
    return [_model_item(block, own=turn.own, named=index > first) for index, block in enumerate(blocks)]


def _sendable(content: list[Block]) -> list[Block]:
    """Without what cannot be sent: pictures, odd blocks, and reasoning that is not encrypted or comes last."""
    blocks = [block for block in content if _is_sendable(block)]
    while blocks and isinstance(blocks[-1], Thinking):
        blocks.pop()
    return blocks


def _is_sendable(block: Block) -> bool:
    match block:
        case Thinking(provider_data=data):
            return isinstance(data, dict) and bool(data.get("encrypted_content"))
        case Opaque(data=data):
            return isinstance(data, dict)
    return not isinstance(block, Image)


def _model_item(block: Block, *, own: bool, named: bool) -> Item:
    added = block.provider_data if own and isinstance(block.provider_data, dict) else {}
    kept = {key: value for key, value in added.items() if key not in ("arguments", *(() if named else ("id",)))}
    match block:
        case Thinking():
            return added
        case ToolCall():
            arguments = arguments_text(block, own=own)
            call = {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
            return {**call, **kept}
        case Text() if "id" in kept:
            content = [{"type": "output_text", "text": block.text, "annotations": []}]
            return {"type": "message", "role": "assistant", "content": content, "status": "completed", **kept}
        case Text():
            phase = {"phase": kept["phase"]} if "phase" in kept else {}
            # The type may be left out at the vendor; llama.cpp does not know the item without it.
            return {"type": "message", "role": "assistant", "content": block.text, **phase}
    assert isinstance(block, Opaque)
    item: Item = block.data
    return item


def _result(result: Result, profile: OpenAIProfile) -> Item:
    output: Any = "\n".join(block.text for block in result.content if isinstance(block, Text)) or NO_OUTPUT
    if any(isinstance(block, Image) for block in result.content):
        output = _parts(result.content, profile)
    return {"type": "function_call_output", "call_id": result.id, "output": output}


class _Additions:
    """Whether later tool changes are additions of new names only, the one kind that can be told in place: a fold."""

    def __init__(self) -> None:
        self.only = True
        self._begun = False
        self._known: set[str] = set()

    def add(self, message: Message) -> None:
        """Take in a message; what leads the transcript is no change."""
        if not isinstance(message, SystemMessage):
            self._begun = True
            return
        added = [tool.name for tool in message.tools_added or ()]
        if self._begun and (message.tools_removed or self._known & set(added) or len(set(added)) < len(added)):
            self.only = False
        self._known -= {tool.name for tool in message.tools_removed or ()}
        self._known |= set(added)

    def fork(self) -> Self:
        """Make a copy that goes on by itself."""
        fork = copy(self)
        fork._known = set(self._known)
        return fork


def _only_adds(messages: Iterable[Message]) -> bool:
    return folded(messages, _Additions, _Additions).only


def _parts(content: Iterable[Content], profile: OpenAIProfile) -> list[Item]:
    return [_image(block, profile) if isinstance(block, Image) else _input_text(block.text) for block in content]


def _image(image: Image, profile: OpenAIProfile) -> Item:
    if not profile.images or not image.data or image.mime_type not in IMAGE_TYPES:
        return _input_text("(picture left out: it cannot be shown)")
    return {"type": "input_image", "detail": "auto", "image_url": data_url(image)}


def _input_text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _tool(tool: ToolSpec) -> Item:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", **function, "strict": False}


def _affinity(request: ModelRequest, profile: OpenAIProfile) -> dict[str, str]:
    """Headers that bring requests of one conversation to one machine, whose cache knows it."""
    if not profile.vendor or not request.session_id:
        return {}
    return {"session-id": request.session_id, "x-client-request-id": request.session_id}
