from pathlib import Path

from perdure.storage.conformance import StorageConformance
from perdure.storage.contract import Storage
from perdure.storage.faulty import FaultyStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.sqlite import SqliteStorage


class TestMemory(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return MemoryStorage()


class TestMemoryReopened(TestMemory):
    reopen_after_commit = True


class TestSqlite(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return SqliteStorage(folder / "store.db", durability="process")


class TestSqliteReopened(TestSqlite):
    reopen_after_commit = True


class TestSqlitePower(StorageConformance):
    async def make_storage(self, folder: Path) -> Storage:
        return SqliteStorage(str(folder / "store.db"))


class TestFaultless(StorageConformance):
    """A faulty storage without faults is a storage."""

    def make_storage(self, folder: Path) -> Storage:
        return FaultyStorage(MemoryStorage())
