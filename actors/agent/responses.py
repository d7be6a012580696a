"""What a model sent, made sure to be read again when it has been stored: models may be anybody's code.

What cannot be stored becomes an error message with what can be kept of it. Proved by
tests/actors/agent/test_responses.py.
"""

from typing import Any

import msgspec

from ...chord import PerdureError, copy_json, valid_text
from ..models import AssistantMessage, Block, ErrorInfo, ErrorKind, Model, Partial, ToolCall
from ..models.errors import MAX_MESSAGE
from ..models.repair import valid_json

UNSTORABLE = (PerdureError, msgspec.ValidationError, TypeError, ValueError, RecursionError, AttributeError)
"""What turning somebody's objects into JSON and back raises when that cannot be."""
JUDGED = ("content", "stop_reason", "error", "deferred")
"""Fields that an error message has of its own."""


def storable(message: Any, shown: AssistantMessage, model: Model) -> AssistantMessage:
    """Give a final message as it will be read again; text made valid.

    One that could not be read again becomes an error of kind ``malformed`` with those of its fields and blocks that
    can, or else with what was ``shown`` before it. The model's adapter is wrong, so asking again would not help.
    """
    try:
        read: AssistantMessage = _again(message, AssistantMessage)
    except UNSTORABLE as error:
        failed = _failed(message, model, "malformed", f"The model's answer cannot be stored: {said(error)}")
        return failed if failed.content else msgspec.structs.replace(failed, content=_blocks(shown))
    return read


def broken_off(partial: Partial, model: Model, error: BaseException) -> AssistantMessage:
    """Make the error message of a stream that raised, in spite of its contract, with what had come by then."""
    try:
        message = partial.message()
    except UNSTORABLE:
        message = AssistantMessage(content=[])
    return _failed(message, model, "unknown", f"The model failed: {said(error)}")


def unique_calls(message: AssistantMessage) -> AssistantMessage:
    """Give every call of a message an id of its own, since some servers repeat them or send none."""
    seen: set[str] = set()
    content: list[Any] = []
    for index, block in enumerate(message.content):
        own = block
        if isinstance(own, ToolCall):
            if not own.id or own.id in seen:
                own = msgspec.structs.replace(own, id=f"{own.id or 'call'}-{index}")
            seen.add(own.id)
        content.append(own)
    return msgspec.structs.replace(message, content=content)


def check_partial(message: AssistantMessage) -> None:
    """Refuse a partial that could not be read again once it is shown. Raises msgspec.ValidationError, TypeError."""
    msgspec.convert(msgspec.to_builtins(message), AssistantMessage)


def said(error: BaseException) -> str:
    """Give an exception's class and words, as far as it has any."""
    try:
        words = valid_text(str(error))
    except Exception:  # noqa: BLE001  (an exception that cannot say what it is about)
        words = ""
    return f"{type(error).__name__}: {words}".rstrip(": ")


def failure_text(message: AssistantMessage) -> str:
    """Say why a message is no answer."""
    return message.error.message if message.error is not None else f"the model stopped: {message.stop_reason}"


def _failed(message: Any, model: Model, kind: ErrorKind, reason: str) -> AssistantMessage:
    given: Any = message if isinstance(message, AssistantMessage) else AssistantMessage(content=[])
    kept: dict[str, Any] = {"api": model.api, "provider": model.provider, "model": model.id}
    for field in msgspec.structs.fields(AssistantMessage):
        value = getattr(given, field.name)
        if field.name not in JUDGED and value != "" and (read := _kept(value, field.type)) is not None:
            kept[field.name] = read
    error = ErrorInfo(kind=kind, message=reason[:MAX_MESSAGE])
    return AssistantMessage(**{**kept, "content": _blocks(given), "stop_reason": "error", "error": error})


def _blocks(message: AssistantMessage) -> list[Block]:
    blocks: Any = message.content
    given = blocks if isinstance(blocks, list | tuple) else ()
    return [read for block in given if (read := _kept(block, Block)) is not None]


def _kept(value: Any, kind: Any) -> Any:
    try:
        return _again(value, kind)
    except UNSTORABLE:
        return None


def _again(value: Any, kind: Any) -> Any:
    """Give what reading the stored value will give. Raises one of UNSTORABLE."""
    return msgspec.convert(copy_json(valid_json(msgspec.to_builtins(value))), kind)
