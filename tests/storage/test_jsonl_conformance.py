from pathlib import Path

from perdure.storage.conformance import StorageConformance
from perdure.storage.contract import Storage
from perdure.storage.jsonl import JsonlStorage


class TestJsonl(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return JsonlStorage(folder / "store")


class TestJsonlReopened(TestJsonl):
    reopen_after_commit = True


class TestJsonlFsync(StorageConformance):
    def make_storage(self, folder: Path) -> Storage:
        return JsonlStorage(folder, fsync=True)
