"""What is shown while the shift goes on: a live display on a terminal, lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .daemon import Chat, Json, Snapshot
from .ledger import Ledger, Ticket

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree

PROGRESS_S = 3.0


def open_screen(*, plain: bool) -> "Screen":
    """A live display, or lines if those are asked for, or if standard output is no terminal."""
    return PlainScreen() if plain or not sys.stdout.isatty() else LiveScreen()


class Screen:
    """What every display knows: the time, the work, the tickets so far."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ledger: Ledger | None = None
        self.total = 0
        self.tickets: list[Ticket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""

    def begin(self, ledger: Ledger, total: int) -> None:
        """From here on there is work to show, of which an undisturbed shift has ``total`` entries."""
        self._ledger, self.total = ledger, total

    def say(self, event: str) -> None:
        """Show that something has happened."""
        raise NotImplementedError

    def show(self, snapshot: Snapshot | None) -> None:
        """Show what goes on; None: the daemon is dead."""
        raise NotImplementedError

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def new_tickets(self) -> list[Ticket]:
        """Look into the ledger; give what was not there before."""
        known = len(self.tickets)
        self.tickets = self._ledger.tickets() if self._ledger else []
        return self.tickets[known:]


class PlainScreen(Screen):
    """A line for everything that happens, and now and then one for what goes on."""

    _reported = 0.0

    def say(self, event: str) -> None:
        """Print a line."""
        print(_line(self.elapsed, event), flush=True)

    def show(self, snapshot: Snapshot | None) -> None:
        """Print new tickets, and how far the work is."""
        for ticket in self.new_tickets():
            self.say(f"ticket  {ticket}")
        if snapshot and self.total and self.elapsed - self._reported > PROGRESS_S:
            self._reported = self.elapsed
            self.say(f"{snapshot.entries} entries; {'; '.join(f'{c.id}: {doing(c)}' for c in snapshot.chats)}")


def doing(chat: Chat, width: int = 30) -> str:
    """What a conversation waits for, or the end of what is being said in it."""
    return ", ".join(chat.doing) or chat.saying.replace("\n", " ")[-width:] or "-"


def _line(at: float, event: str) -> str:
    return f"{at:6.1f} s  {event}"


class LiveScreen(Screen):
    """The supervision tree, the conversations, the tickets and the events, as they are now."""

    def __init__(self) -> None:
        from rich.live import Live

        super().__init__()
        self._live = Live(screen=True, auto_refresh=False)
        self._snapshot: Snapshot | None = None
        self._events: list[str] = []

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back, with the events on it."""
        self._live.stop()
        print("\n".join(self._events))

    def say(self, event: str) -> None:
        """Add to the events."""
        self._events.append(_line(self.elapsed, event))
        self._draw()

    def show(self, snapshot: Snapshot | None) -> None:
        """Draw the system anew."""
        self._snapshot = snapshot
        self.new_tickets()
        self._draw()

    def _draw(self) -> None:
        self._live.update(self.page(), refresh=True)

    def page(self) -> "RenderableType":
        """The whole display."""
        from rich.layout import Layout
        from rich.panel import Panel
        from rich.text import Text

        done = f"{self._snapshot.entries if self._snapshot else '?'} of about {self.total} entries"
        page = Layout()
        page.split_column(Layout(name="work"), Layout(name="log", size=12))
        page["work"].split_row(Layout(name="actors", ratio=2), Layout(name="chats", ratio=3))
        page["log"].split_row(Layout(name="events"), Layout(name="tickets"))
        page["actors"].update(Panel(self._actors(), title="supervision tree"))
        page["chats"].update(Panel(self._chats(), title="conversations", subtitle=done))
        page["events"].update(Panel(Text("\n".join(self._events[-10:]), no_wrap=True), title="events"))
        filed = "\n".join(map(str, self.tickets[-10:]))
        page["tickets"].update(Panel(Text(filed, no_wrap=True), title=f"{len(self.tickets)} tickets"))
        return page

    def _actors(self) -> "RenderableType":
        from rich.tree import Tree

        if self._snapshot is None:
            return "[bold red]no process[/]"
        tree = Tree("system", guide_style="dim")
        tasks = dict(self._snapshot.tasks)
        for actor in self._snapshot.actors:
            _branch(tree, actor, tasks)
        for task, name in tasks.items():
            tree.add(f"[dim]{task}  {name}: no actor[/]")
        return tree

    def _chats(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, expand=True, padding=(0, 1, 1, 0))
        table.add_column("", justify="right")
        table.add_column("asked", ratio=2)
        table.add_column("entries", justify="right")
        table.add_column("does", ratio=3)
        for chat in self._snapshot.chats if self._snapshot else ():
            table.add_row(str(chat.id), Text(chat.title), str(chat.entries), Text(doing(chat, 160)))
        return table


def _branch(tree: "Tree", actor: Json, tasks: dict[str, str]) -> None:
    """Add an actor and those below it, with their tasks, which are taken out of ``tasks``."""
    task = f"  [cyan]{tasks.pop(actor['id'])}[/]" if actor["id"] in tasks else ""
    again = f"  [red]restarted {actor['restarts']} times[/]" if actor["restarts"] else ""
    branch = tree.add(f"{actor['id']}{task}{again}")
    for child in actor["children"]:
        _branch(branch, child, tasks)
