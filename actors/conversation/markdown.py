"""A transcript's entries as Markdown, for people. Pure; takes stored records, whoever wrote them.

Whatever was said stands in fences longer than any run of backticks in it, so that no content can end its fence, open a
heading or hide what follows. Proved by tests/actors/conversation/test_export.py.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ...storage.records import ConversationRecord, EntryRecord, JsonObject

TITLES = {"user": "User", "assistant": "Assistant", "toolResult": "Tool result", "system": "System"}
SUMMARY = "pi.compaction"


def heading(session: str, conversation: ConversationRecord) -> str:
    """Begin the document: which conversation it is, and where it comes from."""
    lines = [f"# Conversation {conversation.id} of session {inline(session)}\n"]
    if conversation.parent is not None:
        parent = conversation.parent
        lines.append(f"A fork of conversation {parent.conversation_id} after entry {parent.at}.\n")
    if conversation.owner is not None:
        owner = conversation.owner
        lines.append(f"Owned by task {owner.task_id} of conversation {owner.conversation_id}.\n")
    return "\n".join(lines)


def markdown(entry: EntryRecord) -> str:
    """Write one entry, with an empty line before it."""
    return "\n" + "\n".join(_parts(entry))


def fenced(text: str, language: str = "text") -> str:
    """Put text into a fence that it cannot end."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}\n"


def inline(text: str) -> str:
    """Put a name into a code span that it cannot end, on one line."""
    flat = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    tick = "`" * (_longest_run(flat) + 1)
    return f"{tick} {flat} {tick}" if "`" in flat or not flat else f"`{flat}`"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _parts(entry: EntryRecord) -> Iterator[str]:
    if entry.kind == SUMMARY:
        yield f"## Summary (entry {entry.id})\n"
        yield f"It takes the place of everything before entry {entry.head} in the model's context.\n"
    elif not entry.model:
        yield f"## {inline(entry.kind)} (entry {entry.id})\n"
    for message in entry.model or ():
        if entry.kind != SUMMARY:
            yield _title(entry, message)
        yield from _message(message)
    if not entry.model and entry.data is not None:
        yield fenced(_json(entry.data), "json")
    for edit in entry.edits or ():
        done = "Left out" if edit.action == "omit" else "Replaced"
        yield f"{done} from here on: entry {edit.target}.\n"


def _title(entry: EntryRecord, message: JsonObject) -> str:
    role = str(message.get("role"))
    author = entry.data.get("author") if isinstance(entry.data, dict) else None
    who = f" {inline(_said(author))}" if role == "user" and author is not None else ""
    name = f" of {inline(str(message.get('toolName')))}" if role == "toolResult" else ""
    failed = ", an error" if message.get("isError") else ""
    return f"## {TITLES.get(role, inline(role))}{who}{name} (entry {entry.id}{failed})\n"


def _message(message: JsonObject) -> Iterator[str]:
    content = message.get("content")
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        yield from _block(block)
    for name, section in (message.get("sections") or {}).items():
        yield _folded(f"Section {inline(name)}", section) if section else f"Section {inline(name)} taken away.\n"
    for verb, tools in (("offered", message.get("toolsAdded")), ("withdrawn", message.get("toolsRemoved"))):
        if tools:
            yield f"Tools {verb}: {', '.join(inline(tool['name']) for tool in tools)}\n"
    if message.get("stopReason") in ("error", "aborted", "length"):
        yield f"*Ended: {message['stopReason']}.*\n"
    if message.get("error"):
        yield fenced(_said(message["error"].get("message", "")))


def _block(block: JsonObject) -> Iterator[str]:
    match block.get("type"):
        case "text":
            if block["text"].strip():
                yield fenced(block["text"], "markdown")
        case "thinking":
            yield _folded("Thinking", block["thinking"]) if block["thinking"] else "*(hidden thinking)*\n"
        case "image":
            yield f"*(image {inline(str(block.get('mimeType')))}, {len(block.get('data', '')) * 3 // 4} bytes)*\n"
        case "toolCall":
            yield f"Calls {inline(block['name'])} as {inline(block['id'])}:\n"
            yield fenced(_json(block.get("arguments")), "json")
        case other:
            yield f"*(a block of type {inline(str(other))})*\n"


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{_escaped(summary)}</summary>\n\n{fenced(text)}\n</details>\n"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _said(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()
