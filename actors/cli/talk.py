"""A conversation as text for a terminal: what was said, for good, and what goes on, to be drawn again and again.

Whatever comes from outside is shown without its control characters. Tests: tests/actors/cli/test_talk.py.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text

from ...storage.records import JsonObject

MOST_LINES = 6
"""How many lines of a tool's output are shown."""
MOST_ARGUMENTS = 200
FRAME = 6
"""Lines of the screen that are not for the text that streams."""


def plain(text: str) -> str:
    """Take out what could steer a terminal."""
    return "".join(one for one in text if one in "\n\t" or one.isprintable())


# --- what was said


def said(entry: JsonObject) -> Iterator[RenderableType]:
    """Show an entry; what says nothing to people gives nothing."""
    for message in entry.get("model") or ():
        if message["role"] == "user":
            yield Text(f"> {plain(_text(message['content']))}", "bold cyan")
        elif message["role"] == "assistant":
            yield from _answer(message)
        elif message["role"] == "toolResult":
            yield _result(message)


def _answer(message: JsonObject) -> Iterator[RenderableType]:
    for block in message["content"]:
        if block["type"] == "text" and block["text"].strip():
            yield Markdown(plain(block["text"]))
        elif block["type"] == "toolCall":
            yield _call(block["name"], block["arguments"])
    stop = message.get("stopReason")
    if stop in ("aborted", "error"):
        error = (message.get("error") or {}).get("message", "")
        yield Text(plain(f"({stop}{': ' if error else ''}{error})"), "red")


def _call(name: str, arguments: Any) -> Text:
    given = msgspec.json.encode(arguments).decode()
    return Text(plain(f"⚙ {name} {given[:MOST_ARGUMENTS]}{'…' if len(given) > MOST_ARGUMENTS else ''}"), "yellow")


def _result(message: JsonObject) -> Text:
    lines = plain(_text(message["content"])).splitlines()
    shown = lines[:MOST_LINES] + ([f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else [])
    return Text("\n".join(f"  {line}" for line in shown), "red" if message.get("isError") else "dim")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", f"({block['type']})") for block in content)


# --- what goes on


def waiting_call(view: JsonObject) -> JsonObject | None:
    """Give the first call that waits for approval."""
    slots: list[JsonObject] = view["docs"]["pi.live"].get("tools", [])
    return next((slot for slot in slots if slot.get("approval") and slot["status"] != "done"), None)


def busy(view: JsonObject) -> bool:
    """Whether a run is active."""
    return "run" in view["docs"]["pi.live"]


def going_on(view: JsonObject, line: str, notice: str, console: Console) -> RenderableType:
    """Show what streams and runs, what is queued, and the line that is being written; never more than a screen."""
    live = view["docs"]["pi.live"]
    parts: list[RenderableType] = [running(live, console)]
    parts += [Text(f"queued: {plain(_text(item['content']))[:80]}", "dim") for item in _queued(view)[:3]]
    if notice:
        parts.append(Text(plain(notice), "red"))
    parts.append(_prompt(view, line, console))
    return Group(*parts)


def running(live: JsonObject, console: Console) -> Group:
    """Show what streams and what tools say, as ``pi.live`` has it."""
    return Group(*_streaming(live, console), *_tools(live))


def _queued(view: JsonObject) -> list[JsonObject]:
    return [item for item in view["docs"]["pi.inbox"]["items"] if "content" in item]


def _streaming(live: JsonObject, console: Console) -> Iterator[Text]:
    generation = live.get("generation", {})
    if "retry" in generation:
        yield Text(plain(f"trying again: {generation['retry'].get('error', '')}"), "red")
    blocks = generation.get("message", {}).get("content", [])
    for kind, style in (("thinking", "dim italic"), ("text", "")):
        text = "".join(block.get(kind, "") for block in blocks if block["type"] == kind)
        if text and not (kind == "thinking" and any(block["type"] == "text" for block in blocks)):
            yield _tail(Text(plain(text), style), console)


def _tail(text: Text, console: Console) -> Text:
    """Give the newest lines, as many as a screen has room for."""
    lines = text.wrap(console, console.width)
    return Text("\n").join(lines[-max(3, console.height - FRAME - 2 * MOST_LINES) :])


def _tools(live: JsonObject) -> Iterator[Text]:
    for slot in live.get("tools", ())[:MOST_LINES]:
        if slot["status"] == "running" and slot.get("output"):
            yield Text("\n".join(f"  {plain(one)}" for one in slot["output"].splitlines()[-2:]), "dim")


def _prompt(view: JsonObject, line: str, console: Console) -> Text:
    asked = waiting_call(view)
    if asked is not None and not line:
        arguments = msgspec.json.encode(asked["approval"]["arguments"]).decode()
        return Text(plain(f"⚠ {asked['name']} {arguments[:MOST_ARGUMENTS]}: let it run? [y/n] "), "bold yellow")
    hint = "…" if busy(view) else ">"
    room = max(10, console.width - 4)
    return Text.assemble((f"{hint} ", "bold green"), plain(line).replace("\n", "⏎")[-room:], ("▏", "bold green"))
