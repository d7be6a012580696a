"""Records of admitted commits that are not durable yet: what storage would answer if it had kept up."""

from collections import deque
from collections.abc import Sequence

from ...storage.records import ConversationRecord, EntryRecord, MessageRecord, SubmissionRecord, TaskRecord

Row = ConversationRecord | EntryRecord | TaskRecord | SubmissionRecord | MessageRecord


class Pending:
    """The newest undurable version of each record, until its commit is durable."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, Row]] = {}
        self.requests: dict[tuple[int, str], SubmissionRecord] = {}
        """Submissions by conversation and request id."""
        self.message_requests: dict[tuple[int, str], MessageRecord] = {}
        """Messages by task and request id."""
        self.writes = 0
        """How many records are admitted and not durable."""
        self._commits: deque[tuple[int, Sequence[Row]]] = deque()

    def add(self, seq: int, rows: Sequence[Row]) -> None:
        """Remember a commit's records until it is durable."""
        self._commits.append((seq, rows))
        self.writes += len(rows)
        for row in rows:
            self.rows[row.id] = (seq, row)
            if type(row) is SubmissionRecord and row.request_id is not None:
                self.requests[row.conversation_id, row.request_id] = row
            elif type(row) is MessageRecord and row.request_id is not None:
                self.message_requests[row.task_id, row.request_id] = row

    def forget(self, seq: int) -> None:
        """Forget everything up to a durable commit."""
        while self._commits and self._commits[0][0] <= seq:
            at, rows = self._commits.popleft()
            self.writes -= len(rows)
            for row in rows:
                if self.rows[row.id][0] == at:
                    self._drop(row)

    def _drop(self, row: Row) -> None:
        del self.rows[row.id]
        if type(row) is SubmissionRecord and row.request_id is not None:
            self.requests.pop((row.conversation_id, row.request_id), None)
        elif type(row) is MessageRecord and row.request_id is not None:
            self.message_requests.pop((row.task_id, row.request_id), None)
