"""The system prompt as positional changes: what a transcript has shown, what is wanted, and the messages between them.

Only changes are sent, so that a longer request begins with the shorter one. Proved by tests/actors/agent/test_prompt.py.
"""

import inspect
from collections.abc import Sequence

import msgspec
import structlog

from ...chord import valid_text
from ...storage.records import ContextEdit
from ..conversation.builtin import SystemEntry
from ..conversation.context import ContextView
from ..models import Message, SystemMessage, ToolRef, ToolSpec, current_sections, current_tools
from .registry import PromptInput, Section

log = structlog.get_logger("perdure.agent")


async def render(sections: Sequence[Section], given: PromptInput, shown: dict[str, str]) -> dict[str, str]:
    """Render sections in order. One that raises keeps the text that was shown, if any, and is reported."""
    wanted: dict[str, str] = {}
    for section in sections:
        try:
            text = await _render(section, given)
        except Exception:
            log.exception("section_failed", session=given.session, section=section.key)
            text = shown.get(section.key)
        if text is not None:
            wanted[section.key] = text
    return wanted


async def _render(section: Section, given: PromptInput) -> str | None:
    text = section.render if isinstance(section.render, str) else section.render(given)
    if inspect.isawaitable(text):
        text = await text
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"a section is text, not {type(text).__name__}")
    text = valid_text(text)
    if not section.tag:
        return text
    return f"<{section.key}>\n{text}\n</{section.key}>"


class Change(msgspec.Struct, frozen=True):
    """A system entry to be written: what it says, if anything, and the earlier ones that no longer count."""

    message: SystemMessage | None
    edits: list[ContextEdit] = []


def wants_baseline(view: ContextView) -> bool:
    """Whether a head has cut the prompt away and none has been written since."""
    return view.head is not None and not any(
        entry.kind == SystemEntry.kind and entry.id > view.head.id for entry in view.entries
    )


def changes(view: ContextView, sections: dict[str, str], tools: Sequence[ToolSpec], now: int) -> list[Change]:
    """Decide which system entries lead from what a context shows to what is wanted.

    After a head that is one complete prompt, whatever parts of earlier ones the head has kept: those count no longer.
    """
    if not wants_baseline(view):
        return [Change(message) for message in plan(view.messages, sections, tools, now)]
    kept = [entry.id for entry in view.entries if entry.kind == SystemEntry.kind]
    wanted: dict[str, str | None] = dict(sections)
    complete = SystemMessage(sections=wanted or None, tools_added=list(tools) or None, timestamp=now)
    edits = [ContextEdit(target=entry, action="omit") for entry in kept]
    message = complete if sections or tools else None
    return [Change(message, edits)] if message or edits else []


def plan(
    messages: Sequence[Message], sections: dict[str, str], tools: Sequence[ToolSpec], now: int
) -> list[SystemMessage]:
    """Decide which system messages lead from what ``messages`` have shown to what is wanted; none when nothing changed."""
    planned = _plan_sections(current_sections(messages), sections)
    removed, added = _plan_tools(current_tools(messages), tools)
    if not removed and not added:
        return [SystemMessage(sections=change, timestamp=now) for change in planned]
    last = planned.pop() if planned else None
    changes = [SystemMessage(sections=change, timestamp=now) for change in planned]
    with_tools = SystemMessage(sections=last, tools_removed=removed or None, tools_added=added or None, timestamp=now)
    return [*changes, with_tools]


def _plan_sections(shown: dict[str, str], wanted: dict[str, str]) -> list[dict[str, str | None]]:
    """Patch values where order allows it; else take everything away and set it anew, in two messages."""
    change: dict[str, str | None] = {name: None for name in shown if name not in wanted}
    change |= {name: text for name, text in wanted.items() if shown.get(name) != text}
    if not change and list(shown) == list(wanted):
        return []
    kept = [name for name in shown if name in wanted]
    if [*kept, *(name for name in wanted if name not in shown)] == list(wanted):
        return [change]
    return [dict.fromkeys(shown), dict(wanted)]


def _plan_tools(shown: Sequence[ToolSpec], wanted: Sequence[ToolSpec]) -> tuple[list[ToolRef], list[ToolSpec]]:
    old, new = {tool.name: tool for tool in shown}, {tool.name: tool for tool in wanted}
    removed = [name for name in old if name not in new or old[name] != new[name]]
    added = [name for name in new if name not in old or old[name] != new[name]]
    if [*(name for name in old if name not in removed), *added] != list(new):
        removed, added = list(old), list(new)
    return [ToolRef(name=name) for name in removed], [new[name] for name in added]
