"""The ownership tree of one session's live work.

Tasks and conversations form one tree: a task hangs below its owner task or else below its conversation, a conversation
below the task that owns it or else at the top. Only what is live, or has something live below it, is listed, so the
tree's size follows live work, never the past. Ended ancestors stay listed while something below them lives.

All walks are loops: a chain may be far deeper than Python's recursion limit. Changes can be undone up to the last
``checkpoint``, because they are made while a commit may still be refused.
Proved by tests/supervisors/test_ownership.py.
"""

from collections.abc import Callable, Iterator

_Change = tuple[str, int, int | None, bool | None]
"""What was done to a node, its parent and whether it was background: plain values, so thousands cost no collector."""


class Ownership:
    """Who lives below whom. Node ids are session ids: tasks and conversations never share one."""

    def __init__(self) -> None:
        self._parent: dict[int, int | None] = {}
        self._background: dict[int, bool] = {}
        self._below: dict[int, dict[int, None]] = {}
        self._roots: dict[int, None] = {}
        self._live: set[int] = set()
        self._fresh: list[int] = []
        self._undo: list[_Change] = []

    # --- what is known

    def __contains__(self, node: int) -> bool:
        return node in self._parent

    def __len__(self) -> int:
        return len(self._parent)

    def is_live(self, task: int) -> bool:
        """Whether the task is live."""
        return task in self._live

    def is_task(self, node: int) -> bool:
        """Whether the node is a task; otherwise it is a conversation."""
        return node in self._background

    def is_background(self, node: int) -> bool:
        """Whether the node is a background task: a boundary for ordinary traversal."""
        return self._background.get(node, False)

    def roots(self) -> list[int]:
        """Conversations without an owner that have live work below."""
        return list(self._roots)

    def children(self, node: int) -> list[int]:
        """The listed nodes directly below."""
        return list(self._below.get(node, ()))

    # --- changes

    def add_conversation(self, conversation: int, owner: int | None) -> None:
        """Make a conversation's place known; its owner must be known already."""
        self._add(conversation, owner)

    def add_task(self, task: int, parent: int, *, background: bool, live: bool) -> None:
        """Make a task's place known below its owner task or its conversation, which must be known already."""
        self._add(task, parent)
        self._background.setdefault(task, background)
        if live:
            self._live.add(task)
            self._undo.append(("live", task, None, None))
            self._relist(task)

    def end(self, task: int) -> None:
        """Take a task out of live work. It stays listed while something below it lives."""
        if task in self._live:
            self._live.discard(task)
            self._undo.append(("ended", task, None, None))
            self._relist(task)

    def checkpoint(self) -> None:
        """Keep all changes so far: they can no longer be undone. What was made known in vain is forgotten."""
        for node in reversed(self._fresh):
            if node in self._parent and not self._listed(node):
                self._forget(node)
        self._fresh.clear()
        self._undo.clear()

    def rollback(self) -> None:
        """Undo all changes since the last checkpoint."""
        while self._undo:
            self._take_back(*self._undo.pop())
        self._fresh.clear()

    def _take_back(self, what: str, node: int, parent: int | None, background: bool | None) -> None:
        if what == "live":
            self._live.discard(node)
        elif what == "ended":
            self._live.add(node)
        elif what == "listed":
            self._flip(parent, node)
        elif what == "known":
            self._parent.pop(node, None)
            self._background.pop(node, None)
        else:
            self._parent[node] = parent
            if background is not None:
                self._background[node] = background

    # --- walks

    def ancestors(self, node: int) -> Iterator[int]:
        """All nodes above, nearest first."""
        parent = self._parent.get(node)
        while parent is not None:
            yield parent
            parent = self._parent.get(parent)

    def holder(self, node: int) -> int | None:
        """Find the nearest live task above whose finish this node's work holds open; background tasks hold nothing."""
        while not self.is_background(node):
            parent = self._parent.get(node)
            if parent is None or parent in self._live:
                return parent
            node = parent
        return None

    def is_work_of(self, node: int, top: int) -> bool:
        """Whether a node is part of the ordinary work below another."""
        above: int | None = node
        while above is not None and not self.is_background(above):
            above = self._parent.get(above)
            if above == top:
                return True
        return False

    def has_work(self, node: int) -> bool:
        """Whether a live foreground task is below, not looking past background tasks. Costs the path to the first."""
        return next(self.holds(node), None) is not None

    def holds(self, node: int) -> Iterator[int]:
        """Find the nearest live foreground tasks below, in any order: those that hold the node's finish open themselves."""
        stack = [iter(self._below.get(node, ()))]
        while stack:
            below = next(stack[-1], None)
            if below is None:
                stack.pop()
            elif self.is_background(below):
                continue
            elif below in self._live:
                yield below
            else:
                stack.append(iter(self._below.get(below, ())))

    def work(self, node: int) -> Iterator[int]:
        """All live foreground tasks below, not looking past background tasks."""
        for below in self.walk(node, lambda task: not self.is_background(task)):
            if below in self._live:
                yield below

    def walk(self, node: int, enter: Callable[[int], bool]) -> Iterator[int]:
        """All listed nodes below, owners before owned, in id order; ``enter`` decides on each before it is given out."""
        stack = sorted(self._below.get(node, ()), reverse=True)
        while stack:
            node = stack.pop()
            if enter(node):
                yield node
                stack.extend(sorted(self._below.get(node, ()), reverse=True))

    # --- inside

    def _add(self, node: int, parent: int | None) -> None:
        if node not in self._parent:
            self._parent[node] = parent
            self._fresh.append(node)
            self._undo.append(("known", node, None, None))

    def _listed(self, node: int) -> bool:
        return node in self._live or node in self._below

    def _relist(self, node: int) -> None:
        """Climb for as long as a parent's list really changes: amortised O(1)."""
        climbing: int | None = node
        while climbing is not None:
            node, parent = climbing, self._parent[climbing]
            siblings = self._roots if parent is None else self._below.get(parent, ())
            listed = node in self._live or node in self._below
            if listed == (node in siblings):
                return
            self._flip(parent, node)
            self._undo.append(("listed", node, parent, None))
            if not listed:
                self._forget(node)
            climbing = parent

    def _flip(self, parent: int | None, node: int) -> None:
        siblings = self._roots if parent is None else self._below.setdefault(parent, {})
        if node in siblings:
            del siblings[node]
        else:
            siblings[node] = None
        if parent is not None and not siblings:
            del self._below[parent]

    def _forget(self, node: int) -> None:
        self._undo.append(("forgotten", node, self._parent.pop(node), self._background.pop(node, None)))
