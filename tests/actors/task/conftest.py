import pytest
from perdure import MemoryStorage, SqliteStorage


class Place:
    """Where a store lives: every ``store()`` opens the same data, as a restarted process would."""

    def __init__(self, path):
        self._path = path
        self._memory = MemoryStorage()

    def store(self):
        return self._memory if self._path is None else SqliteStorage(self._path, durability="process")


@pytest.fixture(params=["memory", "sqlite"])
def place(request, tmp_path):
    return Place(None if request.param == "memory" else tmp_path / "store.db")
