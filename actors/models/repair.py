"""Text and JSON from providers, made fit to be stored: valid Unicode, finite numbers, objects where objects belong.

Nothing is guessed. A call whose arguments cannot be read exactly is reported as such, since running a guess is worse
than asking the model again.
"""

import json
import math
import re
from typing import Any, NoReturn, cast

from msgspec.structs import replace

from ...chord import valid_text
from .messages import AssistantMessage, Block, ToolCall, from_json, to_json

MAX_DEPTH = 128
"""Deepest nesting of a call's arguments; far above real ones, and below what documents may nest."""

MAX_QUOTED = 2_000
"""Characters of unreadable arguments that are shown to the model again."""

_TEXT = "arguments"
"""Where a call's provider data keeps the text of its arguments."""

_ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|["\\/bfnrt]|)', re.DOTALL)


class TextJoiner:
    """Makes streamed text valid: a character whose UTF-16 halves arrive in two pieces is held until it is whole."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """The valid text that is complete with `piece`."""
        whole = self._half + piece
        self._half = whole[-1:] if "\ud800" <= whole[-1:] <= "\udbff" else ""
        return valid_text(whole[: len(whole) - len(self._half)])

    def end(self) -> str:
        """What is left over: nothing, or U+FFFD for a half that never met its other half."""
        half, self._half = self._half, ""
        return valid_text(half)


def fit(message: AssistantMessage) -> AssistantMessage:
    """The message made storable in all its parts, the provider's own objects, names and error texts too."""
    value = to_json(message)
    valid = valid_json(value)
    return message if valid == value else cast("AssistantMessage", from_json(valid))


def valid_json(value: Any) -> Any:
    """A copy of parsed JSON whose strings and keys are valid Unicode; numbers that JSON does not have become null."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [valid_json(item) for item in value]
    if isinstance(value, dict):
        return {valid_text(key): valid_json(item) for key, item in value.items()}
    return value


def read_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments in a call's complete JSON text, and why they cannot be used, if so (then they are empty).

    No text means no arguments. Repaired are raw control characters and escapes that JSON does not know, both of which
    models write in code and paths; nothing else is.
    """
    if not text.strip():
        return {}, None
    try:
        return _object(_load(text)), None
    except (ValueError, RecursionError) as error:
        return {}, unusable(f"The arguments are not a JSON object: {error}", text)


def canonical_arguments(block: Block, text: str) -> Block:
    """A finished call with the text of its arguments kept, where writing them down again would give another one."""
    if not isinstance(block, ToolCall) or text == _compact(block.arguments) or not _is_exact(text):
        return block
    added = block.provider_data or {}
    return replace(block, provider_data={**added, _TEXT: valid_text(text)})


def arguments_text(call: ToolCall, *, own: bool) -> str:
    """The arguments as JSON text: as the model wrote them when the call is its own, compact otherwise."""
    kept = call.provider_data.get(_TEXT) if own and isinstance(call.provider_data, dict) else None
    return kept if isinstance(kept, str) else _compact(call.arguments)


def cut_arguments(text: str) -> str:
    """Why a call that the token limit cut off cannot be used, for the model to read."""
    reason = f"The call was cut off by the limit on output tokens after {len(text)} characters of arguments"
    return unusable(f"{reason}. Ask again with shorter arguments, or in several calls", text)


def unusable(reason: str, text: str) -> str:
    """An `arguments_error`: the reason, and the text that the model sent, bounded."""
    quoted = valid_text(text[:MAX_QUOTED]) + ("..." if len(text) > MAX_QUOTED else "")
    return f"{reason}. Received: {quoted}"


def _compact(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)


def _is_exact(text: str) -> bool:
    """Whether the text is a JSON object without any repair."""
    try:
        return isinstance(json.loads(text, parse_constant=_refuse, parse_float=_finite), dict)
    except (ValueError, RecursionError):
        return False


def _load(text: str) -> Any:
    try:
        return _loads(text)
    except ValueError:
        return _loads(_ESCAPE.sub(_escaped, text))


def _loads(text: str) -> Any:
    # Not strict: raw control characters may stand in strings. Non-finite numbers are no JSON, though Python reads them.
    return json.loads(text, strict=False, parse_constant=_refuse, parse_float=_finite)


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[1] else r"\\"


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")  # noqa: TRY004  (reported, not raised)
    if _depth(value) > MAX_DEPTH:
        raise ValueError(f"expected at most {MAX_DEPTH} levels of nesting")
    valid: dict[str, Any] = valid_json(value)
    return valid


def _depth(value: Any) -> int:
    """Levels of containers, counted without recursion since the text decides how deep they go."""
    depth, level = 0, [value]
    while level:
        containers = [item for item in level if isinstance(item, dict | list)]
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
        depth += bool(containers)
    return depth
