"""From what a tool returned, raised or left behind to the result message that the model reads. Pure.

Proved by tests/actors/agent/test_results.py.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...chord import PerdureError
from ...chord.text import is_unicode
from ...storage.records import Json
from ..conversation.builtin import Diagnostic
from ..models import Content, Image, Text, ToolResultMessage, Usage, text
from ..models.images import checked as checked_image
from ..session.errors import InvalidValue
from .errors import ToolTimeout
from .output import Bounded, OutputLimits, bound, clean, storable
from .tool import ToolResult

NO_OUTPUT = "(no output)"
TRUNCATED = "truncated"
"""The code of the remark that something of the output is missing."""
MAX_REMARK = 8_000
"""Characters of one diagnostic: bounds on output never cut diagnostics."""


class Draft(msgspec.Struct, kw_only=True):
    """A result in the making."""

    content: list[Content]
    is_error: bool = False
    details: Json = None
    diagnostics: list[Diagnostic]
    usage: Usage | None = None
    add_tools: Sequence[str] = ()
    terminate: bool = False
    handoff: str | None = None
    failed: bool = False
    """Whether the call's task ends failed, which cancels what it owns: nobody supervises that any more."""


def remark(code: str, message: str, severity: Any = "error") -> Diagnostic:
    """Make a diagnostic of the library's own."""
    return tidy({"severity": severity, "message": message, "code": code})


def tidy(given: Diagnostic) -> Diagnostic:
    """Make a diagnostic storable. Raises InvalidValue for what is none."""
    try:
        checked = msgspec.convert(given, Diagnostic)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"this is no diagnostic: {error}") from None
    tidied: Diagnostic = {"severity": checked["severity"], "message": clean(checked["message"])[:MAX_REMARK]}
    if "code" in checked:
        tidied["code"] = clean(checked["code"])
    return tidied


def returned(
    value: Any, shown: Bounded, details: Json, diagnostics: Iterable[Diagnostic], limits: OutputLimits
) -> Draft:
    """Make the result of a tool that returned. Raises for a value without a JSON form, or a ToolResult of wrong types."""
    result = as_returned(value)
    remarks = [*diagnostics, *map(tidy, result.diagnostics)]
    content: list[Content]
    if result.content is None:
        content, dropped = ([text(shown.text)] if shown.text else []), shown
    elif isinstance(result.content, str):
        dropped = bound(clean(result.content), limits)
        content = [text(dropped.text)]
    else:
        content, dropped = _bound_blocks(result.content, limits)
    if dropped.truncated:
        remarks.append(_truncated(dropped, limits))
    return Draft(
        content=content,
        is_error=result.is_error,
        details=details if result.details is None else result.details,
        diagnostics=remarks,
        usage=result.usage,
        add_tools=result.add_tools,
        terminate=result.terminate,
        handoff=result.handoff,
    )


def as_returned(value: Any) -> ToolResult:
    """Give what a tool returned as a whole result. Raises as ``returned``."""
    return checked(value) if isinstance(value, ToolResult) else ToolResult(content=_content(value))


def checked(result: ToolResult) -> ToolResult:
    """Check the fields' types and the pictures: what is stored must be readable for good, by every provider. Raises."""
    said = result.content
    if type(said) is str and result == ToolResult(content=said):  # made anew: what is equal to False need not be False
        return ToolResult(content=said if is_unicode(said) else clean(said))
    read = msgspec.convert(storable(result), ToolResult)
    if not isinstance(read.content, list):
        return read
    content = [checked_image(block) if isinstance(block, Image) else block for block in read.content]
    return msgspec.structs.replace(read, content=content)


def over(slot: dict[str, Any], result: ToolResult, limits: OutputLimits) -> Draft:
    """Make the result of a call that was completed from outside, over what it had durably shown (its ``slot``)."""
    shown = Bounded(slot.get("output", ""), slot.get("droppedBytes", 0), slot.get("droppedLines", 0))
    return returned(result, shown, slot.get("details"), slot.get("diagnostics", ()), limits)


def as_result(draft: Draft) -> ToolResult:
    """Give a result in the making as a tool would return it, for hooks to look at."""
    return ToolResult(
        content=draft.content,
        details=draft.details,
        is_error=draft.is_error,
        diagnostics=draft.diagnostics or (),
        usage=draft.usage,
        add_tools=draft.add_tools,
        terminate=draft.terminate,
        handoff=draft.handoff,
    )


def rewritten(draft: Draft, result: ToolResult, limits: OutputLimits) -> Draft:
    """Take over what hooks have made of ``as_result(draft)``. What they left alone stays as it is, over ``limits`` too."""
    remarks = list(map(tidy, result.diagnostics))
    content = draft.content
    if result.content is not None and result.content != draft.content:
        blocks = [text(result.content)] if isinstance(result.content, str) else result.content
        content, dropped = _bound_blocks(list(blocks), limits)
        remarks = [one for one in remarks if one.get("code") != TRUNCATED]
        remarks += [_truncated(dropped, limits)] if dropped.truncated else []
    return msgspec.structs.replace(
        draft,
        content=content,
        details=result.details,
        is_error=result.is_error,
        diagnostics=remarks,
        usage=result.usage,
        add_tools=result.add_tools,
        terminate=result.terminate,
        handoff=result.handoff,
    )


def _content(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    return msgspec.json.encode(storable(value)).decode()


def _bound_blocks(blocks: list[Content], limits: OutputLimits) -> tuple[list[Content], Bounded]:
    """Text over the limits is joined, bounded and put where its first block stood; pictures stay."""
    joined = "".join(clean(block.text) for block in blocks if isinstance(block, Text))
    kept = bound(joined, limits)
    if not kept.truncated:
        return [text(clean(block.text)) if isinstance(block, Text) else block for block in blocks], kept
    pictures: list[Content] = [block for block in blocks if isinstance(block, Image)]
    return [text(kept.text), *pictures], kept


def _truncated(dropped: Bounded, limits: OutputLimits) -> Diagnostic:
    side = "beginning" if limits.retain == "head" else "end"
    message = (
        f"Output truncated to its {side}: {dropped.dropped_lines:,} lines, {dropped.dropped_bytes:,} bytes dropped"
    )
    return remark(TRUNCATED, message, "warn")


def error(code: str, message: str, slot: dict[str, Any] | None = None, *, failed: bool = False) -> Draft:
    """Make an error result of the library's own, with what the call had durably shown before."""
    shown = slot or {}
    said: list[Content] = [text(shown["output"])] if shown.get("output") else []
    diagnostics = [*shown.get("diagnostics", ()), remark(code, message)]
    if shown.get("droppedBytes"):
        dropped = f"{shown.get('droppedLines', 0):,} lines, {shown['droppedBytes']:,} bytes dropped"
        diagnostics.insert(-1, remark(TRUNCATED, f"Output truncated: {dropped}", "warn"))
    return Draft(content=said, is_error=True, details=shown.get("details"), diagnostics=diagnostics, failed=failed)


def raised(
    name: str, problem: BaseException, shown: Bounded, details: Json, diagnostics: Iterable[Diagnostic]
) -> Draft:
    """Make the result of a tool that raised, or that returned what has no JSON form."""
    said = _text_of(problem)
    message = said if isinstance(problem, PerdureError) and said else f"{type(problem).__name__}: {said}".rstrip(": ")
    slot = {"output": shown.text, "details": details, "diagnostics": list(diagnostics)}
    if isinstance(problem, ToolTimeout):
        return error("timeout", f"Tool {name} {message}", slot, failed=True)
    return error("tool_error", f"Tool {name} failed: {message}", slot, failed=True)


def _text_of(problem: BaseException) -> str:
    try:
        return clean(str(problem)).strip()[:4_000]
    except Exception:  # noqa: BLE001  (an exception that cannot say what it is about)
        return ""


def message(draft: Draft, call_id: str, name: str, now: int, duration_ms: int | None = None) -> ToolResultMessage:
    """Make the message: bounded content, then the diagnostics as one last text item, so bounds never cut them."""
    content = [block for block in draft.content if not isinstance(block, Text) or block.text.strip()]
    if draft.diagnostics:
        lines = [f"[{one['severity']}] {one['message']}" for one in draft.diagnostics]
        content.append(text("\n".join(["<harness>", *lines, "</harness>"])))
    return ToolResultMessage(
        tool_call_id=call_id,
        tool_name=name,
        content=content or [text(NO_OUTPUT)],
        details=draft.details,
        is_error=draft.is_error,
        usage=draft.usage,
        timestamp=now,
        duration_ms=duration_ms,
    )
