"""``edit``: exact text for exact text in a file. Proved by tests/actors/tools/test_edit.py.

Replaced text must stand in the file exactly once. Line ends and a byte-order mark are the file's own business: the model
sees and gives LF, and the file keeps what it has.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from ...chord import PerdureError
from ...storage.records import JsonObject
from ..agent.tool import Tool, ToolResult
from ..agent.toolcontext import ToolContext
from .diffs import Change, apply, first_line, unified
from .environment import Environment, FileError
from .places import EnvironmentOf, environment_of
from .queues import turn
from .write import file_key

MAX_HINTED = 500
"""Words of a text that is looked for again without regard to white space."""


class EditRefused(PerdureError, ValueError):
    """An edit does not say exactly one place, or changes nothing. The file is as it was."""


@dataclass(frozen=True)
class Edit:
    """One replacement.

    Attributes:
        oldText: Text that stands in the file exactly once.
        newText: What to put in its place.
    """

    oldText: str  # noqa: N815  (as models know it)
    newText: str  # noqa: N815


class EditTool(Tool):
    """The tool; it takes the edits in each form that models have been seen to give them in."""

    def validate(self, arguments: JsonObject) -> dict[str, Any]:
        """Give the arguments as the function takes them. Raises InvalidArguments."""
        return super().validate(in_order(arguments))


def edit_tool(where: Environment | EnvironmentOf) -> Tool:
    """Make the tool."""

    async def edit(ctx: ToolContext, path: str, edits: list[Edit]) -> ToolResult:
        """Edit a text file by exact replacement.

        Each oldText must occur exactly once in the file as it is now, and they must not overlap.

        Args:
            path: The file, absolute or below the working directory.
            edits: The replacements, all of the same state of the file.
        """
        environment = await environment_of(where, ctx)
        async with turn(await file_key(environment, path)):
            before = await environment.read_bytes(path)
            after, text, changes = edited(path, before, edits)
            await environment.write(path, after)
        details = {"path": path, "diff": unified(text, changes), "firstChangedLine": first_line(text, changes)}
        return ToolResult(content=f"Replaced {len(edits)} block(s) in {path}", details=details)

    return EditTool(edit)


def in_order(arguments: JsonObject) -> JsonObject:
    """Give arguments in their proper form: edits as a list, whether they came as JSON text, as one object, or on top."""
    given = dict(arguments)
    edits = given.get("edits")
    if isinstance(edits, str):
        edits = _parsed(edits)
    if isinstance(edits, dict):
        edits = [edits]
    if edits is None and "oldText" in given:
        edits = [{"oldText": given.pop("oldText"), "newText": given.pop("newText", None)}]
    return given if edits is None else {**given, "edits": edits}


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def edited(path: str, data: bytes, edits: Sequence[Edit]) -> tuple[bytes, str, list[Change]]:
    """Make the edits: the file's new bytes, its old text as edits see it, and what changed there. Raises EditRefused."""
    try:
        stored = data.decode("utf-8")
    except UnicodeDecodeError:
        raise FileError("invalid", path, "is not UTF-8 text, and an edit would damage it") from None
    text = _unix(stored)
    found = [_place(path, text, one, f"edit {number}") for number, one in enumerate(edits, 1)]
    changes = sorted(found, key=lambda change: change.start)
    _check(path, changes)
    new = apply(stored, _in_stored(stored, changes))
    return new.encode("utf-8", "replace"), text, changes


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _place(path: str, text: str, edit: Edit, which: str) -> Change:
    """Find the one place that an edit is about."""
    old, new = _unix(edit.oldText), _unix(edit.newText)
    if not old:
        raise EditRefused(f"{path}: the oldText of {which} is empty, so it is nowhere")
    if old == new:
        raise EditRefused(f"{path}: {which} would change nothing: oldText and newText are equal")
    start = text.find(old)
    if start < 0:
        raise EditRefused(f"{path}: the oldText of {which} does not occur.{_hint(text, old)}")
    second = text.find(old, start + 1)
    if second >= 0:
        lines = " and ".join(str(text.count("\n", 0, at) + 1) for at in (start, second))
        raise EditRefused(
            f"{path}: the oldText of {which} occurs more than once (lines {lines}); give more of the text around it"
        )
    return Change(start, start + len(old), new)


def _hint(text: str, old: str) -> str:
    words = old.split()
    if not words or len(words) > MAX_HINTED:
        return ""
    near = re.search(r"\s+".join(map(re.escape, words)), text)
    if near is None:
        return ""
    return f" Line {text.count(chr(10), 0, near.start()) + 1} differs from it in white space only, and that counts."


def _check(path: str, changes: Sequence[Change]) -> None:
    if not changes:
        raise EditRefused(f"{path}: there is no edit to make")
    for one, following in pairwise(changes):
        if following.start < one.end:
            raise EditRefused(f"{path}: two edits overlap; make them one")


def _in_stored(stored: str, changes: Sequence[Change]) -> list[Change]:
    """Turn places in the text with LF into places in the stored text, and new lines into lines as the file has them."""
    ends = [match.start() - number for number, match in enumerate(re.finditer("\r\n", stored))]
    windows = len(ends) * 2 > stored.count("\n")

    def moved(position: int) -> int:
        return position + bisect_left(ends, position)

    return [
        Change(moved(one.start), moved(one.end), one.replacement.replace("\n", "\r\n") if windows else one.replacement)
        for one in changes
    ]
