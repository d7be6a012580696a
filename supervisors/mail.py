"""What becomes of messages that arrive in a session: pure decisions. Proved by tests/supervisors/test_mail.py.

Messages of one session to another carry ids of their sender's session, which ascend. They are handed over in that order,
from the oldest that its sender's outbox still holds, as often as a crash makes it necessary; the receiver remembers the
highest id that it has dealt with. So one number makes of "at least once, in order" once, in order.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ..storage.records import Completing, MessageRecord, TaskRecord, Terminal

Fate = str | int
"""What awaits messages to a task: why nobody will receive them, or how many more may be queued for it."""


class Arrivals(msgspec.Struct, frozen=True):
    """What a session makes of messages that were handed to it."""

    queued: list[MessageRecord]
    dead: list[tuple[MessageRecord, str]]
    """Those that nobody will receive, with the reason."""
    handled: int
    """How many of the messages, from the first on, the sender need not keep any longer."""
    mark: int
    """The highest id that has been dealt with."""


def refusal(record: TaskRecord | None) -> str | None:
    """Say why a task will not receive what is sent to it from now on, if so."""
    if record is None:
        return "unknown_task"
    return "ended" if isinstance(record.state, Completing | Terminal) else None


def arrive(messages: Iterable[MessageRecord], mark: int, fates: Mapping[int, Fate]) -> Arrivals:
    """Decide about messages in the order of their ids, given the mark of before and the fates of their tasks.

    A message for whose task there is no room stops everything behind it, whoever that is for: order is by session.
    """
    room = {task: fate for task, fate in fates.items() if isinstance(fate, int)}
    queued: list[MessageRecord] = []
    dead: list[tuple[MessageRecord, str]] = []
    handled = 0
    for message in messages:
        fate = fates[message.task_id]
        if message.id > mark:
            if isinstance(fate, str):
                dead.append((message, fate))
            elif room[message.task_id] <= 0:
                break
            else:
                room[message.task_id] -= 1
                queued.append(message)
            mark = message.id
        handled += 1
    return Arrivals(queued, dead, handled, mark)
