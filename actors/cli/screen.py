"""Pictures as text: with colour and lines on a terminal, one plain line for each thing when piped."""

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from .picture import Conversation, Document, Session, SessionLine, Store, Task

PIPED_WIDTH = 10_000
"""Nothing wraps lines for a program that reads them."""
SNIPPET = 60


def console() -> Console:
    """Make the console of this process's output."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


HEADS = ("session", "seq", "last id", "wake", "live", "entries", "size", "created")


def show_list(store: Store, to: Console) -> None:
    """Print the store's line and a line for each session. Aligned by hand: there may be very many."""
    to.print(_store_line(store))
    rows = [HEADS, *map(_row, store.sessions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print("\n".join(_aligned(row, widths) for row in rows))  # noqa: T201 - what it is for


def _row(one: SessionLine) -> tuple[str, ...]:
    sizes, wake = one.sizes, "-" if one.wake is None else _when(one.wake)
    numbers = (one.seq, one.last_id, wake, sizes.live_tasks, sizes.entries, _bytes(sizes.bytes), _when(one.created_at))
    return _safe(one.key), *map(str, numbers)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    name, *numbers = row
    return "  ".join(
        [name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True))]
    )


def show_sessions(store: Store, to: Console) -> None:
    """Print the store's line and each session as a tree."""
    to.print(_store_line(store))
    for session in store.sessions:
        if isinstance(session, Session):
            to.print(_session(session))
    if not store.sessions:
        to.print("nothing is under way in any session")


def _store_line(store: Store) -> Text:
    owner = store.owner
    held = "no owner" if owner is None else f"owner: process {owner.pid} on {_safe(owner.host)}"
    sizes = store.sizes
    wake = "" if store.next_wake is None else f", next wake {_when(store.next_wake)}"
    return Text(f"{_safe(store.path)}: {_bytes(sizes.file_bytes)}, log {_bytes(sizes.wal_bytes)}, {held}{wake}")


def _session(session: Session) -> Tree:
    sizes = session.sizes
    wake = "" if session.wake is None else f", wake {_when(session.wake)}"
    head = f"seq {session.seq}, last id {session.last_id}{wake}, {sizes.entries} entries, {_bytes(sizes.bytes)}"
    head += f", {session.outgoing} outgoing" if session.outgoing else ""
    head += f", {session.dead_letters} dead letters" if session.dead_letters else ""
    tree = Tree(Text.assemble("session ", (_safe(session.key), "bold"), f"  {head}"))
    _add_documents(tree, session.documents)
    for conversation in session.conversations:
        _add_conversation(tree, conversation)
    return tree


def _add_conversation(tree: Tree, one: Conversation) -> None:
    fork = "" if one.parent is None else f" (fork of {one.parent.conversation_id} at {one.parent.at})"
    owner = "" if one.owner is None else f" (of task {one.owner})"
    branch = tree.add(Text(f"conversation {one.id}{fork}{owner}", "cyan"))
    for item in one.inbox:
        content = _safe(str(item.get("content")))[:SNIPPET]
        branch.add(Text(f"queued {item.get('id')} {item.get('mode')}: {content}", "yellow"))
    _add_documents(branch, one.documents)
    for task in one.tasks:
        _add_task(branch, task)


def _add_task(tree: Tree, task: Task) -> None:
    branch = tree.add(Text.assemble(f"task {task.id} ", (_safe(task.kind), "bold"), f"  {_describe(task)}"))
    _add_documents(branch, task.documents)
    for conversation in task.conversations:
        _add_conversation(branch, conversation)
    for below in task.tasks:
        _add_task(branch, below)


def _describe(task: Task) -> str:
    parts = [task.status]
    if task.phase is not None:
        parts.append(f"phase {_safe(task.phase)}")
    if task.outcome is not None:
        parts.append(task.outcome)
    if task.waiting_on:
        parts.append(f"on {', '.join(map(str, task.waiting_on))} ({task.policy})")
    if task.until is not None:
        parts.append(f"until {_when(task.until)}")
    if task.mail:
        parts.append("for mail")
    if task.queued:
        parts.append(f"{task.queued} queued")
    parts += ["background"] * task.background + ["abort requested"] * task.abort_requested
    return ", ".join(parts)


def _add_documents(tree: Tree, documents: list[Document]) -> None:
    if documents:
        names = (f"{one.kind}{'' if one.key is None else f'[{one.key}]'} {_bytes(one.bytes)}" for one in documents)
        tree.add(Text(_safe(f"documents: {', '.join(names)}"), "dim"))


# --- words


def _when(ms: int) -> str:
    if ms == 0:
        return "now"
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return str(ms)


def _bytes(count: int) -> str:
    size, units = float(count), ["B", "KB", "MB", "GB"]
    while size >= 1_000 and len(units) > 1:
        size /= 1_000
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def _safe(text: Any) -> str:
    """Show what could steer a terminal as an escape."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(text))
