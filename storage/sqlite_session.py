"""A session while batches of it are collected for one SQL transaction."""

from typing import Any

import msgspec

from .checks import check_reference, reject
from .records import Batch, DocumentRecord, Write

Row = tuple[Any, ...]


class NewDocument(msgspec.Struct):
    """An incarnation that is not in the tables yet, with the revisions that will be."""

    record: DocumentRecord
    revisions: list[Row]
    version: int


class SessionGroup:
    """A session's counters as the tables have them, and what has been decided for it but not written yet.

    It may be kept from group to group, but is of no use any more when a transaction that it took part in is rolled back.
    """

    __slots__ = (
        "claimed",
        "documents",
        "final",
        "last_id",
        "live",
        "prefix",
        "seq",
        "sid",
        "stored_last_id",
        "stored_wake",
        "types",
        "wake",
    )

    def __init__(self, sid: int, seq: int, last_id: int, wake: int | None) -> None:
        self.sid = sid
        self.prefix = sid << 32
        self.seq = seq
        self.last_id = self.stored_last_id = last_id
        self.wake = self.stored_wake = wake
        self.types: dict[int, type[Write]] = {}
        self.claimed: list[int] = []
        """Keys to be created for ids that another record may hold already."""
        self.final: set[int] = set()
        """Tasks that ended and documents that retired."""
        self.documents: dict[int, NewDocument] = {}
        self.live: set[int] = set()
        """Live tasks that the tables hold, as far as this owner has written them."""

    def advance(self, batch: Batch) -> None:
        """Take over a batch's counters."""
        self.seq, self.last_id, self.wake = batch.seq, batch.last_id, batch.wake

    def written(self) -> None:
        """Begin anew: the tables hold everything decided so far."""
        self.stored_last_id, self.stored_wake = self.last_id, self.wake
        self.types.clear()
        self.claimed.clear()
        self.final.clear()
        self.documents.clear()

    def rid(self, id: int) -> int:
        """Give the key of a record that another one refers to."""
        check_reference(id)
        return self.prefix | id

    def own(self, id: int, kind: type[Write]) -> bool:
        """Note the record type that an id belongs to; tell whether the tables cannot hold it yet."""
        if self.types.setdefault(id, kind) is not kind:
            reject(f"id {id} belongs to another record")
        if not 0 < id <= self.last_id:
            reject(f"id {id} is not between 1 and the batch's last_id {self.last_id}")
        return id > self.stored_last_id

    def create(self, id: int, kind: type[Write]) -> int:
        """Own an id for a record that is written once; give its key."""
        if id in self.types:
            reject(f"id {id} is written already and cannot change")
        rid = self.prefix | id
        if not self.own(id, kind):
            self.claimed.append(rid)
        return rid
