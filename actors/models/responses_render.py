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
from typing import Any, TypeAlias

from .chat_render import GO_ON, NO_OUTPUT, data_url, vendor_options
from .messages import Block, Content, Image, Opaque, SystemMessage, Text, Thinking, ToolCall, ToolSpec
from .openai_profile import OpenAIProfile, reasoning_effort
from .repair import arguments_text
from .request import ModelRequest, current_tools, system_update
from .tokens import answer_room
from .turns import Identity, ModelTurn, Result, ResultsTurn, SystemTurn, Transcript, Turn, UserTurn, arrange

Item: TypeAlias = dict[str, Any]

_LEAST_OUTPUT = 16
"""The vendor refuses less as `max_output_tokens`."""


def render_responses_request(request: ModelRequest, model: Identity, profile: OpenAIProfile) -> dict[str, Any]:
    """The arguments of `responses.create` for a request."""
    transcript = arrange(request.messages, model)
    in_place = profile.vendor and _only_adds(transcript)
    tools = transcript.tools if in_place else current_tools(request.messages)
    limit = answer_room(request, window=profile.context_window, limit=profile.max_tokens)
    body: dict[str, Any] = {
        "model": model.id,
        "input": render_items(transcript.turns, profile, tools_in_place=in_place),
        "max_output_tokens": max(_LEAST_OUTPUT, limit),
        "store": False,
    }
    effort = reasoning_effort(request.thinking_level)
    optional: dict[str, Any] = {
        "instructions": transcript.system,
        "tools": [_tool(tool) for tool in tools],
        "include": ["reasoning.encrypted_content"] if profile.reasons else None,
        "reasoning": {"effort": effort, "summary": "auto"} if effort and profile.reasons else None,
        "extra_headers": {**_affinity(request, profile), **request.headers},
        **vendor_options(request, profile),
    }
    return {**body, **{key: value for key, value in optional.items() if value}}


def render_items(turns: Iterable[Turn], profile: OpenAIProfile, *, tools_in_place: bool) -> list[Item]:
    """The turns as input items, ready to be answered."""
    items: list[Item] = []
    for turn in turns:
        match turn:
            case UserTurn():
                items.append({"role": "user", "content": _parts(turn.content, profile)})
            case ResultsTurn():
                items += [_result(result, profile) for result in turn.results]
            case SystemTurn():
                items += _change(turn.message, profile, tools_in_place=tools_in_place)
            case ModelTurn():
                said = _model_items(turn)
                items += _nudge(items) if said else []
                items += said
    return [*items, *_nudge(items)]


def _nudge(items: list[Item]) -> list[Item]:
    """A word of the user, where nothing was said to the model since it spoke last."""
    last = next((item for item in reversed(items) if item.get("role") != "developer"), None)
    if last is not None and (last.get("role") == "user" or last.get("type") == "function_call_output"):
        return []
    return [{"role": "user", "content": [{"type": "input_text", "text": GO_ON}]}]


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


def _change(message: SystemMessage, profile: OpenAIProfile, *, tools_in_place: bool) -> list[Item]:
    told, items = system_update(message), []
    if tools_in_place and message.tools_added:
        tools = [_tool(tool) for tool in message.tools_added]
        items.append({"type": "additional_tools", "role": "developer", "tools": tools})
    if told and profile.vendor:
        items.append({"role": "developer", "content": told})
    elif told:
        parts = [{"type": "input_text", "text": f"<system_update>\n{told}\n</system_update>"}]
        items.append({"role": "user", "content": parts})
    return items


def _only_adds(transcript: Transcript) -> bool:
    """Whether later tool changes are additions of new names only, the one kind that can be told in place."""
    known = {tool.name for tool in transcript.tools}
    for turn in transcript.turns:
        if not isinstance(turn, SystemTurn):
            continue
        added = [tool.name for tool in turn.message.tools_added or ()]
        if turn.message.tools_removed or known & set(added) or len(set(added)) < len(added):
            return False
        known.update(added)
    return True


def _parts(content: Iterable[Content], profile: OpenAIProfile) -> list[Item]:
    return [_image(block, profile) if isinstance(block, Image) else _input_text(block.text) for block in content]


def _image(image: Image, profile: OpenAIProfile) -> Item:
    if not profile.images or not image.data:
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
