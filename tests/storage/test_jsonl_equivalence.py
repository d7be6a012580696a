"""JSONL does what memory does, for any sequence of groups of batches, good and bad, and again from its files."""

from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import rule
from perdure.storage.jsonl import JsonlStorage

from . import test_equivalence
from .jsonl_support import snapshot


class JsonlEquivalence(test_equivalence.Equivalence):
    def make_storage(self, folder: Path) -> JsonlStorage:
        return JsonlStorage(folder / "store", clock=lambda: 7)

    @rule()
    def the_files_hold_what_memory_holds(self) -> None:
        self.reopen()
        assert snapshot(self.tested) == snapshot(self.memory)


TestJsonlEquivalence = JsonlEquivalence.TestCase
TestJsonlEquivalence.settings = settings(test_equivalence.TestEquivalence.settings, max_examples=50)
