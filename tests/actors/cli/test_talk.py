import io

from perdure.actors.cli import talk
from rich.console import Console


def shown(*parts, width=60, height=24):
    console = Console(file=io.StringIO(), width=width, height=height, highlight=False)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


def view(live=None, items=(), entries=()):
    return {"entries": list(entries), "docs": {"pi.live": live or {}, "pi.inbox": {"items": list(items)}}}


def drawn(value, line="", notice="", height=24):
    console = Console(file=io.StringIO(), width=60, height=height, highlight=False)
    console.print(talk.going_on(value, line, notice, console))
    return console.file.getvalue()


def entry(**message):
    return {"id": 1, "kind": "x", "model": [message]}


def test_what_was_said_is_shown():
    assert shown(*talk.said(entry(role="user", content="hello"))) == "> hello\n"
    blocks = [
        {"type": "text", "text": "**Well**"},
        {"type": "toolCall", "id": "c", "name": "pay", "arguments": {"a": 1}},
    ]
    said = shown(*talk.said(entry(role="assistant", content=blocks, stopReason="toolUse")))
    assert "Well" in said
    assert '⚙ pay {"a":1}' in said
    result = entry(role="toolResult", content=[{"type": "text", "text": "\n".join(map(str, range(20)))}], isError=False)
    assert "… 14 more lines" in shown(*talk.said(result))
    stopped = entry(role="assistant", content=[], stopReason="error", error={"message": "overloaded"})
    assert shown(*talk.said(stopped)) == "(error: overloaded)\n"
    assert list(talk.said({"id": 1, "kind": "note"})) == []
    assert list(talk.said(entry(role="system", sections={}))) == []


def test_what_comes_from_outside_cannot_steer_the_terminal():
    """B187."""
    evil = "a\x1b[2J\x1b]0;title\x07\x9b31m\u202eb"
    texts = [
        shown(*talk.said(entry(role="user", content=evil))),
        shown(*talk.said(entry(role="assistant", content=[{"type": "text", "text": evil}], stopReason="stop"))),
        shown(*talk.said(entry(role="toolResult", content=[{"type": "text", "text": evil}], isError=True))),
        drawn(
            view({"tools": [{"name": evil, "status": "pending", "approval": {"arguments": {"x": evil}, "hash": "h"}}]})
        ),
        drawn(view({"tools": [{"name": "t", "status": "running", "output": evil}]})),
        drawn(view({"generation": {"message": {"content": [{"type": "text", "text": evil}]}}}), line=evil, notice=evil),
        drawn(view(items=[{"id": 1, "mode": "steer", "content": evil}])),
    ]
    for one in texts:
        assert not set(one) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_however_much_streams_the_line_that_is_written_is_on_the_screen():
    streaming = view({"run": {}, "generation": {"message": {"content": [{"type": "text", "text": "word " * 5_000}]}}})
    lines = drawn(streaming, line="stop", height=24).splitlines()
    assert len(lines) <= 24
    assert lines[-1] == "… stop▏"


def test_a_call_that_waits_for_approval_is_asked_about():
    slot = {"name": "pay", "status": "running", "approval": {"arguments": {"amount": 5}, "hash": "h"}}
    assert '⚠ pay {"amount":5}: let it run? [y/n]' in drawn(view({"tools": [slot]}))
    assert "let it run" not in drawn(view({"tools": [slot | {"status": "done"}]}))
