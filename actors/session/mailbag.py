"""The live messages of one session, as of everything admitted. Proved by tests/actors/session/test_mail.py."""

from collections.abc import Iterable

from ...storage.records import MessageRecord


class Mailbag:
    """What is queued for each task, and what is on its way to each other session."""

    def __init__(self) -> None:
        self.outgoing: dict[str | None, dict[int, MessageRecord]] = {}
        """By receiving session (None: this one, whose inbox was full) and id."""
        self.receipts: set[int] = set()
        """Tasks for which this incarnation has kept receipts of consumed messages."""
        self.old_receipts: bool | None = None
        """Whether there are others, of earlier incarnations; None: nobody has looked yet."""
        self._live: dict[int, MessageRecord] = {}
        self._inboxes: dict[int, dict[int, MessageRecord]] = {}

    @property
    def has_backlog(self) -> bool:
        """Whether messages of the session to itself wait for room in an inbox."""
        return None in self.outgoing

    def get(self, id: int) -> MessageRecord | None:
        """Give a live message."""
        return self._live.get(id)

    def inbox(self, task: int) -> list[MessageRecord]:
        """List what is queued for a task, by id."""
        inbox = self._inboxes.get(task, {})
        return [inbox[number] for number in sorted(inbox)]

    def change(self, records: Iterable[MessageRecord], deleted: Iterable[int]) -> None:
        """Take in what a commit has done."""
        for record in records:
            self._drop(record.id)
            if record.live:
                self._live[record.id] = record
                self._place(record)[record.id] = record
        for number in deleted:
            self._drop(number)

    def _place(self, record: MessageRecord) -> dict[int, MessageRecord]:
        if record.status == "queued":
            return self._inboxes.setdefault(record.task_id, {})
        return self.outgoing.setdefault(record.session, {})

    def _drop(self, id: int) -> None:
        record = self._live.pop(id, None)
        if record is None:
            return
        place = self._place(record)
        del place[id]
        if not place and record.status == "queued":
            del self._inboxes[record.task_id]
        elif not place:
            del self.outgoing[record.session]
