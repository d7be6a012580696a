"""Where a run's store is, and what of it a crash leaves to the next life.

Memory stands for a store that is elsewhere: what was written stays. A directory is copied as it is at the moment of the
crash, without anything that an orderly close would add. Proved by tests/actors/chaos/test_backends.py.
"""

import shutil
from pathlib import Path
from typing import Literal, Protocol

from ...storage.contract import Storage
from ...storage.jsonl import JsonlStorage
from ...storage.memory import MemoryStorage
from ...storage.sqlite import SqliteStorage
from ..runtime import Clock

BackendName = Literal["memory", "sqlite", "jsonl"]
QUIET_S = 0.001
"""Real seconds without news from a storage thread before a virtual clock jumps."""


class Backend(Protocol):
    """One run's place for its store."""

    quiet_s: float

    def store(self, clock: Clock) -> Storage:
        """Make the storage of the next life, over what the last one has left."""

    def crash(self) -> None:
        """Keep what a crash at this moment leaves. No write is under way."""


class Memory:
    """A store outside of the process that crashes."""

    quiet_s = 0.0

    def __init__(self) -> None:
        self._storage: MemoryStorage | None = None

    def store(self, clock: Clock) -> Storage:
        """Give the one storage that there is."""
        self._storage = self._storage or MemoryStorage(clock=clock.now)
        return self._storage

    def crash(self) -> None:
        """Nothing that was written is lost."""


class Files:
    """A store in files below ``directory``, in another place after every crash."""

    quiet_s = QUIET_S

    def __init__(self, name: Literal["sqlite", "jsonl"], directory: Path) -> None:
        self._name = name
        self._directory = directory
        self._lives = 1
        self._here.mkdir(parents=True)

    @property
    def _here(self) -> Path:
        return self._directory / f"life-{self._lives}"

    def store(self, clock: Clock) -> Storage:
        """Make a storage over the files that are there."""
        if self._name == "jsonl":
            return JsonlStorage(self._here / "store", clock=clock.now)
        return SqliteStorage(self._here / "store.db", durability="process", clock=clock.now)

    def crash(self) -> None:
        """Copy the files as they are."""
        before = self._here
        self._lives += 1
        shutil.copytree(before, self._here)


def make_backend(name: BackendName, directory: Path) -> Backend:
    """Make a place for one run, in a directory that is empty."""
    return Memory() if name == "memory" else Files(name, directory)
