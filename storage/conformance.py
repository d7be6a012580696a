"""The storage contract as a test class, for every backend: perdure's own, and yours.

Subclass it in a test module and say how to make an empty store:

    class TestMyStorage(StorageConformance):
        def make_storage(self, folder):
            return MyStorage(folder / "store")

    class TestMyStorageReopened(TestMyStorage):
        reopen_after_commit = True

The tests are plain methods that run their own event loop: any runner that collects pytest classes will do, and pytest
itself is not imported. Docstrings name the behaviour that a test holds; a failure of an assertion is a broken promise.
"""

from .conformance_batches import BatchConformance
from .conformance_copies import CopyConformance
from .conformance_deletions import DeletionConformance
from .conformance_documents import DocumentConformance
from .conformance_messages import MessageConformance
from .conformance_scans import ScanConformance
from .conformance_sessions import SessionConformance


class StorageConformance(
    BatchConformance,
    ScanConformance,
    MessageConformance,
    DocumentConformance,
    CopyConformance,
    SessionConformance,
    DeletionConformance,
):
    """All of the storage contract that every backend shares.

    Override ``make_storage``. Set ``reopen_after_commit`` to close and open the store after each commit, which shows
    that nothing lives in memory only.
    """
