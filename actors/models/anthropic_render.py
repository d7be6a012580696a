"""From a request to the body of an Anthropic Messages call. Pure.

Messages are only ever added at the end, the prompt and the first tools never change, so that caches stay warm and
thinking stays valid (turns.py says from where to where). The vendor's rules that shape what is written:

- user and model alternate and the user begins; results stand first in the user message after their calls;
- a system message stands right before a model message or at the end, and never alone before a user message;
- no blank text, no model message that ends in thinking, no picture in an error result;
- on models without mid-conversation changes, a change of the prompt is told as a user, in a `system_update` tag, and
  tools that changed are rewritten at the top, which costs the cache but is the only way to offer them.
"""

from collections.abc import Iterable
from copy import copy
from typing import Any, Self, TypeAlias

from .anthropic_profile import Profile, budget_of, effort_of
from .growing import Branch
from .messages import Block, Content, Image, Opaque, SystemMessage, Text, Thinking, ToolCall, ToolSpec
from .request import ModelRequest, current_tools, system_update
from .tokens import answer_room
from .turns import Identity, ModelTurn, Result, ResultsTurn, SystemTurn, Turn, UserTurn, arrange

Wire: TypeAlias = dict[str, Any]

GO_ON = "Continue."
"""Said for the user where the protocol wants a user message and the transcript has none."""

NO_OUTPUT = "(no output)"
"""Content of a result that has none: some servers refuse an empty one."""

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_CHANGE_BETAS = ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15")
_THINKING = ("thinking", "redacted_thinking")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


def render_request(request: ModelRequest, model: Identity, profile: Profile, *, cache_ttl: str | None) -> Wire:
    """The arguments of `messages.create` for a request, `extra_headers` included when it needs beta features."""
    prompt, writer = arrange(request.messages, model, lambda begun: _Writer(profile, set(begun.tools)), key=profile)
    betas = list(_CHANGE_BETAS) if profile.changes and writer.changes_tools else []
    body: Wire = {
        "model": model.id,
        "max_tokens": answer_room(request, window=profile.context_window, limit=profile.max_tokens),
        "messages": writer.finish(),
    }
    tools = prompt.tools.values() if profile.changes else current_tools(request.messages)
    optional: Wire = {
        "system": prompt.text,
        "tools": [_tool(tool) for tool in tools],
        "cache_control": {"type": "ephemeral", "ttl": cache_ttl} if cache_ttl else None,
        "metadata": {"user_id": user} if (user := request.metadata.get("user_id")) else None,
        **_thinking(request, profile, body["max_tokens"], may_think=writer.may_think),
    }
    body.update((key, value) for key, value in optional.items() if value)
    if profile.binds:
        betas.append(_BINDING_BETA)
    headers = _with_betas(request.headers, betas)
    return {**body, "extra_headers": headers} if headers else body


class _Writer:
    """Writes turns down in order; keeps user and model alternating, and knows which tools are `offered`."""

    def __init__(self, profile: Profile, offered: set[str]) -> None:
        self.changes_tools = False
        self._profile = profile
        self._offered = offered
        self._messages: Branch[Wire] = Branch()
        self._said: list[Wire] = []
        """What the user says next, as far as it has been said."""
        self._system: list[Wire] = []
        self._in_round = False
        self._thought = False
        """Whether the model's last message began with thinking."""

    def fork(self) -> Self:
        """Go on with the tail of a view; see `turns.Writer`."""
        fork = copy(self)
        fork._messages = self._messages.fork()
        fork._said, fork._system = list(self._said), list(self._system)
        return fork

    def write(self, turn: Turn) -> None:
        """Take in the next turn."""
        match turn:
            case UserTurn():
                self._say(*self._content(turn.content))
            case ResultsTurn():
                self._in_round = True
                self._said += [self._result(result) for result in turn.results]
                self._said += [image for result in turn.results for image in self._moved_images(result)]
            case SystemTurn():
                self._change(turn.message)
            case ModelTurn():
                self._model(render_blocks(turn.content, own=turn.own))

    @property
    def may_think(self) -> bool:
        """Whether a model with a budget may think now: not in the middle of a round that began without thinking."""
        return self._thought or not self._in_round

    def finish(self) -> list[Wire]:
        """The wire messages, ready to be answered; nothing can be written any more."""
        self._await_model()
        return self._messages.whole()

    def _model(self, blocks: list[Wire]) -> None:
        said = _without_last_thinking(blocks)
        if said:
            self._await_model()
            self._messages.append({"role": "assistant", "content": said})
            self._in_round, self._thought = False, said[0]["type"] in _THINKING

    def _say(self, *blocks: Wire) -> None:
        self._said += blocks
        self._in_round = False

    def _await_model(self) -> None:
        """Bring the messages into a state that a model message may follow."""
        self._messages.append({"role": "user", "content": self._said or [_text(GO_ON)]})
        if self._system:
            self._messages.append({"role": "system", "content": self._system})
        self._said, self._system = [], []

    def _change(self, message: SystemMessage) -> None:
        told = system_update(message)
        self.changes_tools = self.changes_tools or bool(message.tools_added or message.tools_removed)
        if self._profile.changes:
            self._system += [*self._tool_changes(message), *([_text(told)] if told else [])]
        elif told:
            self._say(_text(f"<system_update>\n{told}\n</system_update>"))

    def _tool_changes(self, message: SystemMessage) -> list[Wire]:
        """Withdrawn tools by name, new ones by value, so that the list at the top stays as it is.

        Only what is offered can be withdrawn, and only what is not can be added: a redefined tool is both.
        """
        added = {tool.name: tool for tool in message.tools_added or ()}
        named = dict.fromkeys([*(tool.name for tool in message.tools_removed or ()), *added])
        removed = [name for name in named if name in self._offered]
        self._offered = (self._offered - set(removed)) | added.keys()
        return [
            *({"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}} for name in removed),
            *(
                {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": _tool(tool)}}
                for tool in added.values()
            ),
        ]

    def _result(self, result: Result) -> Wire:
        content = [block for block in result.content if not (result.is_error and isinstance(block, Image))]
        wire: Wire = {"type": "tool_result", "tool_use_id": result.id}
        wire["content"] = self._content(content) or [_text(NO_OUTPUT)]
        return {**wire, "is_error": True} if result.is_error else wire

    def _moved_images(self, result: Result) -> list[Wire]:
        return self._content(block for block in result.content if result.is_error and isinstance(block, Image))

    def _content(self, content: Iterable[Content]) -> list[Wire]:
        return [self._image(block) if isinstance(block, Image) else _text(block.text) for block in content]

    def _image(self, image: Image) -> Wire:
        if not self._profile.images:
            return _text("(picture left out: the model cannot see pictures)")
        if image.mime_type not in _IMAGE_TYPES or not image.data:
            return _text(f"(picture left out: {image.mime_type or 'its type'} cannot be shown)")
        source = {"type": "base64", "media_type": image.mime_type, "data": image.data}
        return {"type": "image", "source": source}


def render_blocks(content: list[Block], *, own: bool, paused: bool = False) -> list[Wire]:
    """The blocks of a model's message; what the provider added to them only when they are the model's own.

    A server's own tool call without its result is left out, unless the turn is paused and shall be continued.
    """
    answered = {data.get("tool_use_id") for block in content if (data := _opaque(block))}
    wires = [wire for block in content if (wire := _block(block, own=own))]
    return [wire for wire in wires if paused or wire["type"] not in _SERVER_CALLS or wire.get("id") in answered]


def _block(block: Block, *, own: bool) -> Wire | None:
    """The wire form of a block; None when it cannot be sent."""
    added = block.provider_data if own and isinstance(block.provider_data, dict) else {}
    match block:
        case Text():
            return _joined(_text(block.text), added)
        case ToolCall():
            call = {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
            return _joined(call, added)
        case Thinking(redacted=True):
            return _joined({"type": "redacted_thinking"}, added) if added.get("data") else None
        case Thinking():
            # Without its signature (an interrupted stream) thinking is refused.
            thinking = {"type": "thinking", "thinking": block.thinking}
            return _joined(thinking, added) if added.get("signature") else None
        case Opaque():
            return _opaque(block)
    return None


def _joined(wire: Wire, added: Wire) -> Wire:
    """A block's own fields, which win, then what the provider added to them, in the order it came."""
    return {**wire, **{key: value for key, value in added.items() if key not in wire}}


def _opaque(block: Block) -> Wire | None:
    return block.data if isinstance(block, Opaque) and isinstance(block.data, dict) and "type" in block.data else None


def _without_last_thinking(blocks: list[Wire]) -> list[Wire]:
    end = len(blocks)
    while end and blocks[end - 1]["type"] in _THINKING:
        end -= 1
    return blocks[:end]


def _tool(tool: ToolSpec) -> Wire:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _with_betas(headers: dict[str, str], betas: list[str]) -> dict[str, str]:
    """The headers of a request, with these features beside those that it asks for itself."""
    asked = [headers["anthropic-beta"]] if "anthropic-beta" in headers else []
    return {**headers, "anthropic-beta": ",".join([*asked, *betas])} if betas else headers


def _thinking(request: ModelRequest, profile: Profile, max_tokens: int, *, may_think: bool) -> Wire:
    level = request.thinking_level
    if profile.thinking == "adaptive":
        return _adaptive(request, profile)
    if profile.thinking == "none" or level == "off" or not may_think:
        return {}
    budget = budget_of(level, max_tokens)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}


def _adaptive(request: ModelRequest, profile: Profile) -> Wire:
    wire: Wire = {}
    if request.thinking_level != "off":
        wire["thinking"] = {"type": "adaptive", "display": "summarized"}
        wire["output_config"] = {"effort": effort_of(request.thinking_level, profile.efforts)}
    if profile.binds:
        # These models think anyway. A compaction or an edit changes what stands before kept thinking; the server
        # shall then drop the thinking, not the request.
        binding = {"prefix_mismatch_behavior": "drop_block"}
        wire["thinking"] = {"type": "adaptive", **wire.get("thinking", {}), "block_binding": binding}
    return wire


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}
