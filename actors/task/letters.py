"""Durable messages as their receivers see them. Proved by tests/actors/task/test_letters.py."""

from typing import Any

import msgspec

from ...storage.records import Json, MessageRecord
from ..session.environment import Services
from .definition import decode
from .ref import TaskRef


class Letter(msgspec.Struct, frozen=True):
    """A message as a task receives it.

    ``id`` is the message's, in the receiving session. ``sender`` is the task that sent it, to answer to; None when it was
    sent outside of any task. ``session`` is the sending session's key; None for a message from outside of all sessions.
    """

    id: int
    body: Json
    sender: TaskRef[Any] | None = None
    session: str | None = None

    def decode(self, kind: Any) -> Any:
        """Give the body as a declared type. Raises msgspec.ValidationError."""
        return decode(self.body, kind)


def letter_of(services: Services, session: str, record: MessageRecord) -> Letter:
    """Make what a task of a session gets of a message."""
    if record.sender is None:
        return Letter(record.id, record.body)
    origin = record.sender.session or session
    task = record.sender.task_id
    return Letter(record.id, record.body, None if task is None else TaskRef(services, origin, task), origin)
