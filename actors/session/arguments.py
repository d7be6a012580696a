"""What user code hands in, checked where it is handed in.

A record that does not have its declared types can be stored but not read back, and a session that cannot read one of its
live records cannot be opened again. So nothing of the wrong type may get into a record.
Proved by tests/actors/session/test_arguments.py.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...chord import InvalidJson, copy_json, valid_text
from ...storage.records import MAX_ID, ContextEdit, Json, JsonObject
from .errors import InvalidValue

MAX_TIME_MS = 2**63 - 1


def plain(value: Any) -> Json:
    """Give a value that nobody else holds as strict JSON: structs as objects, tuples as lists. Raises InvalidJson."""
    try:
        built = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJson(f"no JSON can be made of this: {error}") from None
    try:
        return copy_json(built)
    except InvalidJson:
        return copy_json(_listed(built))


def _listed(value: Any) -> Any:
    """JSON knows lists only; msgspec gives them back as the tuples that a type asks for."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    return {key: _listed(item) for key, item in value.items()} if isinstance(value, dict) else value


def name(what: str, value: Any) -> str:
    """Give text that something is found by. Raises InvalidValue for anything else, half surrogates included."""
    if type(value) is not str or not (value.isascii() or valid_text(value) == value):
        raise InvalidValue(f"{what} must be valid text, got: {value!r}")
    return value


def text(what: str, value: Any) -> str:
    """Give text that somebody will read, made valid. Raises InvalidValue for what is no text."""
    if not isinstance(value, str):
        raise InvalidValue(f"{what} must be text, got: {value!r}")
    return valid_text(value)


def whole(what: str, value: Any) -> int:
    """Give a whole number that is not negative. Raises InvalidValue."""
    if type(value) is not int or not 0 <= value <= MAX_TIME_MS:
        raise InvalidValue(f"{what} must be a whole number from 0, got: {value!r}")
    return value


def reference(value: Any) -> int:
    """Give the id of a task that need not exist. Raises InvalidValue for what can be nobody's."""
    if type(value) is not int or not 0 < value <= MAX_ID:
        raise InvalidValue(f"a task's id is a whole number from 1 to {MAX_ID}, got: {value!r}")
    return value


def messages(model: Sequence[JsonObject]) -> list[JsonObject]:
    """Give detached messages for model context. Raises InvalidValue, InvalidJson."""
    copied = [copy_json(message) for message in model]
    if not all(type(message) is dict for message in copied):
        raise InvalidValue("model must be a sequence of JSON objects, one a message")
    return copied


def context_edits(edits: Iterable[ContextEdit]) -> list[ContextEdit]:
    """Give detached edits. Raises InvalidValue, InvalidJson."""
    try:
        return msgspec.convert(copy_json(msgspec.to_builtins(list(edits))), list[ContextEdit])
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue(f"edits must be ContextEdits: {error}") from error
