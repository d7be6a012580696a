"""Times by key, one each, and which of them comes first. Proved by tests/supervisors/test_deadlines.py."""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K", int, str)


class Deadlines(Generic[K]):
    """Deadlines in any unit. Setting, dropping and taking one costs O(log n), amortised; memory follows what is set."""

    def __init__(self) -> None:
        self._when: dict[K, int] = {}
        self._queue: list[tuple[int, K]] = []
        """Every deadline that is set, and some that no longer are: those are passed over when they come to the front."""

    def __len__(self) -> int:
        return len(self._when)

    def __contains__(self, key: object) -> bool:
        return key in self._when

    def set(self, key: K, when: int) -> None:
        """Give a key its deadline, in place of the one that it had."""
        self._when[key] = when
        heapq.heappush(self._queue, (when, key))
        self._sweep()

    def drop(self, key: K) -> None:
        """Take a key's deadline away, if it has one."""
        if self._when.pop(key, None) is not None:
            self._sweep()

    def _sweep(self) -> None:
        """Forget what is no longer set, once that is the most of it."""
        if len(self._queue) > 64 + 2 * len(self._when):
            self._queue = [(when, key) for key, when in self._when.items()]
            heapq.heapify(self._queue)

    def first(self) -> int | None:
        """Tell the earliest deadline."""
        while self._queue and self._when.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def take_due(self, now: int) -> list[K]:
        """Take the deadlines at or before ``now`` away and name their keys, in order of deadline and then of key."""
        due: list[K] = []
        while (when := self.first()) is not None and when <= now:
            key = heapq.heappop(self._queue)[1]
            del self._when[key]
            due.append(key)
        return due
