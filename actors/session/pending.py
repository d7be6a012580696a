"""Records of admitted commits that are not durable yet: what storage would answer if it had kept up."""

from collections import deque

from ...storage.records import Batch, ConversationRecord, EntryRecord, SubmissionRecord, TaskRecord

Row = ConversationRecord | EntryRecord | TaskRecord | SubmissionRecord
ROWS = (ConversationRecord, EntryRecord, TaskRecord, SubmissionRecord)


class Pending:
    """The newest undurable version of each record, until its commit is durable."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, Row]] = {}
        self.requests: dict[tuple[int, str], SubmissionRecord] = {}
        self.writes = 0
        """How many writes are admitted and not durable."""
        self._batches: deque[Batch] = deque()

    def add(self, batch: Batch) -> None:
        """Remember a batch until it is durable."""
        self._batches.append(batch)
        self.writes += len(batch.writes)
        for write in batch.writes:
            if isinstance(write, ROWS):
                self.rows[write.id] = (batch.seq, write)
                if isinstance(write, SubmissionRecord) and write.request_id is not None:
                    self.requests[write.conversation_id, write.request_id] = write

    def forget(self, seq: int) -> None:
        """Forget everything up to a durable commit."""
        while self._batches and self._batches[0].seq <= seq:
            batch = self._batches.popleft()
            self.writes -= len(batch.writes)
            for write in batch.writes:
                if isinstance(write, ROWS) and self.rows[write.id][0] == batch.seq:
                    self._drop(write)

    def _drop(self, row: Row) -> None:
        del self.rows[row.id]
        if isinstance(row, SubmissionRecord) and row.request_id is not None:
            self.requests.pop((row.conversation_id, row.request_id), None)
