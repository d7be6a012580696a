"""What can go wrong with a store, told apart by what the caller may still believe.

*Certain*: ``StorageRejected``, ``StorageInUse``, ``StorageClosed``, ``SchemaTooNew``: nothing was written.
*Uncertain*: every other ``StorageError`` raised by ``Storage.write``: the batch may be there after a reopen, or not;
the store must be closed and opened again before anything else is believed.
"""

from ..chord.errors import PerdureError


class StorageError(PerdureError):
    """Base of all storage errors. From ``Storage.write`` it means that the outcome is unknown."""


class StorageRejected(StorageError):
    """A batch was refused before anything durable happened; none of the group was written.

    ``index`` is the position of the offending batch in its group, or None when it is not known which one.
    """

    def __init__(self, message: str, *, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class StorageClosed(StorageError):
    """The store is not open. Nothing was written or read."""


class StorageInUse(StorageError):
    """Another owner holds the store. Nothing was opened.

    ``pid`` and ``host`` name the owner as it described itself; ``pid`` is 0 when it left no description.
    """

    def __init__(self, path: str, *, pid: int, host: str) -> None:
        super().__init__(f"{path} is in use by process {pid} on {host}; close that owner or open another file")
        self.path = path
        self.pid = pid
        self.host = host


class StorageFenced(StorageError):
    """A newer owner took the store over. Nothing was written, and this owner can never write again."""


class StorageFull(StorageError):
    """The disk or the file's page limit is full. The outcome of the group is unknown; free space and reopen."""


class StorageBusy(StorageError):
    """Another connection held the file's lock for longer than the busy timeout. The outcome is unknown."""


class StorageCorrupt(StorageError):
    """What is stored contradicts itself. Nothing was changed."""


class SchemaTooNew(StorageError):
    """The file was written by a newer perdure. Nothing was changed.

    ``found`` and ``supported`` are schema versions.
    """

    def __init__(self, path: str, *, found: int, supported: int) -> None:
        super().__init__(f"{path} has schema {found}; this perdure reads up to {supported}: upgrade perdure")
        self.found = found
        self.supported = supported
