"""From a request to the body of a Chat Completions call. Pure.

The protocol has only strings for calls' arguments and results, so pictures in results follow in a user message. The
text of arguments is sent as the model wrote it, byte for byte, since caches go by the exact text.
"""

from collections.abc import Iterable
from copy import copy
from typing import Any, Self, TypeAlias

from .growing import Branch
from .messages import Content, Image, SystemMessage, Text, Thinking, ToolCall, ToolSpec, plain_text
from .openai_profile import IMAGE_TYPES, OpenAIProfile, reasoning_effort
from .repair import arguments_text
from .request import ModelRequest, current_tools, system_update
from .tokens import answer_room
from .turns import Identity, ModelTurn, Result, ResultsTurn, SystemTurn, Turn, UserTurn, arrange

Wire: TypeAlias = dict[str, Any]

ID_LENGTH = 40
"""The vendor's limit on call ids in this protocol."""

NO_OUTPUT = "(no output)"
"""Content of a result that has none."""

GO_ON = "Continue."
"""Said for the user where the protocol wants a user message and the transcript has none."""

_CACHE_KEY_LENGTH = 64


def render_chat_request(request: ModelRequest, model: Identity, profile: OpenAIProfile) -> Wire:
    """The arguments of `chat.completions.create` for a request."""
    prompt, writer = arrange(request.messages, model, lambda _: _Writer(profile), key=profile, id_length=ID_LENGTH)
    limit = answer_room(request, window=profile.context_window, limit=profile.max_tokens)
    body: Wire = {
        "model": model.id,
        "messages": [*_prompt(prompt.text), *writer.finish()],
        "max_completion_tokens" if profile.vendor else "max_tokens": limit,
        "stream_options": {"include_usage": True},
    }
    optional: Wire = {
        "tools": [_tool(tool) for tool in current_tools(request.messages)],
        "reasoning_effort": reasoning_effort(request.thinking_level) if profile.reasons else None,
        "extra_headers": request.headers,
        **vendor_options(request, profile),
    }
    return {**body, **{key: value for key, value in optional.items() if value}}


def vendor_options(request: ModelRequest, profile: OpenAIProfile) -> Wire:
    """What only the vendor's own servers understand: cache affinity, and who the user is."""
    if not profile.vendor:
        return {}
    key = request.session_id[:_CACHE_KEY_LENGTH] if request.session_id else None
    return {"prompt_cache_key": key, "safety_identifier": request.metadata.get("user_id")}


class _Writer:
    """Writes turns down in order; no two user messages or model messages stand side by side."""

    def __init__(self, profile: OpenAIProfile) -> None:
        self._profile = profile
        self._messages: Branch[Wire] = Branch()
        self._said: list[Wire] = []
        """The parts of the user message that is not complete yet."""
        self._heard = False
        """Whether something was said to the model since it spoke last."""

    def fork(self) -> Self:
        """Go on with the tail of a view; see `turns.Writer`."""
        fork = copy(self)
        fork._messages, fork._said = self._messages.fork(), list(self._said)
        return fork

    def write(self, turn: Turn) -> None:
        """Take in the next turn."""
        match turn:
            case UserTurn():
                self._user(self._parts(turn.content))
            case ResultsTurn():
                self._results(turn.results)
            case SystemTurn():
                self._change(turn.message)
            case ModelTurn():
                self._model(turn)

    def finish(self) -> list[Wire]:
        """The wire messages, ready to be answered; nothing can be written any more."""
        self._await_model()
        return self._messages.whole()

    def _user(self, parts: list[Wire]) -> None:
        self._said += parts
        self._heard = self._heard or bool(parts)

    def _results(self, results: list[Result]) -> None:
        for result in results:
            self._add(_result(result))
        self._heard = True
        self._user(self._parts(image for result in results for image in _images(result.content)))

    def _model(self, turn: ModelTurn) -> None:
        message = _model_message(turn, self._profile)
        if message is not None:
            self._await_model()
            self._add(message)
            self._heard = False

    def _await_model(self) -> None:
        """A model message follows something said to it, never another one, and never nothing."""
        if not self._heard:
            self._user([_part(GO_ON)])
        self._end_user()

    def _add(self, message: Wire) -> None:
        self._end_user()
        self._messages.append(message)

    def _end_user(self) -> None:
        if self._said:
            self._messages.append({"role": "user", "content": _joined(self._said)})
            self._said = []

    def _change(self, message: SystemMessage) -> None:
        told = system_update(message)
        if not told:
            return
        if self._profile.vendor:
            self._add({"role": "system", "content": told})
        else:
            # The prompt templates of many open models refuse a system message that is not the first.
            self._user([_part(f"<system_update>\n{told}\n</system_update>")])

    def _parts(self, content: Iterable[Content]) -> list[Wire]:
        return [self._image(block) if isinstance(block, Image) else _part(block.text) for block in content]

    def _image(self, image: Image) -> Wire:
        if not self._profile.images or not image.data or image.mime_type not in IMAGE_TYPES:
            return _part("(picture left out: it cannot be shown)")
        return {"type": "image_url", "image_url": {"url": data_url(image)}}


def _model_message(turn: ModelTurn, profile: OpenAIProfile) -> Wire | None:
    calls = [_call(block, own=turn.own) for block in turn.content if isinstance(block, ToolCall)]
    said = plain_text(turn.content)
    if not said.strip() and not calls:
        return None
    message: Wire = {"role": "assistant", "content": said or None, **_reasoning(turn, profile, has_calls=bool(calls))}
    return {**message, "tool_calls": calls} if calls else message


def _reasoning(turn: ModelTurn, profile: OpenAIProfile, *, has_calls: bool) -> Wire:
    """The reasoning in the field it came in; empty where the server wants the field and there is none."""
    fields: Wire = {profile.reasoning_field: ""} if profile.reasoning_field and has_calls else {}
    for block in turn.content if turn.own else ():
        if isinstance(block, Thinking) and isinstance(block.provider_data, dict):
            if field := block.provider_data.get("field"):
                fields[field] = fields.get(field, "") + block.thinking
            if details := block.provider_data.get("reasoning_details"):
                fields["reasoning_details"] = [*fields.get("reasoning_details", []), *details]
    return fields


def _call(call: ToolCall, *, own: bool) -> Wire:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call, own=own)},
    }


def _result(result: Result) -> Wire:
    content = "\n".join(block.text for block in result.content if isinstance(block, Text))
    shown = "(see the picture below)" if _images(result.content) else NO_OUTPUT
    return {"role": "tool", "tool_call_id": result.id, "content": content or shown}


def _images(content: Iterable[Content]) -> list[Image]:
    return [block for block in content if isinstance(block, Image)]


def _joined(parts: list[Wire]) -> Any:
    """Text alone is sent as a string, which every server understands."""
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def _prompt(system: str) -> list[Wire]:
    return [{"role": "system", "content": system}] if system else []


def _tool(tool: ToolSpec) -> Wire:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _part(text: str) -> Wire:
    return {"type": "text", "text": text}


def data_url(image: Image) -> str:
    """A picture as a URL that holds it."""
    return f"data:{image.mime_type};base64,{image.data}"
